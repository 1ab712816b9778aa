//! A control plane with a database, a queue and scripted neighbours.

use contract::{
    Digest, ErrorCode, ExecutionId, Json, Millis, NodePath, ProcessId, PublicationId, RpcError, RunId,
    manifest::Endpoint,
    report::{
        DispatchOutcome, DispatchOutcomes, Dispatched, ReportBody, ReportOutcome, StepReport,
        StepReportOutcomes, StepReports, StepResult,
    },
    run::RunStatus,
    task::Task,
};
use queue::{Lane, Queue};
use runtime_control_plane::{Deps, Error, PluginsDefault, Service, Settings};
use serde_json::{Value, json};
use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};
use storage::{
    Storage, StorageSettings,
    catalogue::NewPublication,
    runs::{Append, AttemptState, NewAttempt, NewRun},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use wire::{Client, ClientConfig, Reply, Request, Server, ServerConfig};

pub(crate) const KEY: &str = "the-key-of-this-test";
pub(crate) const NODE_TYPE: &str = "plugin.test.echo";

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn id() -> ExecutionId {
    ExecutionId(Uuid::now_v7())
}

pub(crate) fn local() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
}

/// A neighbour: answers by a closure until dropped.
pub(crate) struct Neighbour {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Neighbour {
    pub(crate) fn start<F, R>(address: SocketAddr, handler: F) -> Self
    where
        F: Fn(Request) -> R + Send + Sync + 'static,
        R: Future<Output = Reply> + Send + 'static,
    {
        let server = Server::bind(ServerConfig::new("neighbour", address), Arc::new(handler)).unwrap();
        let (address, stop) = (server.local_addr(), CancellationToken::new());
        let running = tokio::spawn(server.run(stop.clone(), stop.clone()));
        Self { address, stop, running }
    }

    /// Closes all its connections; the address is free afterwards.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        (&mut self.running).await.unwrap();
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint { host: self.address.ip().to_string(), port: self.address.port() }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What the scripted engine was told, and what it shall answer.
pub(crate) struct EngineScript {
    pub(crate) reports: mpsc::UnboundedSender<StepReport>,
    pub(crate) outcomes: mpsc::UnboundedSender<DispatchOutcome>,
    pub(crate) answers: Mutex<HashMap<ExecutionId, ReportOutcome>>,
    pub(crate) batches: Mutex<Vec<usize>>,
    /// Answers wait while this is false.
    pub(crate) open: watch::Sender<bool>,
    /// Errors for the next dispatch outcomes.
    pub(crate) outcome_errors: Mutex<VecDeque<RpcError>>,
}

impl EngineScript {
    async fn answer(&self, request: Request) -> Reply {
        match request.pattern.as_str() {
            "runtime.step_reports" => {
                let batch: StepReports = request.data.read().unwrap();
                self.batches.lock().unwrap().push(batch.reports.len());
                let _ = self.open.subscribe().wait_for(|open| *open).await;
                let outcomes =
                    batch.reports.iter().map(|report| self.outcome_of(report.execution_id)).collect();
                for report in batch.reports {
                    let _ = self.reports.send(report);
                }
                Reply::Value(Json::of(&StepReportOutcomes { outcomes }).unwrap())
            }
            "runtime.dispatch_outcome" => {
                let batch: DispatchOutcomes = request.data.read().unwrap();
                let answer = |told| match self.outcome_errors.lock().unwrap().pop_front() {
                    Some(error) => ReportOutcome::Err(error),
                    None => {
                        let _ = self.outcomes.send(told);
                        ReportOutcome::applied()
                    }
                };
                let outcomes = batch.outcomes.into_iter().map(answer).collect();
                Reply::Value(Json::of(&StepReportOutcomes { outcomes }).unwrap())
            }
            "runtime.metrics" => Reply::Value(Json::of("engine_runs_total 5\n").unwrap()),
            _ => Reply::NoHandler,
        }
    }

