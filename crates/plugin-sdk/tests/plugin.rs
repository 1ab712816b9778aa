//! A plugin over real sockets, with a scripted plugin-manager and control plane.

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

mod stage;

use contract::{
    ErrorCode, Json, RpcError,
    report::{Partial, ReportBody, StepResult, StepStatus},
};
use plugin_sdk::{Context, Error, Failure, Form, Node, Param, Plugin, StepSettings, Values};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stage::{DEADLINE, Stage, task};
use std::{sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
};
use wire::{CallError, Reply};

#[derive(Deserialize)]
struct Text {
    text: String,
}

#[derive(Serialize)]
struct Counted {
    words: usize,
}

/// Counts words; waits for the gate; panics; tells and fails.
fn plugin(gate: &Arc<Semaphore>) -> Plugin {
    let gate = Arc::clone(gate);
    let count =
        Node::new("plugin.test.count", "Count")
            .input(Param::textarea("text").required())
            .output(Param::number("words"))
            .run(|input: Text, _context| async move {
                Ok(Counted { words: input.text.split_whitespace().count() })
            });
    let wait = Node::new("plugin.test.wait", "Wait").run(move |inputs: Values, context: Context| {
        let gate = Arc::clone(&gate);
        async move {
            tokio::select! {
                permit = gate.acquire() => permit?.forget(),
                () = context.cancelled() => return Err(Failure::new("given up")),
            }
            Ok(inputs)
        }
    });
    let panics = Node::new("plugin.test.panic", "Panic").run(|_: Values, _| async move {
        if true {
            panic!("boom");
        }
        Ok(())
    });
    let tells = Node::new("plugin.test.tell", "Tell").run(|_: Values, context: Context| async move {
        context.partial(&json!({"words": 1})).await?;
        context.partial(&json!({"words": 2})).await?;
        context.progress(0.5, "half");
        context.cancelled().await;
        Err::<(), _>(Failure::new("no luck").code("luck").retryable(false))
    });
    Plugin::new("test", "1.0.0").label("Проверка").node(count).node(wait).node(panics).node(tells)
}

fn closed() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(0))
}

fn quiet() -> StepSettings {
    StepSettings { heartbeat: None, ..StepSettings::default() }
}

fn code(error: &CallError) -> ErrorCode {
    error.to_rpc(ErrorCode::Unavailable, "the plugin").code
}

fn message(result: &StepResult) -> &str {
    &result.error.as_ref().unwrap().message
}

#[tokio::test]
async fn a_plugin_publishes_where_it_listens() {
    let mut stage = Stage::start(plugin(&closed())).await;
    let manifest = stage.published.recv().await.unwrap();
    assert_eq!(manifest["kind"], "plugin_manifest_request_v2");
    assert_eq!(manifest["label"], "Проверка");
    assert_eq!(manifest["pull"], json!({"host": "127.0.0.1", "port": stage.address.port()}));
    assert_eq!(manifest["executors"][0]["nodeType"], "plugin.test.count");
    stage.stop().await;
}

#[tokio::test]
async fn publication_is_tried_again_after_what_may_pass() {
    let script = |platform: &stage::Platform| {
        platform.publications.refuse(RpcError::new(ErrorCode::BatchPullFailed, "not yet"));
    };
    let mut stage = Stage::start_with(plugin(&closed()), quiet(), script).await;
    for _ in 0..2 {
        stage.published.recv().await.unwrap();
    }
    stage.stop().await;
}

#[tokio::test]
async fn publication_ends_after_a_refusal_for_good_and_the_plugin_serves() {
    let script = |platform: &stage::Platform| {
        platform.publications.refuse(RpcError::new(ErrorCode::Unauthorized, "unauthorized"));
    };
    let mut stage = Stage::start_with(plugin(&closed()), quiet(), script).await;
    stage.published.recv().await.unwrap();
    let result = stage.done("plugin.test.count", json!({"text": "a b"})).await;
    assert_eq!(result.status, StepStatus::Ok);
    assert!(stage.published.try_recv().is_err());
    stage.stop().await;
}

