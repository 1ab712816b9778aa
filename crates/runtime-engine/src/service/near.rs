//! The door for neighbours in the same process.

use super::{
    engine::{Engine, WeakEngine, stopping},
    reports,
};
use contract::{
    RunId,
    engine::{Answer, NearEngine},
    report::{DispatchOutcome, RawOutputs, ReportOutcome, StepReport, StepReports},
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

    /// The engine, unless it takes no more questions.
    fn engine(&self) -> Option<Engine> {
        self.engine.upgrade().filter(|_| !self.stop.is_cancelled())
    }
}

impl NearEngine for Near {
    fn step_report(&self, run_id: RunId, report: StepReport<RawOutputs>) -> Answer<'_> {
        Box::pin(async move {
            match self.engine() {
                Some(engine) => reports::step_report(&engine, run_id, report).await,
                None => ReportOutcome::Err(stopping()),
            }
        })
    }

    fn step_reports(&self, reports: Vec<StepReport<RawOutputs>>) -> Answer<'_, Vec<ReportOutcome>> {
        Box::pin(async move {
            match self.engine() {
                Some(engine) => reports::step_reports(&engine, StepReports { reports }).await.outcomes,
                None => vec![ReportOutcome::Err(stopping()); reports.len()],
            }
        })
    }

    fn dispatch_outcome(&self, outcome: DispatchOutcome) -> Answer<'_> {
        Box::pin(async move {
            match self.engine() {
                Some(engine) => reports::dispatch_outcome(&engine, outcome).await,
                None => ReportOutcome::Err(stopping()),
            }
        })
    }
}
