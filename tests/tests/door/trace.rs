//! W3C trace context through the whole platform: from the request that starts a run to the plugin, and
//! from the plugin's reports into log and history (protocol section 3).

use crate::PATIENCE;
use contract::{Json, pattern};
use serde_json::{Value, json};
use std::{net::Ipv4Addr, sync::Arc};
use system_tests::{
    Solo, binary,
    deployment::{API_TOKEN, CONTROL_PLANE_KEY, INGRESS_TOKEN},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wire::{Client, ClientConfig, Reply, Request, Server, ServerConfig};

const NODE_TYPE: &str = "plugin.traced.work";

/// A `traceparent` with these digits.
fn trace(trace: char, parent: char) -> String {
    format!("00-{}-{}-01", trace.to_string().repeat(32), parent.to_string().repeat(16))
}

/// A plugin that shows its tasks and leaves the reports to the test.
fn plugin() -> (u16, mpsc::UnboundedReceiver<Value>, CancellationToken) {
    let (seen, tasks) = mpsc::unbounded_channel();
    let handler = move |request: Request| {
        let seen = seen.clone();
        async move {
            match pattern::find(&request.pattern) {
                Some(pattern::EXECUTOR_BATCH_PULL) => Reply::Value(Json::from(json!({"items": [
                    {"nodeType": NODE_TYPE, "name": "Work", "inputs": null, "outputs": [
                        {"name": "text", "type": "string", "label": "Text"}
                    ]}
                ]}))),
                Some(pattern::EXECUTOR_TASK) => {
                    let _ = seen.send(request.data.value().unwrap());
                    Reply::Empty
                }
                _ => Reply::NoHandler,
            }
        }
    };
    let config = ServerConfig::new("traced-plugin", (Ipv4Addr::LOCALHOST, 0).into());
    let server = Server::bind(config, Arc::new(handler)).unwrap();
    let (port, stop) = (server.local_addr().port(), CancellationToken::new());
    tokio::spawn(server.run(stop.clone(), stop.clone()));
    (port, tasks, stop)
}

/// Two nodes of the plugin, one after the other.
fn process() -> Value {
    let node = |id: &str| {
        json!({"id": id, "source": {"nodeType": NODE_TYPE},
               "config": [{"name": "text", "type": "string", "isPort": true}], "outputs": ["text"]})
    };
    json!({"settings": {"name": "traced"}, "widgets": [
        {"id": "start", "source": {"nodeType": "system.trigger.input"}, "config": [{"name": "text", "type": "string"}]},
        node("first"), node("second")
    ], "edges": [
        {"source": "start", "sourceHandle": "text", "target": "first", "targetHandle": "text"},
        {"source": "first", "sourceHandle": "text", "target": "second", "targetHandle": "text"}
    ]})
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_context_goes_to_every_task_and_comes_back_into_log_and_history() {
    let log = [("CONVEYOR_LOG", "info,runtime_control_plane=debug")];
    let solo = Solo::start(&binary("conveyor"), &log).await;
    let (port, mut tasks, _stop) = plugin();
    let manager = Client::new("127.0.0.1", solo.plugin_manager, ClientConfig::default());
    let manifest = json!({
        "kind": contract::manifest::MANIFEST_KIND, "token": INGRESS_TOKEN, "pluginId": "traced",
        "publicationVersion": "1.0.0", "label": "Traced", "executors": [{"nodeType": NODE_TYPE}],
        "pull": {"host": "127.0.0.1", "port": port},
    });
    manager.request("manifest_request_v2", &Json::from(manifest), PATIENCE).await.unwrap();
    solo.platform.wait_for_plugin("traced").await;
    let process = solo.platform.import(&process()).await;

    let (caller, span) = (trace('a', '1'), trace('a', '2'));
    let http = reqwest::Client::new();
    let url = solo.platform.url(&format!("/flow/{process}/webhook"));
    let request = http.post(url).bearer_auth(API_TOKEN).header("traceparent", &caller);
    let request = request.header("tracestate", "caller=1").header("tracestate", " congo=t61,,");
    let started: Value =
        request.json(&json!({"text": "x"})).timeout(PATIENCE).send().await.unwrap().json().await.unwrap();
    let run = started["runId"].as_str().unwrap().to_owned();

    // The first node answers over TCP, the second over HTTP; both with a span of their own.
    let door = Client::new("127.0.0.1", solo.tcp_port, ClientConfig::default());
    let mut next = async || tokio::time::timeout(PATIENCE, tasks.recv()).await.unwrap().unwrap();
    let task = next().await;
    assert_eq!(task["traceparent"], json!(caller), "{task}");
    assert_eq!(task["tracestate"], json!("caller=1,congo=t61"), "{task}");
    let report = |task: &Value| json!({"executionId": task["executionId"], "runId": task["runId"], "outputs": {"text": "y"}});
    let mut body = report(&task);
    body["key"] = json!(CONTROL_PLANE_KEY);
    body["traceparent"] = json!(span);
    body["tracestate"] = json!("plugin=tcp");
    door.request("step_ack", &Json::from(&body), PATIENCE).await.unwrap();
    door.request("step_result", &Json::from(&body), PATIENCE).await.unwrap();
    let task = next().await;
    assert_eq!(task["traceparent"], json!(caller), "{task}");
    assert_eq!(task["tracestate"], json!("caller=1,congo=t61"), "{task}");
    let url = format!("http://127.0.0.1:{}/internal/steps/result", solo.http_port);
    let request = http.post(url).bearer_auth(CONTROL_PLANE_KEY).header("traceparent", &span);
    let request = request.header("tracestate", "plugin=http");
    let told = request.body(report(&task).to_string()).timeout(PATIENCE).send().await.unwrap();
    assert_eq!(told.status(), 200);

    let detail = solo.platform.finished(&process, &run).await;
    assert_eq!(detail["run"]["status"], "finished", "{detail:#}");
    let history = solo.platform.history(&process, &run).await;
    let traced = |kind: &str, traceparent: &str| {
        let text = |event: &Value| event.to_string();
        history.iter().filter(|event| event["kind"] == kind && text(event).contains(traceparent)).count()
    };
    assert_eq!(traced("run_started", &caller), 1, "{history:#?}");
    assert_eq!(traced("run_started", "caller=1,congo=t61"), 1, "{history:#?}");
    assert_eq!((traced("step_acked", "plugin=tcp"), traced("step_finished", "plugin=tcp")), (1, 1));
    assert_eq!(traced("step_finished", "plugin=http"), 1, "{history:#?}");
    assert_eq!((traced("step_acked", &span), traced("step_finished", &span)), (1, 2), "{history:#?}");
    for event in ["report_answered", "dispatch_ended"] {
        let lines = solo.process.lines();
        let logged =
            lines.iter().any(|line| line.text.contains(event) && line.text.contains(&"a".repeat(32)));
        assert!(logged, "no line of {event} tells the trace");
    }
}
