//! The executor over real sockets: a scripted control plane decides and takes the reports.

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

use contract::{
    ErrorCode, ExecutionId, Json, NodePath, ProcessId, RpcError, RunId, builtin, pattern,
    report::{Ack, ReportBody, ReportKind, StepReport, StepResult, StepStatus, read_report},
    secret::{ExecutorSecrets, ResolvedSecrets},
    task::Task,
};
use executor::{Service, Settings};
use plugin_sdk::reporter::ReporterSettings;
use queue::{Lane, Queue, Topic};
use run_files::{RunFiles, RunFilesSettings};
use serde_json::{Value, json};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use wire::{Handler, Reply, Request, Server, ServerConfig};

/// Answers as the platform does: the first ack of an attempt counts.
struct ControlPlane {
    winners: Mutex<HashMap<ExecutionId, String>>,
    /// Replies to results before they are taken.
    refusals: Mutex<VecDeque<RpcError>>,
    /// Replies to questions for secrets before `token` is known.
    secrets_away: Mutex<VecDeque<RpcError>>,
    seen: mpsc::UnboundedSender<StepReport>,
}

impl Handler for ControlPlane {
    async fn call(&self, request: Request) -> Reply {
        assert_eq!(request.data.value().unwrap()["key"], "right");
        if pattern::EXECUTOR_SECRETS.is(&request.pattern) {
            return self.secrets(&request);
        }
        let kinds = [
            (pattern::STEP_ACK, ReportKind::Ack),
            (pattern::STEP_HEARTBEAT, ReportKind::Heartbeat),
            (pattern::STEP_RESULT, ReportKind::Result),
        ];
        let kind = kinds.iter().find(|(pattern, _)| pattern.is(&request.pattern)).unwrap().1;
        let report = read_report(kind, &request.data).unwrap();
        let reply = match &report.body {
            ReportBody::Ack(Ack { worker_id, .. }) => {
                let mut winners = self.winners.lock().unwrap();
                let winner = winners.entry(report.execution_id).or_insert_with(|| worker_id.clone().unwrap());
                Reply::Value(json!({"status": "applied", "workerId": winner}).into())
            }
            ReportBody::Result(_) => match self.refusals.lock().unwrap().pop_front() {
                Some(refusal) => Reply::Error(refusal),
                None => Reply::Value(json!({"status": "applied"}).into()),
            },
            _ => Reply::Value(json!({"status": "applied"}).into()),
        };
        self.seen.send(report).unwrap();
        reply
    }
}

impl ControlPlane {
    /// Knows the secret `token` and answers only for attempts whose ack it has seen.
    fn secrets(&self, request: &Request) -> Reply {
        if let Some(refusal) = self.secrets_away.lock().unwrap().pop_front() {
            return Reply::Error(refusal);
        }
        let asked: ExecutorSecrets = request.data.read().unwrap();
        assert!(self.winners.lock().unwrap().contains_key(&asked.execution_id), "asked before the ack");
        let values = asked.names.iter().map(|name| (name == "token").then(|| "s3cret".into())).collect();
        Reply::Value(Json::of(&ResolvedSecrets { values }).unwrap())
    }
}

struct Stage {
    queue: Queue,
    control_plane: Arc<ControlPlane>,
    seen: mpsc::UnboundedReceiver<StepReport>,
    stop: CancellationToken,
    executor: JoinHandle<Result<(), executor::Error>>,
}

impl Stage {
    async fn start(allow_private: bool) -> Self {
        // Nobody is there, and nobody is asked.
        Self::with_files(allow_private, "http://127.0.0.1:9".to_owned()).await
    }

