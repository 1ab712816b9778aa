//! A scripted control plane, an executor that works for it, and websites for its requests.

use contract::{
    ExecutionId, Json, NodePath, ProcessId, RpcError, RunId, builtin, pattern,
    report::{Ack, ReportBody, ReportKind, StepReport, StepResult, read_report},
    secret::{ExecutorSecrets, ResolvedSecrets},
    task::Task,
};
use executor::{Service, Settings};
use plugin_sdk::reporter::ReporterSettings;
use queue::{Lane, Queue};
use run_files::RunFilesSettings;
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
pub(crate) struct ControlPlane {
    pub(crate) winners: Mutex<HashMap<ExecutionId, String>>,
    /// Replies to results before they are taken.
    pub(crate) refusals: Mutex<VecDeque<RpcError>>,
    /// Replies to questions for secrets before `token` is known.
    pub(crate) secrets_away: Mutex<VecDeque<RpcError>>,
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

pub(crate) struct Stage {
    pub(crate) queue: Queue,
    pub(crate) control_plane: Arc<ControlPlane>,
    pub(crate) seen: mpsc::UnboundedReceiver<StepReport>,
    pub(crate) stop: CancellationToken,
    pub(crate) executor: JoinHandle<Result<(), executor::Error>>,
}

impl Stage {
    pub(crate) async fn start(allow_private: bool) -> Self {
        // Nobody is there, and nobody is asked.
        Self::with_files(allow_private, "http://127.0.0.1:9".to_owned()).await
    }

    pub(crate) async fn with_files(allow_private: bool, files: String) -> Self {
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

    pub(crate) async fn push(&self, task: &Task) {
        self.queue.push(Lane::Executor, vec![serde_json::to_string(task).unwrap()]).await.unwrap();
    }

    /// The next result that the control plane sees.
    pub(crate) async fn result(&mut self) -> (ExecutionId, StepResult) {
        loop {
            let report = self.seen.recv().await.unwrap();
            if let ReportBody::Result(result) = report.body {
                return (report.execution_id, result);
            }
        }
    }

    pub(crate) async fn done(&mut self, task: &Task) -> StepResult {
        self.push(task).await;
        let (id, result) = self.result().await;
        assert_eq!(id, task.execution_id);
        result
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.executor.await.unwrap().unwrap();
    }
}

pub(crate) fn task(node_type: &str, inputs: Value, outputs: &[&str]) -> Task {
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
        tracestate: None,
    }
}

pub(crate) fn template() -> Task {
    task(builtin::TEMPLATE, json!({"template": "Привет, {{ name }}!", "name": "Аня"}), &["text"])
}

/// A request with the secret `name` as a header of its own and as the token.
pub(crate) fn with_secret(url: &str, name: &str) -> Task {
    let inputs = json!({"url": url, "header.X-Key": {"$secret": name}, "bearerToken": name});
    let secrets = vec!["header.X-Key".into(), "bearerToken".into()];
    Task { secrets, ..task(builtin::HTTP_REQUEST, inputs, &["status"]) }
}

pub(crate) fn code(result: &StepResult) -> &str {
    result.error.as_ref().unwrap().code.as_deref().unwrap()
}

/// Answers one HTTP request with `response`, after `gate` opens; returns its URL and what was asked.
pub(crate) async fn website(response: String, gate: CancellationToken) -> (String, JoinHandle<String>) {
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

pub(crate) const EMPTY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

pub(crate) fn open() -> CancellationToken {
    let gate = CancellationToken::new();
    gate.cancel();
    gate
}
