//! From an item of the lane to a finished step.

use crate::{held::Held, inputs, nodes::Nodes, secrets::Secrets};
use contract::{
    ErrorCode, Millis, builtin,
    report::{Ack, ReportBody, StepError, StepReport, StepResult},
    task::{ExecutorTask, Task},
};
use plugin_sdk::{
    RunnableNode, StepSettings,
    reporter::{Reporter, Told},
    worker,
};
use run_files::RunFiles;
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use uuid::Uuid;

/// What every step needs.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) nodes: Nodes,
    pub(crate) reporter: Reporter,
    pub(crate) secrets: Secrets,
    pub(crate) files: RunFiles,
    pub(crate) held: Arc<Held>,
    pub(crate) heartbeat: Duration,
}

impl Worker {
    /// Does the task that an item of the lane holds, if this take of it is the one that counts.
    pub(crate) async fn handle(&self, item: &str) {
        let mut task: Task = match serde_json::from_str(item) {
            Ok(task) => task,
            Err(error) => {
                // The sweep publishes the attempt again, in a form that the engine's version writes.
                tracing::error!(event = "lane_item_malformed", category = ?error.classify(), "an item of the executor lane is no task; it is dropped");
                return;
            }
        };
        // Before the ack: word that comes from now on is heard.
        let hold = self.held.hold(task.execution_id);
        if !self.is_won(&task).await {
            return;
        }
        let Some(node) = hold.given_up.run_until_cancelled(self.prepare(&mut task)).await else {
            // Withdrawn before it began: there is nothing to tell.
            return;
        };
        match node {
            Ok(node) => {
                // The ack was sent already: it decided who works.
                let settings = StepSettings { ack: false, heartbeat: Some(self.heartbeat), max_in_flight: 1 };
                let (task, reporter) = (resolved(task), self.reporter.clone());
                worker::perform_until(task, node, reporter, settings, hold.given_up.clone()).await;
            }
            Err(error) => {
                let result = StepResult::failed(error);
                self.reporter.deliver_result(task.execution_id, task.run_id, result).await;
            }
        }
    }

    /// Acknowledges the task in the name of this take and sees whose ack counts. Each take has a
    /// name of its own: the same executor may take one task twice, and does it once.
    async fn is_won(&self, task: &Task) -> bool {
        let name = Uuid::now_v7().to_string();
        let body = ReportBody::Ack(Ack { worker_id: Some(name.clone()), ..Ack::default() });
        let report = StepReport { execution_id: task.execution_id, run_id: Some(task.run_id), body };
        let reason = match self.reporter.deliver(&report).await {
            Told::Accepted(receipt) if receipt.worker_id.as_ref() == Some(&name) => return true,
            Told::Accepted(_) => "another worker has it".to_owned(),
            Told::Stale(error) => error.to_string(),
            Told::Refused(error) => {
                tracing::error!(event = "ack_refused", execution_id = %task.execution_id, code = error.code.as_str(), reason = error.message, "the control plane refused an ack");
                return false;
            }
        };
        tracing::debug!(event = "task_not_won", execution_id = %task.execution_id, reason, "a task is not done here");
        false
    }

    /// The node, with the task's large values and secrets in place.
    async fn prepare(&self, task: &mut Task) -> Result<RunnableNode, StepError> {
        let node = self.nodes.get(&task.node_type).cloned().ok_or_else(|| {
            let message = format!(
                "this executor has no node type {:?}; bring it to the engine's version",
                task.node_type
            );
            StepError::of(ErrorCode::NodeTypeUnknown, message)
        })?;
        if task.node_type == builtin::TEMPLATE && !task.secrets.is_empty() {
            let message = format!(
                "input {} refers to a secret, and a rendered text is kept in the history in plain text; \
                 give the secret to the node that uses it",
                task.secrets.join(", ")
            );
            return Err(StepError::of(ErrorCode::InvalidNodeInput, message));
        }
        // In front of the secrets: what a secret says is no reference.
        inputs::fetch_values(&self.files, task).await?;
        self.secrets.substitute(task).await?;
        Ok(node)
    }
}

/// The task as a node sees it; its deadline is told by this machine's clock.
fn resolved(mut task: Task) -> ExecutorTask {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let deadline = Millis(0).plus(since_epoch).plus(Duration::from_millis(task.timeout_ms));
    let inputs = std::mem::take(&mut task.inputs);
    task.told(inputs, deadline)
}
