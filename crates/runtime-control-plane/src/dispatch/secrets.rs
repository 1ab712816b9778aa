//! Secrets of a task: resolved in one call, put into its inputs in memory, never logged.

use crate::Settings;
use contract::{
    ErrorCode, Json, pattern,
    report::{Dispatched, StepError},
    secret::{ResolveSecrets, ResolvedSecrets, referenced},
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
pub(super) struct Secrets {
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
    pub(super) fn new(settings: &Settings) -> Self {
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
    pub(super) async fn substitute(&self, task: &mut Task) -> Result<(), Dispatched> {
        let mut wanted = ResolveSecrets { workspace_id: task.workspace_id.clone(), names: Vec::new() };
        let mut places = Vec::new();
        for input in &task.secrets {
            let Some(value) = task.inputs.get(input).filter(|value| !value.is_null()) else { continue };
            let Some(name) = referenced(value) else {
                let text = format!(
                    "the input {input:?} names no secret; write its name or {{\"$secret\": \"name\"}} into the node"
                );
                return Err(Dispatched::Refused(StepError::of(ErrorCode::SecretMissing, text)));
            };
            let place = wanted.names.iter().position(|known| *known == name).unwrap_or(wanted.names.len());
            if place == wanted.names.len() {
                wanted.names.push(name);
            }
            places.push((input.clone(), place));
        }
        if places.is_empty() {
            return Ok(());
        }
        let mut resolved = self.resolve(&wanted).await?;
        let substituted = put(task, &places, &wanted, &resolved);
        resolved.values.iter_mut().flatten().for_each(Zeroize::zeroize);
        substituted
    }

    async fn resolve(&self, wanted: &ResolveSecrets) -> Result<ResolvedSecrets, Dispatched> {
        let call = Call {
            token: self.token.as_ref().map(ExposeSecret::expose_secret),
            workspace_id: &wanted.workspace_id,
            names: &wanted.names,
        };
        let error =
            match self.client.call::<_, ResolvedSecrets>(pattern::SECRET_RESOLVE.name, &call, DEADLINE).await
            {
                Ok(resolved) => return Ok(resolved),
                // The manager was restarted: resolving twice does no harm.
                Err(CallError::Closed { .. }) => {
                    match self
                        .client
                        .call::<_, ResolvedSecrets>(pattern::SECRET_RESOLVE.name, &call, DEADLINE)
                        .await
                    {
                        Ok(resolved) => return Ok(resolved),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
        let told = error.to_rpc(ErrorCode::Unavailable, "the secret-manager");
        let step = StepError { retryable: Some(told.retryable), ..StepError::of(told.code, told.message) };
        Err(if told.retryable { Dispatched::Failed(step) } else { Dispatched::Refused(step) })
    }
}

/// Puts the values in place, or names the first secret that does not exist.
fn put(
    task: &mut Task,
    places: &[(String, usize)],
    wanted: &ResolveSecrets,
    resolved: &ResolvedSecrets,
) -> Result<(), Dispatched> {
    for (input, place) in places {
        let Some(Some(value)) = resolved.values.get(*place) else {
            let name = wanted.names.get(*place).map_or("", String::as_str);
            let text = format!(
                "the secret {name:?} of the input {input:?} does not exist in workspace {:?}; create it there",
                wanted.workspace_id
            );
            return Err(Dispatched::Refused(StepError::of(ErrorCode::SecretMissing, text)));
        };
        // A string always serialises.
        task.inputs.insert(input.clone(), Json::of(value).unwrap_or_default());
    }
    Ok(())
}
