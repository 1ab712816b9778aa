//! The HTTP door (protocol section 3): routes to reports, outcomes to statuses, and the pages for
//! operators.

mod body;

pub(crate) use body::BodyBudget;

use crate::{
    access::Access,
    engine::Engine,
    metrics::Metrics,
    readiness::Readiness,
    reports::{Door, Reports, execution_in_body, too_large},
};
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use body::{Read, read_body};
use contract::{
    ErrorCode, Fault, Json, RpcError,
    report::{ReportKind, ReportOutcome, StepReportOutcomes},
    trace::TraceContext,
};
use serde::{Deserialize, Serialize};
use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};
use wire::HttpPeer;

/// The key's own header; `Authorization: Bearer` serves as well.
const KEY_HEADER: &str = "x-plugin-control-plane-key";

/// What a client shall wait before it tries again, seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Reports of one `/internal/steps/results`.
const MAX_RESULTS: usize = 1000;

/// What the routes share.
#[derive(Debug)]
pub(crate) struct HttpDoor {
    pub(crate) access: Arc<Access>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) budget: BodyBudget,
}

/// The address that was judged, for the record of what comes after.
#[derive(Clone, Copy)]
struct Judged(IpAddr);

/// All routes.
pub(crate) fn router(door: Arc<HttpDoor>) -> Router {
    let steps = Router::new()
        .route("/internal/steps/ack", post(|door, request| report(door, ReportKind::Ack, request)))
        .route(
            "/internal/steps/heartbeat",
            post(|door, request| report(door, ReportKind::Heartbeat, request)),
        )
        .route("/internal/steps/partial", post(|door, request| report(door, ReportKind::Partial, request)))
        .route("/internal/steps/result", post(|door, request| report(door, ReportKind::Result, request)))
        .route("/internal/steps/results", post(results))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&door), need_key));
    let pages = Router::new()
        .route("/metrics", get(engine_metrics))
        .route("/metrics/self", get(own_metrics))
        .merge(steps)
        .route_layer(middleware::from_fn_with_state(Arc::clone(&door), need_address));
    Router::new()
        .route("/health", get(|| async { status(StatusCode::OK, "ok") }))
        .route("/ready", get(ready))
        .merge(pages)
        .fallback(unknown)
        .method_not_allowed_fallback(unknown)
        .with_state(door)
}

/// Lets a request through whose address, judged behind trusted proxies, is in the allowlist.
async fn need_address(State(door): State<Arc<HttpDoor>>, mut request: Request, next: Next) -> Response {
    // The server puts it into every request.
    let Some(HttpPeer(peer)) = request.extensions().get().copied() else {
        return refusal(&RpcError::new(ErrorCode::Internal, "the request has no peer address"));
    };
    let forwarded: Vec<_> = request
        .headers()
        .get_all("x-forwarded-for")
        .iter()
        // A line that is no text is no address either: it is refused if it has to be judged.
        .map(|line| line.to_str().unwrap_or("?"))
        .collect();
    match door.access.check_address(peer.ip(), forwarded) {
        Ok(address) => {
            request.extensions_mut().insert(Judged(address));
            next.run(request).await
        }
        Err(error) => {
            door.access.audit(Door::Http, peer.ip().to_canonical(), &error);
            refusal(&error)
        }
    }
}

/// Lets a request through that carries the key.
async fn need_key(State(door): State<Arc<HttpDoor>>, request: Request, next: Next) -> Response {
    // The address is judged in front of the key.
    let Some(Judged(address)) = request.extensions().get().copied() else {
        return refusal(&RpcError::new(ErrorCode::Internal, "the request's address was not judged"));
    };
    match door.access.check_key(key_of(request.headers())) {
        Ok(()) => next.run(request).await,
        Err(error) => {
            door.access.audit(Door::Http, address, &error);
            refusal(&error)
        }
    }
}

fn key_of(headers: &HeaderMap) -> Option<&str> {
    let own = headers.get(KEY_HEADER).and_then(|value| value.to_str().ok());
    own.or_else(|| {
        let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    })
}

/// The address that was judged. Every route that asks has judged one; it is for the record only.
fn judged(request: &Request) -> IpAddr {
    request.extensions().get().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Judged(address)| *address)
}

/// The request's W3C trace context.
fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    // A line that is no text has no form either: with it all of them are dropped.
    let state = headers.get_all("tracestate").iter().map(|line| line.to_str().unwrap_or("?"));
    TraceContext::read(headers.get("traceparent")?.to_str().ok()?, state)
}

