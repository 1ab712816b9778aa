//! `/secrets`: names and kinds. Values go in and never come back.

use crate::{
    app::App,
    http::{
        extract::{Caller, Named, Payload},
        problem::{Answer, ErrorBody, Problem, json},
        views::{SecretHead, SecretPage},
    },
};
use axum::{extract::State, http::StatusCode, response::Response};
use contract::{
    ErrorCode, Json, pattern,
    secret::{DeleteSecret, ListSecrets, MAX_SECRET_BYTES, PutSecret, SecretNames},
};
use serde::Deserialize;
use std::sync::Arc;
use storage::users::Principal;
use utoipa::ToSchema;

/// The longest name of a secret, bytes.
const MAX_NAME_BYTES: usize = 200;

/// The workspace's secrets, without values.
#[utoipa::path(get, path = "/secrets", tag = "secrets", responses((status = 200, body = SecretPage)))]
pub(crate) async fn list(State(app): State<Arc<App>>, Caller(caller): Caller) -> Answer<Response> {
    let names = names(&app, &caller).await?;
    let secrets = names.secrets.into_iter().map(SecretHead::from).collect();
    Ok(json(StatusCode::OK, &SecretPage { secrets }))
}

/// One secret, without its value.
#[utoipa::path(get, path = "/secrets/{name}", tag = "secrets", params(("name" = String, Path)),
    responses((status = 200, body = SecretHead), (status = 404, body = ErrorBody)))]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Named(name): Named<String>,
) -> Answer<Response> {
    let found = names(&app, &caller).await?.secrets.into_iter().find(|secret| secret.name == name);
    let secret = found.ok_or_else(|| Problem::not_found("secret", name))?;
    Ok(json(StatusCode::OK, &SecretHead::from(secret)))
}

/// A secret's value; no `Debug`, so that it cannot reach a log.
#[derive(Deserialize, ToSchema)]
pub(crate) struct NewSecret {
    /// At most 64 KiB.
    value: String,
    /// For the editor's choice: `secretKind` of a param.
    #[serde(default)]
    kind: Option<String>,
}

/// Stores a secret or replaces its value.
#[utoipa::path(put, path = "/secrets/{name}", tag = "secrets", params(("name" = String, Path)),
    request_body = NewSecret, responses((status = 204), (status = 400, body = ErrorBody)))]
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Named(name): Named<String>,
    payload: Payload,
) -> Answer<StatusCode> {
    if name.trim().is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        return Err(Problem::new(
            ErrorCode::InvalidRequest,
            format!("a secret's name is 1 to {MAX_NAME_BYTES} bytes without control characters"),
        ));
    }
    let new: NewSecret = payload.read()?;
    let size = new.value.len();
    if size > MAX_SECRET_BYTES {
        return Err(Problem::new(
            ErrorCode::PayloadTooLarge,
            format!("the secret has {size} bytes, the limit is {MAX_SECRET_BYTES}"),
        ));
    }
    let value = new.value.into();
    let request = PutSecret { workspace_id: caller.workspace_id, name, kind: new.kind, value };
    let _: Json = app.secrets.call(pattern::SECRET_PUT, &request).await?;
    tracing::info!(
        event = "secret_put",
        name = request.name,
        workspace_id = request.workspace_id,
        "secret stored"
    );
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes a secret.
#[utoipa::path(delete, path = "/secrets/{name}", tag = "secrets", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = ErrorBody)))]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Named(name): Named<String>,
) -> Answer<StatusCode> {
    let request = DeleteSecret { workspace_id: caller.workspace_id, name };
    let _: Json = app.secrets.call(pattern::SECRET_DELETE, &request).await?;
    tracing::info!(
        event = "secret_deleted",
        name = request.name,
        workspace_id = request.workspace_id,
        "secret deleted"
    );
    Ok(StatusCode::NO_CONTENT)
}

async fn names(app: &App, caller: &Principal) -> Answer<SecretNames> {
    let request = ListSecrets { workspace_id: caller.workspace_id.clone() };
    Ok(app.secrets.call(pattern::SECRET_LIST, &request).await?)
}
