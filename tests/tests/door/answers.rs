//! The answers of protocol section 4, as a `NestJS` client and `fetch` get them from the real control
//! plane, in one case after the other.

use crate::nest::{Nest, versions};
use reqwest::Method;
use serde_json::{Value, json};
use system_tests::{
    Deployment, Platform, Solo, StubPlugin, binary,
    deployment::{CONTROL_PLANE_KEY, INGRESS_TOKEN},
    servers,
    stub::{Attempt, NODE_TYPE, PLUGIN_ID, wide_process},
};

/// Large enough for every report here but the one that is too large.
const FRAME_BYTES: usize = 64 * 1024;

/// A client at both doors.
struct Reporter {
    nest: Nest,
    tcp_port: u16,
    http_port: u16,
}

/// How a report is answered: the code, and whether a retry may help.
#[derive(Debug, PartialEq)]
struct Told {
    code: String,
    error: Value,
}

impl Reporter {
    /// Over TCP, as a request.
    async fn tcp(&mut self, report: &str, body: &Value) -> Told {
        let mut data = body.clone();
        data["key"] = json!(CONTROL_PLANE_KEY);
        let pattern = format!("plugin.executor.step_{report}");
        told_by_nest(&self.nest.send(self.tcp_port, &pattern, &data).await)
    }

    /// Over HTTP; the status must be the code's.
    async fn http(&mut self, report: &str, body: &Value) -> Told {
        let answer = self.nest.post(self.http_port, report, Some(CONTROL_PLANE_KEY), body).await;
        let body = &answer["body"];
        let code = body["status"].as_str().or(body["error"]["code"].as_str()).unwrap_or_default().to_owned();
        assert_eq!(answer["status"], json!(status_of(&code)), "{answer}");
        assert_eq!(answer["retryAfter"].is_string(), status_of(&code) == 503, "{answer}");
        Told { code, error: body["error"].clone() }
    }

    /// Over both doors, which must say the same.
    async fn both(&mut self, report: &str, body: &Value) -> Told {
        let (tcp, http) = (self.tcp(report, body).await, self.http(report, body).await);
        assert_eq!(tcp, http);
        tcp
    }
}

fn told_by_nest(answer: &Value) -> Told {
    let code = answer["value"]["status"].as_str().or(answer["error"]["code"].as_str());
    let code = code.unwrap_or_else(|| panic!("no answer but {answer}")).to_owned();
    Told { code, error: answer["error"].clone() }
}

/// The HTTP column of the table.
fn status_of(code: &str) -> u16 {
    match code {
        "applied" | "duplicate" => 200,
        "missing_execution_id" | "invalid_report" => 400,
        "unauthorized" => 401,
        "unknown_execution" => 404,
        "superseded" | "run_terminal" => 409,
        "payload_too_large" => 413,
        "conflicting_result" => 422,
        "engine_unavailable" => 503,
        _ => panic!("{code} is not in the table"),
    }
}

fn report_of(attempt: Attempt) -> Value {
    json!({"executionId": attempt.execution_id, "runId": attempt.run_id})
}

fn result_of(attempt: Attempt, text: &str) -> Value {
    let mut body = report_of(attempt);
    body["outputs"] = json!({"text": text});
    body
}

/// Everything that needs no fault of a neighbour, against one process on SQLite.
async fn table(version: u32) {
    let Some(nest) = Nest::client(version).await else { return };
    let frame_bytes = FRAME_BYTES.to_string();
    let extra = [
        ("CONVEYOR_MAX_FRAME_BYTES", frame_bytes.as_str()),
        ("RUNTIME_ENGINE_SWEEP_INTERVAL_MS", "200"),
        // For so long after its start the engine declares nobody lost.
        ("RUNTIME_ENGINE_DELIVERY_TIMEOUT_MS", "1000"),
    ];
    let solo = Solo::start(&binary("conveyor"), &extra).await;
    let plugin = solo.plugin().await;
    let mut reporter = Reporter { nest, tcp_port: solo.tcp_port, http_port: solo.http_port };
    let process = solo.platform.import(&wide_process(3)).await;
    let run = solo.platform.start(&process, &json!({"go": "go"})).await;
    let (first, by_event, large) = (plugin.next().await, plugin.next().await, plugin.next().await);

    a_step_is_reported_once_whatever_the_door(&mut reporter, first).await;
    strangers_learn_nothing(&mut reporter, first).await;
    what_is_no_report_is_refused(&mut reporter).await;
    an_event_gets_no_answer_and_counts(&mut reporter, &solo, &process, &run, by_event).await;
    too_large_fails_the_step(&mut reporter, large).await;
    solo.platform.finished(&process, &run).await;
    an_ended_run_takes_nothing(&mut reporter, &solo, &plugin, &process).await;
    an_older_attempt_is_told_so(&mut reporter, &solo, &plugin).await;
}

