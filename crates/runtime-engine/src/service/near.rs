//! The door for neighbours in the same process.

use super::{
    engine::{WeakEngine, stopping},
    reports,
};
use contract::{
    engine::{Answers, NearEngine},
    report::{DispatchOutcome, DispatchOutcomes, RawOutputs, ReportOutcome, StepReport, StepReports},
};
use tokio_util::sync::CancellationToken;

/// Asks the engine as long as it has not been told to stop.
#[derive(Debug)]
pub(super) struct Near {
    engine: WeakEngine,
    stop: CancellationToken,
}

impl Near {
    pub(super) fn new(engine: WeakEngine, stop: CancellationToken) -> Self {
        Self { engine, stop }
    }

    /// The engine, or the answer to so many questions that it no longer takes.
    fn engine(&self, questions: usize) -> Result<super::engine::Engine, Vec<ReportOutcome>> {
        let engine = self.engine.upgrade().filter(|_| !self.stop.is_cancelled());
        engine.ok_or_else(|| vec![ReportOutcome::Err(stopping()); questions])
    }
}

impl NearEngine for Near {
    fn step_reports(&self, reports: Vec<StepReport<RawOutputs>>) -> Answers<'_> {
        Box::pin(async move {
            match self.engine(reports.len()) {
                Ok(engine) => reports::step_reports(&engine, StepReports { reports }).await.outcomes,
                Err(stopping) => stopping,
            }
        })
    }

    fn dispatch_outcomes(&self, outcomes: Vec<DispatchOutcome>) -> Answers<'_> {
        Box::pin(async move {
            match self.engine(outcomes.len()) {
                Ok(engine) => {
                    reports::dispatch_outcomes(&engine, DispatchOutcomes { outcomes }).await.outcomes
                }
                Err(stopping) => stopping,
            }
        })
    }
}
