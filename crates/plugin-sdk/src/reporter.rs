//! Reports to the control plane over TCP (protocol sections 3 and 4). Plugins and the built-in
//! executor send them in the same way.

pub use crate::backoff::Backoff;
use contract::{
    ErrorCode, ExecutionId, Json, RpcError, RunId, pattern,
    report::{Receipt, ReportBody, StepError, StepReport, StepResult},
};
use indexmap::IndexMap;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use std::time::Duration;
use wire::{CallError, Client, ClientConfig, TlsClient};

/// How long one try may take until its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Where reports go.
#[derive(Clone, Debug)]
pub struct ReporterSettings {
    /// Host of the control plane's TCP door.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The control plane's key.
    pub key: Option<SecretString>,
    /// How the door is spoken to; `None` is plain TCP.
    pub tls: Option<TlsClient>,
}

/// What a report was answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is stored.
    Accepted(Receipt),
    /// Nobody waits for this attempt any more: a newer one exists, it timed out, or the run has
    /// ended. The work is to be given up.
    Stale(RpcError),
    /// It is refused for good; the reason names the remedy.
    Refused(RpcError),
}

/// Sends reports over one pooled connection. Clones share it.
#[derive(Clone, Debug)]
pub struct Reporter {
    client: Client,
    key: Option<SecretString>,
}

/// A report as the TCP door reads it. The key comes first, so that it is found before the payload.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'r> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'r str>,
    execution_id: ExecutionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_id: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<&'r Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<contract::report::StepStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outputs: Option<&'r IndexMap<String, Json>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'r StepError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<&'r str>,
}

impl Reporter {
    /// A reporter; it connects with the first report.
    pub fn new(settings: ReporterSettings) -> Self {
        let config = ClientConfig { tls: settings.tls, ..ClientConfig::default() };
        let client = Client::new(settings.host, settings.port, config);
        Self { client, key: settings.key }
    }

