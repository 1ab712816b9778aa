//! Bodies of the API's answers, where they differ from the services' own types: moments are
//! ISO 8601 texts here, milliseconds inside the platform.

use contract::{
    ExecutionId, Fault, Json, Millis,
    report::StepError,
    run::{
        HistoryEvent, NodeStatus, RunDetail, RunError, RunHistory, RunList, RunStatus, RunSummary, StepDetail,
    },
    secret::SecretInfo,
};
use indexmap::IndexMap;
use serde::Serialize;
use storage::processes::{ProcessRow, StoredProcess};
use time::OffsetDateTime;
use utoipa::ToSchema;

/// A moment as ISO 8601 in UTC with milliseconds: `2026-11-30T14:44:16.123Z`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(transparent)]
pub(crate) struct Moment(String);

impl From<Millis> for Moment {
    fn from(millis: Millis) -> Self {
        let Ok(moment) = OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis.0) * 1_000_000) else {
            // Beyond the year 9999 there is no such text; the number is better than nothing.
            return Self(millis.0.to_string());
        };
        let (year, month, day) = (moment.year(), u8::from(moment.month()), moment.day());
        let (hour, minute, second, milli) = moment.to_hms_milli();
        Self(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z"))
    }
}

/// A process in a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessHead {
    #[schema(value_type = String, format = "uuid")]
    id: contract::ProcessId,
    name: String,
    /// Grows with every change.
    revision: i64,
    created_at: Moment,
    updated_at: Moment,
}

impl From<ProcessRow> for ProcessHead {
    fn from(row: ProcessRow) -> Self {
        Self {
            id: row.process_id,
            name: row.name,
            revision: row.revision,
            created_at: row.created_at.into(),
            updated_at: row.updated_at.into(),
        }
    }
}

/// A page of processes.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessPage {
    pub(crate) processes: Vec<ProcessHead>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// A process with its document: order, numbers and text as they were saved.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessFull {
    #[schema(value_type = String, format = "uuid")]
    id: contract::ProcessId,
    name: String,
    revision: i64,
    created_at: Moment,
    updated_at: Moment,
    /// `{settings, widgets, edges}`.
    #[schema(value_type = Object)]
    document: Json,
}

impl From<StoredProcess> for ProcessFull {
    fn from(stored: StoredProcess) -> Self {
        let row = stored.process;
        Self {
            id: row.process_id,
            name: row.name,
            revision: row.revision,
            created_at: row.created_at.into(),
            updated_at: row.updated_at.into(),
            document: stored.document,
        }
    }
}

/// A process that was stored.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessSaved {
    #[schema(value_type = String, format = "uuid")]
    pub(crate) id: contract::ProcessId,
    pub(crate) revision: i64,
    /// `{path, code, message}` each: what must be done before it can run.
    #[schema(value_type = Vec<Object>)]
    pub(crate) warnings: Vec<Fault>,
}

/// A process that was imported.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProcessImported {
    #[schema(value_type = String, format = "uuid")]
    pub(crate) id: contract::ProcessId,
    pub(crate) name: String,
}

/// What an import made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Imported {
    pub(crate) processes: Vec<ProcessImported>,
    /// `{path, code, message}` each, with paths in the imported document.
    #[schema(value_type = Vec<Object>)]
    pub(crate) warnings: Vec<Fault>,
}

/// A run that was started.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Started {
    #[schema(value_type = String, format = "uuid")]
    pub(crate) run_id: contract::RunId,
}

/// A run.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunHead {
    #[schema(value_type = String, format = "uuid")]
    id: contract::RunId,
    #[schema(value_type = String, format = "uuid")]
    process_id: contract::ProcessId,
    /// `running`, `finished`, `failed` or `canceled`.
    #[schema(value_type = String)]
    status: RunStatus,
    created_at: Moment,
    updated_at: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Moment>,
    /// `{nodePath?, label?, error: {code?, message}}`: why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    error: Option<RunError>,
}

