//! The periodic sweep: each plugin in its own slot of the interval, few at once, by one of the
//! replicas (failure matrix rows 34 and 35).

use super::{Ledger, probe, schedule};
use crate::{settings::HealthSettings, view::View};
use contract::Millis;
use queue::Queue;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use storage::catalogue::Snapshot;
use tokio::{
    sync::Semaphore,
    task::{self, JoinSet},
    time::MissedTickBehavior,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use wire::TlsClient;

/// Probes in flight at once.
const IN_FLIGHT: usize = 32;
/// The lease of the one prober; another replica takes over when it runs out.
const LEASE: &str = "plugin-manager:health";
const LEASE_TTL: Duration = Duration::from_secs(30);
/// The lease is renewed (or tried for) this often.
const LEASE_BEAT: Duration = Duration::from_secs(10);

/// The sweep of one replica.
#[derive(Debug)]
pub(crate) struct Sweep {
    view: Arc<View>,
    ledger: Arc<Ledger>,
    queue: Queue,
    settings: HealthSettings,
    plugin_tls: Option<TlsClient>,
    interval: Duration,
    holder: String,
    in_flight: Arc<Semaphore>,
}

impl Sweep {
    /// The sweep, if it is on.
    pub(crate) fn new(
        view: Arc<View>,
        ledger: Arc<Ledger>,
        queue: Queue,
        settings: HealthSettings,
        plugin_tls: Option<TlsClient>,
    ) -> Option<Self> {
        let interval = settings.interval?;
        let holder = Uuid::now_v7().to_string();
        Some(Self {
            view,
            ledger,
            queue,
            settings,
            plugin_tls,
            interval,
            holder,
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT)),
        })
    }

    /// Sweeps until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut changes = self.view.subscribe();
        let mut slots = Slots::default();
        let clock = SteadyClock::start();
        let mut probes = JoinSet::new();
        let mut beat = tokio::time::interval(LEASE_BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut leads = false;
        loop {
            let next = slots.update(&self.view.current(), clock.now(), self.interval);
            let due = clock.sleep_until(next);
            tokio::select! {
                () = stop.cancelled() => break,
                _ = beat.tick() => leads = self.lead(leads).await,
                Ok(()) = changes.changed() => {}
                Some(done) = probes.join_next_with_id(), if !probes.is_empty() => {
                    let task = done.map_or_else(|error| error.id(), |(task, ())| task);
                    slots.probing.retain(|_, probe| *probe != task);
                }
                () = due => {
                    for plugin_id in slots.take_due(clock.now(), self.interval) {
                        if leads && !slots.probing.contains_key(&plugin_id) {
                            let probe = self.start(&mut probes, plugin_id.clone());
                            slots.probing.insert(plugin_id, probe);
                        }
                    }
                }
            }
        }
        probes.shutdown().await;
        if leads && let Err(error) = self.queue.release(LEASE, &self.holder).await {
            tracing::debug!(error = %error, "the lease of the health sweep runs out by itself");
        }
    }

    /// Does this replica probe? While the queue is away everything stays as it is.
    async fn lead(&self, led: bool) -> bool {
        match self.queue.lease(LEASE, &self.holder, LEASE_TTL).await {
            Ok(leads) => {
                if leads != led {
                    tracing::info!(event = "plugin_health_lead", leads, "the prober of plugins changed");
                }
                leads
            }
            Err(error) => {
                tracing::warn!(
                    event = "plugin_health_lease_failed",
                    error = %error,
                    "the lease of the health sweep cannot be renewed"
                );
                led
            }
        }
    }

    fn start(&self, probes: &mut JoinSet<()>, plugin_id: String) -> task::Id {
        let delay = schedule::jitter(self.interval, self.settings.jitter_ratio, rand::random());
        let (view, ledger, in_flight) =
            (Arc::clone(&self.view), Arc::clone(&self.ledger), Arc::clone(&self.in_flight));
        let (timeout, tls) = (self.settings.probe_timeout, self.plugin_tls.clone());
        let probe = async move {
            // The jitter is the purpose of this wait, there is no event to wait for.
            tokio::time::sleep(delay).await;
            // Closed never: nobody closes the semaphore.
            let _place = in_flight.acquire().await;
            // Looked up now: the plugin may have moved or been removed since its slot came.
            let plugin = view.current().plugin(&plugin_id).map(|row| (row.endpoint.clone(), row.removed_at));
            if let Some((endpoint, None)) = plugin {
                let outcome = probe::probe(&endpoint, timeout, tls).await;
                ledger.probed(&plugin_id, &outcome).await;
            }
        };
        probes.spawn(probe).id()
    }
}

