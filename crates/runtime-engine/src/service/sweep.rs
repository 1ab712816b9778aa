//! The sweep: finds attempts whose deadlines have passed, by the database's clock. Tasks that nobody
//! took are put on their lanes again; deliveries and steps that took too long fail (protocol
//! section 5). It repairs whatever a flushed queue, a lost notice or a stopped engine left behind, and
//! watches that clock for steps.

use super::{committer::Command, engine::Engine, metrics::Label};
use crate::core::Input;
use queue::{Lane, Queue};
use std::time::Duration;
use storage::runs::{AttemptLane, AttemptState, DueAttempt};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Attempts that are taken at once.
const BATCH: u32 = 500;

/// While a lane holds so many items, tasks are not put there again: what is there has to be worked
/// off first, and is most likely these very tasks.
const LANE_CEILING: u64 = 10_000;

#[derive(Debug)]
pub(super) struct Sweep {
    engine: Engine,
    queue: Queue,
    /// Until one delivery deadline after this moment nobody who had claimed a task is declared lost: the
    /// engine may have been away while the ack came.
    started: Instant,
    every: Duration,
}

impl Sweep {
    /// A sweep of an engine that starts now.
    pub(super) fn new(engine: Engine, queue: Queue, every: Duration) -> Self {
        Self { engine, queue, started: Instant::now(), every }
    }

    pub(super) async fn run(self, stop: CancellationToken) {
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            // First: what a step of the clock made overdue is not.
            if let Err(error) = self.engine.shared.clock.watch().await {
                tracing::warn!(event = "clock_unread", "the database's clock could not be read: {error}");
                // Without it nobody can be said to be late.
                continue;
            }
            if let Err(error) = self.once(&stop).await {
                tracing::warn!(event = "sweep_failed", "overdue attempts could not be read: {error}");
            }
        }
    }

    async fn once(&self, stop: &CancellationToken) -> Result<(), storage::Error> {
        let policy = &self.engine.shared.policy;
        let hold = policy.republish_after;
        while !stop.is_cancelled() {
            let spares_claimed = self.started.elapsed() < policy.delivery_timeout;
            let latest = self.engine.shared.clock.now();
            let due = self.engine.shared.storage.runs().take_due(BATCH, hold, spares_claimed, latest).await?;
            let was_last = due.len() < BATCH as usize;
            self.handle(due).await;
            if was_last {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn handle(&self, due: Vec<DueAttempt>) {
        if due.is_empty() {
            return;
        }
        let full = self.full_lanes().await;
        for attempt in due {
            let DueAttempt { execution_id, run_id, state, lane, .. } = attempt;
            let (done, command) = match state {
                _ if matches!(lane, AttemptLane::Timer | AttemptLane::Person) => {
                    ("timer_due", Some(Command::input(run_id, Input::TimerDue(execution_id), None)))
                }
                AttemptState::Queued if full.contains(&lane) => ("lane_full", None),
                AttemptState::Queued => ("republished", Some(Command::republish(run_id, execution_id))),
                AttemptState::Dispatched => (
                    "delivery_overdue",
                    Some(Command::input(run_id, Input::DeliveryOverdue(execution_id), None)),
                ),
                AttemptState::Running => {
                    ("step_overdue", Some(Command::input(run_id, Input::StepOverdue(execution_id), None)))
                }
            };
            self.engine.shared.metrics.swept.get_or_create(&Label::of(done)).inc();
            if let Some(command) = command {
                self.engine.send(command).await;
            }
        }
    }

    /// The lanes that hold so much that nothing is put there again; the other one goes on. A queue that
    /// does not answer is not full: publishing fails by itself then.
    async fn full_lanes(&self) -> Vec<AttemptLane> {
        let mut full = Vec::new();
        for (lane, of) in [(Lane::Plugin, AttemptLane::Plugin), (Lane::Executor, AttemptLane::Executor)] {
            if self.queue.depth(lane).await.is_ok_and(|depth| depth >= LANE_CEILING) {
                full.push(of);
            }
        }
        full
    }
}
