//! The report core behind both doors (protocol section 4): reads a report, hands it to the engine in
//! a batch, answers after the engine has made it durable.
//!
//! It keeps nothing: a report that was not answered is the reporter's to send again.

mod oversize;

pub(crate) use oversize::{execution_in_body, read_beginning};

use crate::{
    batch::{BatchLimits, Batcher},
    engine::Engine,
    metrics::Metrics,
    retry,
};
use contract::{
    ErrorCode, ExecutionId, Json, RpcError,
    report::{
        RawOutputs, ReportBody, ReportKind, ReportOutcome, StepError, StepReport, StepResult, check_report,
    },
    trace::{TraceContext, trace_id},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

/// Reports of one batch.
const BATCH_REPORTS: usize = 1000;
/// Batches under way: the engine commits one while the next arrives. More would only be smaller.
const BATCHES: usize = 2;
/// Reports that wait for a batch; more reporters wait for room, within their deadline.
const WAITING: usize = 4096;

/// By which door a report came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// `NestJS` TCP.
    Tcp,
    /// HTTP.
    Http,
    /// The reply of a plugin to its task.
    Reply,
}

impl Door {
    /// The door's name in metrics and logs.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Http => "http",
            Self::Reply => "reply",
        }
    }
}

/// A report as it passes through: only the engine looks into its outputs.
type Report = StepReport<RawOutputs>;

/// The report core.
#[derive(Debug)]
pub(crate) struct Reports {
    engine: Arc<Engine>,
    batcher: Batcher<Report, ReportOutcome>,
    deadline: Duration,
    metrics: Arc<Metrics>,
    /// Ends tries for which nobody waits.
    stop: CancellationToken,
}

impl Reports {
    /// Starts the core. `stop` ends what still insists.
    pub(crate) fn start(
        engine: Arc<Engine>,
        max_frame_bytes: usize,
        deadline: Duration,
        metrics: Arc<Metrics>,
        stop: CancellationToken,
    ) -> Self {
        let limits = BatchLimits {
            items: BATCH_REPORTS,
            bytes: max_frame_bytes,
            pipelined: BATCHES,
            waiting: WAITING,
        };
        let batches = Arc::clone(&engine);
        let batcher = Batcher::start(limits, move |reports| {
            let engine = Arc::clone(&batches);
            async move { engine.step_reports(reports).await }
        });
        Self { engine, batcher, deadline, metrics, stop }
    }

    /// Takes the body of a report whose access and size are judged already. `trace` is the W3C trace
    /// context of the request, for bodies that name none.
    pub(crate) async fn take(
        &self,
        door: Door,
        kind: ReportKind,
        body: &Json,
        trace: Option<&TraceContext>,
    ) -> ReportOutcome {
        let came = Instant::now();
        let (outcome, about) = match check_report(kind, body) {
            Ok(report) => {
                let report = report.within(trace);
                (self.hand_over(&report).await, Some(report))
            }
            Err(error) => (ReportOutcome::Err(error), None),
        };
        self.account(door, kind, about.as_ref(), &outcome, came);
        outcome
    }

    /// Takes a report that nobody will send again (an event, the reply to a task): hands it over
    /// until the engine has answered.
    pub(crate) async fn insist(&self, door: Door, report: &Report) -> ReportOutcome {
        let came = Instant::now();
        let mut attempt = 0;
        let outcome = loop {
            let outcome = self.hand_over(report).await;
            let again = matches!(&outcome, ReportOutcome::Err(error) if error.retryable);
            if !again || !retry::pause(attempt, &self.stop).await {
                break outcome;
            }
            attempt = attempt.saturating_add(1);
        };
        self.account(door, kind_of(&report.body), Some(report), &outcome, came);
        outcome
    }

    /// Takes the body of a report that came as an event.
    pub(crate) async fn take_event(&self, door: Door, kind: ReportKind, body: &Json) -> ReportOutcome {
        match check_report(kind, body) {
            Ok(report) => self.insist(door, &report).await,
            Err(error) => {
                let outcome = ReportOutcome::Err(error);
                self.account(door, kind, None, &outcome, Instant::now());
                outcome
            }
        }
    }

