//! What the tests play: plugins over real sockets, and callers of the service.

use axum::{
    Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use contract::{ErrorCode, RpcError};
use parking_lot::Mutex;
use plugin_manager::{AssetLimits, HealthSettings, Service, Settings, SigningKeys};
use queue::{Notice, Notices, Queue, Topic};
use run_files::RunFilesSettings;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    future::Future,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};
use storage::{Storage, StorageSettings};
use tokio_util::sync::CancellationToken;
use wire::{AllowList, CallError, Client, ClientConfig, Reply, Request, Server, ServerConfig};

pub(crate) const TOKEN: &str = "ingress";
pub(crate) const PREVIOUS: &str = "previous-ingress";
const PATIENCE: Duration = Duration::from_secs(20);

/// The data of one installation, which outlives restarts of the service.
pub(crate) struct House {
    _folder: tempfile::TempDir,
    pub(crate) storage: Storage,
    pub(crate) queue: Queue,
}

impl House {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("test.db").display());
        let storage = Storage::open(&StorageSettings { url: url.into(), max_connections: 4 }).await.unwrap();
        Self { _folder: folder, storage, queue: Queue::in_process() }
    }

    /// Starts a service on this data.
    pub(crate) async fn start(&self, change: impl FnOnce(&mut Settings)) -> Running {
        self.start_over(self.queue.clone(), change).await
    }

    /// Starts a service on this data with a queue of its own: it neither hears nor gives notices.
    pub(crate) async fn start_unheard(&self, change: impl FnOnce(&mut Settings)) -> Running {
        self.start_over(Queue::in_process(), change).await
    }

    async fn start_over(&self, queue: Queue, change: impl FnOnce(&mut Settings)) -> Running {
        let mut settings = settings();
        change(&mut settings);
        let service = Service::bind(settings, self.storage.clone(), queue).await.unwrap();
        let address = |name| service.addresses().into_iter().find(|(known, _)| *known == name).unwrap().1;
        let (tcp, health) = (address("tcp"), address("health"));
        let stop = CancellationToken::new();
        let task = tokio::spawn(service.run(stop.clone()));
        Running { client: client(tcp), tcp, health, stop, task }
    }

    /// Waits until the catalogue is as `is` says: looks now and after each notice.
    pub(crate) async fn until(&self, is: impl Fn(&storage::catalogue::Snapshot) -> bool) {
        let mut notices: Notices = self.queue.subscribe(Topic::Catalogue).await.unwrap();
        let wait = async {
            while !is(&self.storage.catalogue().snapshot().await.unwrap()) {
                let _: Notice = notices.recv().await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("the catalogue did not become as expected");
    }

    pub(crate) async fn state(&self, plugin_id: &str) -> &'static str {
        self.storage.catalogue().snapshot().await.unwrap().plugins[plugin_id].health.state.as_str()
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
        tcp_port: 0,
        health_port: 0,
        ingress_token: Some(TOKEN.into()),
        ingress_token_previous: Some(PREVIOUS.into()),
        allow: AllowList::everyone(),
        tls: None,
        health_tls: None,
        plugin_tls: None,
        max_frame_bytes: 16 * 1024 * 1024,
        executor_pull_timeout: Duration::from_millis(500),
        startup_reconcile: false,
        startup_pull_timeout: Duration::from_secs(10),
        health: HealthSettings::default(),
        files: RunFilesSettings { url: "http://127.0.0.1:1".to_owned(), token: None, tls: None },
        allow_republish: false,
        enabled_by_default: false,
        signing_keys: SigningKeys::default(),
        require_signed: false,
        assets: AssetLimits::default(),
    }
}

pub(crate) fn client(address: SocketAddr) -> Client {
    Client::new(address.ip().to_string(), address.port(), ClientConfig::default())
}

/// A running service and a connection to it.
pub(crate) struct Running {
    pub(crate) client: Client,
    pub(crate) tcp: SocketAddr,
    pub(crate) health: SocketAddr,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), plugin_manager::Error>>,
}

impl Running {
    /// Calls with exactly this payload.
    pub(crate) async fn raw(&self, pattern: &str, data: Value) -> Result<Value, CallError> {
        let answer = self.client.request(pattern, &data.into(), PATIENCE).await?;
        Ok(answer.value().unwrap())
    }

    /// Calls with the ingress token.
    pub(crate) async fn ask(&self, pattern: &str, mut data: Value) -> Result<Value, RpcError> {
        data["token"] = json!(TOKEN);
        self.raw(pattern, data).await.map_err(|error| match error {
            CallError::Remote(remote) => remote.as_rpc().expect("an error of ours"),
            other => panic!("{pattern}: {other}"),
        })
    }

    pub(crate) async fn publish(&self, manifest: Value) -> Result<Value, RpcError> {
        self.ask("manifest_request_v2", manifest).await
    }

