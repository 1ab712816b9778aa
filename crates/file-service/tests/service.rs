//! File-service over real sockets.

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

use file_service::{Service, Settings, SweepSettings};
use reqwest::{Client, RequestBuilder, StatusCode, header};
use serde_json::Value;
use std::{net::SocketAddr, path::Path, time::Duration};
use storage::{Storage, StorageSettings};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

const LIMIT: u64 = 256 * 1024;

struct Running {
    address: SocketAddr,
    http: Client,
    stop: CancellationToken,
    service: JoinHandle<Result<(), file_service::Error>>,
}

impl Running {
    async fn start(folder: &Path) -> Self {
        Self::sweeping(folder, SweepSettings::default()).await
    }

    async fn sweeping(folder: &Path, sweep: SweepSettings) -> Self {
        let url = format!("sqlite://{}", folder.join("test.db").display());
        let storage = Storage::open(&StorageSettings { url: url.into(), max_connections: 2 }).await.unwrap();
        let settings = Settings {
            address: "127.0.0.1:0".parse().unwrap(),
            tls: None,
            dir: folder.join("files"),
            max_file_bytes: LIMIT,
            token: Some("right".into()),
            sweep,
        };
        let service = Service::bind(settings, storage).await.unwrap();
        let address = service.addresses()[0].1;
        let stop = CancellationToken::new();
        let service = tokio::spawn(service.run(stop.clone()));
        Self { address, http: Client::new(), stop, service }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn get(&self, id: &str) -> RequestBuilder {
        self.http.get(self.url(&format!("/files/{id}"))).bearer_auth("right")
    }

    async fn upload(&self, bytes: Vec<u8>) -> Value {
        let request =
            self.http.post(self.url("/internal/files?name=%D1%8F.js&workspaceId=w")).bearer_auth("right");
        let response =
            request.header(header::CONTENT_TYPE, "application/javascript").body(bytes).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
        response.json().await.unwrap()
    }

    async fn stop(self) {
        self.stop.cancel();
        self.service.await.unwrap().unwrap();
    }
}

fn drafts(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("files/drafts")).unwrap().count()
}

async fn code(response: reqwest::Response) -> (u16, String) {
    let status = response.status().as_u16();
    let body: Value = response.json().await.unwrap();
    (status, body["error"]["code"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_stored_file_comes_back_with_its_type_digest_and_name() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path()).await;
    let stored = running.upload(b"abc".to_vec()).await;
    assert_eq!(stored["size"], 3);
    assert_eq!(stored["mediaType"], "application/javascript");
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(stored["digest"], digest);

    let response = running.get(stored["fileId"].as_str().unwrap()).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let header = |name| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header(header::CONTENT_TYPE), "application/javascript");
    assert_eq!(header(header::ETAG), format!("\"{digest}\""));
    assert!(header(header::CACHE_CONTROL).contains("immutable"));
    assert_eq!(header(header::CONTENT_DISPOSITION), "inline; filename*=UTF-8''%D1%8F.js");
    assert_eq!(response.bytes().await.unwrap(), "abc");
    running.stop().await;
}

#[tokio::test]
async fn a_known_digest_is_not_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path()).await;
    let stored = running.upload(b"abc".to_vec()).await;
    let tag = format!("\"{}\"", stored["digest"].as_str().unwrap());
    let response = running
        .get(stored["fileId"].as_str().unwrap())
        .header(header::IF_NONE_MATCH, tag)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
    assert!(response.bytes().await.unwrap().is_empty());
    running.stop().await;
}

#[tokio::test]
async fn a_part_is_sent_when_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path()).await;
    let stored = running.upload(b"0123456789".to_vec()).await;
    let id = stored["fileId"].as_str().unwrap();
    let part = running.get(id).header(header::RANGE, "bytes=2-4").send().await.unwrap();
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(part.headers()[header::CONTENT_RANGE], "bytes 2-4/10");
    assert_eq!(part.bytes().await.unwrap(), "234");
    let changed = running
        .get(id)
        .header(header::RANGE, "bytes=2-4")
        .header(header::IF_RANGE, "\"other\"")
        .send()
        .await
        .unwrap();
    assert_eq!(changed.bytes().await.unwrap(), "0123456789");
    let beyond = running.get(id).header(header::RANGE, "bytes=10-").send().await.unwrap();
    assert_eq!(beyond.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    running.stop().await;
}

#[tokio::test]
async fn exactly_at_the_limit_passes_and_one_byte_more_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path()).await;
    let limit = usize::try_from(LIMIT).unwrap();
    assert_eq!(running.upload(vec![7; limit]).await["size"], LIMIT);

    let post =
        |body| running.http.post(running.url("/internal/files")).bearer_auth("right").body(body).send();
    // Announced by its length, and found out while it streams.
    let announced = reqwest::Body::from(vec![7; limit + 1]);
    let streamed = reqwest::Body::wrap_stream(futures::stream::iter(
        (0..=limit / 1024).map(|_| Ok::<_, std::io::Error>(vec![7_u8; 1024])),
    ));
    for body in [announced, streamed] {
        assert_eq!(code(post(body).await.unwrap()).await, (413, "payload_too_large".into()));
    }
    assert_eq!(drafts(folder.path()), 0);
    running.stop().await;
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path()).await;
    let mut socket = TcpStream::connect(running.address).await.unwrap();
    let head = "POST /internal/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer right\r\nContent-Length: 100\r\n\r\nhalf";
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.shutdown().await.unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.unwrap();
    // Stopping waits for the handler.
    running.stop().await;
    assert_eq!(drafts(folder.path()), 0);
}

