//! A plugin that takes every task at once and leaves its result to the test.

use contract::{ErrorCode, ExecutionId, Json, RpcError, RunId, pattern, task::ExecutorTask};
use serde_json::json;
use std::{net::Ipv4Addr, sync::Arc, time::Duration};
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;
use wire::{Client, ClientConfig, Handler, Reply, Request, Server, ServerConfig};

/// Its one node: an optional input `go`, an output `text`.
pub const NODE_TYPE: &str = "plugin.stub.work";

/// Its id.
pub const PLUGIN_ID: &str = "stub";

/// Tasks that may wait to be taken by the test.
const BACKLOG: usize = 1 << 20;

/// An attempt whose result is owed.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// Its run.
    pub run_id: RunId,
    /// What every report must carry.
    pub execution_id: ExecutionId,
}

struct Door(mpsc::Sender<Attempt>);

impl Handler for Door {
    async fn call(&self, request: Request) -> Reply {
        match pattern::find(&request.pattern) {
            Some(pattern::EXECUTOR_BATCH_PULL) => Reply::Value(Json::from(json!({"items": [{
                "nodeType": NODE_TYPE, "name": "Work",
                "inputs": [{"name": "go", "type": "string", "label": "Go", "isPort": true}],
                "outputs": [{"name": "text", "type": "string", "label": "Text"}]
            }]}))),
            Some(pattern::EXECUTOR_TASK) => match request.data.read::<ExecutorTask>() {
                Ok(ExecutorTask { run_id, execution_id, .. }) => {
                    match self.0.send(Attempt { run_id, execution_id }).await {
                        Ok(()) => Reply::Empty,
                        Err(_) => Reply::Error(RpcError::new(ErrorCode::Overloaded, "the test is over")),
                    }
                }
                Err(error) => Reply::Error(RpcError::new(ErrorCode::InvalidRequest, error.to_string())),
            },
            _ => Reply::NoHandler,
        }
    }
}

/// A plugin that serves until it is dropped.
#[derive(Debug)]
pub struct StubPlugin {
    tasks: Mutex<mpsc::Receiver<Attempt>>,
    stop: CancellationToken,
}

impl StubPlugin {
    /// Serves and publishes itself to the plugin-manager on this port.
    pub async fn start(plugin_manager: u16, token: &str) -> Self {
        let (sender, tasks) = mpsc::channel(BACKLOG);
        let config = ServerConfig::new("stub-plugin", (Ipv4Addr::LOCALHOST, 0).into());
        let server = Server::bind(config, Arc::new(Door(sender))).expect("a free port");
        let port = server.local_addr().port();
        let stop = CancellationToken::new();
        tokio::spawn(server.run(stop.clone(), stop.clone()));
        let manager = Client::new("127.0.0.1", plugin_manager, ClientConfig::default());
        let manifest = Json::from(json!({
            "kind": contract::manifest::MANIFEST_KIND, "token": token, "pluginId": PLUGIN_ID,
            "publicationVersion": "1.0.0", "label": "Stub", "executors": [{"nodeType": NODE_TYPE}],
            "pull": {"host": "127.0.0.1", "port": port},
        }));
        let answer = manager.request("manifest_request_v2", &manifest, Duration::from_secs(30)).await;
        answer.expect("the plugin is published");
        Self { tasks: Mutex::new(tasks), stop }
    }

    /// The next task that was delivered.
    pub async fn next(&self) -> Attempt {
        self.tasks.lock().await.recv().await.expect("the plugin serves")
    }
}

impl Drop for StubPlugin {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A process: a trigger with the field `go`, and so many of the stub's nodes that wait for it alone.
pub fn wide_process(width: usize) -> serde_json::Value {
    let mut widgets = vec![json!({
        "id": "start", "label": "Start", "source": {"nodeType": "system.trigger.input"},
        "config": [{"name": "go", "type": "string"}], "outputs": ["go"]
    })];
    let mut edges = Vec::new();
    for n in 0..width {
        let id = format!("work-{n}");
        widgets.push(json!({
            "id": id, "label": "Work", "source": {"nodeType": NODE_TYPE},
            "config": [{"name": "go", "type": "string", "isPort": true}], "outputs": ["text"]
        }));
        edges.push(json!({
            "id": format!("edge-{n}"), "source": "start", "sourceHandle": "go", "target": id, "targetHandle": "go"
        }));
    }
    json!({"settings": {"name": "wide"}, "widgets": widgets, "edges": edges})
}
