//! Databases, engines and the scripted worker.

use contract::{
    ErrorCode, ExecutionId, Json, Millis, ProcessId, RpcError, RunId,
    engine::NearEngine,
    pattern::{self, Pattern},
    report::{
        Ack, DispatchOutcome, DispatchOutcomes, Dispatched, Heartbeat, Partial, RawOutputs, ReportBody,
        ReportOutcome, StepError, StepReport, StepReportOutcomes, StepReports, StepResult,
    },
    run::{RunDetail, RunRef, RunStart, RunStarted, StepDetail, TriggerKind},
    task::Task,
};
use queue::{Lane, Queue};
use runtime_engine::{Deps, Settings, core::Policy};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use storage::{Storage, StorageSettings, processes::ProcessDraft};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use wire::{CallError, Client, ClientConfig};

/// Longer than anything here takes, on any machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Runs each rule on SQLite, and on PostgreSQL where there is one.
macro_rules! on_both_databases {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                Box::pin(super::$name(crate::bed::Bed::sqlite().await)).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(bed) = crate::bed::Bed::postgres().await {
                    Box::pin(super::$name(bed)).await;
                }
            })*
        }
    };
}
pub(crate) use on_both_databases;

/// Runs each rule on both databases over the wire, and once as a neighbour in the process asks.
macro_rules! through_both_doors {
    ($($name:ident),* $(,)?) => {
        crate::bed::on_both_databases!($($name),*);
        mod near {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                Box::pin(super::$name(crate::bed::Bed::near().await)).await;
            })*
        }
    };
}
pub(crate) use through_both_doors;

/// A database and a queue that engines work on.
pub(crate) struct Bed {
    url: String,
    pub(crate) storage: Storage,
    pub(crate) queue: Queue,
    pub(crate) settings: Settings,
    is_near: bool,
    _folder: Option<TempDir>,
}

async fn open(url: &str) -> Storage {
    let settings = StorageSettings { url: url.into(), max_connections: 8 };
    Storage::open(&settings).await.unwrap()
}

impl Bed {
    pub(crate) async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("test.db").display());
        Self::on(url, Some(folder)).await
    }

    /// On SQLite; reports and outcomes take no wire.
    pub(crate) async fn near() -> Self {
        Self { is_near: true, ..Self::sqlite().await }
    }

    pub(crate) async fn postgres() -> Option<Self> {
        let server = testkit::server_url("TEST_DATABASE_URL")?;
        let url = testkit::fresh_database(&server).await.unwrap();
        Some(Self::on(url, None).await)
    }

    async fn on(url: String, folder: Option<TempDir>) -> Self {
        let policy = Policy {
            republish_after: Duration::from_millis(30),
            redelivery_backoff: Duration::from_millis(1),
            redelivery_backoff_max: Duration::from_millis(1),
            ..Policy::default()
        };
        let settings = Settings {
            policy,
            sweep_interval: Duration::from_millis(10),
            // No file-service is there, unless a test starts one.
            inline_output_bytes: usize::MAX,
            ..Settings::default()
        };
        let (storage, queue) = (open(&url).await, Queue::in_process());
        Self { storage, url, queue, settings, is_near: false, _folder: folder }
    }

    /// An engine, as a process of its own would be one: with its own connections.
    pub(crate) async fn engine(&self) -> Engine {
        self.engine_with(&self.settings).await
    }

    pub(crate) async fn engine_with(&self, settings: &Settings) -> Engine {
        let storage = open(&self.url).await;
        let stop = CancellationToken::new();
        let deps = Deps { storage: storage.clone(), queue: self.queue.clone() };
        let service = runtime_engine::start(settings.clone(), deps, stop.clone()).await.unwrap();
        let port = service.local_addr().port();
        let client = Client::new("127.0.0.1", port, ClientConfig::default());
        let (near, is_near) = (service.near(), self.is_near);
        let running = tokio::spawn(service.run());
        Engine { client, near, is_near, storage, stop, running }
    }

    /// Stores a process.
    pub(crate) async fn process(&self, document: &Value) -> ProcessId {
        let process_id = ProcessId(Uuid::now_v7());
        let draft =
            ProcessDraft { name: "test".into(), document: Json::from(document), node_types: Vec::new() };
        self.storage.processes().create(process_id, "default", &draft, Millis(0)).await.unwrap();
        process_id
    }

    /// Waits for the next task of a lane.
    pub(crate) async fn take(&self, lane: Lane) -> Task {
        let taken = self.queue.take(lane, 1, LONG).await.unwrap();
        serde_json::from_str(taken.first().expect("a task comes")).unwrap()
    }

    /// Waits for a task of a node, passing over repeated hints about others.
    pub(crate) async fn take_for(&self, lane: Lane, node: &str, attempt: u32) -> Task {
        loop {
            let task = self.take(lane).await;
            if task.node_id == node && task.attempt == attempt {
                return task;
            }
        }
    }

    /// Everything on the lanes is lost, as by FLUSHALL.
    pub(crate) async fn flush(&self) {
        for lane in Lane::ALL {
            while !self.queue.take(lane, 1000, Duration::ZERO).await.unwrap().is_empty() {}
        }
    }
}

/// A running engine.
pub(crate) struct Engine {
    pub(crate) client: Client,
    pub(crate) near: Arc<dyn NearEngine>,
    is_near: bool,
    pub(crate) storage: Storage,
    stop: CancellationToken,
    running: JoinHandle<Result<(), runtime_engine::Error>>,
}

