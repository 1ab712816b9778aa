//! Where every finding about a plugin's health goes: publications, pulls at start, probes.

use super::machine::{self, Outcome};
use crate::{metrics::Metrics, settings::Thresholds, view::View};
use contract::{
    Millis,
    catalogue::{Health, HealthState},
};
use std::{collections::HashMap, sync::Arc};
use storage::Storage;
use tokio::sync::Mutex;

/// Turns findings into stored health and tells of changes of state.
#[derive(Debug)]
pub(crate) struct Ledger {
    storage: Storage,
    view: Arc<View>,
    metrics: Arc<Metrics>,
    thresholds: Thresholds,
    /// Health as this process last recorded it: counts alone do not renew the snapshot. Held while a
    /// finding is stored, so that the store sees findings in the order of their steps.
    counted: Mutex<HashMap<String, Health>>,
}

impl Ledger {
    pub(crate) fn new(
        storage: Storage,
        view: Arc<View>,
        metrics: Arc<Metrics>,
        thresholds: Thresholds,
    ) -> Self {
        Self { storage, view, metrics, thresholds, counted: Mutex::default() }
    }

    /// What was last recorded about the plugin here.
    pub(crate) async fn last(&self, plugin_id: &str) -> Option<Health> {
        self.counted.lock().await.get(plugin_id).cloned()
    }

    /// The plugin has published or answered a pull: it lives.
    pub(crate) async fn alive(&self, plugin_id: &str) {
        self.record(plugin_id, machine::alive).await;
    }

    /// The plugin did not answer its pull at start.
    pub(crate) async fn unanswered(&self, plugin_id: &str, reason: &str) {
        self.record(plugin_id, |before, now| machine::unanswered(before, reason.to_owned(), now)).await;
    }

    /// The sweep has probed the plugin.
    pub(crate) async fn probed(&self, plugin_id: &str, outcome: &Outcome) {
        self.metrics.probed(outcome.is_ok());
        self.record(plugin_id, |before, now| machine::step(before, outcome, now, self.thresholds)).await;
    }

    /// Stores the next health. A database that is away costs this finding, not the service.
    async fn record(&self, plugin_id: &str, next: impl FnOnce(&Health, Millis) -> Health) {
        if let Err(error) = self.try_record(plugin_id, next).await {
            tracing::warn!(
                event = "plugin_health_unrecorded",
                plugin_id,
                error = %error,
                "a finding about a plugin's health could not be stored"
            );
        }
    }

    async fn try_record(
        &self,
        plugin_id: &str,
        next: impl FnOnce(&Health, Millis) -> Health,
    ) -> Result<(), storage::Error> {
        let now = self.storage.now().await?;
        let mut counted = self.counted.lock().await;
        let stored = self.view.current().plugin(plugin_id).map(|row| row.health.clone()).unwrap_or_default();
        let before = machine::current(counted.get(plugin_id), &stored);
        let (from, health) = (before.state, next(before, now));
        let change = self.storage.catalogue().record_health(plugin_id, &health).await?;
        counted.insert(plugin_id.to_owned(), health.clone());
        drop(counted);
        if change.changed {
            log_change(plugin_id, from, &health);
            self.view.announce(change.revision).await;
        }
        Ok(())
    }
}

fn log_change(plugin_id: &str, before: HealthState, health: &Health) {
    let (from, to) = (before.as_str(), health.state.as_str());
    match health.state {
        HealthState::Online => {
            tracing::info!(event = "plugin_health_changed", plugin_id, from, to, "plugin is online");
        }
        HealthState::Unknown | HealthState::Offline => tracing::warn!(
            event = "plugin_health_changed",
            plugin_id,
            from,
            to,
            reason = health.last_error.as_deref(),
            "plugin does not answer"
        ),
    }
}