#[tokio::test]
async fn the_batch_is_handed_out_under_both_names_for_the_right_token_only() {
    let stage = Stage::start(plugin(&closed())).await;
    for pattern in ["executor_batch_pull", "plugin.executor_batch_pull"] {
        let pull = |token: &str| json!({"kind": "executor_batch_pull_v2", "token": token, "pluginId": "test", "publicationVersion": "1.0.0", "nodeTypes": ["plugin.test.count", "plugin.test.wait"], "cursor": null});
        let batch: Value = stage.client.call(pattern, &pull("ingress"), DEADLINE).await.unwrap();
        let items = batch["items"].as_array().unwrap();
        assert_eq!(items.len(), 2);
        assert_eq!(items[0]["inputs"][0]["required"], true);
        assert_eq!(items[1]["inputs"], Value::Null);
        for token in ["wrong", ""] {
            let error = stage.client.call::<_, Value>(pattern, &pull(token), DEADLINE).await.unwrap_err();
            assert_eq!(code(&error), ErrorCode::Unauthorized);
        }
    }
    stage.stop().await;
}

#[tokio::test]
async fn a_task_is_delivered_acknowledged_and_its_result_reported() {
    let gate = closed();
    let mut stage = Stage::start(plugin(&gate)).await;
    let task = task("plugin.test.wait", json!({"big": 1, "text": "ю"}));
    let reply = stage.deliver(&task).await.unwrap();
    assert!(!contract::report::reply_is_result(&Json::from(reply)));
    let ack = stage.report().await;
    assert!(matches!(ack.body, ReportBody::Ack(_)));
    assert_eq!((ack.execution_id, ack.run_id), (task.execution_id, Some(task.run_id)));
    gate.add_permits(1);
    let (id, result) = stage.result().await;
    assert_eq!(id, task.execution_id);
    assert_eq!(result, StepResult::ok(task.inputs));
    stage.stop().await;
}

#[tokio::test]
async fn a_task_as_an_event_is_done_as_well() {
    let mut stage = Stage::start(plugin(&closed())).await;
    let task = task("plugin.test.count", json!({"text": "один два"}));
    stage.client.emit("executor.task", &Json::of(&task).unwrap(), DEADLINE).await.unwrap();
    let (id, result) = stage.result().await;
    assert_eq!((id, result.outputs["words"].text()), (task.execution_id, "2"));
    stage.stop().await;
}

#[tokio::test]
async fn a_task_that_is_delivered_twice_is_done_once() {
    let gate = Arc::new(Semaphore::new(8));
    let mut stage = Stage::start(plugin(&gate)).await;
    let task = task("plugin.test.wait", json!({}));
    stage.deliver(&task).await.unwrap();
    stage.deliver(&task).await.unwrap();
    stage.result().await;
    stage.deliver(&task).await.unwrap();
    stage.done("plugin.test.count", json!({"text": ""})).await;
    assert_eq!(gate.available_permits(), 7);
    stage.stop().await;
}

#[tokio::test]
async fn input_that_does_not_fit_fails_the_step_and_names_the_field() {
    let mut stage = Stage::start(plugin(&closed())).await;
    let result = stage.done("plugin.test.count", json!({"text": 5})).await;
    assert!(message(&result).contains("`text`"), "{}", message(&result));
    let result = stage.done("plugin.test.count", json!({})).await;
    assert_eq!(result.error.as_ref().unwrap().code.as_deref(), Some("invalid_node_input"));
    assert!(message(&result).contains("`text`"), "{}", message(&result));
    stage.stop().await;
}

#[tokio::test]
async fn a_panic_fails_the_step_and_nothing_else() {
    let mut stage = Stage::start(plugin(&closed())).await;
    let result = stage.done("plugin.test.panic", json!({})).await;
    assert!(message(&result).contains("boom"));
    assert_eq!(stage.done("plugin.test.count", json!({"text": "a"})).await.status, StepStatus::Ok);
    stage.stop().await;
}

#[tokio::test]
async fn an_unknown_node_type_is_refused_at_delivery() {
    let stage = Stage::start(plugin(&closed())).await;
    let error = stage.deliver(&task("plugin.test.none", json!({}))).await.unwrap_err();
    assert_eq!(code(&error), ErrorCode::NodeTypeUnknown);
    let error =
        stage.client.call::<_, Value>("executor.task", &json!({"runId": "x"}), DEADLINE).await.unwrap_err();
    assert_eq!(code(&error), ErrorCode::InvalidRequest);
    stage.stop().await;
}

#[tokio::test]
async fn a_result_is_sent_until_it_is_answered_for_good() {
    let script = |platform: &stage::Platform| {
        platform.results.refuse(RpcError::new(ErrorCode::EngineUnavailable, "not now"));
        platform.results.refuse(RpcError::new(ErrorCode::Overloaded, "not now"));
        platform.results.refuse(RpcError::new(ErrorCode::RunTerminal, "it has ended"));
    };
    let mut stage = Stage::start_with(plugin(&closed()), quiet(), script).await;
    let first = stage.done("plugin.test.count", json!({"text": "a"})).await;
    for _ in 0..2 {
        assert_eq!(stage.result().await.1, first);
    }
    stage.done("plugin.test.count", json!({"text": "a"})).await;
    assert!(stage.reported.try_recv().is_err());
    stage.stop().await;
}