    async fn with_files(allow_private: bool, files: String) -> Self {
        let (sender, seen) = mpsc::unbounded_channel();
        let control_plane = Arc::new(ControlPlane {
            winners: Mutex::default(),
            refusals: Mutex::default(),
            secrets_away: Mutex::default(),
            seen: sender,
        });
        let config = ServerConfig::new("control-plane", "127.0.0.1:0".parse().unwrap());
        let server = Server::bind(config, Arc::clone(&control_plane)).unwrap();
        let port = server.local_addr().port();
        tokio::spawn(server.run(CancellationToken::new(), CancellationToken::new()));
        let queue = Queue::in_process();
        let settings = Settings {
            concurrency: 4,
            control_plane: ReporterSettings {
                host: "127.0.0.1".into(),
                port,
                key: Some("right".into()),
                tls: None,
            },
            heartbeat: Duration::from_millis(20),
            allow_private,
            files: RunFilesSettings { url: files, token: None, tls: None },
            drain: Duration::from_secs(20),
        };
        let service = Service::bind(settings, queue.clone()).await.unwrap();
        let stop = CancellationToken::new();
        let executor = tokio::spawn(service.run(stop.clone()));
        Self { queue, control_plane, seen, stop, executor }
    }

    async fn push(&self, task: &Task) {
        self.queue.push(Lane::Executor, vec![serde_json::to_string(task).unwrap()]).await.unwrap();
    }

    /// The next result that the control plane sees.
    async fn result(&mut self) -> (ExecutionId, StepResult) {
        loop {
            let report = self.seen.recv().await.unwrap();
            if let ReportBody::Result(result) = report.body {
                return (report.execution_id, result);
            }
        }
    }

    async fn done(&mut self, task: &Task) -> StepResult {
        self.push(task).await;
        let (id, result) = self.result().await;
        assert_eq!(id, task.execution_id);
        result
    }

    async fn stop(self) {
        self.stop.cancel();
        self.executor.await.unwrap().unwrap();
    }
}

fn task(node_type: &str, inputs: Value, outputs: &[&str]) -> Task {
    Task {
        run_id: RunId(Uuid::now_v7()),
        execution_id: ExecutionId(Uuid::now_v7()),
        node_id: "n".into(),
        node_path: NodePath::root("n"),
        node_type: node_type.into(),
        attempt: 1,
        inputs: Json::from(inputs).read().unwrap(),
        secrets: Vec::new(),
        outputs: outputs.iter().map(|output| (*output).to_owned()).collect(),
        workspace_id: "default".into(),
        user_id: "local".into(),
        diagram_id: ProcessId(Uuid::nil()),
        publication_id: None,
        timeout_ms: 60_000,
        traceparent: None,
    }
}

fn template() -> Task {
    task(builtin::TEMPLATE, json!({"template": "Привет, {{ name }}!", "name": "Аня"}), &["text"])
}

fn code(result: &StepResult) -> &str {
    result.error.as_ref().unwrap().code.as_deref().unwrap()
}

/// Answers one HTTP request with `response`, after `gate` opens; returns its URL and what was asked.
async fn website(response: String, gate: CancellationToken) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut asked = vec![0; 4096];
        let length = socket.read(&mut asked).await.unwrap();
        gate.cancelled().await;
        // The client may have left.
        let _ = socket.write_all(response.as_bytes()).await;
        String::from_utf8(asked[..length].to_vec()).unwrap()
    });
    (url, asked)
}

const EMPTY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

fn open() -> CancellationToken {
    let gate = CancellationToken::new();
    gate.cancel();
    gate
}

#[tokio::test]
async fn a_template_is_rendered_and_reported_after_an_ack() {
    let mut stage = Stage::start(false).await;
    let task = template();
    stage.push(&task).await;
    let ack = stage.seen.recv().await.unwrap();
    assert!(matches!(ack.body, ReportBody::Ack(Ack { worker_id: Some(_), .. })));
    let (_, result) = stage.result().await;
    assert_eq!(result.outputs["text"].text(), "\"Привет, Аня!\"");
    stage.stop().await;
}

#[tokio::test]
async fn a_task_that_is_taken_twice_is_done_once() {
    let mut stage = Stage::start(false).await;
    let doubled = template();
    stage.push(&doubled).await;
    stage.push(&doubled).await;
    stage.result().await;
    let other = stage.done(&template()).await;
    assert_eq!(other.status, StepStatus::Ok);
    stage.stop().await;
}

