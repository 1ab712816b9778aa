//! Plugin-manager as real processes on PostgreSQL and Redis: killed in the middle of publications,
//! started five at once, away while a plugin works (failure matrix rows 26, 28 and 36).

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

use contract::{Json, pattern};
use futures::future::join_all;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};
use system_tests::{
    Deployment, Platform, Servers, StubPlugin, binary,
    deployment::INGRESS_TOKEN,
    servers,
    stub::{PLUGIN_ID, wide_process},
};
use testkit::{Process, Program};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use wire::{CallError, Client, ClientConfig, Reply, Request, Server, ServerConfig};

/// Long enough for a busy machine; nothing is asserted by it.
const PATIENCE: Duration = Duration::from_secs(60);
/// How a service says that all its doors are open; the queue listens too, but earlier.
const LISTENING: &str = "event=\"listening\"";
const PUBLISHERS: usize = 12;
const VERSIONS: usize = 6;
/// Plugin-manager is killed after so many answers each time.
const KILLED_AFTER: [usize; 4] = [5, 20, 35, 55];
const REPLICAS: usize = 5;

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
    let program = Program::new(binary("conveyor")).args(["serve", "plugin-manager"]);
    let process = program.envs(environment.iter()).spawn().unwrap();
    if let Err(error) = process.wait_for_line(LISTENING, PATIENCE).await {
        panic!("plugin-manager does not listen: {error}");
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

#[tokio::test(flavor = "multi_thread")]
async fn publications_survive_a_plugin_manager_that_is_killed_in_the_middle_of_them() {
    let Some(servers) = servers().await else { return };
    let mut manager = Manager::start(&servers).await;
    let (address, _plugin) = plugin();
    let answered = watch::Sender::new(0_usize);
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|n| {
            let (client, answered) = (manager.client(), answered.clone());
            tokio::spawn(async move {
                let plugin_id = format!("p{n}");
                let mut replies = Vec::new();
                for version in 1..=VERSIONS {
                    let manifest = manifest(&plugin_id, &version.to_string(), address);
                    replies.push(ask(&client, "manifest_request_v2", &manifest).await);
                    answered.send_modify(|count| *count += 1);
                }
                (plugin_id, replies)
            })
        })
        .collect();
    let mut progress = answered.subscribe();
    for count in KILLED_AFTER {
        progress.wait_for(|answered| *answered >= count).await.unwrap();
        manager.kill_and_restart().await;
    }

    let told = join_all(publishers).await;
    let client = manager.client();
    let list = catalogue(&client, "plugin.list", json!({})).await;
    assert_eq!(list["plugins"].as_array().unwrap().len(), PUBLISHERS);
    for (plugin_id, replies) in told.into_iter().map(Result::unwrap) {
        let stored = catalogue(&client, "plugin.versions", json!({"pluginId": plugin_id})).await;
        let stored = stored["versions"].as_array().unwrap().clone();
        assert_eq!(stored.len(), VERSIONS, "one row for each version: {stored:?}");
        for reply in replies {
            let found = stored.iter().find(|row| row["publicationVersion"] == reply["publicationVersion"]);
            let row = found.unwrap_or_else(|| panic!("{plugin_id}: {reply} was answered and is lost"));
            assert_eq!(
                (&row["publicationId"], &row["digest"]),
                (&reply["publicationId"], &reply["digest"]),
                "what was answered is what is stored"
            );
            let exactly = json!({"pluginId": plugin_id, "publicationVersion": row["publicationVersion"]});
            let handed = catalogue(&client, "manifest_request", exactly).await;
            assert_eq!(handed["items"].as_array().unwrap().len(), 2, "whole: {handed}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_replicas_that_start_at_once_are_all_ready_and_agree_on_every_version() {
    let Some(servers) = servers().await else { return };
    // On a fresh database: one of them migrates, the others find it done.
    let managers = join_all((0..REPLICAS).map(|_| Manager::start(&servers))).await;
    let (address, _plugin) = plugin();
    let clients: Vec<Client> = managers.iter().map(Manager::client).collect();
    let manifest = manifest("shared", "1.0.0", address);
    let replies = join_all(clients.iter().map(|client| ask(client, "manifest_request_v2", &manifest))).await;
    let committed = replies.iter().filter(|reply| reply["status"] == "committed").count();
    assert_eq!(committed, 1, "one winner: {replies:?}");
    for reply in &replies {
        assert_eq!(
            (&reply["publicationId"], &reply["digest"]),
            (&replies[0]["publicationId"], &replies[0]["digest"])
        );
    }
    for client in &clients {
        let stored = catalogue(client, "plugin.versions", json!({"pluginId": "shared"})).await;
        assert_eq!(stored["versions"].as_array().unwrap().len(), 1);
    }
    // A change through one is seen through all.
    catalogue(&clients[0], "plugin.quarantine", json!({"pluginId": "shared"})).await;
    for client in &clients {
        let list = catalogue(client, "plugin.list", json!({})).await;
        assert_eq!(list["plugins"][0]["quarantined"], true);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_a_killed_plugin_manager_nor_a_removal_touches_what_runs() {
    let Some(servers) = servers().await else { return };
    let mut deployment = Deployment::start(&servers, &[]).await;
    let plugin = StubPlugin::start(deployment.ports.plugin_manager, INGRESS_TOKEN).await;
    let platform = Platform::at(deployment.ports.api);
    let process = platform.import(&wide_process(1)).await;
    let run = platform.start(&process, &json!({"go": "1"})).await;
    let attempt = plugin.next().await;

    let (status, refused) =
        platform.try_call(reqwest::Method::DELETE, &format!("/plugins/{PLUGIN_ID}"), None).await;
    assert_eq!((status.as_u16(), &refused["error"]["code"]), (409, &json!("plugin_in_use")), "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("wide"), "{refused}");
    platform.call(reqwest::Method::DELETE, &format!("/plugins/{PLUGIN_ID}?force=true"), None).await;
    deployment.kill("plugin-manager").await;

    let report = json!({
        "key": system_tests::deployment::CONTROL_PLANE_KEY, "executionId": attempt.execution_id,
        "runId": attempt.run_id, "status": "ok", "outputs": {"text": "done"},
    });
    let reported = ask(&client(deployment.ports.control_plane_tcp), pattern::STEP_RESULT.name, &report).await;
    assert_eq!(reported["status"], "applied", "{reported}");
    let detail = platform.finished(&process, &run).await;
    assert_eq!(detail["run"]["status"], "finished", "{detail:#}");

    // A new dispatch fails once and names what was removed.
    deployment.start_service("plugin-manager").await;
    let run = platform.start(&process, &json!({"go": "1"})).await;
    let detail = platform.finished(&process, &run).await;
    assert_eq!(detail["run"]["status"], "failed", "{detail:#}");
    let text = detail.to_string();
    assert!(text.contains("plugin_removed") && text.contains("stub@1.0.0"), "{detail:#}");
}