#[tokio::test]
async fn a_result_that_is_too_large_becomes_the_failure_that_says_so() {
    let script = |platform: &stage::Platform| {
        platform.results.refuse(RpcError::new(ErrorCode::PayloadTooLarge, "17 MiB, the limit is 16"));
    };
    let mut stage = Stage::start_with(plugin(&closed()), quiet(), script).await;
    assert_eq!(stage.done("plugin.test.count", json!({"text": "a"})).await.status, StepStatus::Ok);
    let (_, replaced) = stage.result().await;
    assert_eq!(replaced.error.as_ref().unwrap().code.as_deref(), Some("payload_too_large"));
    assert!(message(&replaced).contains("the limit is 16"));
    stage.stop().await;
}

#[tokio::test]
async fn partials_progress_and_giving_up_reach_both_sides() {
    let script = |platform: &stage::Platform| {
        platform.heartbeats.refuse(RpcError::new(ErrorCode::Superseded, "a newer attempt exists"));
    };
    let mut stage =
        Stage::start_with(plugin(&closed()), StepSettings { ack: false, ..quiet() }, script).await;
    stage.deliver(&task("plugin.test.tell", json!({}))).await.unwrap();
    for sequence in 1..=2 {
        let ReportBody::Partial(Partial { sequence: sent, outputs }) = stage.report().await.body else {
            panic!()
        };
        assert_eq!((sent, outputs["words"].text()), (sequence, sequence.to_string().as_str()));
    }
    let ReportBody::Heartbeat(heartbeat) = stage.report().await.body else { panic!() };
    assert_eq!((heartbeat.progress.unwrap().text(), heartbeat.message.as_deref()), ("0.5", Some("half")));
    // The refused heartbeat cancels the step, which then fails in its own way.
    let (_, result) = stage.result().await;
    let error = result.error.unwrap();
    assert_eq!(
        (error.code.as_deref(), error.retryable, error.message.as_str()),
        (Some("luck"), Some(false), "no luck")
    );
    stage.stop().await;
}

#[tokio::test]
async fn long_work_sends_heartbeats_by_itself() {
    let gate = closed();
    let settings = StepSettings { heartbeat: Some(Duration::from_millis(1)), ..StepSettings::default() };
    let mut stage = Stage::start_with(plugin(&gate), settings, |_| {}).await;
    stage.deliver(&task("plugin.test.wait", json!({}))).await.unwrap();
    let mut heartbeats = 0;
    while heartbeats < 3 {
        heartbeats += usize::from(matches!(stage.report().await.body, ReportBody::Heartbeat(_)));
    }
    gate.add_permits(1);
    stage.result().await;
    stage.stop().await;
}

#[tokio::test]
async fn more_than_the_limit_is_answered_with_overloaded() {
    let gate = closed();
    let mut stage =
        Stage::start_with(plugin(&gate), StepSettings { max_in_flight: 1, ..quiet() }, |_| {}).await;
    stage.deliver(&task("plugin.test.wait", json!({}))).await.unwrap();
    let error = stage.deliver(&task("plugin.test.count", json!({"text": "a"}))).await.unwrap_err();
    assert_eq!(code(&error), ErrorCode::Overloaded);
    assert!(error.retryable());
    gate.add_permits(1);
    stage.result().await;
    stage.stop().await;
}

#[tokio::test]
async fn a_stop_finishes_and_reports_what_runs_and_takes_nothing_new() {
    let gate = closed();
    let script = |platform: &stage::Platform| {
        platform.results.then(Reply::Error(RpcError::new(ErrorCode::EngineUnavailable, "not now")));
    };
    let mut stage = Stage::start_with(plugin(&gate), quiet(), script).await;
    let running = task("plugin.test.wait", json!({"a": 1}));
    stage.deliver(&running).await.unwrap();
    stage.stop.cancel();
    // Once the stop has been seen, new tasks are refused in a way that brings them back.
    let refused = loop {
        let late = task("plugin.test.wait", json!({}));
        match stage.deliver(&late).await {
            Ok(_) => gate.add_permits(1),
            Err(error) => break error,
        }
    };
    assert_eq!(code(&refused), ErrorCode::Unavailable);
    assert!(refused.retryable());
    gate.add_permits(1);
    let mut reported = Vec::new();
    while let Ok(Some(report)) = tokio::time::timeout(DEADLINE, stage.reported.recv()).await {
        if let (true, ReportBody::Result(result)) = (report.execution_id == running.execution_id, report.body)
        {
            reported.push(result);
            if reported.len() == 2 {
                break;
            }
        }
    }
    assert_eq!(reported.len(), 2, "the result is sent again after it was not answered");
    stage.stop().await;
}