impl Engine {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.running.await.unwrap().unwrap();
    }

    pub(crate) async fn call<T: Serialize + Sync, R: DeserializeOwned>(
        &self,
        pattern: Pattern,
        data: &T,
    ) -> Result<R, RpcError> {
        match self.client.call(pattern.name, data, LONG).await {
            Ok(reply) => Ok(reply),
            Err(CallError::Remote(error)) => Err(error.as_rpc().expect("an error of ours")),
            Err(error) => panic!("{}: {error}", pattern.name),
        }
    }

    pub(crate) async fn start(&self, process_id: ProcessId, payload: &Value) -> Result<RunStarted, RpcError> {
        self.call(pattern::RUNTIME_RUN_START, &start_of(process_id, payload)).await
    }

    /// Starts a run that must start.
    pub(crate) async fn run(&self, process_id: ProcessId, payload: &Value) -> RunId {
        self.start(process_id, payload).await.unwrap().run_id
    }

    pub(crate) async fn get(&self, run_id: RunId) -> RunDetail {
        self.call(pattern::RUNTIME_RUN_GET, &RunRef { run_id, process_id: None }).await.unwrap()
    }

    pub(crate) async fn step(&self, run_id: RunId, node: &str) -> StepDetail {
        self.get(run_id).await.steps.into_iter().find(|step| step.node_id == node).unwrap()
    }

    pub(crate) async fn reports(&self, reports: Vec<StepReport>) -> Vec<ReportOutcome> {
        if self.is_near {
            return self.near.step_reports(reports.iter().map(raw).collect()).await;
        }
        let answer: StepReportOutcomes =
            self.call(pattern::RUNTIME_STEP_REPORTS, &StepReports { reports }).await.unwrap();
        answer.outcomes
    }

    async fn report(&self, task: &Task, body: ReportBody) -> ReportOutcome {
        let report = StepReport { execution_id: task.execution_id, run_id: Some(task.run_id), body };
        if self.is_near {
            return self.near.step_report(task.run_id, raw(&report)).await;
        }
        self.reports(vec![report]).await.remove(0)
    }

    pub(crate) async fn ack(&self, task: &Task) -> ReportOutcome {
        self.report(task, ReportBody::Ack(Ack::default())).await
    }

    pub(crate) async fn heartbeat(&self, task: &Task) -> ReportOutcome {
        self.report(task, ReportBody::Heartbeat(Heartbeat::default())).await
    }

    pub(crate) async fn partial(&self, task: &Task, sequence: u64) -> ReportOutcome {
        let outputs = values(&json!({"o": sequence}));
        self.report(task, ReportBody::Partial(Partial { sequence, outputs })).await
    }

    pub(crate) async fn finish(&self, task: &Task, outputs: &Value) -> ReportOutcome {
        self.report(task, ReportBody::Result(StepResult::ok(values(outputs)))).await
    }

    pub(crate) async fn fail(&self, task: &Task, message: &str) -> ReportOutcome {
        let error = StepError { message: message.into(), ..StepError::default() };
        self.report(task, ReportBody::Result(StepResult::failed(error))).await
    }

    pub(crate) async fn dispatched(&self, task: &Task, outcome: Dispatched) -> ReportOutcome {
        let told = DispatchOutcome { execution_id: task.execution_id, run_id: task.run_id, outcome };
        if self.is_near {
            return self.near.dispatch_outcome(told).await;
        }
        let batch = DispatchOutcomes { outcomes: vec![told] };
        let answer: StepReportOutcomes = self.call(pattern::RUNTIME_DISPATCH_OUTCOME, &batch).await.unwrap();
        answer.outcomes.into_iter().next().expect("one answer")
    }
}

/// A report as a door hands it on.
pub(crate) fn raw(report: &StepReport) -> StepReport<RawOutputs> {
    Json::of(report).unwrap().read().unwrap()
}

pub(crate) fn start_of(process_id: ProcessId, payload: &Value) -> RunStart {
    RunStart {
        process_id,
        workspace_id: "default".into(),
        user_id: "local".into(),
        trigger: TriggerKind::Webhook,
        payload: values(payload),
        idempotency_key: None,
        traceparent: None,
        tracestate: None,
    }
}

pub(crate) fn values(value: &Value) -> indexmap::IndexMap<String, Json> {
    Json::from(value).read().unwrap()
}

pub(crate) fn code_of(error: &RpcError) -> ErrorCode {
    error.code
}

pub(crate) fn ack_of(execution_id: ExecutionId) -> StepReport {
    StepReport { execution_id, run_id: None, body: ReportBody::Ack(Ack::default()) }
}

/// Trigger `q` → plugin task `a` → template task `b` → output `r`.
pub(crate) fn chain() -> Value {
    json!({
        "widgets": [
            {"id": "t", "source": {"nodeType": "system.trigger.input"}, "config": [{"name": "q", "isRequired": true}]},
            {"id": "a", "source": {"nodeType": "plugin.test"}, "outputs": ["o"]},
            {"id": "b", "source": {"nodeType": "system.template"}, "outputs": ["text"]},
            {"id": "out", "source": {"nodeType": "system.output"}, "config": [{"name": "r"}]},
        ],
        "edges": [
            {"source": "t", "sourceHandle": "q", "target": "a", "targetHandle": "i"},
            {"source": "a", "sourceHandle": "o", "target": "b", "targetHandle": "i"},
            {"source": "b", "sourceHandle": "text", "target": "out", "targetHandle": "r"},
        ],
    })
}

/// Plugin tasks without edges.
pub(crate) fn tasks(ids: &[&str]) -> Value {
    let widget = |id: &&str| json!({"id": id, "source": {"nodeType": "plugin.test"}, "outputs": ["o"]});
    json!({"widgets": ids.iter().map(widget).collect::<Vec<_>>(), "edges": []})
}
