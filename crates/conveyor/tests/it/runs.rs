//! `conveyor runs`: watching and steering the runs of a running platform.

use crate::{
    command::{BINARY, CONFIGURED, conveyor, document, example},
    started::{LIMIT, Started},
};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
};
use testkit::{Program, Stream};

/// A template that renders `text`, from the trigger's field `any`.
fn template(text: &str) -> Value {
    json!({
        "settings": {"name": "Шаблон"},
        "widgets": [
            {"id": "w-in", "label": "Вход", "source": {"nodeType": "system.trigger.input"}, "config": [{"name": "any", "type": "keyvalue"}]},
            {"id": "w-text", "label": "Текст", "source": {"nodeType": "system.template"},
             "config": [{"name": "template", "static": true, "value": text}, {"name": "any"}]},
            {"id": "w-out", "label": "Итог", "source": {"nodeType": "system.output"}, "config": [{"name": "text"}]},
        ],
        "edges": [
            {"source": "w-in", "sourceHandle": "any", "target": "w-text", "targetHandle": "any"},
            {"source": "w-text", "sourceHandle": "text", "target": "w-out", "targetHandle": "text"},
        ],
    })
}

fn started(platform: &Started, arguments: &[&str]) -> String {
    platform.json(arguments)["runId"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_fails_is_shown_listed_and_repeated() {
    let platform = Started::new().await;
    let (_document, path) = document(&template("{{ any"));
    let id = platform.import(&path);
    let run = started(&platform, &["process", "run", &id]);
    let watched = platform.said(&["runs", "watch", &run]);
    assert_eq!((watched.code, watched.out.as_str()), (Some(1), ""), "{}", watched.err);
    assert!(watched.err.contains("✗ Текст") && watched.err.contains("the run failed at"), "{}", watched.err);
    let watched = platform.said(&["runs", "watch", &run, "--json"]);
    assert_eq!((watched.code, &watched.json()["status"]), (Some(1), &json!("failed")));
    assert_eq!(watched.out.lines().count(), 1);

    let shown = platform.done(&["runs", "show", &run]);
    for part in [run.as_str(), "failed", "w-text", "invalid_node_input"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let shown = platform.json(&["runs", "show", &run]);
    assert_eq!((&shown["run"]["status"], &shown["publicInputs"]), (&json!("failed"), &json!({})));

    let again = platform.said(&["runs", "retry", &run, "--watch", "--json"]);
    assert_eq!((again.code, &again.json()["status"]), (Some(1), &json!("failed")));
    assert_ne!(again.json()["runId"], run.as_str());
    assert!(again.err.contains("✓ Вход"), "{}", again.err);
    let listed = platform.json(&["runs", "list", "--status", "failed"]);
    assert_eq!(listed["runs"].as_array().unwrap().len(), 2);
    let table = platform.done(&["runs", "list", &id]);
    assert!(table.starts_with("RUN ") && table.contains(&run) && table.contains("Шаблон"), "{table}");
    let page = platform.done(&["runs", "list", "--limit", "1"]);
    assert!(page.lines().last().unwrap().starts_with("more: --cursor "), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_answers_from_the_command_line() {
    let platform = Started::new().await;
    let id = platform.import(&example("approval.json"));
    for (answer, approved) in [("--approve", true), ("--reject", false)] {
        let run = started(&platform, &["process", "run", &id, "-i", "what=Стол", "-i", "amount=90000"]);
        let watching = Program::new(BINARY)
            .without_env(&CONFIGURED)
            .args(["runs", "watch", &run, "--json", "--url", platform.url(), "--data", platform.data()])
            .spawn()
            .unwrap();
        let asked = watching.wait_for_line("waits for a person", LIMIT).await.unwrap();
        assert!(asked.contains(&format!("conveyor runs confirm {run} 'w-ask'")), "{asked}");
        let unknown = platform.said(&["runs", "confirm", &run, "nope", answer]);
        assert!(unknown.code == Some(1) && unknown.err.contains("(w-ask)"), "{}", unknown.err);
        let told = platform.json(&["runs", "confirm", &run, "w-ask", answer, "--comment", "так надо"]);
        assert_eq!((&told["nodePath"], &told["approved"]), (&json!("w-ask"), &json!(approved)));
        assert_eq!(watching.wait(LIMIT).await.unwrap().code(), Some(0), "{:?}", watching.lines());
        assert!(watching.text(Stream::Stderr).contains("by local: так надо"));
        let other = if approved { "--reject" } else { "--approve" };
        let changed = platform.said(&["runs", "confirm", &run, "w-ask", other]);
        assert_eq!(changed.code, Some(1), "it has been answered otherwise");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canceled_run_is_exit_code_1_for_who_watches_it() {
    let platform = Started::new().await;
    let id = platform.import(&example("approval.json"));
    let run = started(&platform, &["process", "run", &id, "-i", "what=Стол", "-i", "amount=90000"]);
    assert!(platform.done(&["runs", "cancel", &run]).contains("is canceled"));
    let watched = platform.said(&["runs", "watch", &run, "--json"]);
    assert_eq!((watched.code, &watched.json()["status"]), (Some(1), &json!("canceled")));
    let unknown = platform.said(&["runs", "show", "0197c3a1-3333-7000-8000-000000000000"]);
    assert!(unknown.code == Some(1) && unknown.err.contains("run_not_found"), "{}", unknown.err);
}

/// An API whose first stream of events breaks off. Returns its URL and what it was asked.
fn breaking() -> (String, std::thread::JoinHandle<Vec<String>>) {
    const EVENT: &str = "event: step_skipped\nid: 7\ndata: {\"at\":\"2026-11-30T14:00:00.000Z\",\"event\":{\"nodePath\":\"w\"}}\n\n";
    let run = |status: &str| {
        let id = uuid::Uuid::nil();
        let head =
            json!({"id": id, "processId": id, "status": status, "createdAt": "2026-11-30T14:00:00.000Z"});
        json!({"run": head, "steps": []}).to_string()
    };
    let answers = [
        run("running"),
        EVENT.to_owned(),
        "event: end\ndata: {\"status\":\"finished\"}\n\n".to_owned(),
        run("finished"),
        json!({"publicInputs": {"n": 1}}).to_string(),
    ];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let answer = |answer: String| {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
            let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{answer}").unwrap();
            head.join("\n").to_lowercase()
        };
        answers.map(answer).to_vec()
    });
    (url, served)
}

#[test]
fn a_stream_that_breaks_off_is_taken_up_after_the_last_event() {
    let (url, served) = breaking();
    let run = uuid::Uuid::nil().to_string();
    let said = conveyor(&["runs", "watch", &run, "--json", "--url", &url], &[("CONVEYOR_API_TOKEN", "t")]);
    assert_eq!((said.code, &said.json()["publicInputs"]), (Some(0), &json!({"n": 1})), "{}", said.err);
    let shown = said.err.lines().filter(|line| line.contains("- w")).count();
    assert_eq!(shown, 1, "{}", said.err);
    let asked = served.join().unwrap();
    assert!(!asked[1].contains("last-event-id") && asked[2].contains("last-event-id: 7"), "{asked:?}");
}
