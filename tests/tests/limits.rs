//! The limit of a plugin's attempts at once, over several control planes.

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

use contract::Json;
use reqwest::Method;
use serde_json::json;
use std::{collections::VecDeque, time::Duration};
use system_tests::{
    Deployment, Platform, StubPlugin,
    deployment::{CONTROL_PLANE_KEY, INGRESS_TOKEN},
    servers,
    stub::{PLUGIN_ID, wide_process},
};
use wire::{Client, ClientConfig};

const LIMIT: usize = 2;
const TASKS: usize = 20;
const CONTROL_PLANE: &str = "runtime-control-plane";
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_limited_plugin_never_has_more_tasks_than_its_limit_from_two_control_planes() {
    let Some(servers) = servers().await else { return };
    let mut deployment = Deployment::start(&servers, &[]).await;
    let platform = Platform::at(deployment.ports.api);
    let plugin = StubPlugin::start(deployment.ports.plugin_manager, INGRESS_TOKEN).await;
    platform.wait_for_plugin(PLUGIN_ID).await;
    let path = format!("/plugins/{PLUGIN_ID}/limit?attempts={LIMIT}");
    assert_eq!(platform.call(Method::POST, &path, None).await["changed"], true);

    // Control planes that start now know the limit from their first moment.
    assert!(deployment.stop(CONTROL_PLANE).await);
    deployment.start_service(CONTROL_PLANE).await;
    let (tcp, http) = (testkit::free_port().unwrap(), testkit::free_port().unwrap());
    let ports = [
        ("RUNTIME_CONTROL_PLANE_TCP_PORT", tcp.to_string()),
        ("RUNTIME_CONTROL_PLANE_HTTP_PORT", http.to_string()),
    ];
    let _second = deployment.another(CONTROL_PLANE, &ports).await;

    let process = platform.import(&wide_process(1)).await;
    let payload = json!({});
    let starts = (0..TASKS).map(|_| platform.start(&process, &payload));
    let runs = futures::future::join_all(starts).await;

    let doors = [deployment.ports.control_plane_tcp, tcp]
        .map(|port| Client::new("127.0.0.1", port, ClientConfig::default()));
    let mut under_way = VecDeque::new();
    let mut most = 0;
    for task in 0..TASKS {
        under_way.push_back(plugin.next().await);
        most = most.max(under_way.len());
        assert!(under_way.len() <= LIMIT, "task {task} came while {LIMIT} were under way");
        // The last ones are worked off below.
        if under_way.len() == LIMIT {
            // From here on the next may come: its place is free before the answer is here.
            let done = under_way.pop_front().unwrap();
            finish(&doors[task % doors.len()], done).await;
        }
    }
    for done in under_way {
        finish(&doors[0], done).await;
    }
    assert_eq!(most, LIMIT, "as many at once as allowed");
    for run in &runs {
        assert_eq!(platform.finished(&process, run).await["run"]["status"], "finished");
    }
}

async fn finish(door: &Client, done: system_tests::stub::Attempt) {
    let report = Json::from(json!({
        "key": CONTROL_PLANE_KEY, "runId": done.run_id, "executionId": done.execution_id,
        "status": "ok", "outputs": {"text": "done"},
    }));
    let answer = door.request("plugin.executor.step_result", &report, PATIENCE).await.unwrap();
    assert!(answer.text().contains("applied"), "{}", answer.text());
}
