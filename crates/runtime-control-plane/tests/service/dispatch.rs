//! Tasks to plugins.

use crate::world::{NODE_TYPE, Neighbour, PATIENCE, World, local};
use contract::{
    ErrorCode, Json, RpcError,
    manifest::Endpoint,
    report::{Dispatched, StepStatus},
    run::RunStatus,
    task::ExecutorTask,
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::sync::{Notify, mpsc};
use wire::{Reply, Request};

/// A plugin that shows its tasks and answers each with the same.
pub(crate) fn plugin(
    answer: impl Fn() -> Reply + Send + Sync + 'static,
) -> (Neighbour, mpsc::UnboundedReceiver<Request>) {
    let (seen, tasks) = mpsc::unbounded_channel();
    let answer = Arc::new(answer);
    let neighbour = Neighbour::start(local(), move |request: Request| {
        let (seen, answer) = (seen.clone(), Arc::clone(&answer));
        async move {
            let _ = seen.send(request);
            answer()
        }
    });
    (neighbour, tasks)
}

/// A plugin that never answers.
fn silent() -> Neighbour {
    Neighbour::start(local(), |_| std::future::pending())
}

pub(crate) async fn next(tasks: &mut mpsc::UnboundedReceiver<Request>) -> Request {
    tokio::time::timeout(PATIENCE, tasks.recv()).await.expect("no task came").unwrap()
}

fn code(error: &contract::report::StepError) -> &str {
    error.code.as_deref().unwrap_or_default()
}

#[tokio::test]
async fn task_reaches_its_plugin_with_everything_it_needs() {
    let mut world = World::start().await;
    let (plugin, mut tasks) = plugin(|| Reply::Value(Json::from(json!({"ok": true}))));
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let mut task = world.attempt(NODE_TYPE).await;
    task.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into());
    task.tracestate = Some("congo=t61,rojo=00f".into());
    world.push(&task).await;
    let request = next(&mut tasks).await;
    assert_eq!((request.pattern.as_str(), request.is_event), ("executor.task", false));
    let got: ExecutorTask = request.data.read().unwrap();
    assert_eq!((got.execution_id, got.run_id), (task.execution_id, task.run_id));
    assert_eq!((&got.inputs, &got.outputs), (&task.inputs, &task.outputs));
    assert_eq!((got.traceparent, got.tracestate), (task.traceparent, task.tracestate));
    assert_eq!(got.files_url, None, "no input refers to a file");
    assert!(got.deadline.0 > world.storage.now().await.unwrap().0);
    assert_eq!(world.next_dispatched(task.execution_id).await, Dispatched::Delivered { implicit: false });
    assert!(world.reports.try_recv().is_err(), "a reply without status or outputs is no result");
}

