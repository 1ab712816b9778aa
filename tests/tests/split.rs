//! The split deployment: seven processes on PostgreSQL and Redis run the same process as one does.

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

use serde_json::{Value, json};
use std::time::Duration;
use system_tests::{Deployment, Platform, binary, deployment::SERVICES, example, servers};
use testkit::{Program, Stream};

const LIMIT: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn seven_processes_on_postgresql_and_redis_run_the_demo_process() {
    let Some(servers) = servers().await else { return };
    let mut deployment = Deployment::start(&servers, &[]).await;
    let plugin = Program::new(binary("text-tools")).envs(deployment.plugin_environment()).spawn().unwrap();
    let platform = Platform::at(deployment.ports.api);
    platform.wait_for_plugin("text-tools").await;

    let process = platform.import(&example("demo.json")).await;
    let run = platform.start(&process, &example("demo.input.json")).await;
    let detail = platform.finished(&process, &run).await;
    assert_eq!(detail["run"]["status"], "finished", "{detail:#}");
    let result =
        platform.call(reqwest::Method::GET, &format!("/flow/{process}/runs/{run}/result"), None).await;
    let split: Value = result["publicInputs"].clone();

    // The same process, the same data, everything in one process on SQLite.
    let folder = tempfile::tempdir().unwrap();
    let demo = Program::new(binary("conveyor"))
        .args(["demo", "--once", "--json", "--data"])
        .arg(folder.path())
        .args(["--port-offset", &(testkit::free_port().unwrap() - 8080).to_string()])
        .spawn()
        .unwrap();
    assert!(demo.wait(LIMIT).await.unwrap().success(), "{}", demo.text(Stream::Stderr));
    let output = demo.text(Stream::Stdout);
    let last: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    assert_eq!(last["publicInputs"], split);
    assert_eq!(last["status"], json!("finished"));

    plugin.stop(LIMIT).await.unwrap();
    for service in SERVICES.into_iter().rev() {
        assert!(deployment.stop(service).await, "{service} ends with exit code 0 on SIGTERM");
    }
}
