//! From a task on the lane to what its plugin gets: policy, endpoint, secrets.

use super::Dispatcher;
use contract::{
    ErrorCode, Json,
    manifest::Endpoint,
    policy::{self, Decision},
    report::{Dispatched, StepError},
    task::{ExecutorTask, Task},
};
use std::time::Duration;
use storage::catalogue::Snapshot;

/// What is to be delivered, and where. The body may hold secrets: it is never logged.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) endpoint: Endpoint,
    pub(super) body: Json,
}

impl Dispatcher {
    /// # Errors
    /// How the dispatch ends without a delivery.
    pub(super) async fn prepare(&self, mut task: Task) -> Result<Prepared, Dispatched> {
        let endpoint = self.permit(&task).await?;
        self.secrets.substitute(&mut task).await?;
        let timeout = Duration::from_millis(task.timeout_ms);
        let body = ExecutorTask {
            run_id: task.run_id,
            execution_id: task.execution_id,
            node_id: task.node_id,
            node_path: task.node_path,
            node_type: task.node_type,
            attempt: task.attempt,
            inputs: task.inputs,
            outputs: task.outputs,
            deadline: self.catalogue.now().plus(timeout),
            workspace_id: task.workspace_id,
            user_id: task.user_id,
            diagram_id: task.diagram_id,
            traceparent: task.traceparent,
        };
        let body = Json::of(&body).map_err(|error| {
            let text = format!("the task cannot be written as JSON: {error}");
            Dispatched::Refused(StepError::of(ErrorCode::Internal, text))
        })?;
        Ok(Prepared { endpoint, body })
    }

    /// Where the task would go by the catalogue in memory; decides nothing.
    pub(super) fn target(&self, task: &Task) -> Option<Endpoint> {
        self.decide(&*self.catalogue.current()?, task).1
    }

    /// Decides by the policy, at the moment of dispatch (protocol section 6, failure matrix row 9).
    /// Nothing is refused by what is only in memory: it is looked up again first.
    async fn permit(&self, task: &Task) -> Result<Endpoint, Dispatched> {
        if let Some(snapshot) = self.catalogue.current()
            && let (Decision { allowed: true, .. }, Some(endpoint)) = self.decide(&snapshot, task)
        {
            return Ok(endpoint);
        }
        let snapshot = self.catalogue.refresh().await.map_err(|error| {
            let text = format!("the catalogue cannot be read: {error}");
            Dispatched::Failed(StepError::of(ErrorCode::Unavailable, text))
        })?;
        let (decision, endpoint) = self.decide(&snapshot, task);
        let Some(refusal) = decision.refusal else {
            return endpoint.ok_or_else(|| {
                let text = format!("the plugin of {:?} has no endpoint; publish it again", task.node_type);
                Dispatched::Failed(StepError::of(ErrorCode::PluginOffline, text))
            });
        };
        tracing::info!(
            event = "dispatch_refused",
            run_id = %task.run_id,
            execution_id = %task.execution_id,
            node_type = task.node_type,
            code = refusal.code.as_str(),
            "{}",
            refusal.message
        );
        let error = StepError::of(refusal.code, refusal.message);
        Err(match refusal.code {
            ErrorCode::PluginOffline => Dispatched::Failed(error),
            _ => Dispatched::Refused(error),
        })
    }

    fn decide(&self, snapshot: &Snapshot, task: &Task) -> (Decision, Option<Endpoint>) {
        let (workspace_id, user_id) = (&task.workspace_id, &task.user_id);
        let facts =
            snapshot.facts(&task.node_type, task.publication_id, workspace_id, user_id, self.default_enabled);
        let endpoint = facts
            .plugin
            .as_ref()
            .and_then(|plugin| snapshot.endpoint_of(&plugin.plugin_id, &task.node_type))
            .cloned();
        (policy::decide(&task.node_type, workspace_id, user_id, &facts), endpoint)
    }
}
