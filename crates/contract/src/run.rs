//! Runs on the wire: engine RPC between api, control plane and engine (protocol sections 5, 7, 8).

use crate::{ErrorCode, ExecutionId, Json, Millis, NodePath, ProcessId, RpcError, RunId, report::StepError};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::fmt::Display;

/// There is no such run, or there is none any more: what every door says to that.
pub fn not_found(run_id: impl Display) -> RpcError {
    let message = format!(
        "there is no run {run_id}; runs that have ended are kept for a limited time \
         (RUNTIME_ENGINE_RETENTION_HOURS, RUNTIME_ENGINE_RETENTION_MAX_RUNS)"
    );
    RpcError::new(ErrorCode::RunNotFound, message)
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// Something runs, waits or can still start.
    Running,
    /// Nothing runs or can start, and no node failed the run.
    Finished,
    /// A node failed the run.
    Failed,
    /// A person or the api canceled it.
    Canceled,
}

impl RunStatus {
    /// The name on the wire and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }

    /// Has the run ended?
    pub fn is_terminal(self) -> bool {
        self != Self::Running
    }
}

impl std::str::FromStr for RunStatus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Running, Self::Finished, Self::Failed, Self::Canceled]
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no run status"))
    }
}

/// How a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeStatus {
    /// Its ports are not settled yet.
    Waiting,
    /// Its task is on a lane, nobody has acknowledged it.
    Queued,
    /// Somebody works on it, or it waits for a person or a time.
    Running,
    /// It produced its outputs.
    Finished,
    /// It failed.
    Failed,
    /// A connected port is dead.
    Skipped,
    /// The run ended first.
    Canceled,
}

/// `runtime.run_start`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStart {
    /// What is run.
    pub process_id: ProcessId,
    /// The workspace of the run.
    pub workspace_id: String,
    /// The user of the run.
    pub user_id: String,
    /// How it was started.
    pub trigger: TriggerKind,
    /// Values by trigger field; absent means `{}`.
    #[serde(default)]
    pub payload: IndexMap<String, Json>,
    /// A second start of the process with the same key answers with the first run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// W3C trace context of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// What tracing systems add to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

/// How a run was started: `trigger.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TriggerKind {
    /// By HTTP.
    Webhook,
    /// By a person or the CLI.
    Manual,
    /// By the clock.
    Schedule,
}

/// Answer to `runtime.run_start`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStarted {
    /// The run.
    pub run_id: RunId,
    /// False when the idempotency key named a run that existed.
    pub created: bool,
}

/// `runtime.run_cancel`, `runtime.run_get`: names one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRef {
    /// The run.
    pub run_id: RunId,
    /// When given, a run of another process is `run_not_found`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<ProcessId>,
}

/// `runtime.run_retry`: a new run of what a failed or canceled one ran, which keeps the outputs of
/// its finished steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRetry {
    /// The run that ended.
    pub run_id: RunId,
    /// When given, a run of another process is `run_not_found`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<ProcessId>,
    /// The user of the new run.
    pub user_id: String,
    /// A second start of the process with the same key answers with the first run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// A row of the run list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunSummary {
    /// The run.
    pub id: RunId,
    /// The process.
    pub process_id: ProcessId,
    /// How it stands.
    pub status: RunStatus,
    /// When it was started.
    pub created_at: Millis,
    /// When it last changed.
    pub updated_at: Millis,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Millis>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunError {
    /// The node that failed it, if a node did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_path: Option<NodePath>,
    /// The node's label in the diagram.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Its error.
    pub error: StepError,
}

/// Answer to `runtime.run_get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunDetail {
    /// The run.
    pub run: RunSummary,
    /// Its nodes, in the document's order.
    pub steps: Vec<StepDetail>,
    /// Inputs of `system.output`, once the run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_inputs: Option<IndexMap<String, Json>>,
}

/// One node of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepDetail {
    /// Its place in the run.
    pub node_path: NodePath,
    /// The widget's id.
    pub node_id: String,
    /// The widget's label.
    pub label: String,
    /// Its node type.
    pub node_type: String,
    /// How it stands.
    pub status: NodeStatus,
    /// Attempts so far.
    pub attempts: u32,
    /// The newest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    /// When its newest attempt was put on a lane, or the engine evaluated it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Millis>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Millis>,
    /// What a person is asked about, while the step waits for an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<IndexMap<String, Json>>,
    /// What it produced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<IndexMap<String, Json>>,
    /// It produced more than the answer can hold together: the run's history has its outputs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outputs_omitted: bool,
    /// Why it failed, or why its newest attempt is being repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<StepError>,
    /// For a node that waits: what it waits for, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// What a running step last said of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<StepWord>,
}

/// What a running step last said of itself, with its heartbeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepWord {
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Millis>,
    /// How far it is, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Json>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// `runtime.run_list`: newest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunListRequest {
    /// Only runs of this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<ProcessId>,
    /// Only runs of this workspace.
    pub workspace_id: String,
    /// Only runs with this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<RunStatus>,
    /// `nextCursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// At most this many rows, 1 to 200.
    pub limit: u32,
}

/// Answer to `runtime.run_list`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunList {
    /// The rows.
    pub runs: Vec<RunSummary>,
    /// Where the next page begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `runtime.run_history`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunHistoryRequest {
    /// The run.
    pub run_id: RunId,
    /// When given, a run of another process is `run_not_found`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<ProcessId>,
    /// Only events after this sequence number.
    #[serde(default)]
    pub after: u64,
    /// At most this many events, 1 to 1000.
    pub limit: u32,
}

/// Answer to `runtime.run_history`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunHistory {
    /// In order of their sequence.
    pub events: Vec<HistoryEvent>,
    /// The run's last sequence number now.
    pub last: u64,
}

/// One event of a run's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEvent {
    /// Place in the run, from 1 without gaps.
    pub sequence: u64,
    /// When it was appended.
    pub at: Millis,
    /// Its kind, `snake_case`.
    pub kind: String,
    /// Its body.
    pub event: Json,
}

/// `runtime.step_confirm`: a person's answer to a waiting step.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepConfirm {
    /// The run.
    pub run_id: RunId,
    /// When given, a run of another process is `run_not_found`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<ProcessId>,
    /// The waiting step.
    pub node_path: NodePath,
    /// Yes or no.
    pub approved: bool,
    /// For the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Who answered.
    pub by: String,
}