#[tokio::test]
async fn reply_with_a_result_is_taken_as_the_report() {
    let mut world = World::start().await;
    let (plugin, _tasks) =
        plugin(|| Reply::Value(Json::parse(r#"{"outputs":{"n":12345678901234567890123}}"#).unwrap()));
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let id = world.queued(NODE_TYPE).await;
    assert_eq!(world.next_dispatched(id).await, Dispatched::Delivered { implicit: false });
    let result = world.next_result(id).await;
    assert_eq!((result.status, result.outputs["n"].text()), (StepStatus::Ok, "12345678901234567890123"));
}

#[tokio::test]
async fn reply_that_only_looks_like_a_result_is_a_delivery() {
    let mut world = World::start().await;
    let (plugin, _tasks) = plugin(|| Reply::Value(Json::from(json!({"status": "accepted"}))));
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let id = world.queued(NODE_TYPE).await;
    assert_eq!(world.next_dispatched(id).await, Dispatched::Delivered { implicit: false });
}

#[tokio::test]
async fn error_of_the_plugin_fails_the_step_unless_it_says_retryable() {
    let mut world = World::start().await;
    let foreign = json!({"status": "error", "message": "Internal server error"});
    let (first, _) = plugin(move || Reply::Exception(Json::from(&foreign)));
    world.publish("first", "plugin.first.x", first.endpoint()).await;
    let id = world.queued("plugin.first.x").await;
    let error = world.next_result(id).await.error.unwrap();
    assert_eq!(
        (code(&error), error.message.as_str(), error.retryable),
        ("step_failed", "Internal server error", None)
    );

    let (second, _) = plugin(|| Reply::Error(RpcError::new(ErrorCode::Overloaded, "too much")));
    world.publish("second", "plugin.second.x", second.endpoint()).await;
    let id = world.queued("plugin.second.x").await;
    let Dispatched::Failed(error) = world.next_dispatched(id).await else { panic!() };
    assert_eq!((code(&error), error.retryable), ("overloaded", Some(true)));
}

#[tokio::test]
async fn plugin_without_a_handler_gets_events_and_that_is_remembered() {
    let mut world = World::with(|settings| settings.delivery_timeout = Duration::from_millis(300)).await;
    let (plugin, mut tasks) = plugin(|| Reply::NoHandler);
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let first = world.queued(NODE_TYPE).await;
    assert!(!next(&mut tasks).await.is_event);
    assert!(next(&mut tasks).await.is_event);
    assert_eq!(world.next_dispatched(first).await, Dispatched::Delivered { implicit: true });
    let second = world.queued(NODE_TYPE).await;
    assert!(next(&mut tasks).await.is_event, "the second task is an event at once");
    assert_eq!(world.next_dispatched(second).await, Dispatched::Delivered { implicit: true });
}

#[tokio::test]
async fn event_whose_connection_dies_before_the_deadline_is_not_delivered() {
    let mut world = World::start().await;
    let (plugin, mut tasks) = plugin(|| Reply::NoHandler);
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let id = world.queued(NODE_TYPE).await;
    next(&mut tasks).await;
    assert!(next(&mut tasks).await.is_event);
    plugin.stop().await;
    let Dispatched::Failed(error) = world.next_dispatched(id).await else { panic!() };
    assert_eq!(error.retryable, Some(true));
}

#[tokio::test]
async fn silent_plugin_is_delivered_implicitly_and_its_late_reply_is_the_result() {
    let mut world = World::with(|settings| settings.delivery_timeout = Duration::from_secs(1)).await;
    let done = Arc::new(Notify::new());
    let work = Arc::clone(&done);
    let plugin = Neighbour::start(local(), move |_| {
        let work = Arc::clone(&work);
        async move {
            work.notified().await;
            Reply::Value(Json::from(json!({"outputs": {"text": "готово"}})))
        }
    });
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let id = world.queued(NODE_TYPE).await;
    assert_eq!(world.next_dispatched(id).await, Dispatched::Delivered { implicit: true });
    done.notify_one();
    assert_eq!(world.next_result(id).await.outputs["text"].text(), "\"готово\"");
    assert!(world.outcomes.try_recv().is_err(), "the delivery is told once");
}

#[tokio::test]
async fn connection_lost_before_the_answer_is_a_failed_delivery_also_after_an_implicit_one() {
    for implicit in [false, true] {
        let timeout = Duration::from_millis(if implicit { 1000 } else { 20_000 });
        let mut world = World::with(|settings| settings.delivery_timeout = timeout).await;
        let (seen, mut tasks) = mpsc::unbounded_channel();
        let plugin = Neighbour::start(local(), move |request: Request| {
            let _ = seen.send(request);
            std::future::pending()
        });
        world.publish("test", NODE_TYPE, plugin.endpoint()).await;
        let id = world.queued(NODE_TYPE).await;
        next(&mut tasks).await;
        if implicit {
            assert_eq!(world.next_dispatched(id).await, Dispatched::Delivered { implicit: true });
        }
        plugin.stop().await;
        let Dispatched::Failed(error) = world.next_dispatched(id).await else { panic!() };
        assert_eq!((code(&error), error.retryable), ("unavailable", Some(true)));
    }
}

#[tokio::test]
async fn plugin_that_is_down_is_a_failed_delivery_that_names_its_address() {
    let mut world = World::start().await;
    let (plugin, _) = plugin(|| Reply::Empty);
    let endpoint = plugin.endpoint();
    plugin.stop().await;
    world.publish("test", NODE_TYPE, endpoint.clone()).await;
    let id = world.queued(NODE_TYPE).await;
    let Dispatched::Failed(error) = world.next_dispatched(id).await else { panic!() };
    assert!(error.message.contains(&endpoint.to_string()) && error.retryable == Some(true), "{error:?}");
}

#[tokio::test]
async fn policy_refuses_once_and_names_the_rule() {
    let mut world = World::start().await;
    let (plugin, mut tasks) = plugin(|| Reply::Empty);
    let unknown = world.queued("plugin.nobody.x").await;
    let Dispatched::Refused(error) = world.next_dispatched(unknown).await else { panic!() };
    assert_eq!((code(&error), error.retryable), ("plugin_unknown", Some(false)));

    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let catalogue = world.storage.catalogue();
    catalogue.set_enabled("default", None, "test", false, contract::Millis(1)).await.unwrap();
    let disabled = world.queued(NODE_TYPE).await;
    let Dispatched::Refused(error) = world.next_dispatched(disabled).await else { panic!() };
    assert_eq!(code(&error), "plugin_disabled");
    assert!(error.message.contains("test@1.0.0"), "{}", error.message);

    catalogue.set_enabled("default", None, "test", true, contract::Millis(2)).await.unwrap();
    let enabled = world.queued(NODE_TYPE).await;
    assert_eq!(world.next_dispatched(enabled).await, Dispatched::Delivered { implicit: false });
    next(&mut tasks).await;
    assert!(tasks.try_recv().is_err(), "refused tasks never reach the plugin");
}

#[tokio::test]
async fn offline_plugin_is_a_failed_delivery_that_may_be_tried_again() {
    let mut world = World::start().await;
    let (plugin, _) = plugin(|| Reply::Empty);
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let health = contract::catalogue::Health {
        state: contract::catalogue::HealthState::Offline,
        ..contract::catalogue::Health::default()
    };
    world.storage.catalogue().record_health("test", &health).await.unwrap();
    // The notice is the hint by which the cached catalogue learns of it.
    let refreshed = async {
        world.queue.notify(queue::Topic::Catalogue, "1").await.unwrap();
        let id = world.queued(NODE_TYPE).await;
        let outcome = world.next_dispatched(id).await;
        matches!(outcome, Dispatched::Failed(error) if code(&error) == "plugin_offline")
    };
    assert!(tokio::time::timeout(PATIENCE, refreshed).await.unwrap());
}

#[tokio::test]
async fn task_is_dispatched_once_and_never_for_a_run_that_has_ended() {
    let mut world = World::start().await;
    let (plugin, mut tasks) = plugin(|| Reply::Empty);
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let ended = world.attempt(NODE_TYPE).await;
    let cancel = storage::runs::Append {
        close: vec![ended.execution_id],
        finished_at: Some(contract::Millis(2)),
        events: vec![storage::runs::NewEvent { kind: "run_canceled".into(), body: Json::from(json!({})) }],
        ..storage::runs::Append::new(ended.run_id, 0, RunStatus::Canceled, contract::Millis(2))
    };
    world.storage.runs().append(&[cancel]).await.unwrap();
    let task = world.attempt(NODE_TYPE).await;
    for task in [&ended, &task, &task] {
        world.push(task).await;
    }
    let last = world.queued(NODE_TYPE).await;
    let mut seen = vec![world.next_outcome().await.execution_id, world.next_outcome().await.execution_id];
    seen.sort();
    let mut expected = vec![task.execution_id, last];
    expected.sort();
    assert_eq!(seen, expected);
    next(&mut tasks).await;
    next(&mut tasks).await;
    assert!(tasks.try_recv().is_err());
}

#[tokio::test]
async fn outcome_is_told_until_the_engine_has_answered() {
    let mut world = World::start().await;
    let (plugin, _) = plugin(|| Reply::Empty);
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let away = RpcError::new(ErrorCode::EngineUnavailable, "the database is away");
    world.script.outcome_errors.lock().unwrap().extend([away.clone(), away]);
    let id = world.queued(NODE_TYPE).await;
    assert_eq!(world.next_dispatched(id).await, Dispatched::Delivered { implicit: false });
}

/// A secret-manager that knows `token` only.
pub(crate) fn secret_manager(answer: Option<RpcError>) -> Neighbour {
    Neighbour::start(local(), move |request: Request| {
        let answer = answer.clone();
        async move {
            if let Some(error) = answer {
                return Reply::Error(error);
            }
            let asked: Value = request.data.value().unwrap();
            assert_eq!((&asked["token"], &asked["workspaceId"]), (&json!("sm-token"), &json!("default")));
            let values: Vec<_> = asked["names"]
                .as_array()
                .unwrap()
                .iter()
                .map(|name| if name == "token" { json!("s3cret \"quoted\"") } else { Value::Null })
                .collect();
            Reply::Value(Json::from(json!({"values": values})))
        }
    })
}

pub(crate) async fn with_secrets(manager: Endpoint) -> World {
    World::with(|settings| {
        settings.secret_manager = manager;
        settings.secret_manager_token = Some("sm-token".into());
    })
    .await
}

async fn queued_with_secret(world: &World, name: &str) -> contract::ExecutionId {
    let mut task = world.attempt(NODE_TYPE).await;
    task.inputs.insert("a".into(), Json::from(json!({"$secret": name})));
    task.inputs.insert("b".into(), Json::from(json!(name)));
    task.inputs.insert("c".into(), Json::null());
    task.secrets = vec!["a".into(), "b".into(), "c".into(), "absent".into()];
    world.push(&task).await;
    task.execution_id
}

#[tokio::test]
async fn secrets_are_put_into_the_inputs_that_refer_to_them() {
    let manager = secret_manager(None);
    let mut world = with_secrets(manager.endpoint()).await;
    let (plugin, mut tasks) = plugin(|| Reply::Empty);
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let id = queued_with_secret(&world, "token").await;
    let got: ExecutorTask = next(&mut tasks).await.data.read().unwrap();
    assert_eq!(got.inputs["a"].value().unwrap(), json!("s3cret \"quoted\""));
    assert_eq!(got.inputs["b"].value().unwrap(), json!("s3cret \"quoted\""));
    assert!(got.inputs["c"].is_null() && !got.inputs.contains_key("absent"));
    assert_eq!(world.next_dispatched(id).await, Dispatched::Delivered { implicit: false });

    let id = queued_with_secret(&world, "nope").await;
    let Dispatched::Refused(error) = world.next_dispatched(id).await else { panic!() };
    assert_eq!(code(&error), "secret_missing");
    assert!(error.message.contains("\"nope\""), "{}", error.message);
}

#[tokio::test]
async fn secret_manager_away_is_tried_again_and_an_unreadable_secret_is_not() {
    let unreadable = RpcError::new(ErrorCode::SecretUnreadable, "cannot be decrypted");
    let manager = secret_manager(Some(unreadable));
    let mut world = with_secrets(manager.endpoint()).await;
    let (plugin, _) = plugin(|| Reply::Empty);
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let id = queued_with_secret(&world, "token").await;
    let Dispatched::Refused(error) = world.next_dispatched(id).await else { panic!() };
    assert_eq!(code(&error), "secret_unreadable");
    manager.stop().await;
    let id = queued_with_secret(&world, "token").await;
    let Dispatched::Failed(error) = world.next_dispatched(id).await else { panic!() };
    assert_eq!((code(&error), error.retryable), ("unavailable", Some(true)));
}

#[tokio::test]
async fn slow_plugin_delays_only_itself() {
    let mut world = World::with(|settings| {
        settings.dispatch.in_flight_per_endpoint = 2;
        settings.dispatch.backlog_per_endpoint = 3;
    })
    .await;
    let slow = silent();
    let (quick, _) = plugin(|| Reply::Empty);
    world.publish("slow", "plugin.slow.x", slow.endpoint()).await;
    world.publish("quick", "plugin.quick.x", quick.endpoint()).await;
    for _ in 0..10 {
        world.queued("plugin.slow.x").await;
    }
    for _ in 0..20 {
        let id = world.queued("plugin.quick.x").await;
        assert_eq!(world.next_dispatched(id).await, Dispatched::Delivered { implicit: false });
    }
    for line in [
        "conveyor_control_plane_dispatch_in_flight 2",
        "conveyor_control_plane_dispatch_parked 3",
        r#"conveyor_control_plane_dispatches_total{outcome="backlog_full",code=""} 5"#,
    ] {
        crate::pages::until_metric(&world, line).await;
    }
    // Operators see whose window is full.
    let endpoint = slow.endpoint();
    for (name, count) in [("in_flight", 2), ("parked", 3)] {
        let line = format!("conveyor_control_plane_endpoint_{name}{{endpoint=\"{endpoint}\"}} {count}");
        crate::pages::until_metric(&world, &line).await;
    }
}

#[tokio::test]
async fn parked_tasks_follow_when_their_endpoint_has_room() {
    let mut world = World::with(|settings| settings.dispatch.in_flight_per_endpoint = 1).await;
    let (plugin, _) = plugin(|| Reply::Empty);
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let mut expected = Vec::new();
    for _ in 0..50 {
        expected.push(world.queued(NODE_TYPE).await);
    }
    let mut seen = Vec::new();
    for _ in 0..50 {
        seen.push(world.next_outcome().await.execution_id);
    }
    seen.sort();
    expected.sort();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn task_larger_than_a_frame_is_refused_for_good() {
    let mut world = World::with(|settings| settings.max_frame_bytes = 4096).await;
    let (plugin, _) = plugin(|| Reply::Empty);
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let mut task = world.attempt(NODE_TYPE).await;
    task.inputs.insert("text".into(), Json::from(json!("x".repeat(5000))));
    world.push(&task).await;
    let Dispatched::Refused(error) = world.next_dispatched(task.execution_id).await else { panic!() };
    assert_eq!((code(&error), error.retryable), ("payload_too_large", Some(false)));
}
