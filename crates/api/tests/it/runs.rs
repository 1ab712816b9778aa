//! Runs: starting, reading, watching.

use crate::world::{World, answer};
use contract::{
    ErrorCode, Json, Millis, ProcessId, RpcError, RunId, pattern,
    run::{HistoryEvent, RunHistory, RunStatus},
};
use queue::Topic;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use storage::runs::{Append, Appended, NewEvent, NewRun};
use uuid::Uuid;

fn run_id() -> RunId {
    RunId(Uuid::now_v7())
}

#[tokio::test]
async fn a_webhook_hands_the_payload_on_as_it_was_sent() {
    let world = World::new().await;
    let (id, run) = (world.process().await, run_id());
    world.engine.answer(pattern::RUNTIME_RUN_START.name, json!({"runId": run, "created": true}));
    let request = world
        .request(Method::POST, &format!("/flow/{id}/webhook"))
        .header("idempotency-key", "once")
        .body("{\"n\": 12345678901234567890.10, \"t\": \"\\ud83d\\ude42\"}");
    let answered = answer(request).await;
    assert_eq!((answered.status, answered.json()), (StatusCode::CREATED, json!({"runId": run})));
    let asked = world.engine.asked(pattern::RUNTIME_RUN_START.name);
    assert!(
        asked[0].text().contains(r#""payload":{"n":12345678901234567890.10,"t":"\ud83d\ude42"}"#),
        "{}",
        asked[0].text()
    );
    let asked = asked[0].value().unwrap();
    assert_eq!(asked["processId"], id);
    assert_eq!((&asked["workspaceId"], &asked["userId"]), (&json!("default"), &json!("local")));
    assert_eq!((&asked["trigger"], &asked["idempotencyKey"]), (&json!("webhook"), &json!("once")));
}

#[tokio::test]
async fn a_repeated_key_answers_with_the_first_run() {
    let world = World::new().await;
    let (id, run) = (world.process().await, run_id());
    world.engine.answer(pattern::RUNTIME_RUN_START.name, json!({"runId": run, "created": false}));
    let answered = world.post(&format!("/flow/{id}/run"), "").await;
    assert_eq!((answered.status, answered.json()), (StatusCode::OK, json!({"runId": run})));
    assert_eq!(world.engine.asked_once(pattern::RUNTIME_RUN_START.name)["trigger"], "manual");
}

#[tokio::test]
async fn a_payload_must_be_an_object_and_a_key_short() {
    let world = World::new().await;
    let path = format!("/flow/{}/webhook", world.process().await);
    for body in ["[]", "5", "null", "{"] {
        assert_eq!(world.post(&path, body).await.refusal(), (400, "invalid_request".to_owned()), "{body}");
    }
    let request = world.request(Method::POST, &path).header("idempotency-key", "k".repeat(201));
    assert_eq!(answer(request).await.refusal(), (400, "invalid_request".to_owned()));
    assert_eq!(world.engine.asked(pattern::RUNTIME_RUN_START.name), []);
}

#[tokio::test]
async fn what_the_engine_refuses_is_told_as_it_is() {
    let world = World::new().await;
    let fault = contract::Fault {
        path: "$.name".into(),
        code: "missing_required".into(),
        message: "is required".into(),
    };
    let error = RpcError::of_faults(ErrorCode::InvalidInput, "the payload", &[fault]);
    world.engine.refuse(pattern::RUNTIME_RUN_START.name, error);
    let answered = world.post(&format!("/flow/{}/webhook", world.process().await), "{}").await;
    assert_eq!(answered.refusal(), (400, "invalid_input".to_owned()));
    assert_eq!(answered.json()["error"]["details"]["faults"][0]["path"], "$.name");
}

/// A run in the store.
struct Stored {
    process: String,
    run: RunId,
    sequence: u64,
}

impl Stored {
    async fn new(world: &World) -> Self {
        let process = world.process().await;
        let mut stored = Self { process, run: run_id(), sequence: 0 };
        let new = NewRun {
            process_id: ProcessId(stored.process.parse().unwrap()),
            process_revision: 1,
            workspace_id: "default".into(),
            user_id: "local".into(),
            idempotency_key: None,
        };
        stored.append(world, "run_started", RunStatus::Running, Some(new)).await;
        stored
    }

    async fn append(&mut self, world: &World, kind: &str, status: RunStatus, create: Option<NewRun>) {
        let mut append = Append::new(self.run, self.sequence, status, Millis(1_796_049_856_123));
        append.create = create;
        append.events = vec![NewEvent { kind: kind.to_owned(), body: Json::parse("{\n}").unwrap() }];
        let appended = world.storage.runs().append(&[append]).await.unwrap();
        assert!(matches!(appended[..], [Appended::Done]));
        self.sequence += 1;
        self.script(world).await;
    }

    /// The engine tells the whole history, whatever it is asked for.
    async fn script(&self, world: &World) {
        let stored = world.storage.runs().load(self.run).await.unwrap().unwrap();
        let shown = |event: storage::runs::StoredEvent| HistoryEvent {
            sequence: event.sequence,
            at: event.at,
            kind: event.kind,
            event: event.body,
        };
        let history =
            RunHistory { events: stored.events.into_iter().map(shown).collect(), last: self.sequence };
        world
            .engine
            .answer_text(pattern::RUNTIME_RUN_HISTORY.name, &serde_json::to_string(&history).unwrap());
    }

    fn path(&self, rest: &str) -> String {
        format!("/flow/{}/runs/{}{rest}", self.process, self.run)
    }

    fn detail(&self, status: &str, public_inputs: Option<Value>) -> Value {
        let at = 1_796_049_856_123_i64;
        let mut detail = json!({
            "run": {"id": self.run, "processId": self.process, "status": status, "createdAt": at, "updatedAt": at},
            "steps": [{"nodePath": "w", "nodeId": "w", "label": "Узел", "nodeType": "x", "status": "running", "attempts": 1}],
        });
        if let Some(inputs) = public_inputs {
            detail["publicInputs"] = inputs;
        }
        detail
    }
}

#[tokio::test]
async fn moments_of_a_run_are_iso_8601() {
    let world = World::new().await;
    let stored = Stored::new(&world).await;
    world.engine.answer(pattern::RUNTIME_RUN_GET.name, stored.detail("running", None));
    let run = world.get(&stored.path("")).await.json();
    assert_eq!(run["run"]["createdAt"], "2026-11-30T14:44:16.123Z");
    assert_eq!((&run["run"]["status"], &run["steps"][0]["label"]), (&json!("running"), &json!("Узел")));
}

#[tokio::test]
async fn a_result_is_there_once_the_run_has_ended() {
    let world = World::new().await;
    let stored = Stored::new(&world).await;
    world.engine.answer(pattern::RUNTIME_RUN_GET.name, stored.detail("running", None));
    assert_eq!(world.get(&stored.path("/result")).await.refusal(), (409, "conflict".to_owned()));
    world.engine.answer(pattern::RUNTIME_RUN_GET.name, stored.detail("finished", Some(json!({"a": null}))));
    assert_eq!(world.get(&stored.path("/result")).await.json(), json!({"publicInputs": {"a": null}}));
}

#[tokio::test]
async fn a_run_of_another_process_or_workspace_is_not_found() {
    let world = World::new().await;
    let stored = Stored::new(&world).await;
    let other = world.process().await;
    let unknown = run_id();
    for path in
        [format!("/flow/{other}/runs/{}", stored.run), format!("/flow/{}/runs/{unknown}", stored.process)]
    {
        for rest in ["", "/result", "/history", "/events"] {
            assert_eq!(
                world.get(&format!("{path}{rest}")).await.refusal(),
                (404, "run_not_found".to_owned()),
                "{path}{rest}"
            );
        }
        assert_eq!(world.post(&format!("{path}/cancel"), "").await.status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn a_person_answers_a_step_whose_path_holds_slashes() {
    let world = World::new().await;
    let stored = Stored::new(&world).await;
    world.engine.answer(pattern::RUNTIME_STEP_CONFIRM.name, json!(null));
    let path = stored.path("/steps/w-loop%5B3%5D%2Fb-ask/confirm");
    let answered = world.post(&path, r#"{"approved":false,"comment":"нет"}"#).await;
    assert_eq!(answered.json(), json!({"ok": true}), "{}", answered.text);
    let asked = world.engine.asked_once(pattern::RUNTIME_STEP_CONFIRM.name);
    assert_eq!((&asked["nodePath"], &asked["by"]), (&json!("w-loop[3]/b-ask"), &json!("local")));
    assert_eq!((&asked["approved"], &asked["comment"]), (&json!(false), &json!("нет")));
}

#[tokio::test]
async fn a_repeated_run_is_the_callers_and_begins_once_per_key() {
    let world = World::new().await;
    let stored = Stored::new(&world).await;
    let new = run_id();
    world.engine.answer(pattern::RUNTIME_RUN_RETRY.name, json!({"runId": new, "created": true}));
    let started = world.post(&stored.path("/retry"), "").await;
    assert_eq!((started.status, started.json()), (StatusCode::CREATED, json!({"runId": new})));
    let asked = world.engine.asked_once(pattern::RUNTIME_RUN_RETRY.name);
    assert_eq!((&asked["runId"], &asked["userId"]), (&json!(stored.run), &json!("local")));
}

#[tokio::test]
async fn a_list_passes_filter_and_cursor_on() {
    let world = World::new().await;
    let id = world.process().await;
    world.engine.answer(pattern::RUNTIME_RUN_LIST.name, json!({"runs": [], "nextCursor": "c2"}));
    let page = world.get(&format!("/flow/{id}/runs?status=failed&cursor=c1&limit=1000")).await;
    assert_eq!(page.json(), json!({"runs": [], "nextCursor": "c2"}));
    let asked = world.engine.asked_once(pattern::RUNTIME_RUN_LIST.name);
    assert_eq!(
        (&asked["status"], &asked["cursor"], &asked["limit"]),
        (&json!("failed"), &json!("c1"), &json!(200))
    );
    assert_eq!(
        world.get(&format!("/flow/{id}/runs?status=done")).await.refusal(),
        (400, "invalid_request".to_owned())
    );
}

#[tokio::test]
async fn runs_are_found_without_their_process_but_only_in_the_callers_workspace() {
    let world = World::new().await;
    world.engine.answer(pattern::RUNTIME_RUN_LIST.name, json!({"runs": []}));
    assert_eq!(world.get("/runs?status=failed").await.json(), json!({"runs": []}));
    let asked = world.engine.asked_once(pattern::RUNTIME_RUN_LIST.name);
    assert_eq!((&asked["processId"], &asked["workspaceId"]), (&Value::Null, &json!("default")));
    for unknown in [run_id().to_string(), "x".to_owned()] {
        assert_eq!(world.get(&format!("/runs/{unknown}")).await.refusal(), (404, "run_not_found".to_owned()));
    }
    let stored = Stored::new(&world).await;
    let summary = json!({"id": stored.run, "processId": stored.process, "status": "running", "createdAt": 1, "updatedAt": 1});
    world.engine.answer(pattern::RUNTIME_RUN_GET.name, json!({"run": summary, "steps": []}));
    let found = world.get(&format!("/runs/{}", stored.run)).await;
    assert_eq!((found.status, &found.json()["run"]["id"]), (StatusCode::OK, &json!(stored.run)));
}

/// Server-sent events, one by one: name, id and data.
struct Events {
    response: Response,
    text: String,
}

impl Events {
    async fn open(world: &World, path: &str, last_id: Option<&str>) -> Self {
        let request = world.request(Method::GET, path);
        let request = match last_id {
            Some(id) => request.header("last-event-id", id),
            None => request,
        };
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    async fn next(&mut self) -> Option<(String, Option<String>, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    event.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).map(str::to_owned)
                };
                let (kind, id, data) = (field("event"), field("id"), field("data"));
                self.text = rest.to_owned();
                // A comment keeps the connection alive and is no event.
                let Some(kind) = kind else { continue };
                return Some((kind, id, serde_json::from_str(&data.unwrap()).unwrap()));
            }
            let chunk = self.response.chunk().await.unwrap()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

#[tokio::test]
async fn events_come_as_they_happen_and_end_with_the_run() {
    let world = World::new().await;
    let mut stored = Stored::new(&world).await;
    let mut events = Events::open(&world, &stored.path("/events"), None).await;
    let (kind, id, data) = events.next().await.unwrap();
    assert_eq!((kind.as_str(), id.as_deref()), ("run_started", Some("1")));
    assert_eq!(
        data,
        json!({"sequence": 1, "at": "2026-11-30T14:44:16.123Z", "kind": "run_started", "event": {}})
    );
    // A history that was told before is not told again.
    world.engine.answer(pattern::RUNTIME_RUN_HISTORY.name, json!({"events": [], "last": 1}));
    stored.append(&world, "run_finished", RunStatus::Finished, None).await;
    world.queue.notify(Topic::Runs, &stored.run.to_string()).await.unwrap();
    let mut kinds = Vec::new();
    while let Some((kind, ..)) = events.next().await {
        kinds.push(kind);
    }
    assert_eq!(kinds.last().map(String::as_str), Some("end"));
    let asked = world.engine.asked(pattern::RUNTIME_RUN_HISTORY.name);
    assert_eq!(asked.last().unwrap().value().unwrap()["after"], 1);
}

#[tokio::test]
async fn a_broken_stream_is_taken_up_where_it_broke() {
    let world = World::new().await;
    let mut stored = Stored::new(&world).await;
    stored.append(&world, "run_failed", RunStatus::Failed, None).await;
    let mut events = Events::open(&world, &stored.path("/events?after=0"), Some("2")).await;
    let (kind, _, data) = events.next().await.unwrap();
    assert_eq!((kind.as_str(), data), ("end", json!({"status": "failed"})));
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn more_streams_than_allowed_are_refused_and_a_stop_ends_them() {
    let world = World::new().await;
    let stored = Stored::new(&world).await;
    let mut first = Events::open(&world, &stored.path("/events"), None).await;
    let _second = Events::open(&world, &stored.path("/events"), None).await;
    assert_eq!(world.get(&stored.path("/events")).await.refusal(), (503, "overloaded".to_owned()));
    assert!(first.next().await.is_some());
    world.stop.cancel();
    assert!(first.next().await.is_none());
}
