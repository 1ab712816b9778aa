//! The engine as the control plane uses it: its RPC (protocol section 5), or the engine itself where both
//! are in one process.

use crate::Settings;
use contract::{
    ErrorCode, Json, RpcError,
    engine::NearEngine,
    pattern,
    report::{DispatchOutcome, RawOutputs, ReportOutcome, StepReport, StepReportOutcomes},
};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use std::{sync::Arc, time::Duration};
use wire::{CallError, Client, ClientConfig};

/// What the envelope of a batch adds to the largest report.
const ENVELOPE_BYTES: usize = 64 * 1024;

/// Connections to the engine: a large report on one does not hold up those on the others.
const CONNECTIONS: usize = 2;

/// How long the probe of readiness waits.
const PROBE_DEADLINE: Duration = Duration::from_secs(2);

/// How long the proxied metrics may take.
const METRICS_DEADLINE: Duration = Duration::from_secs(5);

/// The engine.
#[derive(Debug)]
pub(crate) struct Engine {
    near: Option<Arc<dyn NearEngine>>,
    client: Client,
    token: Option<SecretString>,
    deadline: Duration,
}

#[derive(Serialize)]
struct Reports<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    reports: &'a [StepReport<RawOutputs>],
}

#[derive(Serialize)]
struct Outcomes<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    outcomes: &'a [DispatchOutcome],
}

#[derive(Serialize)]
struct Bare<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
}

impl Engine {
    pub(crate) fn new(settings: &Settings, near: Option<Arc<dyn NearEngine>>) -> Self {
        let config = ClientConfig {
            connections: CONNECTIONS,
            max_frame_bytes: settings.max_frame_bytes.saturating_add(ENVELOPE_BYTES),
            max_in_flight: settings.dispatch.in_flight.saturating_add(1024),
            tls: settings.engine_tls.clone(),
            ..ClientConfig::default()
        };
        let client = Client::new(settings.engine.host.clone(), settings.engine.port, config);
        Self { near, client, token: settings.engine_token.clone(), deadline: settings.report_timeout }
    }

    fn token(&self) -> Option<&str> {
        self.token.as_ref().map(ExposeSecret::expose_secret)
    }

    /// The engine itself, if it is in this process. Single calls cost nothing there: what comes together
    /// is gathered by its committers.
    pub(crate) fn near(&self) -> Option<&dyn NearEngine> {
        self.near.as_deref()
    }

    /// Hands reports over; the answers are in their order. A batch that got no answer is
    /// `engine_unavailable` for each of its reports.
    pub(crate) async fn step_reports(&self, reports: Vec<StepReport<RawOutputs>>) -> Vec<ReportOutcome> {
        if let Some(near) = &self.near {
            return near.step_reports(reports).await;
        }
        let data = Reports { token: self.token(), reports: &reports };
        let bytes = reports.iter().map(StepReport::expected_bytes).sum();
        self.batch(pattern::RUNTIME_STEP_REPORTS.name, &data, (reports.len(), bytes)).await
    }

    /// Tells how dispatches ended; the answers are in their order, as of [`Self::step_reports`].
    pub(crate) async fn dispatch_outcomes(&self, outcomes: Vec<DispatchOutcome>) -> Vec<ReportOutcome> {
        let data = Outcomes { token: self.token(), outcomes: &outcomes };
        let bytes = outcomes.iter().map(DispatchOutcome::expected_bytes).sum();
        self.batch(pattern::RUNTIME_DISPATCH_OUTCOME.name, &data, (outcomes.len(), bytes)).await
    }

    /// A call with so many items of about so many bytes together.
    async fn batch<T: Serialize + Sync>(
        &self,
        pattern: &str,
        data: &T,
        (items, bytes): (usize, usize),
    ) -> Vec<ReportOutcome> {
        let error = match self.call::<_, StepReportOutcomes>(pattern, data, bytes + ENVELOPE_BYTES).await {
            Ok(answer) if answer.outcomes.len() == items => return answer.outcomes,
            Ok(answer) => {
                let text = format!("the engine answered {} of {items} items", answer.outcomes.len());
                RpcError::new(ErrorCode::EngineUnavailable, text)
            }
            Err(CallError::TooLarge { what: "request", limit, actual }) => RpcError::new(
                ErrorCode::PayloadTooLarge,
                format!("the report has {actual} bytes, the engine takes {limit}"),
            ),
            Err(error) => away(&error),
        };
        tracing::warn!(
            event = "engine_unanswered",
            pattern,
            items,
            code = error.code.as_str(),
            "a batch could not be handed to the engine: {}",
            error.message
        );
        vec![ReportOutcome::Err(error); items]
    }

    /// The engine's metrics page, which is never empty.
    ///
    /// # Errors
    /// `engine_unavailable`
    pub(crate) async fn metrics(&self) -> Result<String, RpcError> {
        let data = Bare { token: self.token() };
        let page: String = self
            .client
            .call(pattern::RUNTIME_METRICS.name, &data, METRICS_DEADLINE)
            .await
            .map_err(|error| away(&error))?;
        match page.trim().is_empty() {
            true => {
                Err(RpcError::new(ErrorCode::EngineUnavailable, "the engine has no metrics yet; try again"))
            }
            false => Ok(page),
        }
    }

    /// Does somebody answer at the engine's door? Which answer does not matter.
    pub(crate) async fn answers(&self) -> bool {
        let probe = self.client.request("conveyor.ping", &Json::null(), PROBE_DEADLINE).await;
        matches!(probe, Ok(_) | Err(CallError::NoHandler | CallError::Remote(_)))
    }

    /// A call that may be repeated: when a pooled connection turns out to be dead (the engine was
    /// restarted) it is made once more.
    async fn call<T: Serialize + Sync, R: serde::de::DeserializeOwned>(
        &self,
        pattern: &str,
        data: &T,
        expected_bytes: usize,
    ) -> Result<R, CallError> {
        match self.client.call_sized(pattern, data, expected_bytes, self.deadline).await {
            Err(CallError::Closed { .. }) => {
                self.client.call_sized(pattern, data, expected_bytes, self.deadline).await
            }
            result => result,
        }
    }
}

/// Whatever keeps the engine from answering, a reporter shall try again.
fn away(error: &CallError) -> RpcError {
    RpcError::new(ErrorCode::EngineUnavailable, format!("the engine cannot be reached: {error}; try again"))
}
