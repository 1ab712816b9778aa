//! The plugin's TCP door: batch pulls of plugin-manager and tasks of the control plane.

use crate::steps::{Steps, delivered};
use contract::{ErrorCode, Json, RpcError, manifest::ExecutorItem, pattern, task::ExecutorTask};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use wire::{Credentials, Handler, Reply, Request, credential_in};

/// What answers at the door.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) plugin_id: String,
    pub(crate) items: Vec<ExecutorItem>,
    pub(crate) token: Option<Credentials>,
    pub(crate) steps: Arc<Steps>,
}

/// The part of a batch pull that a plugin heeds; everything may be absent.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Pull {
    node_types: Option<Vec<String>>,
}

#[derive(Serialize)]
struct Batch<'d> {
    items: Vec<&'d ExecutorItem>,
}

impl Handler for Door {
    async fn call(&self, request: Request) -> Reply {
        match request.pattern.as_str() {
            name if pattern::EXECUTOR_BATCH_PULL.is(name) => self.pull(&request).into(),
            name if pattern::EXECUTOR_TASK.is(name) => self.task(&request).into(),
            _ => Reply::NoHandler,
        }
    }
}

impl Door {
    fn pull(&self, request: &Request) -> Result<Json, RpcError> {
        if let Some(token) = &self.token {
            let presented =
                credential_in(&request.data, &["token", "ingressToken", "authToken"], "auth", &["token"]);
            if !presented.is_some_and(|presented| token.check(presented.expose_secret()).is_right()) {
                tracing::warn!(event = "plugin_batch_pull_unauthorized", peer = %request.peer.address, "a batch pull with a wrong token was refused");
                return Err(RpcError::new(ErrorCode::Unauthorized, "unauthorized"));
            }
        }
        let pull: Pull = match request.data.is_null() {
            true => Pull::default(),
            false => request.data.read().map_err(|error| malformed("the batch pull", &error))?,
        };
        let wanted = |item: &&ExecutorItem| {
            pull.node_types.as_ref().is_none_or(|types| types.is_empty() || types.contains(&item.node_type))
        };
        let items: Vec<_> = self.items.iter().filter(wanted).collect();
        tracing::info!(
            event = "plugin_batch_pulled",
            plugin_id = self.plugin_id,
            peer = %request.peer.address,
            items = items.len(),
            "[registration] executor batch pull <- plugin-manager"
        );
        Json::of(&Batch { items }).map_err(|error| RpcError::new(ErrorCode::Internal, error.to_string()))
    }

    fn task(&self, request: &Request) -> Result<Json, RpcError> {
        let task: ExecutorTask = request.data.read().map_err(|error| malformed("the task", &error))?;
        let execution_id = task.execution_id;
        let taken = self.steps.take(task).map(|()| delivered());
        if let Err(error) = &taken {
            tracing::warn!(event = "plugin_task_refused", %execution_id, code = error.code.as_str(), reason = error.message, "a task was not taken");
        }
        taken
    }
}

/// The reason is one of form: field names and types, never values of a task.
fn malformed(what: &str, error: &serde_json::Error) -> RpcError {
    let reason = match error.classify() {
        serde_json::error::Category::Data => error.to_string(),
        _ => "it is no JSON object of the expected form".to_owned(),
    };
    RpcError::new(ErrorCode::InvalidRequest, format!("{what} cannot be read: {reason}"))
}
