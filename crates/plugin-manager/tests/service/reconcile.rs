//! Reconcile at start (failure matrix rows 31 and 32).

use crate::support::{House, PREVIOUS, Plugin, Running, TOKEN, items};
use contract::{
    ErrorCode, Millis, RpcError,
    catalogue::{Health, HealthState},
};
use parking_lot::Mutex;
use plugin_manager::Settings;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::sync::Notify;
use wire::Reply;

const DIFFERS: &str = "conveyor_plugin_manager_reconciled_total{outcome=\"differs\"}";

fn reconciling(settings: &mut Settings) {
    settings.startup_reconcile = true;
}

/// Publishes the plugin and stops the service again.
async fn publish(house: &House, plugin: &Plugin, plugin_id: &str, node_type: &str) {
    let service = house.start(|_| ()).await;
    service.publish(plugin.manifest(plugin_id, "1.0.0", &[node_type])).await.unwrap();
    service.stop().await;
}

#[tokio::test]
async fn a_plugin_that_does_not_answer_stays_and_becomes_unknown() {
    let house = House::new().await;
    let (here, gone) = (Plugin::new(&["plugin.here"]), Plugin::new(&["plugin.gone"]));
    publish(&house, &here, "here", "plugin.here").await;
    publish(&house, &gone, "gone", "plugin.gone").await;
    gone.stop();
    let service = house.start(reconciling).await;
    house.until(|snapshot| snapshot.plugins["gone"].health.state == HealthState::Unknown).await;
    assert_eq!(house.state("here").await, "online");
    let list = service.ask("plugin.list", json!({})).await.unwrap();
    assert_eq!(list["plugins"].as_array().unwrap().len(), 2);
    assert!(list["plugins"][0]["health"]["lastError"].is_string());
    service.stop().await;
}

#[tokio::test]
async fn a_plugin_that_answers_again_comes_online() {
    let house = House::new().await;
    let plugin = Plugin::new(&["plugin.echo"]);
    publish(&house, &plugin, "echo", "plugin.echo").await;
    let catalogue = house.storage.catalogue();
    let offline = Health { state: HealthState::Offline, ..Health::default() };
    catalogue.record_health("echo", &offline).await.unwrap();
    let service = house.start(reconciling).await;
    house.until(|snapshot| snapshot.plugins["echo"].health.state == HealthState::Online).await;
    assert_eq!(plugin.asked("executor_batch_pull").len(), 2);
    service.stop().await;
}

#[tokio::test]
async fn changed_executors_under_the_same_version_change_nothing() {
    let house = House::new().await;
    let offered = Arc::new(Mutex::new(items(&["plugin.echo"])));
    let answer = Arc::clone(&offered);
    let plugin = Plugin::scripted(move |_| std::future::ready(Reply::Value(answer.lock().clone().into())));
    publish(&house, &plugin, "echo", "plugin.echo").await;
    offered.lock()[0]["name"] = json!("Other");
    let before = house.storage.catalogue().snapshot().await.unwrap();
    let service = house.start(reconciling).await;
    let (_, metrics) = loop {
        let scrape = service.get("/metrics", None).await;
        if scrape.1.contains("reconciled_total{") {
            break scrape;
        }
    };
    assert!(metrics.contains(&format!("{DIFFERS} 1")), "{metrics}");
    assert_eq!(
        house.storage.catalogue().snapshot().await.unwrap().plugins["echo"].publications,
        before.plugins["echo"].publications
    );
    assert_eq!(house.state("echo").await, "online");
    service.stop().await;
}