#[tokio::test]
async fn everything_but_health_wants_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path()).await;
    let id = uuid::Uuid::nil();
    for (method, path) in [
        ("POST", "/internal/files".to_owned()),
        ("GET", format!("/files/{id}")),
        ("DELETE", format!("/internal/files/{id}")),
    ] {
        for token in [None, Some("wrong")] {
            let request = running.http.request(method.parse().unwrap(), running.url(&path));
            let request = token.into_iter().fold(request, |request, token| request.bearer_auth(token));
            assert_eq!(
                code(request.send().await.unwrap()).await,
                (401, "unauthorized".into()),
                "{method} {path}"
            );
        }
    }
    assert_eq!(running.http.get(running.url("/health")).send().await.unwrap().status(), StatusCode::OK);
    running.stop().await;
}

#[tokio::test]
async fn a_removed_or_unknown_file_is_not_found() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path()).await;
    let stored = running.upload(b"abc".to_vec()).await;
    let id = stored["fileId"].as_str().unwrap();
    let delete =
        || running.http.delete(running.url(&format!("/internal/files/{id}"))).bearer_auth("right").send();
    assert_eq!(delete().await.unwrap().status(), StatusCode::NO_CONTENT);
    assert_eq!(delete().await.unwrap().status(), StatusCode::NOT_FOUND);
    for id in [id, "..%2Ftest.db", "nope"] {
        assert_eq!(code(running.get(id).send().await.unwrap()).await, (404, "not_found".into()), "{id}");
    }
    running.stop().await;
}

#[tokio::test]
async fn files_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path()).await;
    let stored = running.upload(b"abc".to_vec()).await;
    running.stop().await;
    let running = Running::start(folder.path()).await;
    let bytes = running.get(stored["fileId"].as_str().unwrap()).send().await.unwrap().bytes().await.unwrap();
    assert_eq!(bytes, "abc");
    running.stop().await;
}

impl Running {
    /// Stores a file of a run; the status and the answer.
    async fn put(&self, run: &str, bytes: &'static [u8]) -> (u16, Value) {
        let request =
            self.http.post(self.url(&format!("/internal/runs/{run}/files?name=o"))).bearer_auth("right");
        let request = request.header(header::CONTENT_TYPE, "application/json").body(bytes);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    async fn get_of(&self, run: &str, id: &str) -> reqwest::Response {
        let request = self.http.get(self.url(&format!("/internal/runs/{run}/files/{id}")));
        request.bearer_auth("right").send().await.unwrap()
    }
}

const RUN: &str = "019364f1-0000-7000-8000-000000000001";
const OTHER: &str = "019364f1-0000-7000-8000-000000000002";

#[tokio::test]
async fn the_same_bytes_of_a_run_are_one_file_and_no_other_run_gets_them() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path()).await;
    let (status, stored) = running.put(RUN, b"[1.0]").await;
    assert_eq!(status, 201);
    assert_eq!(running.put(RUN, b"[1.0]").await, (200, stored.clone()));
    let id = stored["fileId"].as_str().unwrap();
    assert_eq!(running.get_of(RUN, id).await.text().await.unwrap(), "[1.0]");
    assert_eq!(code(running.get_of(OTHER, id).await).await, (404, "not_found".to_owned()));
    let (_, others) = running.put(OTHER, b"[1.0]").await;
    assert_ne!(others["fileId"], stored["fileId"], "each run has its own, so that each can lose its own");
    assert_eq!(code(running.get_of("no-run", id).await).await, (400, "invalid_request".to_owned()));
    assert_eq!(running.get(id).send().await.unwrap().status(), StatusCode::OK, "for the api");
    assert_eq!(drafts(folder.path()), 0);
    running.stop().await;
}

#[tokio::test]
async fn files_of_a_run_that_is_gone_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = SweepSettings { every: Duration::from_millis(5), grace: Duration::ZERO };
    let running = Running::sweeping(folder.path(), sweep).await;
    // There is no such run: as if retention had deleted it.
    let (_, stored) = running.put(RUN, b"[1.0]").await;
    let id = stored["fileId"].as_str().unwrap();
    while running.get_of(RUN, id).await.status() != StatusCode::NOT_FOUND {}
    assert_eq!(running.get(id).send().await.unwrap().status(), StatusCode::NOT_FOUND);
    let files = running.upload(b"kept".to_vec()).await;
    let kept = files["fileId"].as_str().unwrap();
    assert_eq!(running.get(kept).send().await.unwrap().status(), StatusCode::OK, "other files stay");
    running.stop().await;
}
