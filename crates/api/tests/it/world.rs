//! A served API with everything around it.

use crate::neighbours::{Files, Script};
use api::{Service, Settings};
use contract::manifest::Endpoint;
use queue::Queue;
use reqwest::{Method, StatusCode};
use run_files::RunFilesSettings;
use secrecy::SecretString;
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr};
use storage::{Storage, StorageSettings};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const TOKEN: &str = "the-configured-token";
/// What the neighbours want.
pub(crate) const NEIGHBOUR_TOKEN: &str = "between-services";
pub(crate) const LIMIT_BYTES: usize = 64 * 1024;

pub(crate) struct World {
    pub(crate) url: String,
    pub(crate) storage: Storage,
    pub(crate) queue: Queue,
    pub(crate) engine: Script,
    pub(crate) plugins: Script,
    pub(crate) secrets: Script,
    pub(crate) files: Files,
    pub(crate) stop: CancellationToken,
    http: reqwest::Client,
    _folder: tempfile::TempDir,
    _guard: DropGuard,
}

/// An answer, read.
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
    pub(crate) headers: reqwest::header::HeaderMap,
}

impl Answered {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The error's code, with its status.
    pub(crate) fn refusal(&self) -> (u16, String) {
        let code = self.json()["error"]["code"].as_str().unwrap_or_default().to_owned();
        (self.status.as_u16(), code)
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| ()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("test.db").display());
        let storage = Storage::open(&StorageSettings { url: SecretString::from(url), max_connections: 4 })
            .await
            .unwrap();
        let queue = Queue::in_process();
        let stop = CancellationToken::new();
        let (engine, plugins, secrets) = (Script::serve(&stop), Script::serve(&stop), Script::serve(&stop));
        let files = Files::serve(&stop).await;
        let token = || Some(SecretString::from(NEIGHBOUR_TOKEN));
        let mut settings = Settings {
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            http_port: 0,
            token: Some(SecretString::from(TOKEN)),
            insecure: false,
            engine: engine.endpoint(),
            engine_token: token(),
            plugin_manager: plugins.endpoint(),
            plugin_manager_token: token(),
            tls: None,
            engine_tls: None,
            plugin_manager_tls: None,
            secret_manager_tls: None,
            secret_manager: secrets.endpoint(),
            secret_manager_token: token(),
            files: RunFilesSettings { url: files.url(), token: token(), tls: None },
            payload_limit_bytes: LIMIT_BYTES,
            max_connections: 64,
            max_event_streams: 2,
        };
        change(&mut settings);
        let service = Service::bind(settings, storage.clone(), queue.clone()).await.unwrap();
        let url = format!("http://{}", service.addresses()[0].1);
        tokio::spawn(service.run(stop.clone()));
        let guard = stop.clone().drop_guard();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self {
            url,
            storage,
            queue,
            engine,
            plugins,
            secrets,
            files,
            stop,
            http,
            _folder: folder,
            _guard: guard,
        }
    }

    /// A request with the configured token.
    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.anonymous(method, path).bearer_auth(TOKEN)
    }

    pub(crate) fn anonymous(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }

    pub(crate) async fn get(&self, path: &str) -> Answered {
        answer(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<String>) -> Answered {
        answer(self.request(Method::POST, path).body(body.into())).await
    }

    /// Stores a small process; its id.
    pub(crate) async fn process(&self) -> String {
        let stored = self.post("/flow", r#"{"settings":{"name":"Проба"},"widgets":[],"edges":[]}"#).await;
        assert_eq!(stored.status, StatusCode::CREATED, "{}", stored.text);
        stored.json()["id"].as_str().unwrap().to_owned()
    }
}

pub(crate) async fn answer(request: reqwest::RequestBuilder) -> Answered {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    Answered { status, headers, text: response.text().await.unwrap() }
}

/// Nobody listens there.
pub(crate) fn nowhere() -> Endpoint {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    Endpoint { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() }
}