#[tokio::test]
async fn a_task_that_another_worker_has_is_left_to_it() {
    let mut stage = Stage::start(false).await;
    let taken = template();
    stage.control_plane.winners.lock().unwrap().insert(taken.execution_id, "other".into());
    stage.push(&taken).await;
    // Only the other task has a result.
    stage.done(&template()).await;
    stage.stop().await;
}

#[tokio::test]
async fn a_result_is_sent_until_it_is_answered() {
    let mut stage = Stage::start(false).await;
    stage
        .control_plane
        .refusals
        .lock()
        .unwrap()
        .push_back(RpcError::new(ErrorCode::EngineUnavailable, "not now"));
    let task = template();
    let first = stage.done(&task).await;
    let (id, second) = stage.result().await;
    assert_eq!((id, second), (task.execution_id, first));
    stage.stop().await;
}

#[tokio::test]
async fn unknown_nodes_fail_the_step_and_broken_items_hurt_nobody() {
    let mut stage = Stage::start(false).await;
    stage.queue.push(Lane::Executor, vec!["{".into()]).await.unwrap();
    let result = stage.done(&task("system.unheard", json!({}), &[])).await;
    assert_eq!(code(&result), "node_type_unknown");
    stage.stop().await;
}

/// A request with the secret `name` as a header of its own and as the token.
fn with_secret(url: &str, name: &str) -> Task {
    let inputs = json!({"url": url, "header.X-Key": {"$secret": name}, "bearerToken": name});
    let secrets = vec!["header.X-Key".into(), "bearerToken".into()];
    Task { secrets, ..task(builtin::HTTP_REQUEST, inputs, &["status"]) }
}

#[tokio::test]
async fn secrets_are_put_into_a_request_after_the_ack_has_won() {
    let mut stage = Stage::start(true).await;
    // The control plane and the secret-manager may be away for a moment.
    stage
        .control_plane
        .secrets_away
        .lock()
        .unwrap()
        .push_back(RpcError::new(ErrorCode::Unavailable, "not now"));
    let (url, asked) = website(EMPTY.into(), open()).await;
    let result = stage.done(&with_secret(&url, "token")).await;
    assert_eq!(result.outputs["status"].text(), "200");
    let asked = asked.await.unwrap();
    assert!(
        asked.contains("x-key: s3cret\r\n") && asked.contains("authorization: Bearer s3cret\r\n"),
        "{asked}"
    );
    stage.stop().await;
}

#[tokio::test]
async fn a_missing_secret_fails_the_step_and_is_named() {
    let mut stage = Stage::start(true).await;
    let result = stage.done(&with_secret("http://127.0.0.1:1", "nope")).await;
    assert_eq!(code(&result), "secret_missing");
    assert!(result.error.unwrap().message.contains("\"nope\""));
    stage.stop().await;
}

#[tokio::test]
async fn a_refusal_of_secrets_fails_the_step_at_once() {
    let mut stage = Stage::start(true).await;
    let refusal = RpcError::new(ErrorCode::SecretUnreadable, "cannot be decrypted");
    stage.control_plane.secrets_away.lock().unwrap().push_back(refusal);
    let result = stage.done(&with_secret("http://127.0.0.1:1", "token")).await;
    assert_eq!((code(&result), result.error.as_ref().unwrap().retryable), ("secret_unreadable", Some(false)));
    stage.stop().await;
}

#[tokio::test]
async fn a_template_takes_no_secret_because_its_text_is_kept() {
    let mut stage = Stage::start(false).await;
    let result = stage.done(&Task { secrets: vec!["name".into()], ..template() }).await;
    assert_eq!(code(&result), "invalid_node_input");
    stage.stop().await;
}

