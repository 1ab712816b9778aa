//! The secret-manager, as dispatch and the executors' door ask it. Values are never logged.

use crate::Settings;
use contract::{
    ErrorCode, RpcError, pattern,
    report::{Dispatched, StepError},
    secret::{References, ResolvedSecrets},
    task::Task,
};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use std::time::Duration;
use wire::{CallError, Client, ClientConfig};
use zeroize::Zeroize;

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
        let client = Client::new(manager.host.clone(), manager.port, ClientConfig::default());
        Self { client, token: settings.secret_manager_token.clone() }
    }

    /// Replaces the `ref` inputs of the task by the values of the secrets that they name. An input
    /// without a value stays without one.
    ///
    /// # Errors
    /// How the dispatch ends: refused when a secret does not exist or cannot be read, failed while
    /// the secret-manager is away.
    pub(crate) async fn substitute(&self, task: &mut Task) -> Result<(), Dispatched> {
        let references = References::of(task).map_err(Dispatched::Refused)?;
        if references.names().is_empty() {
            return Ok(());
        }
        let mut resolved = self.resolve(&task.workspace_id, references.names()).await.map_err(|told| {
            let step =
                StepError { retryable: Some(told.retryable), ..StepError::of(told.code, told.message) };
            if told.retryable { Dispatched::Failed(step) } else { Dispatched::Refused(step) }
        })?;
        let substituted = references.substitute(task, &resolved);
        resolved.values.iter_mut().flatten().for_each(Zeroize::zeroize);
        substituted.map_err(Dispatched::Refused)
    }

    /// The values of these names in the workspace.
    ///
    /// # Errors
    /// As the secret-manager says, or that it is away.
    pub(crate) async fn resolve(
        &self,
        workspace_id: &str,
        names: &[String],
    ) -> Result<ResolvedSecrets, RpcError> {
        let token = self.token.as_ref().map(ExposeSecret::expose_secret);
        let call = Call { token, workspace_id, names };
        let mut answer = self.client.call(pattern::SECRET_RESOLVE.name, &call, DEADLINE).await;
        // The manager was restarted: resolving twice does no harm.
        if matches!(answer, Err(CallError::Closed { .. })) {
            answer = self.client.call(pattern::SECRET_RESOLVE.name, &call, DEADLINE).await;
        }
        answer.map_err(|error| error.to_rpc(ErrorCode::Unavailable, "the secret-manager"))
    }
}
