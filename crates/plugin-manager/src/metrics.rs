//! What plugin-manager counts, as `OpenMetrics` text.

use crate::view::View;
use contract::catalogue::HealthState;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text},
    metrics::{
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::ConstGauge,
    },
    registry::Registry,
};
use std::{fmt, sync::Arc};
use wire::{Credentials, Refusal, Stats};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    pattern: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// Counters that the service's parts keep.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    calls: Family<CallLabels, Counter>,
    publications: Family<OutcomeLabel, Counter>,
    reconciled: Family<OutcomeLabel, Counter>,
    probes: Family<OutcomeLabel, Counter>,
    hand_out_loads: Counter,
}

impl Metrics {
    /// A call was answered with `outcome`: `ok` or an error code.
    pub(crate) fn called(&self, pattern: &'static str, outcome: &'static str) {
        self.calls.get_or_create(&CallLabels { pattern, outcome }).inc();
    }

    /// A publication ended with `outcome`.
    pub(crate) fn published(&self, outcome: &'static str) {
        self.publications.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// A known plugin was pulled at start.
    pub(crate) fn reconciled(&self, outcome: &'static str) {
        self.reconciled.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// A plugin was probed.
    pub(crate) fn probed(&self, alive: bool) {
        let outcome = if alive { "ok" } else { "failed" };
        self.probes.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// A publication's documents were read from the database for hand-out.
    pub(crate) fn hand_out_loaded(&self) {
        self.hand_out_loads.inc();
    }
}

/// Everything that is exported.
#[derive(Debug)]
pub(crate) struct Exposition(Registry);

impl Exposition {
    pub(crate) fn new(
        metrics: &Metrics,
        stats: Arc<Stats>,
        credentials: Option<Arc<Credentials>>,
        view: Arc<View>,
    ) -> Self {
        let mut registry = Registry::with_prefix("conveyor_plugin_manager");
        registry.register("calls", "Calls answered, by pattern and outcome", metrics.calls.clone());
        registry.register("publications", "Publications, by outcome", metrics.publications.clone());
        registry.register(
            "reconciled",
            "Known plugins pulled at start, by outcome",
            metrics.reconciled.clone(),
        );
        registry.register("health_probes", "Health probes of plugins, by outcome", metrics.probes.clone());
        registry.register(
            "hand_out_loads",
            "Publications read from the database for hand-out; the other answers came from memory",
            metrics.hand_out_loads.clone(),
        );
        registry.register_collector(Box::new(Observed { stats, credentials, view }));
        Self(registry)
    }

    /// The text of a scrape.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.0)?;
        Ok(out)
    }
}

/// Values that others keep, read at each scrape.
#[derive(Debug)]
struct Observed {
    stats: Arc<Stats>,
    credentials: Option<Arc<Credentials>>,
    view: Arc<View>,
}

impl Collector for Observed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        counter(
            encoder,
            "connections_accepted",
            "Connections accepted by the TCP door",
            self.stats.accepted(),
        )?;
        counter(encoder, "handler_panics", "Calls that failed by a bug", self.stats.panics())?;
        let previous = self.credentials.as_ref().map_or(0, |credentials| credentials.previous_uses());
        counter(encoder, "previous_token_uses", "Uses of the previous ingress token", previous)?;
        let refused = Refusal::ALL.map(|reason| (("reason", reason.as_str()), self.stats.refused(reason)));
        family(
            encoder,
            "refused",
            "Connections refused by the TCP door, by reason",
            refused,
            ConstCounter::new,
        )?;

        gauge(encoder, "connections", "Open connections of the TCP door", self.stats.open())?;
        gauge(encoder, "buffered_bytes", "Bytes that all connections hold", self.stats.buffered_bytes())?;
        let snapshot = self.view.current();
        gauge(
            encoder,
            "catalogue_revision",
            "Revision of the catalogue as it is known here",
            snapshot.revision,
        )?;
        let states = [HealthState::Unknown, HealthState::Online, HealthState::Offline].map(|state| {
            let live = snapshot.plugins.values().filter(|plugin| plugin.removed_at.is_none());
            let count = live.filter(|plugin| plugin.health.state == state).count();
            (("state", state.as_str()), i64::try_from(count).unwrap_or(i64::MAX))
        });
        family(encoder, "plugins", "Live plugins, by health", states, ConstGauge::new)
    }
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    single(encoder, name, help, &ConstCounter::new(value))
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: impl TryInto<i64>,
) -> fmt::Result {
    single(encoder, name, help, &ConstGauge::new(value.try_into().unwrap_or(i64::MAX)))
}

fn single(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn family<V, M: EncodeMetric, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: [((&'static str, &'static str), V); N],
    metric: impl Fn(V) -> M,
) -> fmt::Result {
    let mut metrics = values.map(|(label, value)| (label, metric(value))).into_iter().peekable();
    let Some((_, first)) = metrics.peek() else { return Ok(()) };
    let mut encoder = encoder.encode_descriptor(name, help, None, first.metric_type())?;
    metrics.try_for_each(|(label, metric)| metric.encode(encoder.encode_family(&[label])?))
}
