//! Each plugin from its publication to the results of its nodes.

use crate::{
    plugin::{examples, process, published, run},
    site::{Answer, Asked, Site},
};
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use system_tests::{Solo, binary};

async fn platform() -> Solo {
    Solo::start(&binary("conveyor"), &[]).await
}

async fn put_secret(solo: &Solo, name: &str, value: &str) {
    solo.platform.call(Method::PUT, &format!("/secrets/{name}"), Some(&json!({"value": value}))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn example_echoes() {
    let Some(_) = examples() else { return };
    let solo = platform().await;
    let _plugin = published(&solo, "example", &[]).await;
    let echo = process("plugin.example.echo", &["text"], &json!({}), &["text", "length"]);
    let ended = run(&solo, &echo, &json!({"text": "  привет 👋 "})).await;
    assert_eq!(*ended.finished(), json!({"text": "привет 👋", "length": 9}));
}

#[tokio::test(flavor = "multi_thread")]
async fn courier_sends_with_a_secret_and_tries_again_and_tells_errors_as_it_was_written() {
    let Some(_) = examples() else { return };
    let tries = Arc::new(AtomicUsize::new(0));
    let site = Site::start(move |asked: Asked| {
        let first = asked.target == "/post" && tries.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            match asked.target.as_str() {
                "/post" if !first => Answer::json(200, &json!({"ok": true})),
                "/gone" => Answer::json(404, &json!("gone")),
                _ => Answer::json(503, &json!("busy")),
            }
        }
    })
    .await;
    let solo = platform().await;
    let plugin = published(&solo, "courier", &[]).await;
    put_secret(&solo, "bot", "s3cret-bot").await;
    let settings = json!({"botToken": {"$secret": "bot"}, "parseMode": "markdown", "retryDelayMs": 1});
    let post = process("plugin.courier.post", &["url", "text"], &settings, &["result", "status"]);

    let sent = run(&solo, &post, &json!({"url": site.url("/post"), "text": "hi"})).await;
    assert_eq!(*sent.finished(), json!({"result": {"ok": true}, "status": "sent"}));
    let asked = site.asked();
    let Asked { method, headers, body, .. } = &asked[1];
    assert_eq!(
        (asked.len(), method.as_str(), headers["authorization"].as_str()),
        (2, "POST", "Bearer s3cret-bot")
    );
    assert_eq!(*body, json!({"text": "hi", "parseMode": "markdown"}).to_string());
    let told = json!([sent.history, sent.detail]).to_string();
    assert!(!told.contains("s3cret-bot"));
    assert!(!plugin.lines().iter().any(|line| line.text.contains("s3cret-bot")));

    let thrown = run(&solo, &post, &json!({"url": site.url("/down"), "text": "hi"})).await;
    assert_eq!(thrown.detail["run"]["status"], "failed");
    assert!(thrown.step()["error"]["message"].as_str().unwrap().starts_with("503 - "), "{:#}", thrown.detail);

    let fetch = process("plugin.courier.fetch", &["url"], &json!({}), &["data", "status"]);
    let told = run(&solo, &fetch, &json!({"url": site.url("/gone")})).await;
    assert_eq!(told.finished()["data"], Value::Null);
    assert!(told.finished()["status"].as_str().unwrap().starts_with("error: 404 - "));
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_composes_under_a_node_type_without_its_prefix() {
    let Some(_) = examples() else { return };
    let solo = platform().await;
    let _plugin = published(&solo, "letters", &[]).await;
    let settings =
        json!({"subject": "Тема", "to": "a@example.org", "from": "b@example.org", "important": "true"});
    let compose = process("data.letter.compose", &["body", "attachment"], &settings, &["result", "size"]);
    let attachment = json!({"filename": "a.txt", "base64": "YQ=="});
    let ended = run(&solo, &compose, &json!({"body": "<b>hi</b>", "attachment": attachment})).await;
    let letter = ended.finished();
    let text = letter["result"].as_str().unwrap();
    assert!(text.contains("YQ==") && text.contains("To: a@example.org"), "{text}");
    assert_eq!(letter["size"], text.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_writes_and_reads_files_of_a_run() {
    let Some(_) = examples() else { return };
    let files = tempfile::tempdir().unwrap();
    let solo = platform().await;
    let _plugin = published(&solo, "tables", &[("RUN_WORKSPACE_PATH", files.path().to_str().unwrap())]).await;
    let rows = json!([{"имя": "Ада", "note": "a \"b\", c"}, {"имя": "Боб", "note": "two\nlines"}]);
    let write =
        process("system.tables.csv.write", &["rows"], &json!({"path": "out/t.csv"}), &["path", "file"]);
    let written = run(&solo, &write, &json!({"rows": rows})).await;
    assert_eq!(written.finished()["file"]["filename"], "t.csv");
    let read =
        process("system.tables.csv.read", &["path"], &json!({"basePath": "out"}), &["rows", "rowCount"]);
    let found = run(&solo, &read, &json!({"path": "t.csv"})).await;
    assert_eq!(*found.finished(), json!({"rows": rows, "rowCount": 2}));
    let outside = run(&solo, &read, &json!({"path": "../../etc/passwd"})).await;
    assert!(outside.step()["error"].to_string().contains("leaves the folder"), "{:#}", outside.detail);
}

#[tokio::test(flavor = "multi_thread")]
async fn tracker_creates_lists_and_gets_and_names_the_input_that_is_wrong() {
    let Some(_) = examples() else { return };
    let solo = platform().await;
    let _plugin = published(&solo, "tracker", &[]).await;
    put_secret(&solo, "tracker", "k").await;
    let connection = json!({"baseUrl": "memory:a", "apiKey": {"$secret": "tracker"}});
    let create = process("plugin.tracker.issue.create", &["title", "labels"], &connection, &["id", "data"]);
    let payload = json!({"title": "Fix", "labels": [{"name": "Good First"}]});
    let created = run(&solo, &create, &payload).await;
    let issue = json!({"id": 1, "title": "Fix", "status": "open", "labels": ["good-first"]});
    assert_eq!(*created.finished(), json!({"id": 1, "data": issue}));

    let mut searched = connection.clone();
    searched["statuses"] = json!(["open"]);
    searched["maxResults"] = json!("5");
    let list = process("plugin.tracker.issue.list", &[], &searched, &["issues", "total"]);
    assert_eq!(*run(&solo, &list, &json!({})).await.finished(), json!({"issues": [issue], "total": 1}));

    let get = process("plugin.tracker.issue.get", &["id"], &connection, &["data", "status"]);
    assert_eq!(
        *run(&solo, &get, &json!({"id": "1"})).await.finished(),
        json!({"data": issue, "status": "ok"})
    );

    let wrong = run(&solo, &create, &json!({"title": "x", "labels": [{"name": ""}]})).await;
    let error = &wrong.step()["error"];
    assert_eq!(error["code"], "invalid_node_input");
    assert_eq!(error["details"]["faults"][0]["path"], "$.inputs.labels.0.name");
}

#[tokio::test(flavor = "multi_thread")]
async fn research_works_long_with_partial_outputs_brings_its_ui_and_takes_any_input() {
    let Some(_) = examples() else { return };
    let solo = platform().await;
    let http = testkit::free_port().unwrap().to_string();
    let variables = [("PLUGIN_HEALTH_HTTP_PORT", http.as_str()), ("PLUGIN_HEARTBEAT_MS", "20")];
    let _plugin = published(&solo, "research", &variables).await;

    let survey = process(
        "plugin.research.survey",
        &["question", "sources"],
        &json!({"pauseMs": 100}),
        &["findings", "read"],
    );
    let sources = json!(["Rust is", "no", "in rust"]);
    let ended = run(&solo, &survey, &json!({"question": "rust", "sources": sources})).await;
    assert_eq!(*ended.finished(), json!({"findings": ["Rust is", "in rust"], "read": 3}));
    assert_eq!(ended.kinds().iter().filter(|kind| **kind == "step_partial").count(), 2);
    // A key that is no port is kept in the history.
    let empty = run(&solo, &survey, &json!({"question": "rust", "sources": []})).await;
    assert_eq!(empty.step()["outputs"]["skipped"], true);

    let router = process("plugin.research.tool.router", &["любой", "b"], &json!({}), &["tools"]);
    let any = json!({"любой": [1], "b": {"c": null}});
    let ended = run(&solo, &router, &any).await;
    let tools: Value = serde_json::from_str(ended.finished()["tools"].as_str().unwrap()).unwrap();
    assert_eq!(tools, any);

    let guard = process("plugin.research.guard", &[], &json!({"maxTurns": 1}), &["continueLoop", "turn"]);
    assert_eq!(*run(&solo, &guard, &json!({})).await.finished(), json!({"continueLoop": false, "turn": 1}));

    // Only what the process uses is returned.
    let answer = process("plugin.research.answer", &["question", "findings"], &json!({}), &["text", "usage"]);
    let ended = run(&solo, &answer, &json!({"question": "q", "findings": ["a"]})).await;
    assert_eq!(*ended.finished(), json!({"text": "q: a", "usage": {"findings": 1}}));
    assert!(ended.step()["outputs"].get("model").is_none());
    let nothing = run(&solo, &answer, &json!({"question": "q", "findings": []})).await;
    assert_eq!(nothing.step()["error"]["code"], "no_findings");

    let (status, form) =
        solo.platform.try_call(Method::GET, "/plugins/research/assets/ui.form.ask", None).await;
    assert!(status.is_success() && form.to_string().contains("export default"), "{status} {form}");
}
