//! What handlers take out of a request: the caller, the ids in the path, the body within its limit.

use crate::{app::App, http::problem::Problem};
use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Path, Query, Request, State},
    http::{HeaderMap, header, request::Parts},
    middleware::Next,
    response::Response,
};
use bytes::Bytes;
use contract::{ErrorCode, ProcessId, RpcError, RunId, trace::TraceContext};
use serde::de::DeserializeOwned;
use std::{sync::Arc, time::Duration};
use storage::users::Principal;

/// The longest accepted `Idempotency-Key`, bytes.
const MAX_KEY_BYTES: usize = 200;

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);

/// Middleware of every route that needs a token.
pub(crate) async fn require_token(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let principal = app.doorkeeper.admit(bearer(request.headers())).await?;
    request.extensions_mut().insert(Caller(principal));
    Ok(next.run(request).await)
}

/// The token of `Authorization: Bearer <token>`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whom the request speaks for.
#[derive(Clone, Debug)]
pub(crate) struct Caller(pub(crate) Principal);

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        // Every route with a caller stands behind `require_token`.
        parts
            .extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(|| Problem::new(ErrorCode::Unauthorized, "a token is needed"))
    }
}

/// `{id}`: a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfProcess(pub(crate) ProcessId);

impl<S: Send + Sync> FromRequestParts<S> for OfProcess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let id: String = path(parts, state).await?;
        id.parse().map(Self).map_err(|_| Problem::not_found("process", id))
    }
}

/// `{id}` and `{runId}`: a run of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfRun {
    pub(crate) process_id: ProcessId,
    pub(crate) run_id: RunId,
}

impl OfRun {
    fn parse(process_id: &str, run_id: &str) -> Result<Self, Problem> {
        Ok(Self {
            process_id: process_id.parse().map_err(|_| Problem::not_found("process", process_id))?,
            run_id: run_id.parse().map_err(|_| Problem::no_run(run_id))?,
        })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OfRun {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let (process_id, run_id): (String, String) = path(parts, state).await?;
        Self::parse(&process_id, &run_id)
    }
}

/// `{runId}` alone: a run of any process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfAnyRun(pub(crate) RunId);

impl<S: Send + Sync> FromRequestParts<S> for OfAnyRun {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let run_id: String = path(parts, state).await?;
        run_id.parse().map(Self).map_err(|_| Problem::no_run(run_id))
    }
}

/// `{id}`, `{runId}` and `{nodePath}`: a step of a run. A slash in the path is sent as `%2F`.
#[derive(Clone, Debug)]
pub(crate) struct OfStep {
    pub(crate) run: OfRun,
    pub(crate) node_path: String,
}

impl<S: Send + Sync> FromRequestParts<S> for OfStep {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let (process_id, run_id, node_path): (String, String, String) = path(parts, state).await?;
        Ok(Self { run: OfRun::parse(&process_id, &run_id)?, node_path })
    }
}

/// Any other names in the path.
#[derive(Clone, Debug)]
pub(crate) struct Named<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        path(parts, state).await.map(Self)
    }
}

async fn path<T, S>(parts: &mut Parts, state: &S) -> Result<T, Problem>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    let Path(value) = Path::<T>::from_request_parts(parts, state)
        .await
        .map_err(|error| Problem::new(ErrorCode::InvalidRequest, error.body_text()))?;
    Ok(value)
}

/// The query's fields.
#[derive(Clone, Debug)]
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Query(value) = Query::<T>::from_request_parts(parts, state)
            .await
            .map_err(|error| Problem::new(ErrorCode::InvalidRequest, error.body_text()))?;
        Ok(Self(value))
    }
}

/// The whole body, refused beyond `PAYLOAD_LIMIT` before it is held in memory.
#[derive(Clone, Debug)]
pub(crate) struct Payload(pub(crate) Bytes);

impl FromRequest<Arc<App>> for Payload {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let limit = app.payload_limit_bytes;
        let announced = request
            .headers()
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if let Some(size) = announced.filter(|size| usize::try_from(*size).map_or(true, |size| size > limit))
        {
            return Err(too_large(limit, &format!("has {size}")));
        }
        read(request.into_body(), limit).await.map(Self)
    }
}

async fn read(body: Body, limit: usize) -> Result<Bytes, Problem> {
    let read = tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, limit)).await;
    let read = read.map_err(|_| {
        let message = format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs());
        Problem::new(ErrorCode::Timeout, message)
    })?;
    read.map_err(|error| {
        // The only other reason is a connection that broke, and then nobody reads the answer.
        tracing::debug!("a request body could not be read: {error}");
        too_large(limit, "has more")
    })
}

fn too_large(limit: usize, size: &str) -> Problem {
    Problem::new(
        ErrorCode::PayloadTooLarge,
        format!("the body {size} bytes, the limit is {limit}; send less or raise PAYLOAD_LIMIT"),
    )
}

impl Payload {
    /// The body as JSON of a type.
    ///
    /// # Errors
    /// `invalid_request` that says where the text stops fitting.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_slice(&self.0).map_err(|error| {
            Problem::new(ErrorCode::InvalidRequest, format!("the body is not valid: {error}"))
        })
    }

    /// Is there no body?
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The caller's `Idempotency-Key`.
///
/// # Errors
/// `invalid_request` when it is too long or no text.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, RpcError> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    match value.to_str() {
        Ok(key) if !key.trim().is_empty() && key.len() <= MAX_KEY_BYTES => Ok(Some(key.trim().to_owned())),
        _ => Err(RpcError::new(
            ErrorCode::InvalidRequest,
            format!("Idempotency-Key must be 1 to {MAX_KEY_BYTES} ASCII characters"),
        )),
    }
}

/// The caller's W3C trace context, when it has the right form.
pub(crate) fn trace_context(headers: &HeaderMap) -> Option<TraceContext> {
    // A line that is no text has no form either: with it all of them are dropped.
    let state = headers.get_all("tracestate").iter().map(|line| line.to_str().unwrap_or("?"));
    TraceContext::read(headers.get("traceparent")?.to_str().ok()?, state)
}
