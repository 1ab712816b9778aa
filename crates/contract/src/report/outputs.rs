//! The outputs in a report, taken apart or not: a door checks and hands on, only the engine looks inside.

use super::{DispatchOutcome, Dispatched, Partial, ReportBody, StepError, StepReport, StepResult, Values};
use crate::{Json, RpcError};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// What a report can hold its outputs as.
pub trait OutputsForm: Default + Serialize + for<'de> Deserialize<'de> {
    /// Is there no output?
    fn are_none(&self) -> bool;

    /// The JSON text of the object.
    fn text(&self) -> Cow<'_, str>;
}

impl OutputsForm for Values {
    fn are_none(&self) -> bool {
        self.is_empty()
    }

    fn text(&self) -> Cow<'_, str> {
        // Its keys are strings and its values are JSON: it always serialises.
        Cow::Owned(serde_json::to_string(self).unwrap_or_default())
    }
}

/// Outputs as they were sent: the text of an object whose names are texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawOutputs(Json);

impl RawOutputs {
    /// `raw`, if it is an object of values by name.
    pub fn of(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        let is_object = text.starts_with('{');
        // Only by an escape can a name be no text: a lone surrogate.
        let is_named = !text.contains("\\u") || serde_json::from_str::<Values>(text).is_ok();
        (is_object && is_named).then(|| Self(raw.to_owned().into()))
    }

    /// The values by name.
    ///
    /// # Errors
    /// `invalid_report`, where a sender did not check what it sent.
    pub fn read(&self) -> Result<Values, RpcError> {
        self.0.read().map_err(|_| super::read::no_outputs())
    }
}

impl Default for RawOutputs {
    fn default() -> Self {
        Self(Json::empty_object())
    }
}

impl OutputsForm for RawOutputs {
    fn are_none(&self) -> bool {
        self.text().trim_matches(['{', '}', ' ', '\n', '\r', '\t']).is_empty()
    }

    fn text(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.0.text())
    }
}

impl Serialize for RawOutputs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawOutputs {
    /// From a JSON text in memory only, which it borrows.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::of(<&RawValue>::deserialize(deserializer)?)
            .ok_or_else(|| D::Error::custom("outputs must be an object keyed by output name"))
    }
}

impl<O> Partial<O> {
    /// The partial outputs in another form.
    pub fn with_outputs<P>(self, change: impl FnOnce(O) -> P) -> Partial<P> {
        Partial { sequence: self.sequence, outputs: change(self.outputs) }
    }
}

impl<O> StepResult<O> {
    /// The result with its outputs in another form.
    pub fn with_outputs<P>(self, change: impl FnOnce(O) -> P) -> StepResult<P> {
        let Self { status, error, traceparent, tracestate, outputs } = self;
        StepResult { status, outputs: change(outputs), error, traceparent, tracestate }
    }
}

impl StepError {
    /// About the bytes that it takes on the wire.
    fn expected_bytes(&self) -> usize {
        self.message.len() + self.details.as_ref().map_or(0, |details| details.text().len())
    }
}

impl DispatchOutcome {
    /// About the bytes that it takes on the wire.
    pub fn expected_bytes(&self) -> usize {
        // Two ids, the kind and the code.
        const AROUND: usize = 256;
        AROUND
            + match &self.outcome {
                Dispatched::Delivered { .. } => 0,
                Dispatched::Failed(error) | Dispatched::Refused(error) => error.expected_bytes(),
            }
    }
}

impl StepReport<RawOutputs> {
    /// About the bytes of its JSON, a little more rather than less.
    pub fn expected_bytes(&self) -> usize {
        // Keys, ids and status; traces.
        const AROUND: usize = 320;
        let payload = match &self.body {
            ReportBody::Ack(ack) => ack.worker_id.as_ref().map_or(0, String::len),
            ReportBody::Heartbeat(heartbeat) => heartbeat.message.as_ref().map_or(0, String::len),
            ReportBody::Partial(partial) => partial.outputs.0.text().len(),
            ReportBody::Result(result) => {
                let error = result.error.as_ref().map_or(0, StepError::expected_bytes);
                result.outputs.0.text().len() + error
            }
        };
        AROUND + payload
    }

    /// The report with its outputs taken apart.
    ///
    /// # Errors
    /// As of [`RawOutputs::read`].
    pub fn read(self) -> Result<StepReport, RpcError> {
        let body = match self.body {
            ReportBody::Ack(ack) => ReportBody::Ack(ack),
            ReportBody::Heartbeat(heartbeat) => ReportBody::Heartbeat(heartbeat),
            ReportBody::Partial(partial) => {
                let outputs = partial.outputs.read()?;
                ReportBody::Partial(partial.with_outputs(|_| outputs))
            }
            ReportBody::Result(result) => {
                let outputs = result.outputs.read()?;
                ReportBody::Result(result.with_outputs(|_| outputs))
            }
        };
        Ok(StepReport { execution_id: self.execution_id, run_id: self.run_id, body })
    }
}