async fn a_step_is_reported_once_whatever_the_door(reporter: &mut Reporter, attempt: Attempt) {
    let ack = report_of(attempt);
    assert_eq!(reporter.tcp("ack", &ack).await.code, "applied");
    assert_eq!(reporter.both("ack", &ack).await.code, "duplicate");
    let mut heartbeat = report_of(attempt);
    heartbeat["progress"] = json!(0.5);
    assert_eq!(reporter.both("heartbeat", &heartbeat).await.code, "applied");
    let mut partial = report_of(attempt);
    partial["sequence"] = json!(1);
    partial["outputs"] = json!({"text": "half"});
    assert_eq!(reporter.http("partial", &partial).await.code, "applied");
    assert_eq!(reporter.tcp("partial", &partial).await.code, "duplicate");
    let result = result_of(attempt, "Привет, 😀");
    assert_eq!(reporter.tcp("result", &result).await.code, "applied");
    assert_eq!(reporter.both("result", &result).await.code, "duplicate");
    let other = reporter.both("result", &result_of(attempt, "other")).await;
    assert_eq!((other.code.as_str(), &other.error["retryable"]), ("conflicting_result", &json!(false)));
}

async fn strangers_learn_nothing(reporter: &mut Reporter, attempt: Attempt) {
    for key in [Some("wrong"), None] {
        let mut body = report_of(attempt);
        let answer = reporter.nest.post(reporter.http_port, "ack", key, &body).await;
        assert_eq!(
            (&answer["status"], &answer["body"]["error"]["code"]),
            (&json!(401), &json!("unauthorized"))
        );
        if let Some(key) = key {
            body["key"] = json!(key);
        }
        let told =
            told_by_nest(&reporter.nest.send(reporter.tcp_port, "plugin.executor.step_ack", &body).await);
        assert_eq!((told.code.as_str(), &told.error["retryable"]), ("unauthorized", &json!(false)));
        assert_eq!(told.error, answer["body"]["error"]);
    }
}

async fn what_is_no_report_is_refused(reporter: &mut Reporter) {
    let unknown = json!({"executionId": "019364f1-0000-7000-8000-000000000001"});
    for report in ["ack", "heartbeat", "result"] {
        assert_eq!(reporter.both(report, &unknown).await.code, "unknown_execution");
    }
    assert_eq!(reporter.both("ack", &json!({})).await.code, "missing_execution_id");
    let malformed =
        reporter.both("result", &json!({"executionId": 5, "status": "perhaps", "outputs": []})).await;
    assert_eq!(malformed.code, "invalid_report");
    let faults = malformed.error["details"]["faults"].as_array().unwrap();
    assert!(faults.len() >= 2 && faults.iter().all(|fault| fault["path"].is_string()), "{faults:?}");
}

async fn an_event_gets_no_answer_and_counts(
    reporter: &mut Reporter,
    solo: &Solo,
    process: &str,
    run: &str,
    attempt: Attempt,
) {
    let mut body = result_of(attempt, "by event");
    body["key"] = json!(CONTROL_PLANE_KEY);
    let answer = reporter.nest.emit(reporter.tcp_port, "plugin.executor.step_result", &body).await;
    assert!(answer["error"].is_null(), "{answer}");
    let execution = attempt.execution_id.to_string();
    let counted = solo.platform.follow(process, run, |kind, event| {
        kind == "step_finished" && event.to_string().contains(&execution)
    });
    assert!(counted.await.is_some(), "the result of the event is in the history");
    assert_eq!(reporter.both("result", &result_of(attempt, "by event")).await.code, "duplicate");
}

