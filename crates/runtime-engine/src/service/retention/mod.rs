//! Retention: deletes runs that ended long ago, or of which the process has many newer ones, in the
//! background (`docs/processes.md`, *Retention*).
//!
//! All work is cut into small transactions with a pause after each at least as long as it took, so that
//! deleting takes half of one connection's time at most. A lease keeps engines from doing the same work
//! twice; when it fails nothing but work is lost, because what one has deleted the other does not find.

mod budget;
mod rules;

pub use rules::Retention;

use super::{engine::Engine, metrics::Metrics};
use budget::Budget;
use contract::{ExecutionId, Millis, ProcessId, RunId};
use queue::Queue;
use std::time::Duration;
use storage::runs::{Prunable, Runs};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Runs that are deleted by one transaction.
const RUNS: u32 = 200;
/// Events that are deleted by one transaction.
const EVENTS: u32 = 2_000;
/// Attempts that are looked at by one transaction.
const ATTEMPTS: u32 = 1_000;

/// So long the key of a run that has ended is remembered at least, whatever the rules say: whoever
/// repeats a start, and the schedules that make up for a missed firing, rely on it.
const KEYS_REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// The lease of whoever prunes.
const LEASE: &str = "runtime-engine-retention";
/// How long it is held beyond the next sweep.
const LEASE_GRACE: Duration = Duration::from_secs(30);

/// Deletes what the rules do not keep.
#[derive(Debug)]
pub(super) struct Pruner {
    engine: Engine,
    queue: Queue,
    rules: Retention,
    holder: String,
    /// Where the next look at the runs begins.
    runs_from: Option<RunId>,
    /// Where the next look at the processes begins.
    processes_from: Option<ProcessId>,
    /// Where the next look at the attempts begins.
    attempts_from: Option<ExecutionId>,
    /// Were runs deleted since the last look at the attempts began? Also by an engine that is gone.
    has_orphans: bool,
}

impl Pruner {
    pub(super) fn new(engine: Engine, queue: Queue, rules: Retention) -> Self {
        Self {
            engine,
            queue,
            rules,
            holder: Uuid::now_v7().to_string(),
            runs_from: None,
            processes_from: None,
            attempts_from: None,
            has_orphans: true,
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        if self.rules.keeps_everything() {
            return;
        }
        let mut ticks = interval(self.rules.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => {}
            }
            if !self.is_chosen().await {
                continue;
            }
            if let Err(error) = self.sweep(&stop).await {
                tracing::warn!(event = "retention_failed", "old runs stay until the next sweep: {error}");
            }
        }
        // Another engine need not wait for the lease to end.
        let _ = self.queue.release(LEASE, &self.holder).await;
    }

    /// Does this engine prune now? Without a queue that answers every engine does.
    async fn is_chosen(&self) -> bool {
        let ttl = self.rules.interval.saturating_add(LEASE_GRACE);
        self.queue.lease(LEASE, &self.holder, ttl).await.unwrap_or(true)
    }

    async fn sweep(&mut self, stop: &CancellationToken) -> Result<(), storage::Error> {
        let began = Instant::now();
        let now = self.engine.shared.clock.now();
        let mut pruned = 0;
        // What was left of the last sweep first: runs are not deleted faster than their events.
        if self.drop_events(stop).await? {
            pruned = self.by_age(now, stop).await? + self.by_count(now, stop).await?;
            self.drop_events(stop).await?;
        }
        self.drop_attempts(now, stop).await?;
        if pruned > 0 {
            let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::info!(event = "runs_pruned", runs = pruned, duration_ms, "old runs were deleted");
        }
        Ok(())
    }

    /// Deletes runs that ended longer ago than the rules keep them; how many.
    async fn by_age(&mut self, now: Millis, stop: &CancellationToken) -> Result<u64, storage::Error> {
        let Some(max_age) = self.rules.max_age else { return Ok(0) };
        let runs = self.runs();
        let ended_before = before(now, max_age);
        let rule = Prunable { ended_before, keyed_before: ended_before.min(before(now, KEYS_REMEMBERED)) };
        let (mut pruned, mut budget) = (0, Budget::new(stop));
        loop {
            let look = runs.prunable(self.runs_from, rule, RUNS).await?;
            pruned += self.prune(&runs, &look.found, "age").await?;
            self.runs_from = look.next;
            if look.next.is_none() || !budget.goes_on().await {
                return Ok(pruned);
            }
        }
    }

    /// Deletes runs beyond the newest ones of their processes; how many.
    async fn by_count(&mut self, now: Millis, stop: &CancellationToken) -> Result<u64, storage::Error> {
        let Some(keep) = self.rules.max_runs else { return Ok(0) };
        let runs = self.runs();
        let keyed_before = before(now, KEYS_REMEMBERED);
        let (mut pruned, mut budget) = (0, Budget::new(stop));
        loop {
            let Some(process_id) = runs.next_process(self.processes_from).await? else {
                self.processes_from = None;
                return Ok(pruned);
            };
            let found = runs.beyond_newest(process_id, keep, keyed_before, RUNS).await?;
            pruned += self.prune(&runs, &found, "count").await?;
            // A full page is followed by more of the same process.
            if found.len() < RUNS as usize {
                self.processes_from = Some(process_id);
            }
            if !budget.goes_on().await {
                return Ok(pruned);
            }
        }
    }

    async fn prune(
        &mut self,
        runs: &Runs,
        found: &[RunId],
        reason: &'static str,
    ) -> Result<u64, storage::Error> {
        let pruned = runs.prune(found).await?;
        self.metrics().pruned(reason, pruned);
        self.has_orphans |= pruned > 0;
        Ok(pruned)
    }

    /// Deletes events of pruned runs; false when some are left.
    async fn drop_events(&self, stop: &CancellationToken) -> Result<bool, storage::Error> {
        let (runs, mut budget) = (self.runs(), Budget::new(stop));
        while runs.drop_events(EVENTS).await? {
            if !budget.goes_on().await {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Deletes attempts whose run is gone.
    async fn drop_attempts(&mut self, now: Millis, stop: &CancellationToken) -> Result<(), storage::Error> {
        if self.attempts_from.is_none() && !std::mem::take(&mut self.has_orphans) {
            return Ok(());
        }
        let (runs, mut budget) = (self.runs(), Budget::new(stop));
        // By age alone, nothing that is younger is gone.
        let made_before = match (self.rules.max_runs, self.rules.max_age) {
            (None, Some(max_age)) => Some(before(now, max_age)),
            _ => None,
        };
        loop {
            let look = runs.drop_attempts(self.attempts_from, made_before, ATTEMPTS).await?;
            self.attempts_from = look.next;
            if look.next.is_none() || !budget.goes_on().await {
                return Ok(());
            }
        }
    }

    fn runs(&self) -> Runs {
        self.engine.shared.storage.runs()
    }

    fn metrics(&self) -> &Metrics {
        &self.engine.shared.metrics
    }
}

/// So long before a moment.
fn before(now: Millis, age: Duration) -> Millis {
    Millis(now.0.saturating_sub(Millis(0).plus(age).0))
}