    fn outcome_of(&self, id: ExecutionId) -> ReportOutcome {
        self.answers.lock().unwrap().get(&id).cloned().unwrap_or_else(ReportOutcome::applied)
    }
}

/// The control plane and all around it.
pub(crate) struct World {
    pub(crate) storage: Storage,
    pub(crate) queue: Queue,
    pub(crate) script: Arc<EngineScript>,
    pub(crate) engine: Option<Neighbour>,
    pub(crate) reports: mpsc::UnboundedReceiver<StepReport>,
    pub(crate) outcomes: mpsc::UnboundedReceiver<DispatchOutcome>,
    pub(crate) http: SocketAddr,
    pub(crate) tcp: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) running: Option<JoinHandle<Result<(), Error>>>,
    pub(crate) web: reqwest::Client,
    _folder: tempfile::TempDir,
}

pub(crate) fn settings() -> Settings {
    let variables = config::Variables::of([
        ("PLUGIN_CONTROL_PLANE_KEY", KEY),
        ("CONVEYOR_BIND", "127.0.0.1"),
        ("RUNTIME_CONTROL_PLANE_HTTP_PORT", "0"),
        ("RUNTIME_CONTROL_PLANE_TCP_PORT", "0"),
        ("CONVEYOR_PLUGINS_DEFAULT", "enabled"),
    ]);
    let mut reader = config::Reader::new(&variables);
    let settings = Settings::read(&mut reader);
    reader.finish().unwrap();
    assert_eq!(settings.plugins_default, PluginsDefault::Enabled);
    settings
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/conveyor.db", folder.path().display());
        let storage = Storage::open(&StorageSettings { url: url.into(), max_connections: 2 }).await.unwrap();
        let queue = Queue::in_process();
        let (sent_reports, reports) = mpsc::unbounded_channel();
        let (sent_outcomes, outcomes) = mpsc::unbounded_channel();
        let script = Arc::new(EngineScript {
            reports: sent_reports,
            outcomes: sent_outcomes,
            answers: Mutex::default(),
            batches: Mutex::default(),
            open: watch::Sender::new(true),
            outcome_errors: Mutex::default(),
        });
        let engine = start_engine(&script, local());
        let mut settings = settings();
        settings.engine = engine.endpoint();
        change(&mut settings);
        let deps = Deps { storage: storage.clone(), queue: queue.clone(), engine: None };
        let service = Service::bind(settings, deps).await.unwrap();
        let addresses: HashMap<_, _> = service.addresses().into_iter().collect();
        let stop = CancellationToken::new();
        let running = tokio::spawn(service.run(stop.clone()));
        Self {
            storage,
            queue,
            script,
            engine: Some(engine),
            reports,
            outcomes,
            http: addresses["http"],
            tcp: addresses["tcp"],
            stop,
            running: Some(running),
            web: reqwest::Client::new(),
            _folder: folder,
        }
    }

    /// What another control plane beside this one works with.
    pub(crate) fn deps(&self) -> Deps {
        Deps { storage: self.storage.clone(), queue: self.queue.clone(), engine: None }
    }

    /// Stops the engine; the answer is its address.
    pub(crate) async fn stop_engine(&mut self) -> SocketAddr {
        let engine = self.engine.take().unwrap();
        let address = engine.address;
        engine.stop().await;
        address
    }

    pub(crate) fn restart_engine(&mut self, address: SocketAddr) {
        self.engine = Some(start_engine(&self.script, address));
    }

