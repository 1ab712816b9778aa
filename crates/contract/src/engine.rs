//! The engine as a neighbour in the same process reaches it: the questions and answers of protocol
//! section 5 as values instead of frames.

use crate::report::{DispatchOutcome, RawOutputs, ReportOutcome, StepReport};
use std::{fmt, pin::Pin};

/// Answers that are under way, in the order of what was asked.
pub type Answers<'a> = Pin<Box<dyn Future<Output = Vec<ReportOutcome>> + Send + 'a>>;

/// The engine's door without a wire between. Whoever needs it is given it when services are put
/// together in one process; the services still do not know each other.
pub trait NearEngine: fmt::Debug + Send + Sync {
    /// `runtime.step_reports`: the answers come when the reports are durable.
    fn step_reports(&self, reports: Vec<StepReport<RawOutputs>>) -> Answers<'_>;

    /// `runtime.dispatch_outcome`.
    fn dispatch_outcomes(&self, outcomes: Vec<DispatchOutcome>) -> Answers<'_>;
}