#[tokio::test]
async fn a_declaration_with_faults_is_refused_with_all_of_them() {
    let node = |name: &str| Node::new(name, "x").run(|_: Values, _| async move { Ok(()) });
    let plugin = Plugin::new("", "1").node(node("system.output")).node(node("a")).node(node("a"));
    let Err(Error::Declaration(faults)) = plugin.bind(unreached()) else { panic!() };
    let mut codes: Vec<_> = faults.iter().map(|fault| fault.code.as_str()).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["duplicate", "empty", "reserved"]);
}

/// What the plugin's HTTP answers to a request without a body: the head and the body.
async fn ask(stage: &Stage, method: &str, path: &str) -> (String, String) {
    let mut connection = TcpStream::connect(stage.http).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: plugin\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

#[tokio::test]
async fn health_and_bundles_are_served_where_the_manifest_says() {
    let shown = Node::new("plugin.test.shown", "Shown").widget("ui.widget.shown");
    let plugin = plugin(&closed())
        .node(shown.run(|_: Values, _| async move { Ok(()) }))
        .asset("ui.widget.shown", "application/javascript", "export default {}")
        .asset("ui.form.è", "application/javascript", "export default 1")
        .form(Form::new("è", "Проверка", "ui.form.è").icon("i-lucide-upload"));
    let mut stage = Stage::start(plugin).await;
    let manifest = stage.published.recv().await.unwrap();
    let base = format!("http://{}", stage.http);
    let assets = manifest["staticAssets"].as_array().unwrap();
    let form = json!({"id": "è", "label": "Проверка", "assetKey": "ui.form.è", "icon": "i-lucide-upload"});
    assert_eq!(manifest["ui"], json!({"forms": [form]}));
    assert_eq!(manifest["executors"][4]["requiredTemplateKeys"], json!(["ui.widget.shown"]));
    assert_eq!(manifest["executors"][0]["requiredTemplateKeys"], Value::Null);
    for (asset, text) in assets.iter().zip(["export default {}", "export default 1"]) {
        let path = asset["url"].as_str().unwrap().strip_prefix(&base).unwrap();
        let (head, body) = ask(&stage, "GET", path).await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert!(head.contains("content-type: application/javascript; charset=utf-8"), "{head}");
        assert_eq!(body, text);
    }
    let (head, body) = ask(&stage, "GET", "/health").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let health: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(health, json!({"status": "ok", "pluginId": "test", "steps": 0}));
    for (method, path, status) in
        [("GET", "/assets/none", 404), ("GET", "/", 404), ("POST", "/health", 405), ("HEAD", "/health", 200)]
    {
        let (head, _) = ask(&stage, method, path).await;
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{method} {path}: {head}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn a_form_or_widget_without_its_bundle_is_a_fault_and_without_a_port_there_is_no_ui() {
    let node = || Node::new("a", "x").widget("ui.widget.a").run(|_: Values, _| async move { Ok(()) });
    let plugin = Plugin::new("p", "1").node(node()).form(Form::new("f", "F", "ui.form.f"));
    let Err(Error::Declaration(faults)) = plugin.bind(unreached()) else { panic!() };
    let paths: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(paths, ["$.ui.forms[0].assetKey", "$.executors[0].requiredTemplateKeys[0]"]);
    let plugin = Plugin::new("p", "1").node(node()).asset("ui.widget.a", "application/javascript", "");
    let bound = plugin.bind(unreached()).unwrap();
    assert_eq!(bound.http_addr(), None);
    assert_eq!(bound.manifest().static_assets, []);
    assert_eq!(bound.manifest().executors[0].required_template_keys, None);
}

/// Settings of a plugin that never runs.
fn unreached() -> plugin_sdk::PluginSettings {
    let source = config::Variables::of([
        ("CONVEYOR_BIND", "127.0.0.1"),
        ("PORT", "0"),
        ("CONVEYOR_INSECURE_DEV", "true"),
    ]);
    plugin_sdk::PluginSettings::read(&mut config::Reader::new(&source))
}
