//! Secrets for executors (`executor.secrets`, protocol section 8): executors reach neither the
//! database nor the secret-manager, so they ask here, with the attempt that they work on.
//!
//! Plugins hold the same key. So an answer is given only for an outstanding attempt of the executor
//! lane whose run runs, and only from that run's workspace; any other attempt is as unknown as one
//! that never was.

use crate::secrets::{Resolved, Secrets};
use contract::{
    ErrorCode, ExecutionId, Json, RpcError,
    secret::{ExecutorSecrets, MAX_SECRET_NAMES},
};
use queue::Lane;
use std::sync::Arc;
use storage::{Storage, runs::Runs};

/// Answers executors.
#[derive(Debug)]
pub(crate) struct ExecutorDesk {
    runs: Runs,
    secrets: Arc<Secrets>,
}

impl ExecutorDesk {
    pub(crate) fn new(storage: &Storage, secrets: Arc<Secrets>) -> Self {
        Self { runs: storage.runs(), secrets }
    }

    /// The wanted values, in order.
    ///
    /// # Errors
    /// `invalid_request`, `unknown_execution`, `unavailable` while the database or the
    /// secret-manager is away, and what the secret-manager says.
    pub(crate) async fn resolve(&self, body: &Json) -> Result<Resolved, RpcError> {
        let asked: ExecutorSecrets = body.read().map_err(|_| {
            let message = "the body must be {executionId, names: [text]}; send both";
            RpcError::new(ErrorCode::InvalidRequest, message)
        })?;
        let names = asked.names.len();
        if names > MAX_SECRET_NAMES {
            let message = format!("{names} names are more than {MAX_SECRET_NAMES}; ask for fewer at once");
            return Err(RpcError::new(ErrorCode::InvalidRequest, message));
        }
        let workspace_id = self.workspace_of(asked.execution_id).await?;
        self.secrets.resolve(&workspace_id, &asked.names).await
    }

    /// The workspace of the attempt's run, if an executor may be working on the attempt.
    async fn workspace_of(&self, execution_id: ExecutionId) -> Result<String, RpcError> {
        let attempt = self.runs.live(execution_id).await.map_err(|error| {
            tracing::warn!(event = "attempt_unreadable", %execution_id, %error, "the database cannot tell an executor's attempt");
            RpcError::new(ErrorCode::Unavailable, "the database cannot be read now; try again")
        })?;
        let Some(attempt) = attempt else { return Err(unknown(execution_id)) };
        if attempt.lane != Lane::Executor.as_str() {
            // Somebody who holds the key asks for what is not theirs.
            tracing::warn!(
                event = "secrets_refused",
                %execution_id,
                lane = attempt.lane,
                "secrets were asked for by an attempt that is no executor's"
            );
            return Err(unknown(execution_id));
        }
        Ok(attempt.workspace_id)
    }
}

fn unknown(execution_id: ExecutionId) -> RpcError {
    let message = format!("no executor works on an attempt {execution_id}; its run may have ended");
    RpcError::new(ErrorCode::UnknownExecution, message)
}
