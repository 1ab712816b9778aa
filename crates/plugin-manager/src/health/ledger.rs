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

    /// The plugins have published or answered a pull: they live. Each is named once.
    pub(crate) async fn alive(&self, plugin_ids: &[&str]) {
        self.record(plugin_ids, machine::alive).await;
    }

    /// The plugin did not answer its pull at start.
    pub(crate) async fn unanswered(&self, plugin_id: &str, reason: &str) {
        self.record(&[plugin_id], |before, now| machine::unanswered(before, reason.to_owned(), now)).await;
    }

    /// The sweep has probed the plugin.
    pub(crate) async fn probed(&self, plugin_id: &str, outcome: &Outcome) {
        self.metrics.probed(outcome.is_ok());
        self.record(&[plugin_id], |before, now| machine::step(before, outcome, now, self.thresholds)).await;
    }

    /// Stores the next health. A database that is away costs these findings, not the service.
    async fn record(&self, plugin_ids: &[&str], next: impl Fn(&Health, Millis) -> Health) {
        if let Err(error) = self.try_record(plugin_ids, next).await {
            tracing::warn!(
                event = "plugin_health_unrecorded",
                plugin_id = plugin_ids.join(", "),
                error = %error,
                "a finding about a plugin's health could not be stored"
            );
        }
    }

    async fn try_record(
        &self,
        plugin_ids: &[&str],
        next: impl Fn(&Health, Millis) -> Health,
    ) -> Result<(), storage::Error> {
        let now = self.storage.now().await?;
        let mut counted = self.counted.lock().await;
        let snapshot = self.view.current();
        let found: Vec<(&str, HealthState, Health)> = plugin_ids
            .iter()
            .map(|plugin_id| {
                let stored = snapshot.plugin(plugin_id).map(|row| row.health.clone()).unwrap_or_default();
                let before = machine::current(counted.get(*plugin_id), &stored);
                (*plugin_id, before.state, next(before, now))
            })
            .collect();
        let findings: Vec<(&str, &Health)> =
            found.iter().map(|(plugin_id, _, health)| (*plugin_id, health)).collect();
        let changes = self.storage.catalogue().record_health_of_all(&findings).await?;
        for (plugin_id, _, health) in &found {
            counted.insert((*plugin_id).to_owned(), health.clone());
        }
        let mut revision = None;
        for ((plugin_id, from, health), change) in found.iter().zip(&changes) {
            if change.changed {
                log_change(plugin_id, *from, health);
                revision = revision.max(Some(change.revision));
            }
        }
        if let Some(revision) = revision {
            // The next finding must not step from the state before this change: a probe that fails at this
            // moment would take a plugin down that has just published. Errors are told below.
            let _ = self.view.fresh().await;
            drop(counted);
            self.view.announce(revision).await;
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
