//! Reconcile at start: every known live plugin is pulled again, side by side and bounded in total,
//! while the service serves already. Nothing is ever deleted here (failure matrix rows 31 and 32).

use crate::{
    metrics::Metrics,
    publication::{Publisher, Repulled},
    view::View,
};
use futures::{StreamExt, stream};
use queue::Queue;
use secrecy::SecretString;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Plugins pulled at once.
const PARALLEL: usize = 16;
/// The lease of the replica that reconciles: replicas that start together do not multiply pulls.
const LEASE: &str = "plugin-manager:reconcile";

/// Reconcile with everything that it needs.
#[derive(Debug)]
pub(crate) struct Reconcile {
    pub(crate) view: Arc<View>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) queue: Queue,
    /// What plugins may be pulled with.
    pub(crate) tokens: Vec<SecretString>,
    /// Longest time in total.
    pub(crate) timeout: Duration,
}

impl Reconcile {
    /// Pulls every live plugin once, until `stop`. Plugins that are not reached in time stay as they
    /// are.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let holder = Uuid::now_v7().to_string();
        // A queue that is away must not keep the catalogue stale: pulling twice does no harm.
        if let Ok(false) = self.queue.lease(LEASE, &holder, self.timeout).await {
            tracing::info!(event = "plugin_reconcile_elsewhere", "another replica reconciles the catalogue");
            return;
        }
        if let Some(plugins) = stop.run_until_cancelled(self.all()).await {
            tracing::info!(event = "plugin_reconcile_done", plugins, "the catalogue is reconciled");
        }
        if let Err(error) = self.queue.release(LEASE, &holder).await {
            tracing::debug!(error = %error, "the lease of the reconcile runs out by itself");
        }
    }

    /// Tells how many plugins there were.
    async fn all(&self) -> usize {
        let snapshot = self.view.current();
        let live: Vec<String> = snapshot
            .plugins
            .values()
            .filter(|plugin| plugin.removed_at.is_none())
            .map(|plugin| plugin.plugin_id.clone())
            .collect();
        let (plugins, until) = (live.len(), Instant::now() + self.timeout);
        stream::iter(live).for_each_concurrent(PARALLEL, |plugin_id| self.one(plugin_id, until)).await;
        plugins
    }

    async fn one(&self, plugin_id: String, until: Instant) {
        if until <= Instant::now() {
            tracing::warn!(
                event = "plugin_reconcile_skipped",
                plugin_id,
                "no time was left to pull a known plugin (PLUGIN_MANAGER_STARTUP_PULL_TIMEOUT_MS)"
            );
            return self.metrics.reconciled("skipped");
        }
        let outcome = match self.publisher.repull(&plugin_id, self.tokens.clone(), until).await {
            Ok(Repulled::Current) => "current",
            Ok(Repulled::Gone) => "gone",
            Ok(Repulled::Overtaken) => "overtaken",
            Ok(Repulled::Unanswered(error)) => {
                tracing::warn!(
                    event = "plugin_reconcile_unanswered",
                    plugin_id,
                    reason = error.message,
                    "a known plugin does not answer; its publication stays"
                );
                "unanswered"
            }
            Ok(Repulled::Refused(error)) => {
                tracing::warn!(
                    event = "plugin_reconcile_differs",
                    plugin_id,
                    code = error.code.as_str(),
                    reason = error.message,
                    "a known plugin offers other executors than it published; the stored ones stay"
                );
                "differs"
            }
            Err(error) => {
                tracing::warn!(
                    event = "plugin_reconcile_failed",
                    plugin_id,
                    reason = error.message,
                    "a known plugin could not be reconciled"
                );
                "failed"
            }
        };
        self.metrics.reconciled(outcome);
    }
}
