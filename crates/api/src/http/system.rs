//! What needs no token: whether the service lives, what it offers, and a page for people.

use crate::{
    app::App,
    http::problem::{Answer, ErrorBody, Problem, json},
};
use axum::{
    extract::State,
    http::StatusCode,
    response::{Html, Response},
};
use contract::ErrorCode;
use serde_json::json as value;
use std::sync::Arc;

/// The service is alive.
#[utoipa::path(get, path = "/health", tag = "system", security(()), responses((status = 200, body = Object)))]
pub(crate) async fn health() -> Response {
    json(StatusCode::OK, &value!({ "status": "ok" }))
}

/// The service can work: its database answers.
#[utoipa::path(get, path = "/ready", tag = "system", security(()),
    responses((status = 200, body = Object), (status = 503, body = ErrorBody)))]
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Answer<Response> {
    app.storage
        .ping()
        .await
        .map_err(|_| Problem::new(ErrorCode::Unavailable, "the database does not answer"))?;
    Ok(json(StatusCode::OK, &value!({ "status": "ready" })))
}

/// The description of this API.
pub(crate) async fn description() -> Response {
    json(StatusCode::OK, &super::openapi())
}

/// A page that says what this is.
pub(crate) async fn page() -> Html<&'static str> {
    Html(include_str!("page.html"))
}
