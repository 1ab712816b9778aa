//! A line of log per request. Paths hold ids and names; queries, headers and bodies are not logged.

use axum::{extract::Request, middleware::Next, response::Response};
use std::time::Instant;

/// Logs the answer: failures of ours as warnings, everything else for those who debug.
pub(crate) async fn observe(request: Request, next: Next) -> Response {
    let began = Instant::now();
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let response = next.run(request).await;
    let (path, status) = (uri.path(), response.status().as_u16());
    // Of a stream this is the time to its beginning.
    let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    if response.status().is_server_error() {
        tracing::warn!(event = "http_request", %method, path, status, duration_ms, "request failed");
    } else {
        tracing::debug!(event = "http_request", %method, path, status, duration_ms, "request answered");
    }
    response
}
