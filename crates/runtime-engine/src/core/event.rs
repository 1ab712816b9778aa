//! The events of a run: its history, from which its state is folded.
//!
//! A stored body is `{"v":1,"data":{...}}`; the kind stands beside it, in its own column and in
//! [`Event::kind`]. Bodies are versioned and adjacently tagged, never internally: payloads are raw
//! JSON text and must reach the reader unbuffered. What follows from the history by fixed rules (a
//! task's inputs, the values of trigger and output nodes) is not copied into it.

use super::{evaluate::Outputs, outputs::StepOutputs, scope::bytes_of};
use contract::{
    Digest, ExecutionId, Json, Millis, NodePath, ProcessId, PublicationId, RunId,
    report::{StepError, StepStatus},
    run::{RunError, TriggerKind},
};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::sync::Arc;

/// The version of event bodies that this engine writes, and the newest that it reads.
pub const VERSION: u32 = 1;

/// Why a stored event cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Not the JSON of such an event.
    #[error("the body of a {kind:?} event is malformed: {source}")]
    Malformed {
        /// The event's kind.
        kind: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// Written by a newer engine.
    #[error("a {kind:?} event has version {found}; this engine reads up to {VERSION}: upgrade it")]
    Newer {
        /// The event's kind.
        kind: String,
        /// Its version.
        found: u32,
    },
    /// A kind that this engine does not know.
    #[error("the event kind {0:?} is unknown; this engine is too old for the run: upgrade it")]
    UnknownKind(String),
}

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident($data:ty) = $kind:literal;)*) => {
        /// One event.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Event {
            $($(#[$doc])* $name($data),)*
        }

        impl Event {
            /// The kinds that this engine writes and reads.
            #[cfg(test)]
            pub(super) const KINDS: &[&str] = &[$($kind,)*];

            /// Its stable name, `snake_case`.
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$name(_) => $kind,)* }
            }

            /// Its body as it is stored.
            ///
            /// # Errors
            /// None in practice: every body is made of texts, numbers and JSON.
            pub fn body(&self) -> Result<Json, serde_json::Error> {
                let bytes = self.expected_bytes();
                match self { $(Self::$name(data) => Json::written(&Body { v: VERSION, data }, bytes),)* }
            }

            /// Reads a stored event.
            ///
            /// # Errors
            /// [`Unreadable`], naming the kind.
            pub fn read(kind: &str, body: &Json) -> Result<Self, Unreadable> {
                match kind {
                    $($kind => read_body(kind, body).map(Self::$name),)*
                    other => Err(Unreadable::UnknownKind(other.to_owned())),
                }
            }
        }
    };
}

events! {
    /// The run began.
    RunStarted(Arc<RunStarted>) = "run_started";
    /// A task was put on its lane, or will be at `notBefore`.
    StepScheduled(StepScheduled) = "step_scheduled";
    /// A control plane delivered the task, before anybody acknowledged it.
    StepDelivered(StepDelivered) = "step_delivered";
    /// Somebody acknowledged the task.
    StepAcked(StepAcked) = "step_acked";
    /// Outputs before the end.
    StepPartial(StepPartial) = "step_partial";
    /// The step produced its outputs.
    StepFinished(StepFinished) = "step_finished";
    /// The attempt, or a node that the engine evaluates, failed.
    StepFailed(StepFailed) = "step_failed";
    /// The attempt was withdrawn, because another node failed the run.
    StepCanceled(StepCanceled) = "step_canceled";
    /// The engine evaluated a node.
    StepEvaluated(StepEvaluated) = "step_evaluated";
    /// A connected port of the node is dead.
    StepSkipped(StepSkipped) = "step_skipped";
    /// A step of the run that this one repeats had finished: its outputs are kept.
    StepKept(StepKept) = "step_kept";
    /// An iteration of the run that this one repeats had finished: its outputs are kept.
    IterationKept(IterationKept) = "iteration_kept";
    /// A person answered.
    StepConfirmed(StepConfirmed) = "step_confirmed";
    /// The time that a step waited for has come.
    StepElapsed(StepElapsed) = "step_elapsed";
    /// A loop began.
    LoopStarted(LoopStarted) = "loop_started";
    /// An iteration of a loop began.
    IterationStarted(Iteration) = "iteration_started";
    /// An iteration of a loop ended well.
    IterationFinished(Iteration) = "iteration_finished";
    /// The run has a deadline.
    RunDeadlineSet(RunDeadlineSet) = "run_deadline_set";
    /// A result that came after the run had ended.
    LateResult(LateResult) = "late_result";
    /// The run finished.
    RunFinished(RunFinished) = "run_finished";
    /// A node failed the run.
    RunFailed(RunFailed) = "run_failed";
    /// The run was canceled, and with it what was outstanding.
    RunCanceled(RunCanceled) = "run_canceled";
}

