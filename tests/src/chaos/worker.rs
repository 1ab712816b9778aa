//! The plugin of the suite: real sockets, and a ledger of every execution, of every answer that it
//! got to a report, and of every work that it forgot.

use super::{Random, shape::ENOUGH};
use crate::deployment::{CONTROL_PLANE_KEY, INGRESS_TOKEN};
use contract::{
    ErrorCode, ExecutionId, Json, RpcError, RunId, pattern,
    report::{Accepted, Ack, ReportBody, StepError, StepReport, StepResult},
    task::ExecutorTask,
};
use plugin_sdk::reporter::{Reporter, ReporterSettings, Told};
use serde_json::json;
use std::{
    collections::HashMap,
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wire::{Client, ClientConfig, Handler, Reply, Request, Server, ServerConfig};

/// Its id.
pub const PLUGIN_ID: &str = "chaos";
/// Adds one to `value`.
pub const ADD: &str = "plugin.chaos.add";
/// As [`ADD`], but its first attempts report an error that may be repeated.
pub const FLAKY: &str = "plugin.chaos.flaky";
/// Reports an error that may not be repeated.
pub const BROKEN: &str = "plugin.chaos.broken";
/// As [`ADD`], and tells whether there is `more` to count.
pub const UNTIL: &str = "plugin.chaos.until";
/// As [`ADD`], but fails for good in the first run that asks with its value.
pub const MOODY: &str = "plugin.chaos.moody";
/// Adds its `secret` to `value`.
pub const SECRET: &str = "plugin.chaos.secret";
/// Adds `a`, `b`, `c` and `d`.
pub const SUM: &str = "plugin.chaos.sum";

/// The attempt of a flaky node that works.
const FLAKY_UNTIL: u32 = 3;
/// One result in so many is sent again after its answer, as if the answer had been lost.
const AGAIN: u64 = 6;
/// Longest work of a step, milliseconds.
const LONGEST_WORK: u64 = 300;
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);
const PUBLISH_PAUSE: Duration = Duration::from_millis(500);

/// What a reporter was told about a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Stored now.
    Applied,
    /// Stored before.
    Duplicate,
    /// Nobody waits for it: `superseded` or `run_terminal`.
    Stale(ErrorCode),
    /// Refused for good, which no report of this plugin deserves.
    Refused(RpcError),
}

impl From<Told> for Answer {
    fn from(told: Told) -> Self {
        match told {
            Told::Accepted(receipt) if receipt.status == Accepted::Applied => Self::Applied,
            Told::Accepted(_) => Self::Duplicate,
            Told::Stale(error) => Self::Stale(error.code),
            Told::Refused(error) => Self::Refused(error),
        }
    }
}

impl Answer {
    /// Is the report durable, by this answer?
    pub fn is_stored(&self) -> bool {
        matches!(self, Self::Applied | Self::Duplicate)
    }
}

/// One time that a task arrived and work on it began.
#[derive(Clone, Debug)]
pub struct Execution {
    /// Its run.
    pub run_id: RunId,
    /// Its node.
    pub node_path: String,
    /// The attempt.
    pub execution_id: ExecutionId,
    /// When it began.
    pub began: Instant,
    /// The answer to its ack, if one came.
    pub ack: Option<Answer>,
    /// The answer to its result, if one came.
    pub result: Option<Answer>,
    /// The answer to the same result, sent once more after it was answered; only some are.
    pub again: Option<Answer>,
    /// The plugin was killed before that.
    pub is_lost: bool,
    /// Before this one began, the ack of another execution of the same node had been answered.
    pub after_ack_of: Option<ExecutionId>,
}

/// All executions, in the order in which they began.
#[derive(Debug, Default)]
pub struct Ledger {
    executions: Vec<Execution>,
    /// The first run that asked with a value for [`MOODY`].
    first_runs: HashMap<i64, RunId>,
}

