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

    fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("conveyor_plugin_manager");
        registry.register("calls", "Calls answered, by pattern and outcome", self.calls.clone());
        registry.register("publications", "Publications, by outcome", self.publications.clone());
        registry.register("reconciled", "Known plugins pulled at start, by outcome", self.reconciled.clone());
        registry.register("health_probes", "Health probes of plugins, by outcome", self.probes.clone());
        registry.register(
            "hand_out_loads",
            "Publications read from the database for hand-out; the other answers came from memory",
            self.hand_out_loads.clone(),
        );
        registry
    }
}

/// Everything that is exported.
#[derive(Debug)]
pub(crate) struct Exposition(Registry);

impl Exposition {
    pub(crate) fn new(
        metrics: &Metrics,
        doors: Doors,
        credentials: Option<Arc<Credentials>>,
        view: Arc<View>,
    ) -> Self {
        let mut registry = metrics.registry();
        registry.register_collector(Box::new(Observed { doors, credentials, view }));
        Self(registry)
    }

    /// The text of a scrape.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.0)?;
        Ok(out)
    }
}

/// What the listeners count.
#[derive(Debug)]
pub(crate) struct Doors {
    /// The TCP door.
    pub(crate) tcp: Arc<Stats>,
    /// The health port.
    pub(crate) health: Arc<Stats>,
}

/// Values that others keep, read at each scrape.
#[derive(Debug)]
struct Observed {
    doors: Doors,
    credentials: Option<Arc<Credentials>>,
    view: Arc<View>,
}

impl Collector for Observed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let Doors { tcp, health } = &self.doors;
        let doors = || [("tcp", tcp), ("health", health)];
        let accepted = doors().map(|(door, stats)| ([("door", door)], stats.accepted()));
        family(
            encoder,
            "connections_accepted",
            "Connections accepted, by door",
            accepted,
            ConstCounter::new,
        )?;
        let refused = doors().into_iter().flat_map(|(door, stats)| {
            Refusal::ALL.map(|reason| ([("door", door), ("reason", reason.as_str())], stats.refused(reason)))
        });
        family(
            encoder,
            "connections_refused",
            "Connections refused or closed, by door and reason",
            refused,
            ConstCounter::new,
        )?;
        counter(encoder, "handler_panics", "Calls that failed by a bug", tcp.panics())?;
        let previous = self.credentials.as_ref().map_or(0, |credentials| credentials.previous_uses());
        counter(encoder, "previous_token_uses", "Uses of the previous ingress token", previous)?;

        let open = doors().map(|(door, stats)| ([("door", door)], whole(stats.open())));
        family(encoder, "connections", "Open connections, by door", open, ConstGauge::new)?;
        gauge(
            encoder,
            "buffered_bytes",
            "Bytes that all connections of the TCP door hold",
            tcp.buffered_bytes(),
        )?;
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
            ([("state", state.as_str())], whole(count))
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
    single(encoder, name, help, &ConstGauge::new(whole(value)))
}

fn single(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn family<V, M: EncodeMetric, const LABELS: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = ([(&'static str, &'static str); LABELS], V)>,
    metric: impl Fn(V) -> M,
) -> fmt::Result {
    let mut metrics = values.into_iter().map(|(labels, value)| (labels, metric(value))).peekable();
    let Some((_, first)) = metrics.peek() else { return Ok(()) };
    let mut encoder = encoder.encode_descriptor(name, help, None, first.metric_type())?;
    metrics.try_for_each(|(labels, metric)| metric.encode(encoder.encode_family(&labels)?))
}

fn whole(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_in_the_manual() {
        let manual = include_str!("../../../docs/metrics.md");
        let metrics = Metrics::default();
        metrics.called("plugin.list", "ok");
        metrics.published("committed");
        metrics.reconciled("current");
        metrics.probed(true);
        metrics.hand_out_loaded();
        let mut page = String::new();
        text::encode(&mut page, &metrics.registry()).unwrap();
        let shown: Vec<&str> =
            page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        assert_eq!(shown.len(), 5, "{page}");
        for name in shown {
            assert!(manual.contains(&format!("| `{name}` |")), "docs/metrics.md does not know {name}");
        }
    }
}