impl From<RunSummary> for RunHead {
    fn from(run: RunSummary) -> Self {
        Self {
            id: run.id,
            process_id: run.process_id,
            status: run.status,
            created_at: run.created_at.into(),
            updated_at: run.updated_at.into(),
            finished_at: run.finished_at.map(Moment::from),
            error: run.error,
        }
    }
}

/// A page of runs, newest first.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunPage {
    runs: Vec<RunHead>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl From<RunList> for RunPage {
    fn from(list: RunList) -> Self {
        Self { runs: list.runs.into_iter().map(RunHead::from).collect(), next_cursor: list.next_cursor }
    }
}

/// A run with its steps.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunFull {
    pub(crate) run: RunHead,
    /// In the document's order.
    pub(crate) steps: Vec<Step>,
}

impl From<RunDetail> for RunFull {
    fn from(detail: RunDetail) -> Self {
        Self { run: detail.run.into(), steps: detail.steps.into_iter().map(Step::from).collect() }
    }
}

/// A step of a run.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Step {
    /// `w-loop[3]/b-turn`: widget `b-turn` in iteration 3 of `w-loop`.
    #[schema(value_type = String)]
    node_path: contract::NodePath,
    node_id: String,
    label: String,
    node_type: String,
    /// `waiting`, `queued`, `running`, `finished`, `failed`, `skipped` or `canceled`.
    #[schema(value_type = String)]
    status: NodeStatus,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    execution_id: Option<ExecutionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Moment>,
    /// What a person is asked about, while the step waits for an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    inputs: Option<IndexMap<String, Json>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    outputs: Option<IndexMap<String, Json>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    error: Option<StepError>,
    /// What a waiting step waits for, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<String>,
    /// How far a running step is, from 0 to 1, as it last said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    progress: Option<Json>,
    /// What a running step last said to people.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl From<StepDetail> for Step {
    fn from(step: StepDetail) -> Self {
        let (progress, message) = step.word.map(|word| (word.progress, word.message)).unzip();
        Self {
            node_path: step.node_path,
            node_id: step.node_id,
            label: step.label,
            node_type: step.node_type,
            status: step.status,
            attempts: step.attempts,
            execution_id: step.execution_id,
            started_at: step.started_at.map(Moment::from),
            finished_at: step.finished_at.map(Moment::from),
            inputs: step.inputs,
            outputs: step.outputs,
            error: step.error,
            waits_for: step.waits_for,
            progress: progress.flatten(),
            message: message.flatten(),
        }
    }
}

/// A run's result.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunResult {
    /// The inputs of `system.output`.
    #[schema(value_type = Object)]
    pub(crate) public_inputs: IndexMap<String, Json>,
}

/// Events of a run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct History {
    pub(crate) events: Vec<HistoryItem>,
    /// The run's last sequence number.
    pub(crate) last: u64,
}

impl From<RunHistory> for History {
    fn from(history: RunHistory) -> Self {
        Self { events: history.events.into_iter().map(HistoryItem::from).collect(), last: history.last }
    }
}

/// An event of a run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HistoryItem {
    /// From 1 without gaps.
    pub(crate) sequence: u64,
    at: Moment,
    pub(crate) kind: String,
    #[schema(value_type = Object)]
    event: Json,
}

impl From<HistoryEvent> for HistoryItem {
    fn from(event: HistoryEvent) -> Self {
        Self { sequence: event.sequence, at: event.at.into(), kind: event.kind, event: event.event }
    }
}

/// A secret, without its value.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SecretHead {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    updated_at: Moment,
}

impl From<SecretInfo> for SecretHead {
    fn from(secret: SecretInfo) -> Self {
        Self { name: secret.name, kind: secret.kind, updated_at: secret.updated_at.into() }
    }
}

/// The workspace's secrets, sorted by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SecretPage {
    pub(crate) secrets: Vec<SecretHead>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_iso_8601_with_milliseconds() {
        assert_eq!(Moment::from(Millis(0)).0, "1970-01-01T00:00:00.000Z");
        assert_eq!(Moment::from(Millis(1_796_049_856_123)).0, "2026-11-30T14:44:16.123Z");
        assert_eq!(Moment::from(Millis(i64::MAX)).0, i64::MAX.to_string());
    }
}
