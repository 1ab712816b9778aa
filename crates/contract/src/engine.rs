//! The engine as a neighbour in the same process reaches it: the questions and answers of protocol
//! section 5 as values instead of frames.

use crate::{
    RunId,
    report::{DispatchOutcome, RawOutputs, ReportOutcome, StepReport},
};
use std::{fmt, pin::Pin};

/// An answer that is under way.
pub type Answer<'a, T = ReportOutcome> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The engine's door without a wire between. Whoever needs it is given it when services are put
/// together in one process; the services still do not know each other.
pub trait NearEngine: fmt::Debug + Send + Sync {
    /// `runtime.step_reports` of one, about this run: the answer comes when the report is durable.
    fn step_report(&self, run_id: RunId, report: StepReport<RawOutputs>) -> Answer<'_>;

    /// `runtime.step_reports`: the answers are in the order of the reports. Of those that name no run
    /// many are looked up at once.
    fn step_reports(&self, reports: Vec<StepReport<RawOutputs>>) -> Answer<'_, Vec<ReportOutcome>>;

    /// `runtime.dispatch_outcome` of one.
    fn dispatch_outcome(&self, outcome: DispatchOutcome) -> Answer<'_>;
}
