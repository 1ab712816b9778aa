//! Tasks: what the engine puts on a lane, and what a control plane sends to a plugin
//! (protocol sections 3 and 5).

use crate::{ExecutionId, Json, Millis, NodePath, ProcessId, PublicationId, RunId};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// One attempt of one node, as it travels on a lane. The lane is only a hint: whoever takes a task
/// first learns from the truth whether it may still be dispatched.
///
/// `ref` inputs are still unresolved (`{"$secret": "name"}` or a bare name, listed in `secrets`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// The run.
    pub run_id: RunId,
    /// This attempt: the fencing token of every report.
    pub execution_id: ExecutionId,
    /// The widget's id.
    pub node_id: String,
    /// The node's place in the run.
    pub node_path: NodePath,
    /// What is to be run.
    pub node_type: String,
    /// Counts from 1.
    pub attempt: u32,
    /// Values by input name.
    pub inputs: IndexMap<String, Json>,
    /// Names of those inputs that are secret references to be resolved before delivery.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The widget's outputs.
    pub outputs: Vec<String>,
    /// Workspace of the run.
    pub workspace_id: String,
    /// User of the run.
    pub user_id: String,
    /// The process.
    pub diagram_id: ProcessId,
    /// The publication that the run is pinned to, for plugin nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publication_id: Option<PublicationId>,
    /// How long the step may take after its ack, milliseconds.
    pub timeout_ms: u64,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// What tracing systems add to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

impl Task {
    /// The task as whoever runs it is told it, with these inputs in the place of its own.
    pub fn told<Inputs>(self, inputs: Inputs, deadline: Millis) -> ExecutorTask<Inputs> {
        ExecutorTask {
            run_id: self.run_id,
            execution_id: self.execution_id,
            node_id: self.node_id,
            node_path: self.node_path,
            node_type: self.node_type,
            attempt: self.attempt,
            inputs,
            outputs: self.outputs,
            deadline,
            workspace_id: self.workspace_id,
            user_id: self.user_id,
            diagram_id: self.diagram_id,
            traceparent: self.traceparent,
            tracestate: self.tracestate,
            files_url: None,
        }
    }
}

/// `executor.task` as a plugin gets it: inputs are resolved, secrets in plain text. Never logged.
/// Who sends it may hold the inputs in another form, for secrets that leave no copy behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutorTask<Inputs = IndexMap<String, Json>> {
    /// The run; the same over all iterations of all loops.
    pub run_id: RunId,
    /// This attempt; every report must carry it.
    pub execution_id: ExecutionId,
    /// The widget's id.
    pub node_id: String,
    /// The node's place in the run.
    pub node_path: NodePath,
    /// What is to be run.
    pub node_type: String,
    /// Counts from 1.
    pub attempt: u32,
    /// Resolved values by input name.
    pub inputs: Inputs,
    /// Names of the wanted outputs.
    pub outputs: Vec<String>,
    /// When the step is given up, by the platform's clock.
    pub deadline: Millis,
    /// Workspace of the run.
    pub workspace_id: String,
    /// User of the run.
    pub user_id: String,
    /// The process.
    pub diagram_id: ProcessId,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// What tracing systems add to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
    /// Where the bytes of the files are that inputs refer to, by `{filesUrl}/{id}`; only where one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_url: Option<String>,
}