impl Event {
    /// About the bytes of its body, a little more rather than less where they are many.
    fn expected_bytes(&self) -> usize {
        // Ids, the node's path, the digest, a trace.
        const AROUND: usize = 384;
        AROUND
            + match self {
                Self::StepFinished(finished) => finished.outputs.bytes(),
                Self::StepPartial(partial) => partial.outputs.bytes(),
                Self::RunStarted(started) => bytes_of(&started.payload),
                _ => 0,
            }
    }
}

#[derive(Serialize)]
struct Body<'d, T> {
    v: u32,
    data: &'d T,
}

fn read_body<T: DeserializeOwned>(kind: &str, body: &Json) -> Result<T, Unreadable> {
    #[derive(Deserialize)]
    struct Head {
        v: u32,
        data: Json,
    }
    let malformed = |source| Unreadable::Malformed { kind: kind.to_owned(), source };
    let head: Head = body.read().map_err(malformed)?;
    if head.v > VERSION {
        return Err(Unreadable::Newer { kind: kind.to_owned(), found: head.v });
    }
    head.data.read().map_err(malformed)
}

/// The run began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStarted {
    /// What is run.
    pub process_id: ProcessId,
    /// Its revision: the run never moves to another.
    pub process_revision: i64,
    /// The workspace of the run.
    pub workspace_id: String,
    /// The user of the run.
    pub user_id: String,
    /// How it was started.
    pub trigger: TriggerKind,
    /// What it was started with.
    pub payload: Outputs,
    /// By node type, the publication that the run keeps.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub pins: IndexMap<String, Pin>,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// What tracing systems add to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
    /// The run whose finished steps are kept, for a repetition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<RunId>,
}

/// The publication that a run keeps for a node type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pin {
    /// The publication.
    pub publication_id: PublicationId,
    /// The outputs that it declares: what widgets without a list of their own ask for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
}

/// A task was put on its lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepScheduled {
    /// The node.
    pub node_path: NodePath,
    /// The attempt.
    pub execution_id: ExecutionId,
    /// Its number, from 1.
    pub attempt: u32,
    /// When it may be put on the lane, for a repetition after a wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Millis>,
}

/// A control plane delivered the task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepDelivered {
    /// The node.
    pub node_path: NodePath,
    /// The attempt.
    pub execution_id: ExecutionId,
    /// Without a reply from the plugin.
    #[serde(default)]
    pub implicit: bool,
}

/// Somebody acknowledged the task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepAcked {
    /// The node.
    pub node_path: NodePath,
    /// The attempt.
    pub execution_id: ExecutionId,
    /// Who, where the reporter named itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// W3C trace context of the reporter's work, where it is another than the run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// What tracing systems add to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

/// Outputs before the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepPartial {
    /// The node.
    pub node_path: NodePath,
    /// The attempt.
    pub execution_id: ExecutionId,
    /// Its number within the attempt.
    pub sequence: u64,
    /// Values by output name. They produce nothing: only a result does.
    pub outputs: StepOutputs,
}

