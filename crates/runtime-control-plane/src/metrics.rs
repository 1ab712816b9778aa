//! What the control plane counts, in the Prometheus text format at `/metrics/self`.

use parking_lot::RwLock;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::Histogram,
        info::Info,
    },
    registry::Registry,
};
use std::{fmt, sync::Arc, time::Duration};
use wire::{Credentials, Refusal, Stats};

type Label = (&'static str, &'static str);

/// Buckets of latencies, seconds.
const LATENCY: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// All metrics of the service.
pub(crate) struct Metrics {
    registry: RwLock<Registry>,
    reports: Family<[Label; 3], Counter>,
    report_seconds: Family<[Label; 1], Histogram, fn() -> Histogram>,
    refusals: Family<[Label; 2], Counter>,
    dispatches: Family<[Label; 2], Counter>,
    /// Undelivered tasks.
    pub(crate) in_flight: Gauge,
    /// Tasks that wait for room in the window of their endpoint.
    pub(crate) parked: Gauge,
    /// Tasks that wait for a place of their plugin.
    at_limit: Gauge,
    /// Delivered tasks whose plugins may still answer.
    pub(crate) listening: Gauge,
    /// Reports that wait for the engine.
    pub(crate) reports_in_flight: Gauge,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let metrics = Self {
            registry: RwLock::new(Registry::with_prefix("conveyor_control_plane")),
            reports: Family::default(),
            report_seconds: Family::new_with_constructor(|| Histogram::new(LATENCY)),
            refusals: Family::default(),
            dispatches: Family::default(),
            in_flight: Gauge::default(),
            parked: Gauge::default(),
            at_limit: Gauge::default(),
            listening: Gauge::default(),
            reports_in_flight: Gauge::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&self) {
        let registry = &mut *self.registry.write();
        registry.register("reports", "Reports by door, kind and outcome", self.reports.clone());
        registry.register(
            "report_duration_seconds",
            "From a report's arrival to its answer",
            self.report_seconds.clone(),
        );
        registry.register(
            "refusals",
            "Requests refused before the engine, by door and reason",
            self.refusals.clone(),
        );
        registry.register("dispatches", "Ends of dispatches by outcome and code", self.dispatches.clone());
        registry.register("dispatch_in_flight", "Undelivered tasks", self.in_flight.clone());
        registry.register(
            "dispatch_parked",
            "Tasks that wait for room in their endpoint's window",
            self.parked.clone(),
        );
        registry.register(
            "dispatch_at_limit",
            "Tasks that wait because their plugin has as many attempts as its limit",
            self.at_limit.clone(),
        );
        registry.register(
            "dispatch_listening",
            "Delivered tasks whose plugins may still answer",
            self.listening.clone(),
        );
        registry.register(
            "reports_in_flight",
            "Reports that wait for the engine",
            self.reports_in_flight.clone(),
        );
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The program", build);
    }

    /// Exports the counters that the doors and the gate keep themselves.
    pub(crate) fn export(&self, tcp: Arc<Stats>, http: Arc<Stats>, credentials: Option<Arc<Credentials>>) {
        self.registry
            .write()
            .register_collector(Box::new(Kept { doors: [("tcp", tcp), ("http", http)], credentials }));
    }

    /// Shows what `loads` tells of the dispatcher's windows.
    pub(crate) fn export_windows(&self, loads: impl Fn() -> Vec<WindowLoad> + Send + Sync + 'static) {
        self.registry.write().register_collector(Box::new(Windows(loads)));
    }

    pub(crate) fn report(
        &self,
        door: &'static str,
        kind: &'static str,
        outcome: &'static str,
        took: Duration,
    ) {
        self.reports.get_or_create(&[("door", door), ("kind", kind), ("outcome", outcome)]).inc();
        self.report_seconds.get_or_create(&[("door", door)]).observe(took.as_secs_f64());
    }

    pub(crate) fn refusal(&self, door: &'static str, reason: &'static str) {
        self.refusals.get_or_create(&[("door", door), ("reason", reason)]).inc();
    }