    /// A result was too large to be taken: its step fails with that reason, so that nobody sends it
    /// for ever (failure matrix row 21). The answer is what the reporter is told.
    pub(crate) async fn fail_oversize(
        &self,
        door: Door,
        execution_id: ExecutionId,
        limit: usize,
    ) -> RpcError {
        let error = too_large(limit);
        let result = StepResult::failed(StepError::of(ErrorCode::PayloadTooLarge, error.message.clone()));
        let report = StepReport { execution_id, run_id: None, body: ReportBody::Result(result) };
        let came = Instant::now();
        let outcome = self.hand_over(&report).await;
        self.account(door, ReportKind::Result, Some(&report), &outcome, came);
        match outcome {
            // Not known to have failed: the reporter sends it again, and it fails then.
            ReportOutcome::Err(away) if away.retryable => away,
            _ => error,
        }
    }

    async fn hand_over(&self, report: &Report) -> ReportOutcome {
        let _waits = Counted::new(&self.metrics);
        let answered = tokio::time::timeout(self.deadline, self.submit(report.clone())).await;
        answered.ok().flatten().unwrap_or_else(|| {
            let text =
                format!("the engine has not answered within {} ms; try again", self.deadline.as_millis());
            ReportOutcome::Err(RpcError::new(ErrorCode::EngineUnavailable, text))
        })
    }

    async fn submit(&self, report: Report) -> Option<ReportOutcome> {
        match (self.engine.near(), report.run_id) {
            (Some(engine), Some(run_id)) => Some(engine.step_report(run_id, report).await),
            // The runs of reports that name none are looked up, many with one query.
            _ => {
                let bytes = report.expected_bytes();
                self.batcher.submit(report, bytes).await
            }
        }
    }

    /// Puts a report on record; `about` is what could be read of it.
    fn account(
        &self,
        door: Door,
        kind: ReportKind,
        about: Option<&Report>,
        outcome: &ReportOutcome,
        came: Instant,
    ) {
        let took = came.elapsed();
        self.metrics.report(door.as_str(), name_of(kind), outcome.code(), took);
        tracing::debug!(
            event = "report_answered",
            door = door.as_str(),
            kind = name_of(kind),
            execution_id = about.map(|report| tracing::field::display(report.execution_id)),
            trace_id = about.and_then(StepReport::traceparent).and_then(trace_id),
            code = outcome.code(),
            duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            reason = match outcome {
                ReportOutcome::Err(error) => Some(error.message.as_str()),
                ReportOutcome::Ok(_) => None,
            },
            "report answered"
        );
    }
}

/// Counts a report while it waits for the engine.
struct Counted<'m>(&'m Metrics);

impl<'m> Counted<'m> {
    fn new(metrics: &'m Metrics) -> Self {
        metrics.reports_in_flight.inc();
        Self(metrics)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.reports_in_flight.dec();
    }
}

/// What the reporter of a report beyond the limit is told.
pub(crate) fn too_large(limit: usize) -> RpcError {
    RpcError::new(
        ErrorCode::PayloadTooLarge,
        format!(
            "the report is larger than the limit of {limit} bytes; store large outputs as files and report their ids"
        ),
    )
}

/// The kind's name in metrics and logs, and in the HTTP path.
pub(crate) fn name_of(kind: ReportKind) -> &'static str {
    match kind {
        ReportKind::Ack => "ack",
        ReportKind::Heartbeat => "heartbeat",
        ReportKind::Partial => "partial",
        ReportKind::Result => "result",
    }
}

fn kind_of(body: &ReportBody<RawOutputs>) -> ReportKind {
    match body {
        ReportBody::Ack(_) => ReportKind::Ack,
        ReportBody::Heartbeat(_) => ReportKind::Heartbeat,
        ReportBody::Partial(_) => ReportKind::Partial,
        ReportBody::Result(_) => ReportKind::Result,
    }
}
