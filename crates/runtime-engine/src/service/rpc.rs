//! The engine's RPC door (protocol section 5).

use super::{engine::Engine, reports, runs};
use contract::{
    ErrorCode, Json, RpcError,
    pattern::{self, Pattern},
};
use serde::{Serialize, de::DeserializeOwned};
use std::sync::{Arc, OnceLock};
use wire::{Credentials, Handler, LogGate, Reply, Request, Stats, credential_in};

/// The answer to a batch of reports on a busy day.
const USUAL_ANSWER_BYTES: usize = 4096;

/// Answers requests.
#[derive(Debug)]
pub(super) struct Door {
    engine: Engine,
    credentials: Option<Credentials>,
    /// Of the server that this door is in, which exists only after the door.
    stats: OnceLock<Arc<Stats>>,
}

impl Door {
    pub(super) fn new(engine: Engine, credentials: Option<Credentials>) -> Self {
        Self { engine, credentials, stats: OnceLock::new() }
    }

    pub(super) fn know_stats(&self, stats: Arc<Stats>) {
        // Set once, right after the server was bound.
        let _ = self.stats.set(stats);
    }

    fn admits(&self, data: &Json) -> bool {
        use secrecy::ExposeSecret;
        let Some(credentials) = &self.credentials else { return true };
        credential_in(data, &["token"], "auth", &["token"])
            .is_some_and(|presented| credentials.check(presented.expose_secret()).is_right())
    }

    /// Puts a refusal on record.
    fn unauthorized(&self, request: &Request) -> RpcError {
        static LOG: LogGate = LogGate::new();
        self.engine.shared.metrics.unauthorized.inc();
        if let Some(unlogged_before) = LOG.pass_now() {
            tracing::warn!(
                event = "access_refused",
                address = %request.peer.address,
                reason = ErrorCode::Unauthorized.as_str(),
                unlogged_before,
                "a request with a wrong or missing token was refused"
            );
        }
        RpcError::new(ErrorCode::Unauthorized, "the token is wrong or missing")
    }

    async fn metrics(&self) -> Result<String, RpcError> {
        let shared = &self.engine.shared;
        match shared.storage.runs().outstanding_count().await {
            Ok(count) => {
                shared.metrics.outstanding.set(i64::try_from(count).unwrap_or(i64::MAX));
            }
            // The other numbers are worth having when the database is away.
            Err(error) => tracing::debug!(event = "outstanding_uncounted", "{error}"),
        }
        if let Ok(oldest) = shared.storage.runs().oldest_ended().await {
            let age = oldest.map_or(0, |at| shared.clock.now().since(at).as_secs());
            shared.metrics.oldest_run_seconds.set(i64::try_from(age).unwrap_or(i64::MAX));
        }
        shared.metrics.page(self.stats.get().map(AsRef::as_ref))
    }
}

impl Handler for Door {
    async fn call(&self, request: Request) -> Reply {
        let Some(pattern) = pattern::find(&request.pattern) else { return Reply::NoHandler };
        if !self.admits(&request.data) {
            return Reply::Error(self.unauthorized(&request));
        }
        let (engine, data) = (&self.engine, &request.data);
        match pattern {
            pattern::RUNTIME_STEP_REPORTS => match read(data) {
                Ok(batch) => value(&reports::step_reports(engine, batch).await),
                Err(error) => Reply::Error(error),
            },
            pattern::RUNTIME_DISPATCH_OUTCOME => match read(data) {
                Ok(batch) => value(&reports::dispatch_outcomes(engine, batch).await),
                Err(error) => Reply::Error(error),
            },
            // Boxed, so that the tasks of reports stay small.
            rare => Box::pin(self.rare(rare, data)).await,
        }
    }
}

impl Door {
    async fn rare(&self, pattern: Pattern, data: &Json) -> Reply {
        let engine = &self.engine;
        match pattern {
            pattern::RUNTIME_RUN_START => answered(data, |asked| runs::start(engine, asked)).await,
            pattern::RUNTIME_RUN_CANCEL => answered(data, |asked| runs::cancel(engine, asked)).await,
            pattern::RUNTIME_RUN_RETRY => answered(data, |asked| runs::retry(engine, asked)).await,
            pattern::RUNTIME_RUN_GET => answered(data, |asked| runs::get(engine, asked)).await,
            pattern::RUNTIME_RUN_LIST => answered(data, |asked| runs::list(engine, asked)).await,
            pattern::RUNTIME_RUN_HISTORY => answered(data, |asked| runs::history(engine, asked)).await,
            pattern::RUNTIME_STEP_CONFIRM => answered(data, |asked| runs::confirm(engine, asked)).await,
            pattern::RUNTIME_METRICS => match self.metrics().await {
                Ok(page) => value(&page),
                Err(error) => Reply::Error(error),
            },
            _ => Reply::NoHandler,
        }
    }
}

async fn answered<A, R, F>(data: &Json, handle: impl FnOnce(A) -> F) -> Reply
where
    A: DeserializeOwned,
    R: Serialize,
    F: Future<Output = Result<R, RpcError>>,
{
    let result = match read(data) {
        Ok(asked) => handle(asked).await,
        Err(error) => Err(error),
    };
    match result {
        Ok(answer) => value(&answer),
        Err(error) => Reply::Error(error),
    }
}

fn read<A: DeserializeOwned>(data: &Json) -> Result<A, RpcError> {
    data.read().map_err(|error| {
        RpcError::new(ErrorCode::InvalidRequest, format!("the request's body is malformed: {error}"))
    })
}

fn value<R: Serialize>(answer: &R) -> Reply {
    match Json::written(answer, USUAL_ANSWER_BYTES) {
        Ok(json) => Reply::Value(json),
        Err(error) => {
            Reply::Error(RpcError::new(ErrorCode::Internal, format!("the answer cannot be written: {error}")))
        }
    }
}