/// When each plugin is to be probed next, and which are being probed.
#[derive(Debug, Default)]
struct Slots {
    next: HashMap<String, Millis>,
    probing: HashMap<String, task::Id>,
}

impl Slots {
    /// Follows the catalogue and tells the earliest slot.
    fn update(&mut self, snapshot: &Snapshot, now: Millis, interval: Duration) -> Option<Millis> {
        let live =
            |plugin_id: &String| snapshot.plugin(plugin_id).is_some_and(|row| row.removed_at.is_none());
        self.next.retain(|plugin_id, _| live(plugin_id));
        for plugin_id in snapshot.plugins.keys().filter(|plugin_id| live(plugin_id)) {
            if !self.next.contains_key(plugin_id) {
                self.next.insert(plugin_id.clone(), schedule::next_slot(plugin_id, now, interval));
            }
        }
        self.next.values().min().copied()
    }

    /// The plugins whose slot has come; their next slots lie ahead, also after a long sleep.
    fn take_due(&mut self, now: Millis, interval: Duration) -> Vec<String> {
        let due: Vec<String> = self
            .next
            .iter()
            .filter(|(_, slot)| **slot <= now)
            .map(|(plugin_id, _)| plugin_id.clone())
            .collect();
        for plugin_id in &due {
            self.next.insert(plugin_id.clone(), schedule::next_slot(plugin_id, now, interval));
        }
        due
    }
}

/// This machine's wall clock as it was at the start, carried on by the monotonic one: a step of the wall
/// clock leaves no plugin without a probe until the old time comes again. Slots are the same on every
/// replica as far as their clocks agreed, and nothing else depends on it.
#[derive(Debug)]
struct SteadyClock {
    started: Instant,
    time: Millis,
}

impl SteadyClock {
    fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), time: Millis(0).plus(since_epoch) }
    }

    fn now(&self) -> Millis {
        self.time.plus(self.started.elapsed())
    }

    /// Waits for a slot; for ever when there is none.
    async fn sleep_until(&self, slot: Option<Millis>) {
        match slot {
            Some(slot) => tokio::time::sleep(slot.since(self.now())).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use storage::catalogue::PluginRow;

    const INTERVAL: Duration = Duration::from_secs(15);

    fn snapshot(plugins: &[(&str, Option<Millis>)]) -> Snapshot {
        let rows: BTreeMap<String, PluginRow> = plugins
            .iter()
            .map(|(id, removed_at)| {
                (
                    (*id).to_owned(),
                    PluginRow {
                        plugin_id: (*id).to_owned(),
                        removed_at: *removed_at,
                        ..PluginRow::default()
                    },
                )
            })
            .collect();
        Snapshot::new(1, rows, BTreeMap::new(), BTreeMap::new())
    }

    #[test]
    fn live_plugins_have_a_slot_each_and_removed_ones_have_none() {
        let mut slots = Slots::default();
        let next =
            slots.update(&snapshot(&[("a", None), ("b", None), ("c", Some(Millis(1)))]), Millis(0), INTERVAL);
        assert_eq!(slots.next.len(), 2);
        assert_eq!(next, slots.next.values().min().copied());
        slots.update(&snapshot(&[("a", Some(Millis(1))), ("b", None)]), Millis(1), INTERVAL);
        assert_eq!(slots.next.keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_slot_comes_once_an_interval_also_after_a_long_sleep() {
        let mut slots = Slots::default();
        let first = slots.update(&snapshot(&[("a", None)]), Millis(0), INTERVAL).unwrap();
        assert_eq!(slots.take_due(Millis(first.0 - 1), INTERVAL), [""; 0]);
        assert_eq!(slots.take_due(first, INTERVAL), ["a"]);
        assert_eq!(slots.take_due(first, INTERVAL), [""; 0]);
        assert_eq!(slots.take_due(Millis(first.0 + 10 * 15_000 + 1), INTERVAL), ["a"]);
        assert_eq!(slots.next["a"], Millis(first.0 + 11 * 15_000));
    }
}
