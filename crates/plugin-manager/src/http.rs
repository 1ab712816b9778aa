//! Health, readiness and metrics over HTTP.

use crate::{metrics::Exposition, reconcile::Progress, tokens::Tokens, view::View};
use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use contract::{ErrorCode, RpcError};
use queue::Queue;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use storage::{Storage, catalogue::Snapshot};
use tokio::sync::watch;

/// A probe of readiness is answered within this time, whatever the database does.
const READY_LIMIT: Duration = Duration::from_secs(2);

/// What the routes show.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) storage: Storage,
    pub(crate) queue: Queue,
    pub(crate) view: Arc<View>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) exposition: Exposition,
    /// How far the reconcile at start is.
    pub(crate) reconciled: watch::Receiver<Progress>,
    /// Each plugin is probed once in this time; `None`: the sweep is off.
    pub(crate) sweep: Option<Duration>,
}

/// What the health port serves.
pub(crate) type Routes = Router;

/// The routes.
pub(crate) fn router(shown: Shown) -> Routes {
    Router::new()
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .fallback(no_route)
        .with_state(Arc::new(shown))
}

/// The service lives, whatever its neighbours do. Holders of the ingress token see the plugins.
async fn health(State(shown): State<Arc<Shown>>, headers: HeaderMap) -> Response {
    let mut body = json!({ "status": "ok" });
    if may_see_details(&shown.tokens, &headers) {
        add(&mut body, Some(json!({ "plugins": plugins(&shown.view.current()) })));
    }
    Json(body).into_response()
}

/// State, since when and why of each live plugin, as the catalogue in memory has it.
fn plugins(snapshot: &Snapshot) -> serde_json::Map<String, Value> {
    let live = snapshot.plugins.values().filter(|plugin| plugin.removed_at.is_none());
    live.map(|plugin| {
        let health = &plugin.health;
        let facts = json!({
            "state": health.state,
            "since": health.since,
            "lastError": health.last_error,
            "endpoint": plugin.endpoint.to_string(),
            "quarantined": plugin.quarantined,
        });
        (plugin.plugin_id.clone(), facts)
    })
    .collect()
}

/// Ready means that the database answers: without the queue, polling still keeps the service true.
/// Details are for holders of the ingress token.
async fn ready(State(shown): State<Arc<Shown>>, headers: HeaderMap) -> Response {
    let database = match tokio::time::timeout(READY_LIMIT, shown.storage.ping()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} ms", READY_LIMIT.as_millis())),
    };
    let details =
        if may_see_details(&shown.tokens, &headers) { Some(details(&shown, &database).await) } else { None };
    match database {
        Ok(()) => {
            let mut body = json!({ "status": "ready" });
            add(&mut body, details);
            Json(body).into_response()
        }
        Err(_) => {
            let error = RpcError::new(ErrorCode::Unavailable, "the database does not answer");
            let mut body = json!({ "error": error });
            add(&mut body, details);
            (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
        }
    }
}

fn add(body: &mut Value, details: Option<Value>) {
    if let (Value::Object(fields), Some(details)) = (body, details) {
        fields.insert("details".to_owned(), details);
    }
}

async fn details(shown: &Shown, database: &Result<(), String>) -> Value {
    let queue = match tokio::time::timeout(READY_LIMIT, shown.queue.ping()).await {
        Ok(Ok(())) => "ok".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} ms", READY_LIMIT.as_millis()),
    };
    let snapshot = shown.view.current();
    let live = snapshot.plugins.values().filter(|plugin| plugin.removed_at.is_none());
    let plugins: serde_json::Map<String, Value> =
        live.map(|plugin| (plugin.plugin_id.clone(), Value::from(plugin.health.state.as_str()))).collect();
    json!({
        "database": database.as_ref().err().map_or("ok", String::as_str),
        "queue": queue,
        "revision": snapshot.revision,
        "reconcile": shown.reconciled.borrow().as_str(),
        "healthIntervalMs": shown.sweep.map(|interval| u64::try_from(interval.as_millis()).unwrap_or(u64::MAX)),
        "plugins": plugins,
    })
}

fn may_see_details(tokens: &Tokens, headers: &HeaderMap) -> bool {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    bearer.and_then(|value| value.strip_prefix("Bearer ")).is_some_and(|token| tokens.is_right(token.trim()))
}

async fn metrics(State(shown): State<Arc<Shown>>) -> Response {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match shown.exposition.text() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => {
            let error = RpcError::new(ErrorCode::Internal, "the metrics cannot be written");
            (StatusCode::INTERNAL_SERVER_ERROR, Json(json!({ "error": error }))).into_response()
        }
    }
}

async fn no_route() -> Response {
    let error =
        RpcError::new(ErrorCode::UnknownPattern, "no such route; there are /health, /ready and /metrics");
    (StatusCode::NOT_FOUND, Json(json!({ "error": error }))).into_response()
}