    pub(crate) fn tcp(&self) -> Client {
        Client::new(self.tcp.ip().to_string(), self.tcp.port(), ClientConfig::default())
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http)
    }

    /// Posts with the key.
    pub(crate) async fn post(&self, path: &str, body: &str) -> (u16, Value, Option<String>) {
        let request = self.web.post(self.url(path)).bearer_auth(KEY).body(body.to_owned());
        answer(request.send().await.unwrap()).await
    }

    pub(crate) async fn next_report(&mut self) -> StepReport {
        tokio::time::timeout(PATIENCE, self.reports.recv()).await.expect("no report came").unwrap()
    }

    pub(crate) async fn next_outcome(&mut self) -> DispatchOutcome {
        tokio::time::timeout(PATIENCE, self.outcomes.recv()).await.expect("no outcome came").unwrap()
    }

    pub(crate) async fn next_dispatched(&mut self, id: ExecutionId) -> Dispatched {
        let outcome = self.next_outcome().await;
        assert_eq!(outcome.execution_id, id);
        outcome.outcome
    }

    pub(crate) async fn next_result(&mut self, id: ExecutionId) -> StepResult {
        let report = self.next_report().await;
        assert_eq!(report.execution_id, id);
        match report.body {
            ReportBody::Result(result) => result,
            other => panic!("{other:?}"),
        }
    }

    /// Publishes a plugin that takes tasks at `endpoint`.
    pub(crate) async fn publish(&self, plugin_id: &str, node_type: &str, endpoint: Endpoint) {
        let publication = NewPublication {
            publication_id: PublicationId(Uuid::now_v7()),
            plugin_id: plugin_id.into(),
            version: "1.0.0".into(),
            digest: Digest([1; 32]),
            manifest: Json::from(json!({"label": plugin_id})),
            items: Json::from(json!([{"nodeType": node_type}])),
            assets: Vec::new(),
            node_types: vec![node_type.into()],
            pull: endpoint,
            node_endpoints: Vec::new(),
            at: Millis(1),
            allow_republish: true,
            seal: storage::catalogue::Seal::default(),
        };
        self.storage.catalogue().commit(&publication).await.unwrap();
    }

    /// A running run with one queued attempt, and its task.
    pub(crate) async fn attempt(&self, node_type: &str) -> Task {
        self.attempt_on(Lane::Plugin, node_type).await
    }

    /// The same on a lane.
    pub(crate) async fn attempt_on(&self, lane: Lane, node_type: &str) -> Task {
        let task = task(node_type);
        let open = NewAttempt {
            execution_id: task.execution_id,
            node_path: task.node_path.clone(),
            node_type: task.node_type.clone(),
            attempt: 1,
            lane: lane.as_str().into(),
            state: AttemptState::Queued,
            deadline: None,
        };
        let create = NewRun {
            process_id: task.diagram_id,
            process_revision: 1,
            workspace_id: task.workspace_id.clone(),
            user_id: task.user_id.clone(),
            idempotency_key: None,
        };
        let start = Append {
            create: Some(create),
            open: vec![open],
            ..Append::new(task.run_id, 0, RunStatus::Running, Millis(1))
        };
        self.storage.runs().append(&[start]).await.unwrap();
        task
    }

    /// Puts a task on the lane.
    pub(crate) async fn push(&self, task: &Task) {
        self.queue.push(Lane::Plugin, vec![serde_json::to_string(task).unwrap()]).await.unwrap();
    }

    /// An attempt whose task is on the lane.
    pub(crate) async fn queued(&self, node_type: &str) -> ExecutionId {
        let task = self.attempt(node_type).await;
        self.push(&task).await;
        task.execution_id
    }

    /// Stops the service and waits for its end.
    pub(crate) async fn shut_down(&mut self) {
        self.stop.cancel();
        let running = self.running.take().unwrap();
        tokio::time::timeout(PATIENCE, running).await.expect("the service does not stop").unwrap().unwrap();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) fn task(node_type: &str) -> Task {
    Task {
        run_id: RunId(Uuid::now_v7()),
        execution_id: id(),
        node_id: "w-1".into(),
        node_path: NodePath("w-1".into()),
        node_type: node_type.into(),
        attempt: 1,
        inputs: [("text".to_owned(), Json::from(json!("Привет 😀")))].into_iter().collect(),
        secrets: Vec::new(),
        outputs: vec!["text".into()],
        workspace_id: "default".into(),
        user_id: "local".into(),
        diagram_id: ProcessId(Uuid::now_v7()),
        publication_id: None,
        timeout_ms: 3_600_000,
        traceparent: None,
        tracestate: None,
    }
}

fn start_engine(script: &Arc<EngineScript>, address: SocketAddr) -> Neighbour {
    let script = Arc::clone(script);
    Neighbour::start(address, move |request| {
        let script = Arc::clone(&script);
        async move { script.answer(request).await }
    })
}

/// Status, JSON body and `Retry-After` of a response.
pub(crate) async fn answer(response: reqwest::Response) -> (u16, Value, Option<String>) {
    let retry = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)), retry)
}

pub(crate) fn error(code: ErrorCode) -> ReportOutcome {
    ReportOutcome::Err(RpcError::new(code, "as the engine says"))
}

/// Any JSON as data.
pub(crate) fn data(value: &Value) -> Json {
    Json::from(value)
}

/// Writes bytes to a socket and reads until the reply's frame or the end is there.
pub(crate) async fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    socket.write_all(bytes).await.unwrap();
    let mut read = Vec::new();
    let reading = async {
        let mut buffer = [0; 4096];
        while let Ok(count) = socket.read(&mut buffer).await {
            read.extend_from_slice(&buffer[..count]);
            if count == 0 || read.ends_with(b"}") {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("no reply came");
    String::from_utf8(read).unwrap()
}
