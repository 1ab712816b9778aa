//! What goes wrong between a plugin and the platform, and updates.

use crate::plugin::{LIMIT, ended, examples, process, published, run, spawn, with_widget};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;
use system_tests::{Solo, binary};
use testkit::Signal;

fn echo() -> Value {
    process("plugin.example.echo", &["text"], &json!({}), &["text"])
}

/// Work of several sources, so that it can be caught in the middle.
fn survey(pause_ms: u64) -> Value {
    let settings = json!({"pauseMs": pause_ms});
    process("plugin.research.survey", &["question", "sources"], &settings, &["findings", "read"])
}

fn question() -> Value {
    json!({"question": "rust", "sources": ["rust 1", "rust 2", "rust 3"]})
}

/// Starts a survey and waits for its first partial outputs: it is at work now.
async fn in_mid_task(solo: &Solo, document: &Value) -> (String, String) {
    let process = solo.platform.import(document).await;
    let run = solo.platform.start(&process, &question()).await;
    let begun = solo.platform.follow(&process, &run, |kind, _| kind.to_lowercase().contains("partial")).await;
    assert!(begun.is_some(), "the run ended before partial outputs came");
    (process, run)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_told_to_stop_in_mid_task_reports_its_result_first() {
    let Some(_) = examples() else { return };
    let solo = Solo::start(&binary("conveyor"), &[]).await;
    let plugin = published(&solo, "research", &[]).await;
    let (process, run_id) = in_mid_task(&solo, &survey(500)).await;
    plugin.signal(Signal::TERM);
    let next = published(&solo, "research", &[]).await;
    let drained = ended(&solo, &process, &run_id).await;
    assert_eq!(drained.finished()["read"], 3);
    assert_eq!(drained.step()["attempts"], 1);
    assert!(plugin.wait(LIMIT).await.unwrap().success());
    assert_eq!(run(&solo, &survey(1), &question()).await.finished()["read"], 3);
    drop(next);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_whose_plugin_died_in_mid_task_is_done_again_by_its_successor_where_the_node_asks_for_it() {
    let Some(_) = examples() else { return };
    let solo = Solo::start(&binary("conveyor"), &[]).await;
    let plugin = published(&solo, "research", &[("PLUGIN_HEARTBEAT_MS", "0")]).await;
    let retry = json!({"timeoutMs": 3000, "retry": {"maxAttempts": 3, "backoffMs": 10, "maxBackoffMs": 100}});
    let document = with_widget(survey(400), "execution", retry);
    let (process, run_id) = in_mid_task(&solo, &document).await;
    plugin.kill().await.unwrap();
    let _next = published(&solo, "research", &[]).await;
    let again = ended(&solo, &process, &run_id).await;
    assert_eq!(again.finished()["read"], 3);
    assert!(again.step()["attempts"].as_u64().unwrap() > 1, "{:#}", again.detail);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_platform_that_crashed_in_mid_task_gets_the_result_when_it_is_back() {
    let Some(_) = examples() else { return };
    let mut solo = Solo::start(&binary("conveyor"), &[]).await;
    let _plugin = published(&solo, "research", &[]).await;
    let (process, run_id) = in_mid_task(&solo, &survey(500)).await;
    solo.crash_and_restart().await;
    let done = ended(&solo, &process, &run_id).await;
    assert_eq!(*done.finished(), json!({"findings": ["rust 1", "rust 2", "rust 3"], "read": 3}));
    assert_eq!(done.step()["attempts"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_sends_no_acks_runs_each_step_once() {
    let Some(_) = examples() else { return };
    let solo = Solo::start(&binary("conveyor"), &[]).await;
    let quiet = [("DISABLE_RUNTIME_STEP_ACK", "true")];
    let _plugin = published(&solo, "example", &quiet).await;
    let _research = published(&solo, "research", &quiet).await;
    let ended = run(&solo, &echo(), &json!({"text": "hi"})).await;
    assert_eq!(*ended.finished(), json!({"text": "hi"}));
    let long = run(&solo, &survey(300), &question()).await;
    assert_eq!(long.finished()["read"], 3);
    assert_eq!((&ended.step()["attempts"], &long.step()["attempts"]), (&json!(1), &json!(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_with_a_wrong_token_is_unknown_says_so_and_goes_on_serving() {
    let Some(folder) = examples() else { return };
    let solo = Solo::start(&binary("conveyor"), &[]).await;
    let port = testkit::free_port().unwrap();
    let (text, wrong) = (port.to_string(), "s3cret-wrong");
    let variables = [("PLUGIN_MANAGER_INGRESS_TOKEN", wrong), ("PLUGIN_TCP_PORT", text.as_str())];
    let plugin = spawn(&solo, &folder.join("example"), "dist/main.js", &variables);
    let line = plugin.wait_for_line("plugin_wire_outbound_manifest_failed", LIMIT).await.unwrap();
    assert!(line.contains("unauthorized"), "{line}");
    let (status, _) = solo.platform.try_call(Method::GET, "/plugins/example", None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    let client = wire::Client::new("127.0.0.1", port, wire::ClientConfig::default());
    let pull = json!({"kind": "executor_batch_pull_v2", "token": wrong, "nodeTypes": [], "cursor": null});
    let answer = client.request("executor_batch_pull", &contract::Json::from(pull), LIMIT).await.unwrap();
    assert_eq!(answer.value().unwrap()["items"][0]["nodeType"], "plugin.example.echo");
    let told: String = plugin.lines().into_iter().map(|line| line.text).collect();
    assert!(plugin.status().is_none() && !told.contains(wrong));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_cannot_be_pulled_tries_until_it_can_and_names_the_place() {
    let Some(folder) = examples() else { return };
    let solo = Solo::start(&binary("conveyor"), &[]).await;
    let nobody = testkit::free_port().unwrap().to_string();
    let variables = [("PLUGIN_PULL_ADVERTISED_PORT", nobody.as_str())];
    let plugin = spawn(&solo, &folder.join("example"), "dist/main.js", &variables);
    let line = plugin.wait_for_line("plugin_wire_outbound_manifest_retry", LIMIT).await.unwrap();
    assert!(line.contains("batch_pull_failed") && line.contains(&nobody), "{line}");
    let (status, _) = solo.platform.try_call(Method::GET, "/plugins/example", None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(plugin.status().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_is_used_by_new_runs_while_old_ones_keep_theirs() {
    let Some(_) = examples() else { return };
    let solo = Solo::start(&binary("conveyor"), &[]).await;
    let old = published(&solo, "research", &[("PLUGIN_PUBLICATION_VERSION", "1.0.0")]).await;
    let id_of = async |version: &str| {
        let plugin = solo.platform.call(Method::GET, "/plugins/research", None).await;
        let versions = plugin["versions"].as_array().unwrap().clone();
        let row = versions.into_iter().find(|row| row["publicationVersion"] == version).unwrap();
        row["publicationId"].as_str().unwrap().to_owned()
    };
    let (process, run_id) = in_mid_task(&solo, &survey(500)).await;
    let new = published(&solo, "research", &[("PLUGIN_PUBLICATION_VERSION", "1.1.0")]).await;
    let (id_of_old, id_of_new) = (id_of("1.0.0").await, id_of("1.1.0").await);
    let kept = ended(&solo, &process, &run_id).await;
    assert_eq!(kept.finished()["read"], 3);
    old.stop(Duration::from_secs(60)).await.unwrap();
    let fresh = run(&solo, &survey(1), &question()).await;
    assert_eq!(fresh.finished()["read"], 3);
    let of_version = |events: &[Value], id: &str| json!(events).to_string().contains(id);
    assert!(of_version(&kept.history, &id_of_old) && !of_version(&kept.history, &id_of_new));
    assert!(of_version(&fresh.history, &id_of_new) && !of_version(&fresh.history, &id_of_old));
    drop(new);
}