    /// A dispatch has ended. Codes that plugins invent are counted as `other`.
    pub(crate) fn dispatch(&self, outcome: &'static str, code: &'static str) {
        self.dispatches.get_or_create(&[("outcome", outcome), ("code", code)]).inc();
    }

    /// So many tasks wait for places of their plugins.
    pub(crate) fn waiting(&self, tasks: usize) {
        self.at_limit.set(i64::try_from(tasks).unwrap_or(i64::MAX));
    }

    /// The text of `/metrics/self`.
    pub(crate) fn render(&self) -> String {
        let mut page = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut page, &self.registry.read());
        page
    }
}

/// How much is under way to a plugin's endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WindowLoad {
    /// `host:port`.
    pub(crate) endpoint: String,
    /// Undelivered tasks.
    pub(crate) in_flight: usize,
    /// Tasks that wait for room in the window.
    pub(crate) parked: usize,
}

/// Endpoints of one scrape, the busiest ones: labels must stay few.
const SHOWN_ENDPOINTS: usize = 100;

/// Shows the windows as they are at each scrape. An endpoint at which nothing is under way is not shown.
struct Windows<F>(F);

impl<F> fmt::Debug for Windows<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Windows")
    }
}

impl<F: Fn() -> Vec<WindowLoad> + Send + Sync + 'static> Collector for Windows<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut loads = (self.0)();
        loads.sort_unstable_by(|one, other| {
            (other.parked, other.in_flight, &one.endpoint).cmp(&(one.parked, one.in_flight, &other.endpoint))
        });
        loads.truncate(SHOWN_ENDPOINTS);
        let gauges: [(&str, &str, fn(&WindowLoad) -> usize); 2] = [
            ("endpoint_in_flight", "Undelivered tasks of the busiest plugin endpoints", |load| {
                load.in_flight
            }),
            ("endpoint_parked", "Tasks that wait for the busiest plugin endpoints", |load| load.parked),
        ];
        for (name, help, read) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for load in &loads {
                let value = i64::try_from(read(load)).unwrap_or(i64::MAX);
                let labels = [("endpoint", load.endpoint.as_str())];
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// Counters that live elsewhere, read at each scrape.
#[derive(Debug)]
struct Kept {
    doors: [(&'static str, Arc<Stats>); 2],
    credentials: Option<Arc<Credentials>>,
}

/// A number that every door keeps: its name, its meaning, and how to read it.
type Number = (&'static str, &'static str, fn(&Stats) -> u64);

const COUNTERS: [Number; 4] = [
    ("connections_accepted", "Connections that came, by door", Stats::accepted),
    ("requests", "Requests, by door", Stats::requests),
    ("events", "Messages that want no answer, by door", Stats::events),
    ("handler_panics", "Handlers that panicked, by door", Stats::panics),
];

const GAUGES: [Number; 2] = [
    ("connections_open", "Open connections, by door", Stats::open),
    ("buffered_bytes", "Bytes that connections hold, by door", Stats::buffered_bytes),
];

impl Collector for Kept {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let previous = self.credentials.as_ref().map_or(0, |credentials| credentials.previous_uses());
        let previous = ConstCounter::new(previous);
        let help = "Uses of the key before the rotation";
        previous.encode(encoder.encode_descriptor(
            "previous_key_uses",
            help,
            None,
            MetricType::Counter,
        )?)?;
        for (name, help, read) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (door, stats) in &self.doors {
                ConstCounter::new(read(stats)).encode(family.encode_family(&[("door", *door)])?)?;
            }
        }
        for (name, help, read) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (door, stats) in &self.doors {
                ConstGauge::new(read(stats)).encode(family.encode_family(&[("door", *door)])?)?;
            }
        }
        let help = "Connections refused or closed, by door and reason";
        let mut family = encoder.encode_descriptor("connections_refused", help, None, MetricType::Counter)?;
        for (door, stats) in &self.doors {
            for reason in Refusal::ALL {
                let labels = [("door", *door), ("reason", reason.as_str())];
                ConstCounter::new(stats.refused(reason)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