    /// Sends the report until it is answered, with growing pauses: an absent control plane or
    /// engine loses nothing. Dropping the future gives it up.
    pub async fn deliver(&self, report: &StepReport) -> Told {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            match self.send(report).await {
                Ok(told) => return told,
                Err(error) => {
                    let pause = backoff.next_pause();
                    tracing::warn!(
                        event = "step_report_retried",
                        execution_id = %report.execution_id,
                        kind = kind(&report.body),
                        retry_in_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                        %error,
                        "a report was not answered; it is sent again"
                    );
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Delivers the result of a step. A result that is too large for the platform is replaced by
    /// the failure that says so, so that the step ends with its reason.
    pub async fn deliver_result(&self, execution_id: ExecutionId, run_id: RunId, result: StepResult) -> Told {
        let report =
            |result| StepReport { execution_id, run_id: Some(run_id), body: ReportBody::Result(result) };
        let told = self.deliver(&report(result)).await;
        let told = match told {
            Told::Refused(error) if error.code == ErrorCode::PayloadTooLarge => {
                let failure = StepError::of(ErrorCode::PayloadTooLarge, error.message);
                self.deliver(&report(StepResult::failed(failure))).await
            }
            told => told,
        };
        match &told {
            Told::Accepted(receipt) => {
                tracing::debug!(event = "step_result_stored", %execution_id, %run_id, status = ?receipt.status, "result stored");
            }
            Told::Stale(error) | Told::Refused(error) => tracing::warn!(
                event = "step_result_refused",
                %execution_id,
                %run_id,
                code = error.code.as_str(),
                reason = error.message,
                "the control plane did not take the result"
            ),
        }
        told
    }

    /// Sends the report once.
    ///
    /// # Errors
    /// The reason why there is no answer, or an answer that asks for a later try.
    pub async fn send(&self, report: &StepReport) -> Result<Told, CallError> {
        let key = self.key.as_ref().map(ExposeSecret::expose_secret);
        let data = Wire::of(report, key);
        match self.client.call(pattern_of(&report.body), &data, ANSWER_TIMEOUT).await {
            Ok(receipt) => Ok(Told::Accepted(receipt)),
            Err(error) if error.retryable() => Err(error),
            Err(error) => {
                let error = error.to_rpc(ErrorCode::EngineUnavailable, "the control plane");
                Ok(match error.code {
                    ErrorCode::Superseded | ErrorCode::RunTerminal => Told::Stale(error),
                    _ => Told::Refused(error),
                })
            }
        }
    }
}

impl<'r> Wire<'r> {
    fn of(report: &'r StepReport, key: Option<&'r str>) -> Self {
        let mut wire = Self {
            key,
            execution_id: report.execution_id,
            run_id: report.run_id,
            worker_id: None,
            progress: None,
            message: None,
            sequence: None,
            status: None,
            outputs: None,
            error: None,
            traceparent: report.traceparent(),
            tracestate: report.tracestate(),
        };
        match &report.body {
            ReportBody::Ack(ack) => wire.worker_id = ack.worker_id.as_deref(),
            ReportBody::Heartbeat(heartbeat) => {
                wire.progress = heartbeat.progress.as_ref();
                wire.message = heartbeat.message.as_deref();
            }
            ReportBody::Partial(partial) => {
                wire.sequence = Some(partial.sequence);
                wire.outputs = Some(&partial.outputs);
            }
            ReportBody::Result(result) => {
                wire.status = Some(result.status);
                wire.outputs = Some(&result.outputs);
                wire.error = result.error.as_ref();
            }
        }
        wire
    }
}

fn pattern_of(body: &ReportBody) -> &'static str {
    match body {
        ReportBody::Ack(_) => pattern::STEP_ACK.name,
        ReportBody::Heartbeat(_) => pattern::STEP_HEARTBEAT.name,
        ReportBody::Partial(_) => pattern::STEP_PARTIAL.name,
        ReportBody::Result(_) => pattern::STEP_RESULT.name,
    }
}

fn kind(body: &ReportBody) -> &'static str {
    match body {
        ReportBody::Ack(_) => "ack",
        ReportBody::Heartbeat(_) => "heartbeat",
        ReportBody::Partial(_) => "partial",
        ReportBody::Result(_) => "result",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::report::{Ack, Heartbeat, Partial, ReportKind, read_report};

    fn report(body: ReportBody) -> StepReport {
        StepReport {
            execution_id: ExecutionId(uuid::Uuid::now_v7()),
            run_id: Some(RunId(uuid::Uuid::now_v7())),
            body,
        }
    }

    #[test]
    fn every_report_is_read_by_the_door_as_it_was_meant() {
        let outputs: IndexMap<String, Json> =
            [("ю".to_owned(), Json::parse("[1e400]").unwrap())].into_iter().collect();
        let bodies = [
            (
                ReportKind::Ack,
                ReportBody::Ack(Ack {
                    worker_id: Some("w".into()),
                    traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()),
                    tracestate: Some("a=1".into()),
                }),
            ),
            (
                ReportKind::Heartbeat,
                ReportBody::Heartbeat(Heartbeat {
                    progress: Some(Json::parse("0.5").unwrap()),
                    message: Some("m".into()),
                }),
            ),
            (ReportKind::Partial, ReportBody::Partial(Partial { sequence: 3, outputs: outputs.clone() })),
            (ReportKind::Result, ReportBody::Result(StepResult::ok(outputs))),
            (
                ReportKind::Result,
                ReportBody::Result(StepResult::failed(StepError::of(ErrorCode::StepFailed, "no"))),
            ),
        ];
        for (kind, body) in bodies {
            let report = report(body);
            let sent = Json::of(&Wire::of(&report, Some("key"))).unwrap();
            assert_eq!(read_report(kind, &sent).unwrap(), report);
        }
    }
}
