//! Reports about steps and what a reporter is told (protocol sections 3, 4 and 5).

mod outputs;
mod read;

pub use outputs::{OutputsForm, RawOutputs};
pub use read::{check_report, read_report, reply_is_result};

use crate::{
    Digest, ErrorCode, ExecutionId, Json, RpcError, RunId, canonical, json::present, trace::TraceContext,
};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// Values by output name.
pub type Values = IndexMap<String, Json>;

/// One report about one attempt, from whichever door it came. With [`RawOutputs`] nobody has taken its
/// outputs apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(bound(serialize = "O: OutputsForm", deserialize = "O: OutputsForm"))]
pub struct StepReport<O = Values> {
    /// The attempt.
    pub execution_id: ExecutionId,
    /// The run, where the reporter named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// What is reported.
    pub body: ReportBody<O>,
}

impl<O> StepReport<O> {
    /// The `traceparent` of the W3C trace context that the reporter named.
    pub fn traceparent(&self) -> Option<&str> {
        match &self.body {
            ReportBody::Ack(ack) => ack.traceparent.as_deref(),
            ReportBody::Result(result) => result.traceparent.as_deref(),
            ReportBody::Heartbeat(_) | ReportBody::Partial(_) => None,
        }
    }

    /// Its `tracestate`.
    pub fn tracestate(&self) -> Option<&str> {
        match &self.body {
            ReportBody::Ack(ack) => ack.tracestate.as_deref(),
            ReportBody::Result(result) => result.tracestate.as_deref(),
            ReportBody::Heartbeat(_) | ReportBody::Partial(_) => None,
        }
    }

    /// With this trace context, unless its body names one. Reports that begin or end no work carry none.
    #[must_use]
    pub fn within(mut self, trace: Option<&TraceContext>) -> Self {
        let (traceparent, tracestate) = match &mut self.body {
            ReportBody::Ack(ack) => (&mut ack.traceparent, &mut ack.tracestate),
            ReportBody::Result(result) => (&mut result.traceparent, &mut result.tracestate),
            ReportBody::Heartbeat(_) | ReportBody::Partial(_) => return self,
        };
        if let Some(trace) = trace
            && traceparent.is_none()
        {
            *traceparent = Some(trace.traceparent.clone());
            tracestate.clone_from(&trace.tracestate);
        }
        self
    }
}

/// What a report says. Adjacently tagged with the tag first, so that payloads stay raw text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
#[serde(bound(serialize = "O: OutputsForm", deserialize = "O: OutputsForm"))]
pub enum ReportBody<O = Values> {
    /// Work has begun.
    Ack(Ack),
    /// Work goes on.
    Heartbeat(Heartbeat),
    /// Outputs before the end.
    Partial(Partial<O>),
    /// Work has ended.
    Result(StepResult<O>),
}

/// Work has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ack {
    /// Who took the task, so that two takers of one task can tell who won; built-in executors send
    /// it, plugins need not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// W3C trace context of the reporter's work, where it named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// What tracing systems add to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

/// Work goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    /// From 0 to 1, as the reporter wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Json>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Outputs before the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(bound(serialize = "O: OutputsForm", deserialize = "O: OutputsForm"))]
pub struct Partial<O = Values> {
    /// Counts up per attempt; a number that was seen before is a duplicate.
    pub sequence: u64,
    /// Values by output name.
    #[serde(default)]
    pub outputs: O,
}

/// Work has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(bound(serialize = "O: OutputsForm", deserialize = "O: OutputsForm"))]
pub struct StepResult<O = Values> {
    /// How it ended.
    pub status: StepStatus,
    /// Values by output name; keys beyond the declared outputs are kept and produce nothing.
    #[serde(default, skip_serializing_if = "OutputsForm::are_none")]
    pub outputs: O,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<StepError>,
    /// W3C trace context of the reporter's work, where it named one. It tells nothing about the result
    /// and does not count where two results are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// What tracing systems add to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepStatus {
    /// It produced its outputs.
    Ok,
    /// It failed.
    Error,
}

/// Why a step failed. `code` is the plugin's own word or one of [`ErrorCode`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepError {
    /// Machine-readable reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// `Some(false)` is never retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// Anything more.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub details: Option<Json>,
}

impl StepError {
    /// An error of the platform itself.
    pub fn of(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code: Some(code.as_str().to_owned()),
            message: message.into(),
            retryable: Some(code.retryable()),
            details: None,
        }
    }
}

impl<O: OutputsForm> StepResult<O> {
    /// A success.
    pub fn ok(outputs: O) -> Self {
        Self { status: StepStatus::Ok, outputs, error: None, traceparent: None, tracestate: None }
    }

