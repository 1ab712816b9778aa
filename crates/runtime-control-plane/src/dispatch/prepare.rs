//! From a task on the lane to what its plugin gets: policy, endpoint, values from files, secrets.

use super::Dispatcher;
use contract::{
    ErrorCode, Json, file,
    manifest::Endpoint,
    policy::{self, Decision},
    report::{Dispatched, StepError},
    secret::SecretText,
    task::{ExecutorTask, Task},
};
use indexmap::IndexMap;
use serde::{Serialize, Serializer, ser::SerializeMap};
use std::{collections::HashMap, time::Duration};
use storage::catalogue::Snapshot;
use wire::{Payload, SecretJson};

/// What is to be delivered, and where.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) endpoint: Endpoint,
    pub(super) body: Body,
}

/// The task as its plugin gets it. It is never logged; where secrets are in it, it is wiped.
#[derive(Debug)]
pub(super) enum Body {
    Plain(Json),
    Secret(SecretJson),
}

impl<'b> From<&'b Body> for Payload<'b> {
    fn from(body: &'b Body) -> Self {
        match body {
            Body::Plain(json) => json.into(),
            Body::Secret(json) => json.into(),
        }
    }
}

/// Inputs with secrets in the place of the references, on their way into the body.
struct Inputs<'i> {
    given: &'i IndexMap<String, Json>,
    secrets: HashMap<&'i str, &'i SecretText>,
}

impl Serialize for Inputs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut inputs = serializer.serialize_map(Some(self.given.len()))?;
        for (name, value) in self.given {
            match self.secrets.get(name.as_str()) {
                Some(secret) => inputs.serialize_entry(name, secret)?,
                None => inputs.serialize_entry(name, value)?,
            }
        }
        inputs.end()
    }
}

impl Inputs<'_> {
    /// About how much text they make, generously.
    fn bytes(&self) -> usize {
        let given = self.given.iter().map(|(name, value)| name.len() + value.text().len() + 8);
        given.sum::<usize>() + self.secrets.values().map(|secret| secret.expose().len() * 2).sum::<usize>()
    }
}

/// About what a task's text has beside its inputs, bytes; more only costs a copy.
const ENVELOPE_BYTES: usize = 2048;

impl Dispatcher {
    /// # Errors
    /// How the dispatch ends without a delivery.
    pub(super) async fn prepare(&self, mut task: Task) -> Result<Prepared, Dispatched> {
        let endpoint = self.permit(&task).await?;
        Box::pin(self.fetch_values(&mut task)).await?;
        let secrets = self.secrets.of(&task).await?;
        let deadline = self.catalogue.now().plus(Duration::from_millis(task.timeout_ms));
        let given = std::mem::take(&mut task.inputs);
        let refers = given.values().any(|value| file::find(value.text()).next().is_some());
        let files_url = refers.then(|| self.files_url.clone());
        let body = match secrets.is_empty() {
            true => Json::of(&ExecutorTask { files_url, ..task.told(given, deadline) }).map(Body::Plain),
            false => {
                let inputs = Inputs { given: &given, secrets: secrets.values(&task)? };
                let bytes = ENVELOPE_BYTES + inputs.bytes();
                let told = ExecutorTask { files_url, ..task.told(inputs, deadline) };
                SecretJson::of(&told, bytes).map(Body::Secret)
            }
        };
        let body = body.map_err(|error| {
            let text = format!("the task cannot be written as JSON: {error}");
            Dispatched::Refused(StepError::of(ErrorCode::Internal, text))
        })?;
        Ok(Prepared { endpoint, body })
    }

    /// Puts values back that lie in file-service, as far as a frame holds them. In front of the
    /// secrets: what a secret says is no reference.
    async fn fetch_values(&self, task: &mut Task) -> Result<(), Dispatched> {
        let fetched = self.files.resolve(task.run_id, &mut task.inputs, self.inputs_bytes).await;
        fetched.map_err(|error| {
            let step = StepError::of(error.code, format!("an input of the task: {}", error.message));
            if error.retryable { Dispatched::Failed(step) } else { Dispatched::Refused(step) }
        })
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
        // Boxed, as all that is rare here: the tasks of deliveries stay small.
        let snapshot = Box::pin(self.catalogue.refresh()).await.map_err(|error| {
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