impl Ledger {
    fn begin(&mut self, task: &ExecutorTask) -> usize {
        let same_node = |other: &&Execution| {
            other.run_id == task.run_id
                && other.node_path == task.node_path.0
                && other.ack.as_ref().is_some_and(Answer::is_stored)
        };
        let after_ack_of = self.executions.iter().rev().find(same_node).map(|other| other.execution_id);
        self.executions.push(Execution {
            run_id: task.run_id,
            node_path: task.node_path.0.clone(),
            execution_id: task.execution_id,
            began: Instant::now(),
            ack: None,
            result: None,
            again: None,
            is_lost: false,
            after_ack_of,
        });
        self.executions.len() - 1
    }

    /// The executions so far.
    pub fn executions(&self) -> &[Execution] {
        &self.executions
    }

    /// Is this the first run that asks with the value?
    fn is_first(&mut self, value: i64, run_id: RunId) -> bool {
        *self.first_runs.entry(value).or_insert(run_id) == run_id
    }
}

type Shared = Arc<Mutex<Ledger>>;

fn lock(ledger: &Shared) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The plugin. It can die and live again on the same port, as a process does.
#[derive(Debug)]
pub struct Worker {
    port: u16,
    plugin_manager: u16,
    control_plane: u16,
    ledger: Shared,
    random: Arc<Mutex<Random>>,
    life: CancellationToken,
    server: JoinHandle<()>,
}

impl Worker {
    /// Begins to serve and to publish itself.
    pub fn start(seed: u64, plugin_manager: u16, control_plane: u16) -> Self {
        let mut worker = Self {
            port: testkit::free_port().expect("a free port"),
            plugin_manager,
            control_plane,
            ledger: Shared::default(),
            random: Arc::new(Mutex::new(Random::new(seed, 2))),
            life: CancellationToken::new(),
            server: tokio::spawn(async {}),
        };
        worker.live();
        worker
    }

    /// Everything that it works on is forgotten, all its connections close, nobody listens.
    pub async fn die(&mut self) {
        self.life.cancel();
        // An end by panic is an end too.
        let _ = (&mut self.server).await;
        for execution in
            lock(&self.ledger).executions.iter_mut().filter(|execution| execution.result.is_none())
        {
            execution.is_lost = true;
        }
    }

    /// Serves and publishes itself again, as after a start.
    pub fn live(&mut self) {
        self.life = CancellationToken::new();
        let settings = ReporterSettings {
            host: "127.0.0.1".to_owned(),
            port: self.control_plane,
            key: Some(CONTROL_PLANE_KEY.to_owned().into()),
            tls: None,
        };
        let door = Door {
            ledger: Arc::clone(&self.ledger),
            random: Arc::clone(&self.random),
            reporter: Reporter::new(settings),
            life: self.life.clone(),
        };
        let config = ServerConfig::new("chaos-plugin", (Ipv4Addr::LOCALHOST, self.port).into());
        let server = Server::bind(config, Arc::new(door)).expect("the plugin's port is free");
        self.server = tokio::spawn(server.run(self.life.clone(), self.life.clone()));
        tokio::spawn(self.life.clone().run_until_cancelled_owned(publish(self.plugin_manager, self.port)));
    }

    /// Every execution so far.
    pub fn executions(&self) -> Vec<Execution> {
        lock(&self.ledger).executions().to_vec()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.life.cancel();
    }
}

/// Until plugin-manager takes it.
async fn publish(plugin_manager: u16, port: u16) {
    let manager = Client::new("127.0.0.1", plugin_manager, ClientConfig::default());
    let node_types =
        [ADD, FLAKY, BROKEN, UNTIL, MOODY, SECRET, SUM].map(|node_type| json!({"nodeType": node_type}));
    let manifest = Json::from(json!({
        "kind": contract::manifest::MANIFEST_KIND, "token": INGRESS_TOKEN, "pluginId": PLUGIN_ID,
        "publicationVersion": "1.0.0", "label": "Chaos", "executors": node_types,
        "pull": {"host": "127.0.0.1", "port": port},
    }));
    while manager.request("manifest_request_v2", &manifest, PUBLISH_TIMEOUT).await.is_err() {
        tokio::time::sleep(PUBLISH_PAUSE).await;
    }
}

struct Door {
    ledger: Shared,
    random: Arc<Mutex<Random>>,
    reporter: Reporter,
    life: CancellationToken,
}