#[tokio::test]
async fn a_withdrawn_step_is_cancelled_by_word_of_the_engine() {
    let mut stage = Stage::start(true).await;
    // The website never answers, and the control plane accepts every heartbeat.
    let (url, _website) = website(EMPTY.into(), CancellationToken::new()).await;
    let [withdrawn, other] = [0, 1].map(|_| task(builtin::HTTP_REQUEST, json!({"url": url}), &["status"]));
    stage.push(&withdrawn).await;
    while !matches!(stage.seen.recv().await.unwrap().body, ReportBody::Heartbeat(_)) {}
    for task in [&other, &withdrawn] {
        let word = json!({"kind": "cancel", "runId": task.run_id, "executionId": task.execution_id});
        stage.queue.notify(Topic::Steps, &word.to_string()).await.unwrap();
    }
    // Its end is told, so that the history has it as a late result.
    let (id, result) = stage.result().await;
    assert_eq!((id, result.status), (withdrawn.execution_id, StepStatus::Error));
    stage.stop().await;
}

#[tokio::test]
async fn an_http_response_becomes_outputs() {
    let mut stage = Stage::start(true).await;
    let body = r#"{"big":12345678901234567890123}"#;
    let response =
        format!("HTTP/1.1 404 Not Found\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let (url, asked) = website(response, open()).await;
    let inputs = json!({"url": url, "method": "POST", "body": {"a": 1}, "headers": {"X-Key": "k"}});
    let result =
        stage.done(&task(builtin::HTTP_REQUEST, inputs, &["status", "headers", "body", "json"])).await;
    assert_eq!(result.outputs["status"].text(), "404");
    assert_eq!(result.outputs["json"].text(), body);
    assert_eq!(result.outputs["headers"].value().unwrap()["x-a"], "1, 2");
    assert_eq!(result.outputs["body"].read::<String>().unwrap(), body);
    let asked = asked.await.unwrap();
    assert!(
        asked.starts_with("POST / HTTP/1.1\r\n")
            && asked.contains("x-key: k\r\n")
            && asked.ends_with(r#"{"a":1}"#),
        "{asked}"
    );
    stage.stop().await;
}

#[tokio::test]
async fn addresses_within_are_out_of_reach_also_by_name() {
    let mut stage = Stage::start(false).await;
    for url in ["http://127.0.0.1:1/", "http://localhost:1/", "http://[::ffff:10.0.0.1]/"] {
        let result = stage.done(&task(builtin::HTTP_REQUEST, json!({"url": url}), &[])).await;
        assert_eq!(code(&result), "forbidden_address", "{url}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn an_endless_response_fails_the_step() {
    let mut stage = Stage::start(true).await;
    let size = 10 * 1024 * 1024 + 1;
    let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n{}", "x".repeat(size));
    let (url, _) = website(response, open()).await;
    let result = stage.done(&task(builtin::HTTP_REQUEST, json!({"url": url}), &[])).await;
    assert_eq!(code(&result), "payload_too_large");
    stage.stop().await;
}

#[tokio::test]
async fn long_work_sends_heartbeats_and_a_stop_waits_for_its_result() {
    let mut stage = Stage::start(true).await;
    let gate = CancellationToken::new();
    let (url, _) = website(EMPTY.into(), gate.clone()).await;
    stage.push(&task(builtin::HTTP_REQUEST, json!({"url": url}), &["status"])).await;
    while !matches!(stage.seen.recv().await.unwrap().body, ReportBody::Heartbeat(_)) {}
    stage.stop.cancel();
    gate.cancel();
    let (_, result) = stage.result().await;
    assert_eq!(result.outputs["status"].text(), "200");
    stage.stop().await;
}

#[tokio::test]
async fn a_failed_request_names_the_host_and_keeps_the_url_to_itself() {
    let mut stage = Stage::start(true).await;
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://user:hush@{unused}/?token=hush");
    let result = stage.done(&task(builtin::HTTP_REQUEST, json!({"url": url}), &[])).await;
    assert_eq!(code(&result), "unavailable");
    let message = result.error.unwrap().message;
    assert!(message.contains("127.0.0.1") && !message.contains("hush"), "{message}");
    stage.stop().await;
}

#[tokio::test]
async fn the_metadata_address_of_clouds_is_out_of_reach_and_not_tried_again() {
    let mut stage = Stage::start(false).await;
    let inputs = json!({"url": "http://169.254.169.254/latest/meta-data"});
    let result = stage.done(&task(builtin::HTTP_REQUEST, inputs, &[])).await;
    assert_eq!((code(&result), result.error.as_ref().unwrap().retryable), ("forbidden_address", Some(false)));
    stage.stop().await;
}

#[tokio::test]
async fn redirects_are_followed_and_secrets_stay_with_the_first_origin() {
    let mut stage = Stage::start(true).await;
    let (target, second) = website(EMPTY.into(), open()).await;
    let redirect = format!("HTTP/1.1 302 Found\r\nLocation: {target}/there\r\nContent-Length: 0\r\n\r\n");
    let (url, first) = website(redirect.clone(), open()).await;
    let result = stage.done(&with_secret(&url, "token")).await;
    assert_eq!(result.outputs["status"].text(), "200");
    assert!(first.await.unwrap().contains("s3cret"));
    let second = second.await.unwrap();
    assert!(second.starts_with("GET /there ") && !second.contains("s3cret"), "{second}");

    let (url, _) = website(redirect, open()).await;
    let inputs = json!({"url": url, "followRedirects": "false"});
    let result = stage.done(&task(builtin::HTTP_REQUEST, inputs, &["status"])).await;
    assert_eq!(result.outputs["status"].text(), "302");
    stage.stop().await;
}

#[tokio::test]
async fn statuses_that_are_errors_fail_the_step_and_say_whether_to_try_again() {
    let mut stage = Stage::start(true).await;
    for (status, retryable) in [(503, true), (404, false)] {
        let (url, _) = website(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n"), open()).await;
        let inputs = json!({"url": url, "errorStatuses": "4xx, 5xx"});
        let result = stage.done(&task(builtin::HTTP_REQUEST, inputs, &[])).await;
        assert_eq!(
            (code(&result), result.error.as_ref().unwrap().retryable),
            ("http_status", Some(retryable))
        );
    }
    stage.stop().await;
}

#[tokio::test]
async fn a_website_that_is_silent_for_too_long_is_a_timeout() {
    let mut stage = Stage::start(true).await;
    let (url, _website) = website(EMPTY.into(), CancellationToken::new()).await;
    let result = stage.done(&task(builtin::HTTP_REQUEST, json!({"url": url, "timeoutMs": 1}), &[])).await;
    assert_eq!((code(&result), result.error.as_ref().unwrap().retryable), ("timeout", Some(true)));
    stage.stop().await;
}

#[tokio::test]
async fn an_output_of_a_mebibyte_passes_unchanged() {
    let mut stage = Stage::start(true).await;
    let body = "é".repeat(1024 * 1024 / 2);
    let (url, _) =
        website(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()), open()).await;
    let result = stage.done(&task(builtin::HTTP_REQUEST, json!({"url": url}), &["body"])).await;
    assert_eq!(result.outputs["body"].read::<String>().unwrap(), body);
    stage.stop().await;
}

#[tokio::test]
async fn an_output_that_no_report_can_carry_fails_the_step_with_that_reason() {
    let mut stage = Stage::start(true).await;
    // As JSON each of these characters takes six bytes: within the limit of a body, not of a frame.
    let body = "\u{1}".repeat(3 * 1024 * 1024);
    let (url, _) =
        website(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()), open()).await;
    let result = stage.done(&task(builtin::HTTP_REQUEST, json!({"url": url}), &["body"])).await;
    assert_eq!(code(&result), "payload_too_large");
    stage.stop().await;
}

/// A file-service with a database of its own.
struct Files {
    client: RunFiles,
    url: String,
    stop: CancellationToken,
    _folder: tempfile::TempDir,
}

impl Files {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("test.db").display());
        let storage = storage::StorageSettings { url: url.into(), max_connections: 2 };
        let storage = storage::Storage::open(&storage).await.unwrap();
        let settings = file_service::Settings {
            address: "127.0.0.1:0".parse().unwrap(),
            tls: None,
            dir: folder.path().join("files"),
            max_file_bytes: 64 * 1024 * 1024,
            token: None,
            sweep: file_service::SweepSettings::default(),
        };
        let service = file_service::Service::bind(settings, storage).await.unwrap();
        let url = format!("http://{}", service.addresses()[0].1);
        let stop = CancellationToken::new();
        tokio::spawn(service.run(stop.clone()));
        let client = RunFiles::new(&RunFilesSettings { url: url.clone(), token: None, tls: None }).unwrap();
        Self { client, url, stop, _folder: folder }
    }
}

#[tokio::test]
async fn values_that_lie_in_files_are_back_in_the_inputs_of_a_step() {
    let files = Files::start().await;
    let mut stage = Stage::with_files(false, files.url.clone()).await;
    let template = json!("{{ list | length }} {{ nested.deep.n }} {{ other }}");
    let mut task = task(builtin::TEMPLATE, json!({"template": template}), &["text"]);
    let put = async |run_id, text: &'static str, content_type| {
        files.client.put(run_id, ("default", "o"), content_type, text).await.unwrap()
    };
    let list = put(task.run_id, "[1,2,3]", "application/json").await;
    let deep = put(task.run_id, r#"{"n":12345678901234567890123.0}"#, "application/json").await;
    let others = put(RunId(Uuid::now_v7()), "\"secret\"", "application/json").await;
    task.inputs.insert("list".into(), list.to_json());
    let nested = format!(r#"{{"deep":{}}}"#, deep.to_json().text());
    task.inputs.insert("nested".into(), Json::parse(nested).unwrap());
    task.inputs.insert("other".into(), others.to_json());
    stage.push(&task).await;
    let (_, result) = stage.result().await;
    let text: String = result.outputs["text"].read().unwrap();
    assert!(text.starts_with("3 12345678901234567890123"), "{text}");
    assert!(!text.contains("secret"), "a file of another run stays where it is: {text}");
    files.stop.cancel();
}

/// A site that answers every request with this many bytes of JSON.
async fn site(bytes: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await.unwrap();
            let body = format!("\"{}\"", "x".repeat(bytes - 2));
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {bytes}\r\nconnection: close\r\n\r\n{body}"
            );
            // A client that wants no more breaks off.
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    format!("http://{address}/")
}

#[tokio::test]
async fn a_response_that_is_larger_than_a_value_goes_to_a_file_where_the_widget_wants_one() {
    let files = Files::start().await;
    let mut stage = Stage::with_files(true, files.url.clone()).await;
    let url = site(11 * 1024 * 1024).await;
    let wanting = |outputs: &[&str]| task(builtin::HTTP_REQUEST, json!({"url": url}), outputs);
    stage.push(&wanting(&["status", "body"])).await;
    let error = stage.result().await.1.error.unwrap();
    assert_eq!(error.code.as_deref(), Some("payload_too_large"));
    assert!(error.message.contains("`file`"), "{}", error.message);

    let task = wanting(&["status", "body", "file"]);
    stage.push(&task).await;
    let result = stage.result().await.1;
    assert!(!result.outputs.contains_key("body"), "{:?}", result.error);
    let file = contract::file::FileRef::of(&result.outputs["file"]).unwrap();
    assert_eq!((file.size, file.holds_value()), (11 * 1024 * 1024, false), "the body stays a file");
    assert_eq!(file.content_type, "application/json; charset=utf-8");
    let text = files.client.text(task.run_id, &file, u64::MAX).await.unwrap();
    assert!(text.len() == 11 * 1024 * 1024 && text.starts_with("\"xxx"));
    files.stop.cancel();
}

#[tokio::test]
async fn any_body_goes_to_a_file_where_the_widget_wants_nothing_else_of_it() {
    let files = Files::start().await;
    let mut stage = Stage::with_files(true, files.url.clone()).await;
    let url = site(100).await;
    for (outputs, keys) in [(["status", "file"], ["status", "file"]), (["body", "file"], ["status", "body"])]
    {
        stage.push(&task(builtin::HTTP_REQUEST, json!({"url": url}), &outputs)).await;
        let result = stage.result().await.1;
        assert!(keys.iter().all(|key| result.outputs.contains_key(*key)), "{keys:?} {:?}", result.error);
        assert!(result.outputs.contains_key("file") != result.outputs.contains_key("body"));
    }
    files.stop.cancel();
}
