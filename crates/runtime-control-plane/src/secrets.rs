//! The secret-manager, as dispatch and the executors' door ask it. Values are never logged.

use crate::Settings;
use contract::{
    ErrorCode, RpcError, pattern,
    report::{Dispatched, StepError},
    secret::{References, ResolvedSecrets, SecretText},
    task::Task,
};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use std::{collections::HashMap, time::Duration};
use wire::{CallError, Client, ClientConfig, SecretJson};

/// How long the secret-manager may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// The secret-manager.
#[derive(Debug)]
pub(crate) struct Secrets {
    client: Client,
    token: Option<SecretString>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Call<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    workspace_id: &'a str,
    names: &'a [String],
}

impl Secrets {
    pub(crate) fn new(settings: &Settings) -> Self {
        let manager = &settings.secret_manager;
        let tls = settings.secret_manager_tls.clone();
        let config = ClientConfig { tls, wipe_replies: true, ..ClientConfig::default() };
        let client = Client::new(manager.host.clone(), manager.port, config);
        Self { client, token: settings.secret_manager_token.clone() }
    }

    /// The values of the secrets that `ref` inputs of the task name.
    ///
    /// # Errors
    /// How the dispatch ends: refused when a secret cannot be read, failed while the secret-manager is
    /// away.
    pub(crate) async fn of(&self, task: &Task) -> Result<TaskSecrets, Dispatched> {
        let references = References::of(task).map_err(Dispatched::Refused)?;
        if references.names().is_empty() {
            return Ok(TaskSecrets { references, resolved: Resolved::default() });
        }
        let resolving = Box::pin(self.resolve(&task.workspace_id, references.names()));
        let resolved = resolving.await.map_err(|told| {
            let step =
                StepError { retryable: Some(told.retryable), ..StepError::of(told.code, told.message) };
            if told.retryable { Dispatched::Failed(step) } else { Dispatched::Refused(step) }
        })?;
        Ok(TaskSecrets { references, resolved })
    }

    /// The values of these names in the workspace.
    ///
    /// # Errors
    /// As the secret-manager says, or that it is away.
    pub(crate) async fn resolve(&self, workspace_id: &str, names: &[String]) -> Result<Resolved, RpcError> {
        let token = self.token.as_ref().map(ExposeSecret::expose_secret);
        let call = Call { token, workspace_id, names };
        let mut answer = self.client.call(pattern::SECRET_RESOLVE.name, &call, DEADLINE).await;
        // The manager was restarted: resolving twice does no harm.
        if matches!(answer, Err(CallError::Closed { .. })) {
            answer = self.client.call(pattern::SECRET_RESOLVE.name, &call, DEADLINE).await;
        }
        answer.map(Resolved).map_err(|error| error.to_rpc(ErrorCode::Unavailable, "the secret-manager"))
    }
}

/// The secrets of one task.
#[derive(Debug)]
pub(crate) struct TaskSecrets {
    references: References,
    resolved: Resolved,
}

impl TaskSecrets {
    /// Has the task none?
    pub(crate) fn is_empty(&self) -> bool {
        self.references.names().is_empty()
    }

    /// Each `ref` input with its value. An input without a value stays without one.
    ///
    /// # Errors
    /// How the dispatch ends when a secret does not exist.
    pub(crate) fn values(&self, task: &Task) -> Result<HashMap<&str, &SecretText>, Dispatched> {
        let values = self.references.values(&task.workspace_id, &self.resolved.0);
        values.map(|values| values.into_iter().collect()).map_err(Dispatched::Refused)
    }
}

/// Values of secrets.
#[derive(Debug, Default)]
pub(crate) struct Resolved(ResolvedSecrets);

impl Resolved {
    /// The answer that hands them on.
    ///
    /// # Errors
    /// None in practice: texts always serialise.
    pub(crate) fn to_json(&self) -> Result<SecretJson, serde_json::Error> {
        let bytes: usize = self.0.values.iter().flatten().map(|value| value.expose().len() + 16).sum();
        SecretJson::of(&self.0, bytes + 64)
    }
}
