//! The platform as a user sees it: its HTTP API.

use crate::deployment::API_TOKEN;
use futures::StreamExt;
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;
use std::time::Duration;

/// A client of the platform's HTTP API.
#[derive(Clone, Debug)]
pub struct Platform {
    base: String,
    token: String,
    http: reqwest::Client,
}

impl Platform {
    /// The API of a test deployment on this port.
    pub fn at(port: u16) -> Self {
        Self::with_token(port, API_TOKEN)
    }

    /// An API on this port with a token of its own.
    pub fn with_token(port: u16, token: &str) -> Self {
        let http =
            reqwest::Client::builder().timeout(Duration::from_secs(120)).build().expect("an HTTP client");
        Self { base: format!("http://127.0.0.1:{port}"), token: token.to_owned(), http }
    }

    /// Calls a route; panics with the body unless the status is 2xx.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        let (status, body) = self.try_call(method, path, body).await;
        assert!(status.is_success(), "{path}: {status} {body}");
        body
    }

    /// Calls a route: status and body.
    pub async fn try_call(&self, method: Method, path: &str, body: Option<&Value>) -> (StatusCode, Value) {
        let mut request = self.http.request(method, format!("{}{path}", self.base)).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.expect("the API answers");
        let status = response.status();
        let text = response.text().await.expect("a body");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Imports a process document: the id of its first diagram.
    pub async fn import(&self, document: &Value) -> String {
        let imported = self.call(Method::POST, "/flow/import", Some(document)).await;
        imported["processes"][0]["id"].as_str().expect("an id").to_owned()
    }

    /// The URL of a route, for processes that call the platform itself.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// A file's media type and bytes.
    pub async fn download(&self, file_id: &str) -> (String, Vec<u8>) {
        let request = self.http.get(self.url(&format!("/files/{file_id}"))).bearer_auth(&self.token);
        let response = request.send().await.expect("the API answers");
        assert!(response.status().is_success(), "{file_id}: {}", response.status());
        let media_type =
            response.headers()[reqwest::header::CONTENT_TYPE].to_str().expect("a text").to_owned();
        (media_type, response.bytes().await.expect("a body").to_vec())
    }

    /// Starts a run by webhook: its id.
    pub async fn start(&self, process: &str, payload: &Value) -> String {
        let started = self.call(Method::POST, &format!("/flow/{process}/webhook"), Some(payload)).await;
        started["runId"].as_str().expect("a run id").to_owned()
    }

    /// Waits until the plugin is in the catalogue.
    pub async fn wait_for_plugin(&self, plugin_id: &str) {
        loop {
            let (status, _) = self.try_call(Method::GET, &format!("/plugins/{plugin_id}"), None).await;
            if status.is_success() {
                return;
            }
            // The API has no event for the catalogue: asked again, bounded by the test's own limit.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Follows a run's events until `wanted` accepts one (kind and data) or the run ends; connects
    /// again when the stream breaks. The accepted event, or `None` at the end.
    pub async fn follow(
        &self,
        process: &str,
        run: &str,
        mut wanted: impl FnMut(&str, &Value) -> bool,
    ) -> Option<(String, Value)> {
        let mut last = String::from("0");
        loop {
            let url = format!("{}/flow/{process}/runs/{run}/events", self.base);
            let request = self.http.get(url).bearer_auth(&self.token).header("Last-Event-ID", &last);
            let Ok(response) = request.send().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            if !response.status().is_success() {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
            let mut events = Events::of(response);
            while let Some(event) = events.next().await {
                if !event.id.is_empty() {
                    last.clone_from(&event.id);
                }
                if wanted(&event.name, &event.data) {
                    return Some((event.name, event.data));
                }
                if event.name == "end" {
                    return None;
                }
            }
        }
    }

    /// Waits for the end of a run: its detail.
    pub async fn finished(&self, process: &str, run: &str) -> Value {
        self.follow(process, run, |_, _| false).await;
        self.call(Method::GET, &format!("/flow/{process}/runs/{run}"), None).await
    }

    /// The whole history of a run, at most 1000 events.
    pub async fn history(&self, process: &str, run: &str) -> Vec<Value> {
        let path = format!("/flow/{process}/runs/{run}/history?limit=1000");
        self.call(Method::GET, &path, None).await["events"].as_array().expect("events").clone()
    }
}

struct ServerEvent {
    name: String,
    id: String,
    data: Value,
}

/// A stream of server-sent events.
struct Events {
    bytes: futures::stream::BoxStream<'static, reqwest::Result<Vec<u8>>>,
    buffer: Vec<u8>,
}

impl Events {
    fn of(response: Response) -> Self {
        let bytes = response.bytes_stream().map(|chunk| chunk.map(|bytes| bytes.to_vec())).boxed();
        Self { bytes, buffer: Vec::new() }
    }

    async fn next(&mut self) -> Option<ServerEvent> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                let text = String::from_utf8_lossy(&block);
                let field = |name: &str| {
                    let lines = text.lines().filter_map(|line| line.strip_prefix(name));
                    lines.map(str::trim).collect::<Vec<_>>().join("\n")
                };
                let name = field("event:");
                if name.is_empty() {
                    continue;
                }
                let data = serde_json::from_str(&field("data:")).unwrap_or_default();
                return Some(ServerEvent { name, id: field("id:"), data });
            }
            self.buffer.extend(self.bytes.next().await?.ok()?);
        }
    }
}
