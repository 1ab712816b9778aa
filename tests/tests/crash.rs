//! `kill -9` in mid-run: nothing that was answered is lost, nothing runs twice after its ack.

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

use plugin_sdk::{Context, Failure, Node, Param, Plugin, PluginSettings};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{collections::HashMap, sync::Arc};
use system_tests::{Deployment, Platform, servers};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

/// Steps of the chain.
const STEPS: usize = 9;
/// The engine is killed while the plugin works on these steps.
const KILLED_AT: [usize; 3] = [2, 5, 8];

#[derive(Deserialize)]
struct Work {
    value: i64,
}

#[derive(Serialize)]
struct Done {
    value: i64,
}

/// A plugin whose every step tells that it began and waits until it may end.
fn counting_plugin(began: mpsc::UnboundedSender<String>, may_end: Arc<Semaphore>) -> Plugin {
    let work = move |input: Work, context: Context| {
        let (began, may_end) = (began.clone(), Arc::clone(&may_end));
        async move {
            let _ = began.send(context.node_path().to_owned());
            may_end.acquire().await.map_err(|_| Failure::new("the test is over"))?.forget();
            Ok(Done { value: input.value + 1 })
        }
    };
    Plugin::new("counting", "1.0.0").node(
        Node::new("plugin.counting.add", "Add")
            .input(Param::number("value").port().required())
            .output(Param::number("value"))
            .run(work),
    )
}

fn chain() -> Value {
    let mut widgets = vec![json!({
        "id": "start", "source": {"nodeType": "system.trigger.input"},
        "config": [{"name": "value", "type": "number", "isRequired": true}]
    })];
    let mut edges = Vec::new();
    let mut before = "start".to_owned();
    for step in 0..STEPS {
        let id = format!("step-{step}");
        widgets.push(json!({
            "id": id, "source": {"nodeType": "plugin.counting.add"},
            "config": [{"name": "value", "type": "number", "isPort": true}], "outputs": ["value"]
        }));
        edges.push(json!({"source": before, "sourceHandle": "value", "target": id, "targetHandle": "value"}));
        before = id;
    }
    widgets.push(json!({
        "id": "end", "source": {"nodeType": "system.output"}, "config": [{"name": "value", "type": "number"}]
    }));
    edges.push(json!({"source": before, "sourceHandle": "value", "target": "end", "targetHandle": "value"}));
    json!({"settings": {"name": "chain"}, "widgets": widgets, "edges": edges})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_engine_loses_no_result_and_runs_no_node_twice_after_its_ack() {
    let Some(servers) = servers().await else { return };
    let mut deployment = Deployment::start(&servers, &[("RUNTIME_ENGINE_DELIVERY_TIMEOUT_MS", "5000")]).await;
    let (began, mut begun) = mpsc::unbounded_channel();
    let may_end = Arc::new(Semaphore::new(0));
    let stop = CancellationToken::new();
    let variables: config::Variables = deployment.plugin_environment().into_iter().collect();
    let mut reader = config::Reader::new(&variables);
    let settings = PluginSettings::read(&mut reader);
    reader.finish().unwrap();
    let plugin = tokio::spawn(counting_plugin(began, Arc::clone(&may_end)).serve(settings, stop.clone()));

    let platform = Platform::at(deployment.ports.api);
    platform.wait_for_plugin("counting").await;
    let process = platform.import(&chain()).await;
    let run = platform.start(&process, &json!({"value": 0})).await;

    let mut executions: HashMap<String, usize> = HashMap::new();
    for step in 0..STEPS {
        let path = begun.recv().await.unwrap();
        assert_eq!(path, format!("step-{step}"));
        *executions.entry(path).or_default() += 1;
        if KILLED_AT.contains(&step) {
            // After the ack is durable, so that a second execution would be a fault; the result then
            // meets an engine that is away.
            let wanted = format!("step-{step}");
            platform
                .follow(&process, &run, |kind, event| {
                    kind == "step_acked" && event.to_string().contains(&wanted)
                })
                .await;
            deployment.kill("runtime-engine").await;
            may_end.add_permits(1);
            deployment.start_service("runtime-engine").await;
        } else {
            may_end.add_permits(1);
        }
    }

    let detail = platform.finished(&process, &run).await;
    assert_eq!(detail["run"]["status"], "finished", "{detail:#}");
    let result =
        platform.call(reqwest::Method::GET, &format!("/flow/{process}/runs/{run}/result"), None).await;
    assert_eq!(result["publicInputs"], json!({"value": STEPS}));

    assert!(begun.try_recv().is_err(), "no step began once more");
    assert!(executions.values().all(|count| *count == 1), "{executions:?}");
    let history = platform.history(&process, &run).await;
    let count = |kind: &str| history.iter().filter(|event| event["kind"] == kind).count();
    assert_eq!(
        (count("step_scheduled"), count("step_finished")),
        (STEPS, STEPS),
        "one attempt each, one result each"
    );
    stop.cancel();
    plugin.await.unwrap().unwrap();
}