    pub(crate) async fn get(&self, path: &str, bearer: Option<&str>) -> (u16, String) {
        let request = reqwest::Client::builder()
            .no_proxy()
            .build()
            .unwrap()
            .get(format!("http://{}{path}", self.health));
        let request = match bearer {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    /// The value of a metric, by its name with labels.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.get("/metrics", None).await;
        let line =
            text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.task).await.expect("the service did not stop").unwrap().unwrap();
    }
}

type Answer = Pin<Box<dyn Future<Output = Reply> + Send>>;
type Script = Arc<dyn Fn(Request) -> Answer + Send + Sync>;

/// A scripted plugin: its listener, and what it was asked.
pub(crate) struct Plugin {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    stop: CancellationToken,
}

impl Plugin {
    /// A plugin that answers batch pulls with plain items of these node types.
    pub(crate) fn new(node_types: &[&str]) -> Self {
        Self::answering(json!({ "items": items(node_types) }))
    }

    /// A plugin that answers batch pulls with this.
    pub(crate) fn answering(answer: Value) -> Self {
        Self::scripted(move |request| {
            let answer = answer.clone();
            async move {
                match request.pattern.as_str() {
                    "executor_batch_pull" => Reply::Value(answer.into()),
                    _ => Reply::NoHandler,
                }
            }
        })
    }

    /// A plugin that accepts connections and never answers.
    pub(crate) fn half_alive() -> Self {
        Self::scripted(|_| std::future::pending())
    }

    pub(crate) fn scripted<F>(script: impl Fn(Request) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Reply> + Send + 'static,
    {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0)), Arc::new(move |request| Box::pin(script(request))))
    }

    fn at(address: SocketAddr, script: Script) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let handler = move |request: Request| {
            log.lock().push((request.pattern.clone(), request.data.value().unwrap()));
            script(request)
        };
        let server = Server::bind(ServerConfig::new("plugin", address), Arc::new(handler)).unwrap();
        let (address, stop) = (server.local_addr(), CancellationToken::new());
        tokio::spawn(server.run(stop.clone(), stop.clone()));
        Self { address, asked, stop }
    }

    /// What it was asked with this pattern.
    pub(crate) fn asked(&self, pattern: &str) -> Vec<Value> {
        self.asked.lock().iter().filter(|(known, _)| known == pattern).map(|(_, data)| data.clone()).collect()
    }

    /// Stops; its port refuses connections afterwards.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// A manifest of this plugin.
    pub(crate) fn manifest(&self, plugin_id: &str, version: &str, node_types: &[&str]) -> Value {
        manifest(plugin_id, version, node_types, self.address)
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) fn manifest(plugin_id: &str, version: &str, node_types: &[&str], address: SocketAddr) -> Value {
    let executors: Vec<Value> = node_types.iter().map(|node_type| json!({ "nodeType": node_type })).collect();
    json!({
        "kind": "plugin_manifest_request_v2", "pluginId": plugin_id, "publicationVersion": version,
        "label": format!("Plugin {plugin_id}"), "description": "", "variables": [], "staticAssets": [],
        "executors": executors, "pull": {"host": address.ip().to_string(), "port": address.port()},
    })
}

pub(crate) fn items(node_types: &[&str]) -> Value {
    node_types
        .iter()
        .map(|node_type| {
            let outputs = json!([{"name": "out", "type": "string"}]);
            json!({"nodeType": node_type, "name": node_type, "inputs": null, "outputs": outputs})
        })
        .collect()
}

/// An address that refuses connections.
pub(crate) async fn refusing() -> SocketAddr {
    tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, RpcError>) -> ErrorCode {
    result.unwrap_err().code
}

/// A file-service, and a plugin's bundle to fetch, at one address.
pub(crate) struct Files {
    pub(crate) url: String,
    state: Arc<Stored>,
}

#[derive(Default)]
struct Stored {
    uploads: Mutex<Vec<String>>,
    bundle: Mutex<&'static str>,
}

impl Files {
    pub(crate) async fn start() -> Self {
        let state = Arc::new(Stored { bundle: Mutex::new("export default 1"), ..Stored::default() });
        let bundle = async |State(state): State<Arc<Stored>>| *state.bundle.lock();
        let upload = async |State(state): State<Arc<Stored>>, body: String| {
            let digest: String =
                Sha256::digest(body.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
            let mut uploads = state.uploads.lock();
            uploads.push(body);
            let file_id = format!("file-{}", uploads.len());
            let answer = json!({"fileId": file_id, "size": 0, "digest": digest, "mediaType": ""});
            (StatusCode::CREATED, answer.to_string())
        };
        let routes = Router::new().route("/bundle", get(bundle)).route("/internal/files", post(upload));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let routes = routes.with_state(Arc::clone(&state));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { url, state }
    }

    pub(crate) fn uploads(&self) -> Vec<String> {
        self.state.uploads.lock().clone()
    }

    pub(crate) fn bundle(&self, text: &'static str) {
        *self.state.bundle.lock() = text;
    }
}
