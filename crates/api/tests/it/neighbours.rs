//! Neighbours that do as they are told and remember what they were asked.

use crate::world::NEIGHBOUR_TOKEN;
use axum::{
    Router,
    body::Bytes,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use contract::{ErrorCode, Json, RpcError, manifest::Endpoint};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio_util::sync::CancellationToken;
use wire::{Reply, Request, Server, ServerConfig};

type Asked = Arc<Mutex<Vec<(String, Json)>>>;
type Answers = Arc<Mutex<HashMap<String, Result<Json, RpcError>>>>;

/// A service that speaks TCP.
#[derive(Clone)]
pub(crate) struct Script {
    address: SocketAddr,
    asked: Asked,
    answers: Answers,
}

impl Script {
    pub(crate) fn serve(stop: &CancellationToken) -> Self {
        let (asked, answers) = (Asked::default(), Answers::default());
        let handler = {
            let (asked, answers) = (Arc::clone(&asked), Arc::clone(&answers));
            move |request: Request| {
                let reply = if request.data.value().is_ok_and(|data| data["token"] == NEIGHBOUR_TOKEN) {
                    answers
                        .lock()
                        .unwrap()
                        .get(&request.pattern)
                        .cloned()
                        .map_or(Reply::NoHandler, Reply::from)
                } else {
                    Reply::Error(RpcError::new(ErrorCode::Unauthorized, "no"))
                };
                asked.lock().unwrap().push((request.pattern, request.data));
                async move { reply }
            }
        };
        let config = ServerConfig::new("script", "127.0.0.1:0".parse().unwrap());
        let server = Server::bind(config, Arc::new(handler)).unwrap();
        let address = server.local_addr();
        tokio::spawn(server.run(stop.clone(), stop.clone()));
        Self { address, asked, answers }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint { host: self.address.ip().to_string(), port: self.address.port() }
    }

    /// From now on `pattern` is answered so.
    pub(crate) fn answer(&self, pattern: &str, value: impl Into<Value>) {
        self.answer_text(pattern, &value.into().to_string());
    }

    pub(crate) fn answer_text(&self, pattern: &str, text: &str) {
        self.answers.lock().unwrap().insert(pattern.to_owned(), Ok(Json::parse(text).unwrap()));
    }

    pub(crate) fn refuse(&self, pattern: &str, error: RpcError) {
        self.answers.lock().unwrap().insert(pattern.to_owned(), Err(error));
    }

    /// The bodies with which `pattern` was asked.
    pub(crate) fn asked(&self, pattern: &str) -> Vec<Json> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|(name, _)| name == pattern).map(|(_, data)| data.clone()).collect()
    }

    /// The one body with which `pattern` was asked.
    pub(crate) fn asked_once(&self, pattern: &str) -> Value {
        let asked = self.asked(pattern);
        assert_eq!(asked.len(), 1, "{pattern}");
        asked[0].value().unwrap()
    }
}

type Held = Arc<Mutex<HashMap<String, (HashMap<String, String>, String, Bytes)>>>;

/// A file-service.
#[derive(Clone)]
pub(crate) struct Files {
    address: SocketAddr,
    held: Held,
}

impl Files {
    pub(crate) async fn serve(stop: &CancellationToken) -> Self {
        let held = Held::default();
        let router = Router::new()
            .route("/internal/files", post(put))
            .route("/files/{id}", get(read))
            .with_state(Arc::clone(&held));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = stop.clone();
        tokio::spawn(async move {
            axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
        });
        Self { address, held }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Puts a file there.
    pub(crate) fn hold(&self, id: &str, media_type: &str, bytes: &'static [u8]) {
        let file = (HashMap::new(), media_type.to_owned(), Bytes::from_static(bytes));
        self.held.lock().unwrap().insert(id.to_owned(), file);
    }

    pub(crate) fn held(&self, id: &str) -> (HashMap<String, String>, String, Bytes) {
        self.held.lock().unwrap()[id].clone()
    }
}

async fn put(
    State(held): State<Held>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if headers[header::AUTHORIZATION] != format!("Bearer {NEIGHBOUR_TOKEN}") {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let media_type = headers[header::CONTENT_TYPE].to_str().unwrap().to_owned();
    let size = body.len();
    held.lock().unwrap().insert("f-1".to_owned(), (query, media_type.clone(), body));
    let stored = json!({"fileId": "f-1", "size": size, "digest": "0".repeat(64), "mediaType": media_type});
    (StatusCode::CREATED, axum::Json(stored)).into_response()
}

async fn read(State(held): State<Held>, Path(id): Path<String>) -> Response {
    match held.lock().unwrap().get(&id) {
        Some((_, media_type, bytes)) => {
            ([(header::CONTENT_TYPE, media_type.clone()), (header::ETAG, "\"e\"".to_owned())], bytes.clone())
                .into_response()
        }
        None => {
            let error = RpcError::new(ErrorCode::NotFound, "no such file");
            (StatusCode::NOT_FOUND, axum::Json(json!({ "error": error }))).into_response()
        }
    }
}