async fn too_large_fails_the_step(reporter: &mut Reporter, attempt: Attempt) {
    let large = result_of(attempt, &"x".repeat(2 * FRAME_BYTES));
    let told = reporter.http("result", &large).await;
    assert_eq!((told.code.as_str(), &told.error["retryable"]), ("payload_too_large", &json!(false)));
    // The frame is not taken, but its end is read, where its id stands: so its sender is told at once.
    let mut data = large.clone();
    data["key"] = json!(CONTROL_PLANE_KEY);
    let answer = reporter.nest.send(reporter.tcp_port, "plugin.executor.step_result", &data).await;
    let error = &answer["error"];
    assert_eq!(
        (&error["code"], &error["retryable"]),
        (&json!("payload_too_large"), &json!(false)),
        "{answer}"
    );
    // After the refusal the connection is closed: what NestJS puts on it meanwhile has to be sent again.
    let mut small = result_of(attempt, "small");
    small["key"] = json!(CONTROL_PLANE_KEY);
    let told = loop {
        let answer = reporter.nest.send(reporter.tcp_port, "plugin.executor.step_result", &small).await;
        if !answer["error"].is_string() {
            break told_by_nest(&answer);
        }
    };
    // The step has failed with that reason, so another result comes too late.
    assert_eq!(told.code, "conflicting_result");
    assert_eq!(reporter.both("result", &small).await.code, "conflicting_result");
}

async fn an_ended_run_takes_nothing(
    reporter: &mut Reporter,
    solo: &Solo,
    plugin: &StubPlugin,
    process: &str,
) {
    let run = solo.platform.start(process, &json!({"go": "go"})).await;
    let attempt = plugin.next().await;
    assert_eq!(reporter.tcp("ack", &report_of(attempt)).await.code, "applied");
    solo.platform.call(Method::POST, &format!("/flow/{process}/runs/{run}/cancel"), None).await;
    solo.platform.finished(process, &run).await;
    let late = reporter.both("result", &result_of(attempt, "late")).await;
    assert_eq!((late.code.as_str(), &late.error["retryable"]), ("run_terminal", &json!(false)));
    let history = solo.platform.history(process, &run).await;
    let kept = history.iter().filter(|event| event["kind"] == "late_result").count();
    assert_eq!(kept, 1, "the late result is kept once: {history:#?}");
}

async fn an_older_attempt_is_told_so(reporter: &mut Reporter, solo: &Solo, plugin: &StubPlugin) {
    let mut document = wide_process(1);
    document["widgets"][1]["execution"] =
        json!({"timeoutMs": 300, "retry": {"maxAttempts": 2, "backoffMs": 1, "maxBackoffMs": 1}});
    let process = solo.platform.import(&document).await;
    let run = solo.platform.start(&process, &json!({"go": "go"})).await.parse().unwrap();
    let of_this_run = async || loop {
        let attempt = plugin.next().await;
        if attempt.run_id == run {
            return attempt;
        }
    };
    let first = of_this_run().await;
    assert_eq!(reporter.tcp("ack", &report_of(first)).await.code, "applied");
    let second = of_this_run().await;
    assert_ne!(first.execution_id, second.execution_id);
    for report in ["heartbeat", "result"] {
        let told = reporter.both(report, &result_of(first, "of the first attempt")).await;
        assert_eq!(
            (told.code.as_str(), &told.error["details"]["previousState"]),
            ("superseded", &json!("timed_out"))
        );
    }
    assert_eq!(reporter.tcp("result", &result_of(second, "of the second")).await.code, "applied");
}

versions! { table;
    nest_10_gets_every_answer_of_the_table nest_11_gets_every_answer_of_the_table nest_12_gets_every_answer_of_the_table
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_away_is_said_to_be_retryable_and_the_same_report_passes_when_it_is_back() {
    let Some(servers) = servers().await else { return };
    let Some(nest) = Nest::client(11).await else { return };
    let mut deployment =
        Deployment::start(&servers, &[("RUNTIME_CONTROL_PLANE_REPORT_TIMEOUT_MS", "2000")]).await;
    let ports = deployment.ports;
    let plugin = StubPlugin::start(ports.plugin_manager, INGRESS_TOKEN).await;
    let platform = Platform::at(ports.api);
    platform.wait_for_plugin(PLUGIN_ID).await;
    let process = platform.import(&wide_process(1)).await;
    platform.start(&process, &json!({"go": "go"})).await;
    let result = result_of(plugin.next().await, "kept");
    let mut reporter =
        Reporter { nest, tcp_port: ports.control_plane_tcp, http_port: ports.control_plane_http };

    deployment.kill("runtime-engine").await;
    let (tcp, http) = (reporter.tcp("result", &result).await, reporter.http("result", &result).await);
    for told in [tcp, http] {
        assert_eq!(
            (told.code.as_str(), &told.error["retryable"]),
            ("engine_unavailable", &json!(true)),
            "{NODE_TYPE}"
        );
    }
    deployment.start_service("runtime-engine").await;
    assert_eq!(reporter.tcp("result", &result).await.code, "applied");
    assert_eq!(reporter.http("result", &result).await.code, "duplicate");
}
