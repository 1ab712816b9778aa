//! When policy is judged, and on which catalogue.

use crate::{
    pages::until_metric,
    world::{NODE_TYPE, Neighbour, PATIENCE, World, local},
};
use contract::{Millis, report::Dispatched};
use std::{sync::Arc, time::Duration};
use tokio::sync::Notify;
use wire::Reply;

/// Pause between two looks at what nothing gives notice of.
const PACE: Duration = Duration::from_millis(100);

fn refusal(outcome: Dispatched) -> String {
    match outcome {
        Dispatched::Refused(error) => error.code.unwrap_or_default(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_plugin_that_is_disabled_gets_no_task_that_was_queued_before() {
    let mut world = World::with(|settings| settings.dispatch.in_flight_per_endpoint = 1).await;
    let may_answer = Arc::new(Notify::new());
    let gate = Arc::clone(&may_answer);
    let slow = Neighbour::start(local(), move |_| {
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            Reply::Empty
        }
    });
    let other = Neighbour::start(local(), |_| std::future::ready(Reply::Empty));
    world.publish("test", NODE_TYPE, slow.endpoint()).await;
    let running = world.queued(NODE_TYPE).await;
    let waiting = world.queued(NODE_TYPE).await;
    until_metric(&world, "conveyor_control_plane_dispatch_parked 1").await;

    world.storage.catalogue().set_enabled("default", None, "test", false, Millis(1)).await.unwrap();
    // A plugin that is not known yet makes the control plane read the catalogue, and the change with it.
    world.publish("other", "plugin.other.x", other.endpoint()).await;
    let elsewhere = world.queued("plugin.other.x").await;
    assert_eq!(world.next_dispatched(elsewhere).await, Dispatched::Delivered { implicit: false });

    may_answer.notify_one();
    let (first, second) = (world.next_outcome().await, world.next_outcome().await);
    let of = |id| if first.execution_id == id { first.outcome.clone() } else { second.outcome.clone() };
    assert_eq!(of(running), Dispatched::Delivered { implicit: false }, "what was dispatched finishes");
    assert_eq!(refusal(of(waiting)), "plugin_disabled");
}

#[tokio::test]
async fn a_change_of_the_catalogue_without_a_notice_counts_after_a_poll() {
    let mut world = World::start().await;
    let plugin = Neighbour::start(local(), |_| std::future::ready(Reply::Empty));
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let id = world.queued(NODE_TYPE).await;
    assert_eq!(world.next_dispatched(id).await, Dispatched::Delivered { implicit: false });

    world.storage.catalogue().set_enabled("default", None, "test", false, Millis(1)).await.unwrap();
    let mut pace = tokio::time::interval(PACE);
    let refused = async {
        loop {
            let id = world.queued(NODE_TYPE).await;
            let outcome = world.next_dispatched(id).await;
            if outcome != (Dispatched::Delivered { implicit: false }) {
                return refusal(outcome);
            }
            pace.tick().await;
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, refused).await.unwrap(), "plugin_disabled");
}

#[tokio::test]
async fn each_refusal_names_plugin_and_version_and_comes_once() {
    let mut world = World::start().await;
    let plugin = Neighbour::start(local(), |_| std::future::ready(Reply::Empty));
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let catalogue = world.storage.catalogue();
    let mut pace = tokio::time::interval(PACE);
    let mut expect = async |code: &str| {
        // Nothing is refused by what is only in memory, but allowed: until that is renewed.
        let error = loop {
            let id = world.queued(NODE_TYPE).await;
            match world.next_dispatched(id).await {
                Dispatched::Refused(error) => break error,
                Dispatched::Delivered { .. } => drop(pace.tick().await),
                Dispatched::Failed(error) => panic!("{code}: {}", error.message),
            }
        };
        assert_eq!((error.code.as_deref(), error.retryable), (Some(code), Some(false)));
        assert!(error.message.contains("test@1.0.0"), "{}", error.message);
        assert!(world.outcomes.try_recv().is_err(), "{code}: told once");
    };
    catalogue.set_quarantined("test", true).await.unwrap();
    expect("plugin_quarantined").await;
    // The rules before it answer first.
    catalogue.set_enabled("default", Some("local"), "test", false, Millis(1)).await.unwrap();
    expect("plugin_disabled").await;
    catalogue.remove("test", Millis(2)).await.unwrap();
    expect("plugin_removed").await;
}
