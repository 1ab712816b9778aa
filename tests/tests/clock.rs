//! The wall clock of a machine steps while everything runs on it, in one process and on SQLite. The fault
//! suite steps the clocks of the services of a deployment, and that of PostgreSQL.

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

use contract::{
    Json,
    report::{ReportBody, StepReport, StepResult},
};
use plugin_sdk::reporter::{Reporter, ReporterSettings, Told};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use system_tests::{
    Platform, Solo, StubPlugin, binary,
    deployment::CONTROL_PLANE_KEY,
    stub::{Attempt, NODE_TYPE},
};
use testkit::Clock;

const PATIENCE: Duration = Duration::from_secs(60);
/// Steps go this far, forward and back; the running step's timeout is the default, an hour.
const HOURS: [i64; 4] = [3 * 3600, 0, -3 * 3600, 0];

/// A step of the stub, behind it a delay of a moment.
fn process() -> Value {
    json!({
        "settings": {"name": "clock", "timeoutMs": 3_600_000},
        "widgets": [
            {"id": "start", "source": {"nodeType": "system.trigger.input"},
             "config": [{"name": "go", "type": "string"}], "outputs": ["go"]},
            {"id": "work", "source": {"nodeType": NODE_TYPE},
             "config": [{"name": "go", "type": "string", "isPort": true}], "outputs": ["text"]},
            {"id": "wait", "source": {"nodeType": "system.delay"}, "outputs": ["value"],
             "config": [{"name": "milliseconds", "type": "number", "static": true, "value": 1},
                        {"name": "value", "type": "string", "isPort": true}]},
            {"id": "end", "source": {"nodeType": "system.output"}, "outputs": [],
             "config": [{"name": "value", "type": "string", "isPort": true}]},
        ],
        "edges": [
            {"id": "1", "source": "start", "sourceHandle": "go", "target": "work", "targetHandle": "go"},
            {"id": "2", "source": "work", "sourceHandle": "text", "target": "wait", "targetHandle": "value"},
            {"id": "3", "source": "wait", "sourceHandle": "value", "target": "end", "targetHandle": "value"},
        ],
    })
}

/// What a plugin says about an attempt.
async fn report(reporter: &Reporter, attempt: Attempt, body: ReportBody) {
    let Attempt { run_id, execution_id } = attempt;
    let told = reporter.deliver(&StepReport { execution_id, run_id: Some(run_id), body }).await;
    assert!(matches!(told, Told::Accepted(_)), "{told:?}");
}

async fn start(
    platform: &Platform,
    process: &str,
    plugin: &StubPlugin,
    reporter: &Reporter,
) -> (String, Attempt) {
    let run = platform.start(process, &json!({"go": "go"})).await;
    let attempt = plugin.next().await;
    report(reporter, attempt, ReportBody::Ack(contract::report::Ack::default())).await;
    (run, attempt)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_the_machines_clock_fails_nothing_that_runs_and_delays_nothing() {
    let clock = Arc::new(Clock::new().unwrap());
    let solo = Solo::start_by(&binary("conveyor"), &[], &clock).await;
    let plugin = solo.plugin().await;
    let reporter = Reporter::new(ReporterSettings {
        host: "127.0.0.1".to_owned(),
        port: solo.tcp_port,
        key: Some(CONTROL_PLANE_KEY.to_owned().into()),
        tls: None,
    });
    let process = solo.platform.import(&process()).await;

    let mut running = vec![start(&solo.platform, &process, &plugin, &reporter).await];
    for offset in HOURS {
        let before = solo.process.lines().len();
        clock.step(offset).unwrap();
        solo.process.wait_for_line_from(before, "clock_stepped", PATIENCE).await.unwrap();
        running.push(start(&solo.platform, &process, &plugin, &reporter).await);
    }
    for (run, attempt) in running {
        let outputs = [("text".to_owned(), Json::from(json!("done")))].into_iter().collect();
        report(&reporter, attempt, ReportBody::Result(StepResult::ok(outputs))).await;
        let detail = solo.platform.finished(&process, &run).await;
        assert_eq!(detail["run"]["status"], "finished", "{detail:#}");
        let history = solo.platform.history(&process, &run).await;
        let attempts = history
            .iter()
            .filter(|event| event["kind"] == "step_scheduled" && event["event"]["nodePath"] == "work");
        assert_eq!(attempts.count(), 1, "nothing was delivered again: {history:#?}");
    }
}