#[tokio::test]
async fn changed_executors_replace_the_version_where_that_is_allowed() {
    let house = House::new().await;
    let offered = Arc::new(Mutex::new(items(&["plugin.echo"])));
    let answer = Arc::clone(&offered);
    let plugin = Plugin::scripted(move |_| std::future::ready(Reply::Value(answer.lock().clone().into())));
    publish(&house, &plugin, "echo", "plugin.echo").await;
    let before = house.storage.catalogue().snapshot().await.unwrap().plugins["echo"].publications[0].digest;
    offered.lock()[0]["name"] = json!("Other");
    let service = house
        .start(|settings| {
            reconciling(settings);
            settings.allow_republish = true;
        })
        .await;
    house.until(|snapshot| snapshot.plugins["echo"].publications[0].digest != before).await;
    let detail = service.ask("plugin.get", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(detail["items"][0]["name"], "Other");
    service.stop().await;
}

#[tokio::test]
async fn a_dead_plugin_holds_up_nothing_and_the_total_is_bounded() {
    let house = House::new().await;
    let half_alive = Plugin::scripted({
        let first = Arc::new(Mutex::new(true));
        move |_| {
            let first = std::mem::replace(&mut *first.lock(), false);
            async move {
                match first {
                    true => Reply::Value(items(&["plugin.slow"]).into()),
                    false => std::future::pending().await,
                }
            }
        }
    });
    publish(&house, &half_alive, "slow", "plugin.slow").await;
    let service = house
        .start(|settings| {
            reconciling(settings);
            settings.executor_pull_timeout = Duration::from_secs(600);
            settings.startup_pull_timeout = Duration::from_millis(300);
        })
        .await;
    // Serves while the pull hangs.
    assert_eq!(service.get("/ready", None).await.0, 200);
    let other = Plugin::new(&["plugin.other"]);
    service.publish(other.manifest("other", "1.0.0", &["plugin.other"])).await.unwrap();
    // The bound ends the pull: its own limit would be ten minutes.
    house.until(|snapshot| snapshot.plugins["slow"].health.state == HealthState::Unknown).await;
    service.stop().await;
}

#[tokio::test]
async fn removed_plugins_are_left_alone() {
    let house = House::new().await;
    let (removed, live) = (Plugin::new(&["plugin.removed"]), Plugin::new(&["plugin.live"]));
    publish(&house, &removed, "removed", "plugin.removed").await;
    publish(&house, &live, "live", "plugin.live").await;
    house.storage.catalogue().remove("removed", contract::Millis(1)).await.unwrap();
    let service = house.start(reconciling).await;
    while service.metric("conveyor_plugin_manager_reconciled_total{outcome=\"current\"}").await == 0 {}
    assert_eq!(removed.asked("executor_batch_pull").len(), 1);
    let list = service.ask("plugin.list", json!({"includeRemoved": true})).await.unwrap();
    assert_eq!(list["plugins"][1]["removed"], Value::Bool(true));
    service.stop().await;
}

#[tokio::test]
async fn a_plugin_that_knows_only_the_previous_token_is_pulled_with_it() {
    let house = House::new().await;
    let plugin = Plugin::scripted(async |request| match request.data.value().unwrap()["token"] == PREVIOUS {
        true => Reply::Value(items(&["plugin.echo"]).into()),
        false => Reply::Error(RpcError::new(ErrorCode::Unauthorized, "wrong token")),
    });
    let offline = Health { state: HealthState::Offline, ..Health::default() };
    publish(&house, &plugin, "echo", "plugin.echo").await;
    house.storage.catalogue().record_health("echo", &offline).await.unwrap();
    let service = house.start(reconciling).await;
    house.until(|snapshot| snapshot.plugins["echo"].health.state == HealthState::Online).await;
    service.stop().await;
}

/// How far the service is with its reconcile.
async fn progress(service: &Running) -> String {
    let (_, text) = service.get("/ready", Some(TOKEN)).await;
    let body: Value = serde_json::from_str(&text).unwrap();
    body["details"]["reconcile"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn replicas_that_start_together_pull_once() {
    let house = House::new().await;
    let plugin = Plugin::new(&["plugin.echo"]);
    publish(&house, &plugin, "echo", "plugin.echo").await;
    let replicas = [house.start(reconciling).await, house.start(reconciling).await];
    // Whichever was first: it pulls, and the other waits whether anything is left for it.
    loop {
        let mut progress = [progress(&replicas[0]).await, progress(&replicas[1]).await];
        progress.sort();
        if progress == ["done", "waiting"] {
            break;
        }
    }
    for service in replicas {
        service.stop().await;
    }
    assert_eq!(plugin.asked("executor_batch_pull").len(), 2, "the publication, and one reconcile");
}

#[tokio::test]
async fn a_replica_that_was_killed_leaves_the_reconcile_to_its_successor() {
    let house = House::new().await;
    let plugin = Plugin::new(&["plugin.echo"]);
    publish(&house, &plugin, "echo", "plugin.echo").await;
    let old = Health { state: HealthState::Online, checked_at: Some(Millis(1)), ..Health::default() };
    house.storage.catalogue().record_health("echo", &old).await.unwrap();
    // Its lease is still held, and nobody renews it.
    assert!(house.queue.lease("plugin-manager:reconcile", "killed", Duration::from_secs(1)).await.unwrap());
    let service = house.start(reconciling).await;
    while progress(&service).await != "done" {}
    service.stop().await;
    assert_eq!(plugin.asked("executor_batch_pull").len(), 2);
}

#[tokio::test]
async fn a_plugin_that_moves_during_its_pull_is_neither_held_up_nor_moved_back() {
    let house = House::new().await;
    let (asked, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let script = (Arc::clone(&asked), Arc::clone(&gate));
    let pulls = Arc::new(Mutex::new(0));
    let old = Plugin::scripted(move |_| {
        let ((asked, gate), pulls) = (script.clone(), Arc::clone(&pulls));
        async move {
            let again = std::mem::replace(&mut *pulls.lock(), 1) > 0;
            if again {
                asked.notify_one();
                gate.notified().await;
            }
            Reply::Value(items(&["plugin.echo"]).into())
        }
    });
    publish(&house, &old, "echo", "plugin.echo").await;
    let service = house
        .start(|settings| {
            reconciling(settings);
            settings.executor_pull_timeout = Duration::from_secs(60);
        })
        .await;
    asked.notified().await;
    let new = Plugin::new(&["plugin.echo"]);
    service.publish(new.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    gate.notify_one();
    while service.metric("conveyor_plugin_manager_reconciled_total{outcome=\"overtaken\"}").await == 0 {}
    let detail = service.ask("plugin.get", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(detail["plugin"]["endpoint"]["port"], new.address.port());
    service.stop().await;
}