/// The step produced its outputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepFinished {
    /// The node.
    pub node_path: NodePath,
    /// The attempt.
    pub execution_id: ExecutionId,
    /// By which the same report is known again.
    pub digest: Digest,
    /// Values by output name, also those that no output declares.
    pub outputs: Arc<StepOutputs>,
    /// W3C trace context of the reporter's work, where it is another than the run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// What tracing systems add to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// Its result says so.
    Reported,
    /// It was running beyond its deadline.
    TimedOut,
    /// Nobody took it in time, or it could not be delivered.
    Undelivered,
    /// Policy or secrets refused it.
    Refused,
    /// The engine could not evaluate the node.
    Evaluation,
    /// A person refused.
    Rejected,
}

/// The attempt, or a node that the engine evaluates, failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepFailed {
    /// The node.
    pub node_path: NodePath,
    /// The attempt; none for a node that the engine evaluates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    /// How.
    pub failure: Failure,
    /// Why.
    pub error: StepError,
    /// Does another attempt follow? It is scheduled by the next event.
    pub will_retry: bool,
    /// Of the result, by which the same report is known again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// W3C trace context of the reporter's work, where it is another than the run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// What tracing systems add to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
    /// Does the node produce its output `error`? Where the node's `onError` is `continue`; absent in
    /// histories that are older than the rule.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub error_output: bool,
}

/// The attempt was withdrawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepCanceled {
    /// The node.
    pub node_path: NodePath,
    /// The attempt.
    pub execution_id: ExecutionId,
}

/// The engine evaluated a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepEvaluated {
    /// The node.
    pub node_path: NodePath,
    /// Values by output name; absent for trigger, output and loop nodes, whose values are copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Arc<StepOutputs>>,
}

/// A connected port of the node is dead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepSkipped {
    /// The node.
    pub node_path: NodePath,
}

/// The outputs of a step of the run that this one repeats are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepKept {
    /// The node.
    pub node_path: NodePath,
    /// Values by output name.
    pub outputs: Arc<StepOutputs>,
}

/// The outputs of a loop's iteration of the run that this one repeats are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IterationKept {
    /// The loop.
    pub node_path: NodePath,
    /// Which iteration, from 0.
    pub index: u64,
    /// Values by output name.
    pub outputs: Arc<Outputs>,
}

/// A person answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepConfirmed {
    /// The node.
    pub node_path: NodePath,
    /// The attempt that waited.
    pub execution_id: ExecutionId,
    /// Yes or no.
    pub approved: bool,
    /// What the person said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Who.
    pub by: String,
}

/// The time that a step waited for has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepElapsed {
    /// The node.
    pub node_path: NodePath,
    /// The attempt that waited.
    pub execution_id: ExecutionId,
}

/// A loop began; over what follows from its inputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoopStarted {
    /// The loop.
    pub node_path: NodePath,
    /// How many iterations there will be; absent: the body decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u64>,
}

/// An iteration of a loop. Its inputs and outputs are copies and not kept here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Iteration {
    /// The loop.
    pub node_path: NodePath,
    /// Which, from 0.
    pub index: u64,
}

/// The run fails when it still runs at this moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunDeadlineSet {
    /// What the deadline is watched by.
    pub execution_id: ExecutionId,
    /// When.
    pub at: Millis,
}

/// A result that came after the run had ended; it changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LateResult {
    /// The node.
    pub node_path: NodePath,
    /// The attempt.
    pub execution_id: ExecutionId,
    /// How the step ended.
    pub status: StepStatus,
    /// Values by output name.
    #[serde(default, skip_serializing_if = "StepOutputs::is_empty")]
    pub outputs: StepOutputs,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<StepError>,
    /// W3C trace context of the reporter's work, where it is another than the run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// What tracing systems add to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

/// The run finished.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFinished {}

/// A node failed the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFailed {
    /// Which node, and why.
    pub error: RunError,
}

/// The run was canceled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCanceled {}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
