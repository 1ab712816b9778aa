//! The health sweep (failure matrix rows 33 to 36). Intervals are short here; the settings' own rule
//! that a sweep below 15 s is off is tested beside them.

use crate::support::{House, Plugin, items};
use contract::catalogue::HealthState;
use parking_lot::Mutex;
use plugin_manager::{HealthSettings, Settings};
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use wire::Reply;

fn sweeping(settings: &mut Settings) {
    settings.health = HealthSettings {
        interval: Some(Duration::from_millis(20)),
        probe_timeout: Duration::from_millis(200),
        ..HealthSettings::default()
    };
}

#[tokio::test]
async fn a_dead_plugin_goes_offline_and_dispatch_is_refused() {
    let house = House::new().await;
    let service = house.start(sweeping).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    service.ask("plugin.enable", json!({"pluginId": "echo"})).await.unwrap();
    plugin.stop();
    house.until(|snapshot| snapshot.plugins["echo"].health.state == HealthState::Offline).await;
    let health = service.ask("plugin.health", json!({})).await.unwrap();
    let health = &health["plugins"][0]["health"];
    assert!(health["failures"].as_u64().unwrap() >= 3 && health["lastError"].is_string(), "{health}");
    let decision = service.ask("plugin.explain", json!({"nodeType": "plugin.echo"})).await.unwrap();
    assert_eq!(decision["refusal"]["code"], "plugin_offline");
    service.stop().await;
}

#[tokio::test]
async fn a_plugin_that_accepts_but_does_not_answer_is_down_and_recovers_by_answering() {
    let house = House::new().await;
    let service = house.start(sweeping).await;
    let hangs = Arc::new(Mutex::new(false));
    let state = Arc::clone(&hangs);
    let plugin = Plugin::scripted(move |request| {
        let hangs = *state.lock();
        async move {
            match request.pattern.as_str() {
                "executor_batch_pull" => Reply::Value(items(&["plugin.echo"]).into()),
                _ if hangs => std::future::pending().await,
                _ => Reply::NoHandler,
            }
        }
    });
    service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    *hangs.lock() = true;
    house.until(|snapshot| snapshot.plugins["echo"].health.state == HealthState::Offline).await;
    *hangs.lock() = false;
    house.until(|snapshot| snapshot.plugins["echo"].health.state == HealthState::Online).await;
    service.stop().await;
}

#[tokio::test]
async fn a_publication_brings_an_offline_plugin_online_at_once() {
    let house = House::new().await;
    let service = house.start(sweeping).await;
    let (old, new) = (Plugin::new(&["plugin.echo"]), Plugin::new(&["plugin.echo"]));
    service.publish(old.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    old.stop();
    house.until(|snapshot| snapshot.plugins["echo"].health.state == HealthState::Offline).await;
    service.publish(new.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    assert_eq!(house.state("echo").await, "online");
    service.stop().await;
}

#[tokio::test]
async fn replicas_do_not_multiply_probes() {
    let house = House::new().await;
    let (leader, other) = (house.start(sweeping).await, house.start(sweeping).await);
    let plugin = Plugin::new(&["plugin.echo"]);
    other.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    while plugin.asked("conveyor.ping").len() < 5 {
        tokio::task::yield_now().await;
    }
    const PROBES: &str = "conveyor_plugin_manager_health_probes_total{outcome=\"ok\"}";
    let (one, two) = (leader.metric(PROBES).await, other.metric(PROBES).await);
    assert!((one == 0) != (two == 0), "{one} and {two} probes");
}

#[tokio::test]
async fn without_an_interval_nothing_is_probed() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    service.stop().await;
    assert_eq!(plugin.asked("conveyor.ping").len(), 0);
}

#[tokio::test]
async fn a_slow_probe_does_not_overlap_the_next() {
    let house = House::new().await;
    let service = house.start(sweeping).await;
    let plugin = Plugin::scripted(async |request| match request.pattern.as_str() {
        "executor_batch_pull" => Reply::Value(items(&["plugin.echo"]).into()),
        _ => std::future::pending().await,
    });
    service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    house.until(|snapshot| snapshot.plugins["echo"].health.state == HealthState::Offline).await;
    let health = service.ask("plugin.health", json!({})).await.unwrap();
    let failures = health["plugins"][0]["health"]["failures"].as_u64().unwrap();
    // Ten intervals pass during one probe: with overlap there would be ten times as many.
    let probes = plugin.asked("conveyor.ping").len() as u64;
    assert!(probes <= failures + 1, "{probes} probes for {failures} findings");
}

/// What a plugin sees of probes that are in flight together.
#[derive(Default)]
struct Flight {
    now: AtomicUsize,
    most: AtomicUsize,
    /// Told at each arrival.
    arrived: Notify,
    /// Answers are held back until then.
    open: CancellationToken,
}

#[tokio::test]
async fn at_most_thirty_two_probes_are_in_flight() {
    let house = House::new().await;
    let flight = Arc::new(Flight::default());
    let seen = Arc::clone(&flight);
    let plugin = Plugin::scripted(move |request| {
        let flight = Arc::clone(&seen);
        async move {
            if request.pattern == "executor_batch_pull" {
                let wanted = request.data.value().unwrap()["nodeTypes"][0].clone();
                return Reply::Value(items(&[wanted.as_str().unwrap()]).into());
            }
            flight.most.fetch_max(flight.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            flight.arrived.notify_one();
            flight.open.cancelled().await;
            flight.now.fetch_sub(1, Ordering::SeqCst);
            Reply::NoHandler
        }
    });
    let publisher = house.start(|_| ()).await;
    for index in 0..40 {
        let node_type = format!("plugin.n{index}");
        let manifest = plugin.manifest(&format!("p{index}"), "1.0.0", &[&node_type]);
        publisher.publish(manifest).await.unwrap();
    }
    let service = house
        .start(|settings| {
            sweeping(settings);
            settings.health.probe_timeout = Duration::from_secs(60);
        })
        .await;
    while flight.now.load(Ordering::SeqCst) < 32 {
        flight.arrived.notified().await;
    }
    // Time for others to come, if anything let them.
    for _ in 0..50 {
        service.ask("plugin.list", json!({})).await.unwrap();
    }
    assert_eq!(flight.most.load(Ordering::SeqCst), 32);
    flight.open.cancel();
    while plugin.asked("conveyor.ping").len() < 40 {
        flight.arrived.notified().await;
    }
}

#[tokio::test]
async fn the_last_changes_of_state_are_told_with_their_reasons() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    plugin.stop();
    service.stop().await;
    let service = house.start(|settings| settings.startup_reconcile = true).await;
    house.until(|snapshot| snapshot.plugins["echo"].health.state == HealthState::Unknown).await;
    let health = service.ask("plugin.health", json!({})).await.unwrap();
    let history = health["plugins"][0]["history"].as_array().unwrap();
    let states: Vec<_> = history.iter().map(|change| change["state"].clone()).collect();
    assert_eq!(states, ["unknown", "online"], "the newest first");
    assert!(history[0]["reason"].as_str().unwrap().contains("cannot be pulled"));
    assert_eq!(history[0]["at"], health["plugins"][0]["health"]["since"]);
    service.stop().await;
}
