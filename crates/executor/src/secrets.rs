//! Secrets of a step: asked for at the control plane after its ack has won, put into the inputs in
//! memory, never logged (protocol section 8).

use contract::{
    ErrorCode, ExecutionId, RpcError, pattern,
    report::StepError,
    secret::{References, ResolvedSecrets},
    task::Task,
};
use plugin_sdk::reporter::{Backoff, ReporterSettings};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use std::time::Duration;
use wire::{Client, ClientConfig};

/// How long one try may take until its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Tries until the step fails because its secrets cannot be had.
const TRIES: u32 = 8;

/// The control plane, as the place where secrets are.
#[derive(Debug)]
pub(crate) struct Secrets {
    client: Client,
    key: Option<SecretString>,
}

/// `executor.secrets` with the key first, as the door looks for it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Call<'c> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'c str>,
    execution_id: ExecutionId,
    names: &'c [String],
}

impl Secrets {
    pub(crate) fn new(control_plane: &ReporterSettings) -> Self {
        let tls = control_plane.tls.clone();
        let config = ClientConfig { tls, wipe_replies: true, ..ClientConfig::default() };
        let client = Client::new(control_plane.host.clone(), control_plane.port, config);
        Self { client, key: control_plane.key.clone() }
    }

    /// Replaces the `ref` inputs of the task by the values of the secrets that they name.
    ///
    /// # Errors
    /// `secret_missing` with the secret's name, `secret_unreadable`, and `unavailable` when the
    /// control plane or the secret-manager stays away.
    pub(crate) async fn substitute(&self, task: &mut Task) -> Result<(), StepError> {
        let references = References::of(task)?;
        if references.names().is_empty() {
            return Ok(());
        }
        let resolved = self.resolve(task.execution_id, references.names()).await;
        let resolved = resolved.map_err(|error| StepError::of(error.code, error.message))?;
        references.substitute(task, &resolved)
    }

    async fn resolve(
        &self,
        execution_id: ExecutionId,
        names: &[String],
    ) -> Result<ResolvedSecrets, RpcError> {
        let key = self.key.as_ref().map(ExposeSecret::expose_secret);
        let call = Call { key, execution_id, names };
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut tries = 1;
        loop {
            let answer = self.client.call(pattern::EXECUTOR_SECRETS.name, &call, ANSWER_TIMEOUT).await;
            match answer {
                Err(error) if error.retryable() && tries < TRIES => {
                    let pause = backoff.next_pause();
                    tracing::warn!(
                        event = "secrets_retried",
                        %execution_id,
                        retry_in_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                        %error,
                        "the secrets of a step cannot be had now; they are asked for again"
                    );
                    tokio::time::sleep(pause).await;
                    tries += 1;
                }
                answer => {
                    return answer.map_err(|error| error.to_rpc(ErrorCode::Unavailable, "the control plane"));
                }
            }
        }
    }
}