async fn report(State(door): State<Arc<HttpDoor>>, kind: ReportKind, request: Request) -> Response {
    let trace = trace_of(request.headers());
    let from = judged(&request);
    let (text, _held) = match door.budget_read(request.into_body()).await {
        Ok(Read::Whole(text, held)) => (text, held),
        Ok(Read::TooLarge(prefix)) => {
            let limit = door.budget.limit();
            let error = match (kind, execution_in_body(&prefix)) {
                (ReportKind::Result, Some(id)) => door.reports.fail_oversize(Door::Http, id, limit).await,
                _ => too_large(limit),
            };
            return door.refuse(from, &error);
        }
        Err(error) => return door.refuse(from, &error),
    };
    match parse(text, "the report") {
        Ok(body) => match door.reports.take(Door::Http, kind, &body, trace.as_ref()).await {
            ReportOutcome::Ok(receipt) => json(StatusCode::OK, &receipt),
            ReportOutcome::Err(error) => refusal(&error),
        },
        Err(error) => door.refuse(from, &error),
    }
}

/// A batch of results, `{"results": [...]}` or the bare array, answered item by item.
async fn results(State(door): State<Arc<HttpDoor>>, request: Request) -> Response {
    #[derive(Deserialize)]
    struct Batch {
        results: Vec<Json>,
    }
    let trace = trace_of(request.headers());
    let from = judged(&request);
    let (text, _held) = match door.budget_read(request.into_body()).await {
        Ok(Read::Whole(text, held)) => (text, held),
        Ok(Read::TooLarge(_)) => {
            let limit = door.budget.limit();
            let text =
                format!("the batch is larger than the limit of {limit} bytes; send fewer results at once");
            return door.refuse(from, &RpcError::new(ErrorCode::PayloadTooLarge, text));
        }
        Err(error) => return door.refuse(from, &error),
    };
    let body = match parse(text, "the batch") {
        Ok(body) => body,
        Err(error) => return door.refuse(from, &error),
    };
    let items = match body.read::<Batch>().map(|batch| batch.results).or_else(|_| body.read()) {
        Ok(items) => items,
        Err(error) => {
            return door
                .refuse(from, &malformed("the batch", format!("must be {{\"results\": [...]}}: {error}")));
        }
    };
    if items.len() > MAX_RESULTS {
        let text = format!("has {} results, the limit of a batch is {MAX_RESULTS}", items.len());
        return door.refuse(from, &malformed("the batch", text));
    }
    let answers =
        items.iter().map(|item| door.reports.take(Door::Http, ReportKind::Result, item, trace.as_ref()));
    let outcomes = futures::future::join_all(answers).await;
    json(StatusCode::OK, &StepReportOutcomes { outcomes })
}

/// The engine's metrics as they are, or 503: never an empty page (failure matrix row 37).
async fn engine_metrics(State(door): State<Arc<HttpDoor>>) -> Response {
    match door.engine.metrics().await {
        Ok(page) => metrics_page(page),
        Err(error) => refusal(&error),
    }
}

async fn own_metrics(State(door): State<Arc<HttpDoor>>) -> Response {
    metrics_page(door.metrics.render())
}

/// A page of metrics under the type of its format, which its end tells.
fn metrics_page(page: String) -> Response {
    let kind = match page.trim_end().ends_with("# EOF") {
        true => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        false => "text/plain; version=0.0.4; charset=utf-8",
    };
    ([(header::CONTENT_TYPE, kind)], page).into_response()
}

async fn ready(State(door): State<Arc<HttpDoor>>) -> Response {
    match door.readiness.is_ready().await {
        true => status(StatusCode::OK, "ok"),
        false => status(StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
    }
}

async fn unknown() -> Response {
    refusal(&RpcError::new(
        ErrorCode::UnknownPattern,
        "no such route; reports go to POST /internal/steps/ack, heartbeat, partial, result or results",
    ))
}

fn parse(text: String, what: &str) -> Result<Json, RpcError> {
    Json::parse(text).map_err(|error| malformed(what, format!("is no JSON: {error}")))
}

fn malformed(what: &str, message: String) -> RpcError {
    let fault = Fault { path: "$".to_owned(), code: "wrong_type".to_owned(), message };
    RpcError::of_faults(ErrorCode::InvalidReport, what, &[fault])
}

fn status(code: StatusCode, text: &str) -> Response {
    json(code, &serde_json::json!({ "status": text }))
}

/// The error under its status of protocol section 4.
fn refusal(error: &RpcError) -> Response {
    #[derive(Serialize)]
    struct Wrapped<'a> {
        error: &'a RpcError,
    }
    // Codes name valid statuses (a test of `contract` says so).
    let code = StatusCode::from_u16(error.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(code, &Wrapped { error });
    if code == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
}

fn json<T: Serialize>(code: StatusCode, value: &T) -> Response {
    // Texts, numbers and lists of them always serialise.
    let text = serde_json::to_string(value).unwrap_or_default();
    (code, [(header::CONTENT_TYPE, "application/json")], Body::from(text)).into_response()
}

impl HttpDoor {
    async fn budget_read(&self, body: Body) -> Result<Read, RpcError> {
        read_body(body, &self.budget).await
    }

    /// Refuses a request before it has become a report.
    fn refuse(&self, from: IpAddr, error: &RpcError) -> Response {
        self.access.audit(Door::Http, from, error);
        refusal(error)
    }
}
