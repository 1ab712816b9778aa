//! A stop in good order (failure matrix row 11).

use crate::world::{KEY, NODE_TYPE, Neighbour, PATIENCE, World, data, id, local};
use contract::{Json, report::Dispatched};
use queue::Lane;
use serde_json::json;
use std::{sync::Arc, time::Duration};
use tokio::sync::Notify;
use wire::Reply;

#[tokio::test]
async fn idle_service_stops_at_once() {
    let mut world = World::start().await;
    world.shut_down().await;
}

#[tokio::test]
async fn report_under_way_is_answered_before_the_service_leaves() {
    let mut world = World::start().await;
    world.script.open.send_replace(false);
    let (client, web, url) = (world.tcp(), world.web.clone(), world.url("/internal/steps/result"));
    let body = json!({"key": KEY, "executionId": id()});
    let tcp = tokio::spawn({
        let body = data(&body);
        async move { client.request("step_result", &body, PATIENCE).await }
    });
    let http = tokio::spawn(web.post(url).bearer_auth(KEY).body(body.to_string()).send());
    crate::pages::until_metric(&world, "conveyor_control_plane_reports_in_flight 2").await;
    world.stop.cancel();
    world.script.open.send_replace(true);
    tcp.await.unwrap().unwrap();
    assert_eq!(http.await.unwrap().unwrap().status().as_u16(), 200);
    world.shut_down().await;
}

#[tokio::test]
async fn delivery_under_way_is_finished_and_its_reports_are_taken_meanwhile() {
    let mut world = World::start().await;
    let (came, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let steps = (Arc::clone(&came), Arc::clone(&go));
    let plugin = Neighbour::start(local(), move |_| {
        let (came, go) = steps.clone();
        async move {
            came.notify_one();
            go.notified().await;
            Reply::Value(Json::from(json!({"outputs": {}})))
        }
    });
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let id = world.queued(NODE_TYPE).await;
    came.notified().await;
    world.stop.cancel();
    let body = json!({"key": KEY, "executionId": id});
    world.tcp().request("step_ack", &data(&body), PATIENCE).await.unwrap();
    world.next_report().await;
    let later = world.queued(NODE_TYPE).await;
    go.notify_one();
    assert_eq!(world.next_dispatched(id).await, Dispatched::Delivered { implicit: false });
    world.next_result(id).await;
    world.shut_down().await;
    let left = world.queue.take(Lane::Plugin, 10, Duration::ZERO).await.unwrap();
    assert!(left.len() == 1 && left[0].contains(&later.to_string()), "no task is taken after the stop");
}

#[tokio::test]
async fn parked_tasks_go_back_to_the_lane() {
    let mut world = World::with(|settings| {
        settings.dispatch.in_flight_per_endpoint = 1;
        settings.drain_timeout = Duration::from_millis(600);
    })
    .await;
    let plugin = Neighbour::start(local(), |_| std::future::pending());
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    world.queued(NODE_TYPE).await;
    crate::pages::until_metric(&world, "conveyor_control_plane_dispatch_in_flight 1").await;
    let parked = world.queued(NODE_TYPE).await;
    crate::pages::until_metric(&world, "conveyor_control_plane_dispatch_parked 1").await;
    world.shut_down().await;
    let left = world.queue.take(Lane::Plugin, 10, Duration::ZERO).await.unwrap();
    assert!(left.len() == 1 && left[0].contains(&parked.to_string()));
}

#[tokio::test]
async fn plugin_that_still_owes_its_reply_is_told_to_the_engine_when_the_time_is_over() {
    for implicit in [false, true] {
        let delivery_timeout = Duration::from_millis(if implicit { 50 } else { 20_000 });
        let mut world = World::with(|settings| {
            settings.delivery_timeout = delivery_timeout;
            settings.drain_timeout = Duration::from_millis(600);
        })
        .await;
        let plugin = Neighbour::start(local(), |_| std::future::pending());
        world.publish("test", NODE_TYPE, plugin.endpoint()).await;
        let id = world.queued(NODE_TYPE).await;
        if implicit {
            assert_eq!(world.next_dispatched(id).await, Dispatched::Delivered { implicit: true });
        } else {
            crate::pages::until_metric(&world, "conveyor_control_plane_dispatch_in_flight 1").await;
        }
        world.shut_down().await;
        let Dispatched::Failed(error) = world.next_dispatched(id).await else { panic!() };
        assert_eq!(error.retryable, Some(true));
    }
}
