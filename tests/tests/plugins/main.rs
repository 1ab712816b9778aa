//! Plugin-manager as real processes on PostgreSQL and Redis: what it keeps for a plugin that is away,
//! and what it withstands.

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

mod assets;
mod faults;

use contract::{Json, pattern};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};
use system_tests::{
    Servers, binary,
    deployment::{CONFIGURED, INGRESS_TOKEN, SERVING},
};
use testkit::{Process, Program};
use tokio_util::sync::{CancellationToken, DropGuard};
use wire::{CallError, Client, ClientConfig, Reply, Request, Server, ServerConfig};

/// Long enough for a busy machine; nothing is asserted by it.
const PATIENCE: Duration = Duration::from_secs(60);

/// One plugin-manager process without its neighbours: publications without assets need none.
struct Manager {
    environment: BTreeMap<&'static str, String>,
    port: u16,
    process: Process,
    _folder: tempfile::TempDir,
}

impl Manager {
    async fn start(servers: &Servers) -> Self {
        let (port, folder) = (testkit::free_port().unwrap(), tempfile::tempdir().unwrap());
        let environment = BTreeMap::from([
            ("CONVEYOR_BIND", "127.0.0.1".to_owned()),
            ("CONVEYOR_DATA_DIR", folder.path().display().to_string()),
            ("DATABASE_URL", servers.database_url.clone()),
            ("REDIS_URL", servers.redis.url()),
            ("PLUGIN_MANAGER_TCP_PORT", port.to_string()),
            ("PLUGIN_MANAGER_HEALTH_PORT", testkit::free_port().unwrap().to_string()),
            ("PLUGIN_MANAGER_INGRESS_TOKEN", INGRESS_TOKEN.to_owned()),
            ("FILE_SERVICE_TOKEN", "unused".to_owned()),
        ]);
        let process = spawn(&environment).await;
        Self { environment, port, process, _folder: folder }
    }

    async fn kill_and_restart(&mut self) {
        self.process.kill().await.unwrap();
        self.process = spawn(&self.environment).await;
    }

    fn client(&self) -> Client {
        client(self.port)
    }
}

async fn spawn(environment: &BTreeMap<&'static str, String>) -> Process {
    let program = Program::new(binary("conveyor")).args(["serve", "plugin-manager"]).without_env(&CONFIGURED);
    let process = program.envs(environment.iter()).spawn().unwrap();
    if let Err(error) = process.wait_for_line(SERVING, PATIENCE).await {
        panic!("plugin-manager does not serve: {error}");
    }
    process
}

fn client(port: u16) -> Client {
    Client::new("127.0.0.1", port, ClientConfig::default())
}

/// A listener that answers batch pulls for whatever node types it is asked.
fn plugin() -> (SocketAddr, DropGuard) {
    let answer = async |request: Request| match pattern::find(&request.pattern) {
        Some(pattern::EXECUTOR_BATCH_PULL) => {
            let asked = request.data.value().unwrap_or_default();
            let types = asked["nodeTypes"].as_array().cloned().unwrap_or_default();
            let items: Vec<Value> =
                types.iter().map(|name| json!({"nodeType": name, "outputs": []})).collect();
            Reply::Value(Json::from(json!({ "items": items })))
        }
        _ => Reply::NoHandler,
    };
    let config = ServerConfig::new("plugin", (Ipv4Addr::LOCALHOST, 0).into());
    let server = Server::bind(config, Arc::new(move |request: Request| answer(request))).unwrap();
    let (address, stop) = (server.local_addr(), CancellationToken::new());
    tokio::spawn(server.run(stop.clone(), stop.clone()));
    (address, stop.drop_guard())
}

fn manifest(plugin_id: &str, version: &str, address: SocketAddr) -> Value {
    json!({
        "kind": contract::manifest::MANIFEST_KIND, "token": INGRESS_TOKEN, "pluginId": plugin_id,
        "publicationVersion": version, "label": plugin_id,
        "executors": [{"nodeType": format!("plugin.{plugin_id}.a")}, {"nodeType": format!("plugin.{plugin_id}.b")}],
        "pull": {"host": "127.0.0.1", "port": address.port()},
    })
}

/// Calls until there is an answer: plugin-manager may be away or die meanwhile.
async fn ask(client: &Client, pattern: &str, data: &Value) -> Value {
    let data = Json::from(data.clone());
    let until = Instant::now() + PATIENCE;
    loop {
        match client.request(pattern, &data, PATIENCE).await {
            Ok(answer) => return answer.value().unwrap(),
            Err(CallError::Remote(error)) if !error.retryable => panic!("{pattern}: {error}"),
            Err(error) if Instant::now() > until => panic!("{pattern} at {}: {error}", client.address()),
            // The port has no event for its coming back: asked again.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn catalogue(client: &Client, pattern: &str, mut data: Value) -> Value {
    data["token"] = json!(INGRESS_TOKEN);
    ask(client, pattern, &data).await
}
