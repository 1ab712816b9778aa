//! Reconcile at start: every known live plugin is pulled again, side by side and bounded in total,
//! while the service serves already. Nothing is ever deleted here (failure matrix rows 31 and 32).

use crate::{
    metrics::Metrics,
    publication::{Publisher, Repulled},
};
use contract::{Millis, catalogue::Health};
use futures::{StreamExt, stream};
use queue::Queue;
use secrecy::SecretString;
use std::{sync::Arc, time::Duration};
use storage::Storage;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Plugins pulled at once.
const PARALLEL: usize = 16;
/// The lease of the replica that reconciles: replicas that start together do not multiply pulls.
const LEASE: &str = "plugin-manager:reconcile";
/// Short, so that a replica that was killed does not keep its successor from reconciling for long.
const LEASE_TTL: Duration = Duration::from_secs(10);
/// The lease is renewed, or tried for again, this often.
const LEASE_BEAT: Duration = Duration::from_secs(2);

/// How far the reconcile is, for those who ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is turned off.
    Off,
    /// Another replica reconciles; afterwards this one looks what is left.
    Waiting,
    /// This replica pulls.
    Running,
    /// Every known plugin was pulled, by this replica or by one that started with it.
    Done,
}

impl Progress {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
        }
    }
}

/// Reconcile with everything that it needs.
#[derive(Debug)]
pub(crate) struct Reconcile {
    pub(crate) storage: Storage,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) queue: Queue,
    /// What plugins may be pulled with.
    pub(crate) tokens: Vec<SecretString>,
    /// Longest time in total.
    pub(crate) timeout: Duration,
    /// Told how far it is.
    pub(crate) progress: watch::Sender<Progress>,
}

impl Reconcile {
    /// Pulls every live plugin once, until `stop`. Plugins that are not reached in time stay as they
    /// are. While another replica holds the lease this one waits, and then pulls only what nobody has
    /// heard of lately: all of it after a crash, nothing when replicas start together.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let holder = Uuid::now_v7().to_string();
        let work = async {
            let started = self.storage.now().await.unwrap_or_default();
            let waited = self.wait_for_lease(&holder).await;
            self.progress.send_replace(Progress::Running);
            let since = waited.then_some(started);
            tokio::select! {
                plugins = self.all(since) => plugins,
                never = self.keep_lease(&holder) => match never {},
            }
        };
        if let Some(plugins) = stop.run_until_cancelled(work).await {
            self.progress.send_replace(Progress::Done);
            tracing::info!(event = "plugin_reconcile_done", plugins, "the catalogue is reconciled");
            // Kept a while for replicas that start a moment later; nobody waits for this.
            let _ = tokio::time::timeout(LEASE_TTL, stop.cancelled()).await;
        }
        if let Err(error) = self.queue.release(LEASE, &holder).await {
            tracing::debug!(error = %error, "the lease of the reconcile runs out by itself");
        }
    }

    /// Takes the lease; did another replica hold it first?
    async fn wait_for_lease(&self, holder: &str) -> bool {
        let mut beat = tokio::time::interval(LEASE_BEAT);
        let mut waited = false;
        loop {
            beat.tick().await;
            // A queue that is away must not keep the catalogue stale: pulling twice does no harm.
            match self.queue.lease(LEASE, holder, LEASE_TTL).await {
                Ok(true) | Err(_) => return waited,
                Ok(false) if !waited => {
                    waited = true;
                    self.progress.send_replace(Progress::Waiting);
                    tracing::info!(
                        event = "plugin_reconcile_elsewhere",
                        "another replica reconciles the catalogue"
                    );
                }
                Ok(false) => {}
            }
        }
    }

    async fn keep_lease(&self, holder: &str) -> std::convert::Infallible {
        let mut beat = tokio::time::interval(LEASE_BEAT);
        loop {
            beat.tick().await;
            if let Err(error) = self.queue.lease(LEASE, holder, LEASE_TTL).await {
                tracing::debug!(error = %error, "the lease of the reconcile cannot be renewed now");
            }
        }
    }

    /// Pulls the live plugins, or only those of which nothing was heard since shortly before then;
    /// tells how many they were.
    async fn all(&self, since: Option<Millis>) -> usize {
        // Read from the database: the times of probes do not renew the snapshot in memory.
        let snapshot = match self.storage.catalogue().snapshot().await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                tracing::warn!(
                    event = "plugin_reconcile_failed",
                    error = %error,
                    "the catalogue cannot be read; nothing is reconciled"
                );
                return 0;
            }
        };
        let live: Vec<String> = snapshot
            .plugins
            .values()
            .filter(|plugin| plugin.removed_at.is_none())
            .filter(|plugin| since.is_none_or(|since| !heard(&plugin.health, since)))
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

/// Was the plugin heard of since then, or shortly before?
fn heard(health: &Health, since: Millis) -> bool {
    health.checked_at.is_some_and(|checked| checked.plus(LEASE_TTL) >= since)
}
