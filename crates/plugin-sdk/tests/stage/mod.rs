//! A scripted plugin-manager and control plane around a real plugin.

use contract::{
    ExecutionId, Json, NodePath, ProcessId, RpcError, RunId,
    catalogue::PublicationStatus,
    pattern,
    report::{ReportBody, ReportKind, StepReport, StepResult, read_report},
    task::ExecutorTask,
};
use plugin_sdk::{Plugin, PluginSettings, PublicationSettings, StepSettings, reporter::ReporterSettings};
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use wire::{CallError, Client, ClientConfig, Handler, Reply, Request, Server, ServerConfig};

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// What the platform answers to one kind of message: the scripted replies first, then that all is
/// well.
#[derive(Default)]
pub(crate) struct Script(Mutex<VecDeque<Reply>>);

impl Script {
    pub(crate) fn then(&self, reply: Reply) {
        self.0.lock().unwrap().push_back(reply);
    }

    pub(crate) fn refuse(&self, error: RpcError) {
        self.then(Reply::Error(error));
    }

    fn next(&self, usual: impl FnOnce() -> Value) -> Reply {
        self.0.lock().unwrap().pop_front().unwrap_or_else(|| Reply::Value(usual().into()))
    }
}

/// Plugin-manager and control plane in one: they have different patterns.
pub(crate) struct Platform {
    pub(crate) publications: Script,
    pub(crate) heartbeats: Script,
    pub(crate) results: Script,
    published: mpsc::UnboundedSender<Value>,
    reported: mpsc::UnboundedSender<StepReport>,
}

impl Handler for Platform {
    async fn call(&self, request: Request) -> Reply {
        let data = request.data.value().unwrap();
        if pattern::MANIFEST_REQUEST_V2.is(&request.pattern) {
            assert_eq!(data["token"], "ingress");
            let reply = self.publications.next(|| {
                json!({
                    "ok": true, "status": PublicationStatus::Committed, "pluginId": data["pluginId"],
                    "publicationVersion": data["publicationVersion"], "publicationId": Uuid::now_v7(),
                    "digest": "0".repeat(64), "warnings": [],
                })
            });
            self.published.send(data).unwrap();
            return reply;
        }
        assert_eq!(data["key"], "key");
        let applied = || json!({"status": "applied"});
        let (kind, reply) = match pattern::find(&request.pattern).unwrap() {
            pattern::STEP_ACK => (ReportKind::Ack, Reply::Value(applied().into())),
            pattern::STEP_HEARTBEAT => (ReportKind::Heartbeat, self.heartbeats.next(applied)),
            pattern::STEP_PARTIAL => (ReportKind::Partial, Reply::Value(applied().into())),
            pattern::STEP_RESULT => (ReportKind::Result, self.results.next(applied)),
            other => panic!("{}", other.name),
        };
        self.reported.send(read_report(kind, &request.data).unwrap()).unwrap();
        reply
    }
}

/// A running plugin with the platform around it.
pub(crate) struct Stage {
    pub(crate) published: mpsc::UnboundedReceiver<Value>,
    pub(crate) reported: mpsc::UnboundedReceiver<StepReport>,
    pub(crate) address: SocketAddr,
    /// Of health and UI bundles.
    pub(crate) http: SocketAddr,
    pub(crate) client: Client,
    pub(crate) stop: CancellationToken,
    plugin: JoinHandle<()>,
}

impl Stage {
    pub(crate) async fn start(plugin: Plugin) -> Self {
        Self::start_with(plugin, StepSettings { heartbeat: None, ..StepSettings::default() }, |_| {}).await
    }

    pub(crate) async fn start_with(
        plugin: Plugin,
        steps: StepSettings,
        script: impl FnOnce(&Platform),
    ) -> Self {
        let (publishing, published) = mpsc::unbounded_channel();
        let (reporting, reported) = mpsc::unbounded_channel();
        let platform = Arc::new(Platform {
            publications: Script::default(),
            heartbeats: Script::default(),
            results: Script::default(),
            published: publishing,
            reported: reporting,
        });
        script(&platform);
        let server =
            Server::bind(ServerConfig::new("platform", "127.0.0.1:0".parse().unwrap()), platform).unwrap();
        let settings = settings(server.local_addr().port(), steps);
        tokio::spawn(server.run(CancellationToken::new(), CancellationToken::new()));
        let plugin = plugin.bind(settings).unwrap();
        let (address, http) = (plugin.local_addr(), plugin.http_addr().unwrap());
        let stop = CancellationToken::new();
        let plugin = tokio::spawn(plugin.run(stop.clone()));
        let client = Client::new("127.0.0.1", address.port(), ClientConfig::default());
        Self { published, reported, address, http, client, stop, plugin }
    }

    pub(crate) async fn deliver(&self, task: &ExecutorTask) -> Result<Value, CallError> {
        self.client.call("executor.task", task, DEADLINE).await
    }

    pub(crate) async fn report(&mut self) -> StepReport {
        tokio::time::timeout(DEADLINE, self.reported.recv()).await.unwrap().unwrap()
    }

    /// The next result that the control plane sees.
    pub(crate) async fn result(&mut self) -> (ExecutionId, StepResult) {
        loop {
            let report = self.report().await;
            if let ReportBody::Result(result) = report.body {
                return (report.execution_id, result);
            }
        }
    }

    pub(crate) async fn done(&mut self, node_type: &str, inputs: Value) -> StepResult {
        self.deliver(&task(node_type, inputs)).await.unwrap();
        self.result().await.1
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.plugin.await.unwrap();
    }
}

fn settings(port: u16, steps: StepSettings) -> PluginSettings {
    PluginSettings {
        bind: "127.0.0.1".parse().unwrap(),
        port: 0,
        tls: None,
        advertised_host: "127.0.0.1".into(),
        advertised_port: None,
        http_port: Some(0),
        version: None,
        publication: PublicationSettings {
            enabled: true,
            host: "127.0.0.1".into(),
            port,
            token: Some("ingress".into()),
            tls: None,
            max_attempts: 3,
            retry_base: Duration::from_millis(1),
        },
        control_plane: ReporterSettings {
            host: "127.0.0.1".into(),
            port,
            key: Some("key".into()),
            tls: None,
        },
        steps,
        drain: DEADLINE,
    }
}

pub(crate) fn task(node_type: &str, inputs: Value) -> ExecutorTask {
    ExecutorTask {
        run_id: RunId(Uuid::now_v7()),
        execution_id: ExecutionId(Uuid::now_v7()),
        node_id: "n".into(),
        node_path: NodePath::root("n"),
        node_type: node_type.into(),
        attempt: 1,
        inputs: Json::from(inputs).read().unwrap(),
        outputs: vec!["words".into()],
        deadline: contract::Millis(0),
        workspace_id: "default".into(),
        user_id: "local".into(),
        diagram_id: ProcessId(Uuid::nil()),
        traceparent: None,
        tracestate: None,
        files_url: None,
    }
}
