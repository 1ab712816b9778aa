//! The engine's metrics, in the Prometheus text format.

use contract::{ErrorCode, RpcError};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Registry, Unit},
};
use std::sync::atomic::Ordering;
use wire::server::{Refusal, Stats};

/// A count by one code or state.
type Counters = Family<Label, Counter>;

/// Why a connection was refused.
type Reason = [(&'static str, &'static str); 1];

/// What is counted by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Label {
    outcome: String,
}

impl Label {
    pub(crate) fn of(outcome: &str) -> Self {
        Self { outcome: outcome.to_owned() }
    }
}

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    /// Runs by what became of them: `started`, `finished`, `failed`, `canceled`.
    pub(crate) runs: Counters,
    /// Reports by the answer that their reporter got.
    pub(crate) reports: Counters,
    /// Attempts that the sweep found overdue, by what it did.
    pub(crate) swept: Counters,
    /// Inputs decided together.
    pub(crate) batch_size: Histogram,
    /// From the begin of a transaction to its end.
    pub(crate) commit_seconds: Histogram,
    /// Decisions made again because another engine was faster.
    pub(crate) conflicts: Counter,
    /// Tasks and notices that could not be published; the sweep repairs it.
    pub(crate) words_dropped: Counter,
    /// Outstanding attempts in the database.
    pub(crate) outstanding: Gauge,
    /// Transactions that the database did not take or answer; nothing in them was answered as stored.
    pub(crate) commits_failed: Counter,
    /// Runs that retention deleted, by its rule.
    runs_pruned: Family<Reason, Counter>,
    /// Since the start of the oldest run that has ended and is kept.
    pub(crate) oldest_run_seconds: Gauge,
    /// Requests refused for their credential.
    pub(crate) unauthorized: Counter,
    /// Connections refused, by reason: the door's own count, shown here.
    refused: Family<Reason, Counter>,
    connections: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("conveyor_engine");
        let this = Self {
            runs: Counters::default(),
            reports: Counters::default(),
            swept: Counters::default(),
            batch_size: Histogram::new([1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]),
            commit_seconds: Histogram::new([
                0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0,
            ]),
            conflicts: Counter::default(),
            words_dropped: Counter::default(),
            outstanding: Gauge::default(),
            commits_failed: Counter::default(),
            runs_pruned: Family::default(),
            oldest_run_seconds: Gauge::default(),
            unauthorized: Counter::default(),
            refused: Family::default(),
            connections: Gauge::default(),
            registry: Registry::default(),
        };
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Build of the engine", version);
        registry.register("runs", "Runs by what became of them", this.runs.clone());
        registry.register("reports", "Step reports by the answer", this.reports.clone());
        registry.register("swept", "Overdue attempts by what was done", this.swept.clone());
        registry.register("batch_size", "Inputs decided together", this.batch_size.clone());
        registry.register_with_unit(
            "commit",
            "Duration of a commit",
            Unit::Seconds,
            this.commit_seconds.clone(),
        );
        registry.register("conflicts", "Decisions made again after a lost race", this.conflicts.clone());
        registry.register("unpublished", "Tasks and notices that were lost", this.words_dropped.clone());
        registry.register(
            "outstanding_attempts",
            "Attempts whose end is waited for",
            this.outstanding.clone(),
        );
        registry.register(
            "commits_failed",
            "Transactions that the database did not take",
            this.commits_failed.clone(),
        );
        registry.register("runs_pruned", "Runs deleted by retention, by its rule", this.runs_pruned.clone());
        registry.register_with_unit(
            "oldest_run_age",
            "Since the start of the oldest ended run that is kept",
            Unit::Seconds,
            this.oldest_run_seconds.clone(),
        );
        registry.register("unauthorized", "Requests refused for their credential", this.unauthorized.clone());
        registry.register("connections_refused", "Connections refused, by reason", this.refused.clone());
        registry.register("connections", "Open RPC connections", this.connections.clone());
        Self { registry, ..this }
    }
}

impl Metrics {
    /// The page.
    ///
    /// # Errors
    /// `internal`, by a bug of the encoder only.
    pub(crate) fn page(&self, stats: Option<&Stats>) -> Result<String, RpcError> {
        if let Some(stats) = stats {
            self.connections.set(i64::try_from(stats.open()).unwrap_or(i64::MAX));
            for reason in Refusal::ALL {
                let shown = self.refused.get_or_create(&[("reason", reason.as_str())]);
                shown.inner().store(stats.refused(reason), Ordering::Relaxed);
            }
        }
        let mut page = String::new();
        encode(&mut page, &self.registry).map_err(|error| {
            RpcError::new(ErrorCode::Internal, format!("the metrics page failed: {error}"))
        })?;
        Ok(page)
    }

    /// Counts runs that retention deleted by a rule: `age` or `count`.
    pub(crate) fn pruned(&self, rule: &'static str, runs: u64) {
        self.runs_pruned.get_or_create(&[("reason", rule)]).inc_by(runs);
    }

    /// Counts an answer to a report.
    pub(crate) fn report(&self, code: &str) {
        self.reports.get_or_create(&Label::of(code)).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metrics names are a contract with dashboards; the doors of all services count alike.
    #[test]
    fn refusals_are_counters_by_reason_like_those_of_the_other_services() {
        let metrics = Metrics::default();
        metrics.refused.get_or_create(&[("reason", "malformed")]).inner().store(3, Ordering::Relaxed);
        let page = metrics.page(None).unwrap();
        assert!(page.contains("# TYPE conveyor_engine_connections_refused counter"), "{page}");
        assert!(page.contains("conveyor_engine_connections_refused_total{reason=\"malformed\"} 3"), "{page}");
    }
}
