//! The report core: aliases, kinds, events, batches, an engine that is away.

use crate::world::{KEY, PATIENCE, World, data, id};
use contract::{Json, pattern, report::ReportBody};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn every_alias_of_every_report_is_taken() {
    let mut world = World::start().await;
    let client = world.tcp();
    for known in [pattern::STEP_ACK, pattern::STEP_HEARTBEAT, pattern::STEP_PARTIAL, pattern::STEP_RESULT] {
        let names = known.aliases.iter().chain([&known.name]).map(|name| (*name).to_owned());
        let with_object = [format!(r#"{{"cmd":"{}"}}"#, known.name)];
        for name in names.chain(with_object) {
            let body = json!({"key": KEY, "executionId": id(), "sequence": 1, "progress": 0.5});
            client.request(&name, &data(&body), PATIENCE).await.unwrap();
            let kind = world.next_report().await.body;
            let expected = match kind {
                ReportBody::Ack(_) => pattern::STEP_ACK,
                ReportBody::Heartbeat(_) => pattern::STEP_HEARTBEAT,
                ReportBody::Partial(_) => pattern::STEP_PARTIAL,
                ReportBody::Result(_) => pattern::STEP_RESULT,
            };
            assert_eq!(expected, known, "{name}");
        }
    }
    let unknown = client.request("step_nonsense", &data(&json!({"key": KEY})), PATIENCE).await;
    assert!(matches!(unknown, Err(wire::CallError::NoHandler)));
}

#[tokio::test]
async fn every_report_has_its_route() {
    let mut world = World::start().await;
    let body = json!({"executionId": id(), "sequence": 1}).to_string();
    for path in ["ack", "heartbeat", "partial", "result"] {
        assert_eq!(world.post(&format!("/internal/steps/{path}"), &body).await.0, 200);
        let name = match world.next_report().await.body {
            ReportBody::Ack(_) => "ack",
            ReportBody::Heartbeat(_) => "heartbeat",
            ReportBody::Partial(_) => "partial",
            ReportBody::Result(_) => "result",
        };
        assert_eq!(name, path);
    }
}

#[tokio::test]
async fn values_pass_untouched() {
    let mut world = World::start().await;
    let text = r#"{"n":123456789012345678901234567890, "s":"\ud800","t":"😀 Привет"}"#;
    let id = id();
    let body = format!(r#"{{"key":"{KEY}","executionId":"{id}","outputs":{{"v":{text}}}}}"#);
    world.tcp().request("step_result", &Json::parse(body.clone()).unwrap(), PATIENCE).await.unwrap();
    assert_eq!(world.next_result(id).await.outputs["v"].text(), text);
    assert_eq!(world.post("/internal/steps/result", &body).await.0, 200);
    assert_eq!(world.next_result(id).await.outputs["v"].text(), text);
}

#[tokio::test]
async fn event_is_handed_over_without_an_answer_even_if_the_engine_is_away_at_first() {
    let mut world = World::start().await;
    let address = world.stop_engine().await;
    let id = id();
    let body = json!({"key": KEY, "executionId": id, "outputs": {}});
    world.tcp().emit("plugin.executor.step_result", &data(&body), PATIENCE).await.unwrap();
    world.restart_engine(address);
    world.next_result(id).await;
}

#[tokio::test]
async fn engine_away_is_retryable_and_reports_pass_again_when_it_is_back() {
    let mut world = World::start().await;
    let address = world.stop_engine().await;
    let body = json!({"key": KEY, "executionId": id()}).to_string();
    let (status, told, retry_after) = world.post("/internal/steps/result", &body).await;
    assert_eq!((status, &told["error"]["code"]), (503, &json!("engine_unavailable")));
    assert_eq!((&told["error"]["retryable"], retry_after.as_deref()), (&json!(true), Some("1")));
    world.restart_engine(address);
    assert_eq!(world.post("/internal/steps/result", &body).await.0, 200);
}

#[tokio::test]
async fn silent_engine_is_unavailable_after_the_deadline() {
    let world = World::with(|settings| settings.report_timeout = Duration::from_millis(100)).await;
    world.script.open.send_replace(false);
    let (status, told, _) =
        world.post("/internal/steps/ack", &json!({"executionId": id()}).to_string()).await;
    assert_eq!((status, &told["error"]["code"]), (503, &json!("engine_unavailable")));
}

#[tokio::test]
async fn reports_that_arrive_while_batches_are_under_way_share_the_next() {
    let mut world = World::start().await;
    world.script.open.send_replace(false);
    let client = world.tcp();
    let mut calls = Vec::new();
    for _ in 0..100 {
        let (client, body) = (client.clone(), data(&json!({"key": KEY, "executionId": id()})));
        calls.push(tokio::spawn(async move { client.request("step_ack", &body, PATIENCE).await }));
    }
    // All are in: the last of them waits behind the batches under way.
    let metric = "conveyor_control_plane_reports_in_flight 100";
    crate::pages::until_metric(&world, metric).await;
    world.script.open.send_replace(true);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let batches = world.script.batches.lock().unwrap().clone();
    assert!(batches.len() <= 10, "{batches:?}");
    assert_eq!(batches.iter().sum::<usize>(), 100);
    for _ in 0..100 {
        world.next_report().await;
    }
}

#[tokio::test]
async fn trace_context_of_a_report_goes_on_to_the_engine_from_its_body_or_its_request() {
    let mut world = World::start().await;
    let (own, around) = (trace('a'), trace('b'));
    let body = json!({"key": KEY, "executionId": id(), "traceparent": own, "outputs": {}});
    for pattern in ["step_ack", "step_result"] {
        world.tcp().request(pattern, &data(&body), PATIENCE).await.unwrap();
        assert_eq!(world.next_report().await.traceparent(), Some(own.as_str()));
    }
    let without = json!({"executionId": id(), "outputs": {}});
    for (path, body, header, expected) in [
        ("result", body.clone(), &around, Some(&own)),
        ("result", without.clone(), &around, Some(&around)),
        ("results", json!([without]), &around, Some(&around)),
        ("ack", without.clone(), &"nonsense".to_owned(), None),
    ] {
        let request = world.web.post(world.url(&format!("/internal/steps/{path}"))).bearer_auth(KEY);
        let response = request.header("traceparent", header).body(body.to_string()).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(world.next_report().await.traceparent(), expected.map(String::as_str));
    }
}

fn trace(digit: char) -> String {
    format!("00-{}-{}-01", digit.to_string().repeat(32), digit.to_string().repeat(16))
}