    /// A failure.
    pub fn failed(error: StepError) -> Self {
        let (status, outputs) = (StepStatus::Error, O::default());
        Self { status, outputs, error: Some(error), traceparent: None, tracestate: None }
    }

    /// The digest by which two result reports are the same, over any door: canonical JSON of
    /// status, outputs and error.
    pub fn digest(&self) -> Digest {
        let error = self.error.as_ref().map(|error| Json::of(error).unwrap_or_default());
        let outputs = self.outputs.text();
        // In the order of their names.
        let mut fields = Vec::with_capacity(3);
        fields.extend(error.as_ref().map(|error| ("error", error.text())));
        fields.extend((!self.outputs.are_none()).then_some(("outputs", outputs.as_ref())));
        fields.push(("status", self.status.json()));
        canonical::digest_object(&fields).unwrap_or_else(|| self.digest_as_written())
    }

    /// Of what no tree can hold (lone surrogates, very deep nesting).
    fn digest_as_written(&self) -> Digest {
        #[derive(Serialize)]
        struct Compared<'r> {
            status: StepStatus,
            #[serde(skip_serializing_if = "IndexMap::is_empty")]
            outputs: Values,
            #[serde(skip_serializing_if = "Option::is_none")]
            error: Option<&'r StepError>,
        }
        let outputs = serde_json::from_str(&self.outputs.text()).unwrap_or_default();
        let compared = Compared { status: self.status, outputs, error: self.error.as_ref() };
        canonical::digest_json(&Json::of(&compared).unwrap_or_default())
    }
}

impl StepStatus {
    /// Its JSON text.
    fn json(self) -> &'static str {
        match self {
            Self::Ok => "\"ok\"",
            Self::Error => "\"error\"",
        }
    }
}

/// What a reporter is told when the answer is 200: the codes of the table in section 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accepted {
    /// Stored now.
    Applied,
    /// The same report was stored before.
    Duplicate,
}

/// The engine's answer to one report: `Ok` after it is durable, else the error of the table.
/// On the wire `{"ok": {"status": "applied"}}` or `{"err": {...}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportOutcome {
    /// 200.
    Ok(Receipt),
    /// Everything else; `details.previousState` tells what became of a superseded attempt.
    Err(RpcError),
}

/// What a 200 says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// `applied` or `duplicate`.
    pub status: Accepted,
    /// For acks: the worker whose ack counts. A built-in executor runs the task only if it is its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
}

impl ReportOutcome {
    /// Stored now.
    pub fn applied() -> Self {
        Self::Ok(Receipt { status: Accepted::Applied, worker_id: None })
    }

    /// Stored before.
    pub fn duplicate() -> Self {
        Self::Ok(Receipt { status: Accepted::Duplicate, worker_id: None })
    }

    /// The code, for metrics and logs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Ok(Receipt { status: Accepted::Applied, .. }) => "applied",
            Self::Ok(Receipt { status: Accepted::Duplicate, .. }) => "duplicate",
            Self::Err(error) => error.code.as_str(),
        }
    }
}

/// Which of the four reports a door got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportKind {
    /// [`Ack`]
    Ack,
    /// [`Heartbeat`]
    Heartbeat,
    /// [`Partial`]
    Partial,
    /// [`StepResult`]
    Result,
}

/// `runtime.step_reports`: a batch, answered item by item in the same order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "O: OutputsForm", deserialize = "O: OutputsForm"))]
pub struct StepReports<O = Values> {
    /// The reports.
    pub reports: Vec<StepReport<O>>,
}

/// The answer to `runtime.step_reports` and `runtime.dispatch_outcome`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepReportOutcomes {
    /// One per item, in order.
    pub outcomes: Vec<ReportOutcome>,
}

/// `runtime.dispatch_outcome`: a batch, answered item by item in the same order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DispatchOutcomes {
    /// How dispatches ended.
    pub outcomes: Vec<DispatchOutcome>,
}

/// How the dispatch of one task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatchOutcome {
    /// The attempt.
    pub execution_id: ExecutionId,
    /// The run.
    pub run_id: RunId,
    /// How it ended.
    pub outcome: Dispatched,
}

/// How the dispatch of a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind", content = "value")]
pub enum Dispatched {
    /// The plugin has it: it replied, or (`implicit`) the frame was written whole to a connection
    /// that still stood at the delivery deadline.
    #[serde(rename_all = "camelCase")]
    Delivered {
        /// Without a reply from the plugin.
        implicit: bool,
    },
    /// It could not be delivered (connection refused or lost, plugin offline): tried again as a new
    /// attempt within the delivery budget.
    Failed(StepError),
    /// Policy or secrets refuse it for good: the step fails once with this error.
    Refused(StepError),
}