impl Handler for Door {
    async fn call(&self, request: Request) -> Reply {
        match pattern::find(&request.pattern) {
            Some(pattern::EXECUTOR_BATCH_PULL) => Reply::Value(batch()),
            Some(pattern::EXECUTOR_TASK) => match request.data.read::<ExecutorTask>() {
                Ok(task) => {
                    self.begin(task);
                    Reply::Empty
                }
                Err(error) => Reply::Error(RpcError::new(ErrorCode::InvalidRequest, error.to_string())),
            },
            _ => Reply::NoHandler,
        }
    }
}

fn batch() -> Json {
    let input = |name: &str| match name {
        "secret" => json!({"name": name, "type": "ref", "label": name}),
        _ => json!({"name": name, "type": "number", "label": name, "canBePort": true}),
    };
    let item = |node_type: &str, inputs: &[&str]| {
        json!({
            "nodeType": node_type, "name": node_type,
            "inputs": inputs.iter().map(|name| input(name)).collect::<Vec<_>>(),
            "outputs": [
                {"name": "value", "type": "number", "label": "Value"},
                {"name": "more", "type": "boolean", "label": "More"},
            ],
        })
    };
    Json::from(json!({"items": [
        item(ADD, &["value", "go"]), item(FLAKY, &["value"]), item(BROKEN, &["value"]),
        item(UNTIL, &["value"]), item(MOODY, &["value"]), item(SECRET, &["value", "secret"]),
        item(SUM, &["a", "b", "c", "d"]),
    ]}))
}

impl Door {
    fn begin(&self, task: ExecutorTask) {
        let index = lock(&self.ledger).begin(&task);
        let (time, again) = {
            let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            (random.within(0..=LONGEST_WORK), random.one_in(AGAIN))
        };
        let (ledger, reporter) = (Arc::clone(&self.ledger), self.reporter.clone());
        let work = execute(task, Duration::from_millis(time), ledger, index, reporter, again);
        tokio::spawn(self.life.clone().run_until_cancelled_owned(work));
    }
}

/// Acknowledges while it works, then reports until it is answered.
async fn execute(
    task: ExecutorTask,
    time: Duration,
    ledger: Shared,
    index: usize,
    reporter: Reporter,
    again: bool,
) {
    let (execution_id, run_id) = (task.execution_id, Some(task.run_id));
    let ack = StepReport { execution_id, run_id, body: ReportBody::Ack(Ack::default()) };
    let acknowledge = async {
        let told = reporter.deliver(&ack).await;
        lock(&ledger).executions[index].ack = Some(told.into());
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = acknowledge => {}
        () = tokio::time::sleep(time) => {}
    }
    let result = result(&task, &mut lock(&ledger));
    let told = reporter.deliver_result(execution_id, task.run_id, result.clone()).await;
    lock(&ledger).executions[index].result = Some(told.into());
    if again {
        let told = reporter.deliver_result(execution_id, task.run_id, result).await;
        lock(&ledger).executions[index].again = Some(told.into());
    }
}

fn result(task: &ExecutorTask, ledger: &mut Ledger) -> StepResult {
    let input = |name: &str| task.inputs.get(name).and_then(|value| value.read::<i64>().ok()).unwrap_or(0);
    let ok = |outputs: &[(&str, Json)]| {
        StepResult::ok(outputs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
    };
    let value = |value: i64| ok(&[("value", Json::from(json!(value)))]);
    let failed = |retryable: bool| {
        let error = StepError::of(ErrorCode::StepFailed, "this node was told to fail");
        StepResult::failed(StepError { retryable: Some(retryable), ..error })
    };
    let next = input("value") + 1;
    match task.node_type.as_str() {
        BROKEN => failed(false),
        FLAKY if task.attempt < FLAKY_UNTIL => failed(true),
        MOODY if ledger.is_first(next, task.run_id) => failed(false),
        UNTIL => ok(&[("value", Json::from(json!(next))), ("more", Json::from(json!(next % ENOUGH != 0)))]),
        SECRET => {
            let secret = task.inputs.get("secret").and_then(|secret| secret.read::<String>().ok());
            value(input("value") + secret.and_then(|secret| secret.parse().ok()).unwrap_or(0))
        }
        SUM => value(["a", "b", "c", "d"].map(input).iter().sum()),
        _ => value(next),
    }
}
