//! `/flow/{id}/…`: starting runs, reading them, acting on them.

use crate::{
    app::App,
    http::{
        extract::{
            Asked, Caller, OfAnyRun, OfProcess, OfRun, OfStep, Payload, idempotency_key, trace_context,
        },
        problem::{Answer, ErrorBody, Problem, json},
        processes::owned_head,
        views::{History, RunFull, RunPage, RunResult, Started},
    },
};
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use contract::{
    ErrorCode, Json, NodePath, ProcessId, pattern,
    run::{
        RunDetail, RunHistory, RunHistoryRequest, RunList, RunListRequest, RunRef, RunRetry, RunStart,
        RunStarted, RunStatus, StepConfirm, TriggerKind,
    },
};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::json as value;
use std::sync::Arc;
use storage::{runs::RunRow, users::Principal};
use utoipa::{IntoParams, ToSchema};

/// Rows of a page of runs when the caller does not say, and at most.
const PAGE: (u32, u32) = (50, 200);
/// Events of a page of history when the caller does not say, and at most.
const EVENTS: (u32, u32) = (200, 1000);

/// Starts a run from outside.
///
/// The body's fields are the values of the trigger's fields. With `Idempotency-Key` a repeated call
/// answers with the first run.
#[utoipa::path(post, path = "/flow/{id}/webhook", tag = "runs", request_body = Object,
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    responses((status = 201, body = Started), (status = 200, body = Started, description = "the key named an earlier run"),
        (status = 400, body = ErrorBody, description = "`invalid_input`: required fields are missing"), (status = 404, body = ErrorBody)))]
pub(crate) async fn webhook(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    process: OfProcess,
    headers: HeaderMap,
    payload: Payload,
) -> Answer<Response> {
    start(&app, &caller, process, TriggerKind::Webhook, &headers, &payload).await
}

/// Starts a run by hand; otherwise the same as the webhook.
#[utoipa::path(post, path = "/flow/{id}/run", tag = "runs", request_body = Object,
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    responses((status = 201, body = Started), (status = 200, body = Started), (status = 400, body = ErrorBody),
        (status = 404, body = ErrorBody)))]
pub(crate) async fn run_now(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    process: OfProcess,
    headers: HeaderMap,
    payload: Payload,
) -> Answer<Response> {
    start(&app, &caller, process, TriggerKind::Manual, &headers, &payload).await
}

async fn start(
    app: &App,
    caller: &Principal,
    OfProcess(process_id): OfProcess,
    trigger: TriggerKind,
    headers: &HeaderMap,
    payload: &Payload,
) -> Answer<Response> {
    owned_head(app, caller, process_id).await?;
    let payload: IndexMap<String, Json> =
        if payload.is_empty() { IndexMap::new() } else { payload.read()? };
    let (traceparent, tracestate) =
        trace_context(headers).map_or((None, None), |trace| (Some(trace.traceparent), trace.tracestate));
    let request = RunStart {
        process_id,
        workspace_id: caller.workspace_id.clone(),
        user_id: caller.user_id.clone(),
        trigger,
        payload,
        idempotency_key: idempotency_key(headers)?,
        traceparent,
        tracestate,
    };
    let started: RunStarted = app.engine.call(pattern::RUNTIME_RUN_START, &request).await?;
    let status = if started.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json(status, &Started { run_id: started.run_id }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunsPage {
    /// Only runs with this status: `running`, `finished`, `failed` or `canceled`.
    status: Option<String>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// Rows, 1 to 200.
    limit: Option<u32>,
}

/// The process's runs, newest first.
#[utoipa::path(get, path = "/flow/{id}/runs", tag = "runs", params(("id" = String, Path), RunsPage),
    responses((status = 200, body = RunPage), (status = 404, body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    OfProcess(process_id): OfProcess,
    Asked(page): Asked<RunsPage>,
) -> Answer<Response> {
    page_of(&app, caller, Some(process_id), page).await
}

/// The workspace's runs of all processes, newest first; also of processes that were deleted.
#[utoipa::path(get, path = "/runs", tag = "runs", params(RunsPage), responses((status = 200, body = RunPage)))]
pub(crate) async fn list_all(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Asked(page): Asked<RunsPage>,
) -> Answer<Response> {
    page_of(&app, caller, None, page).await
}

async fn page_of(
    app: &App,
    caller: Principal,
    process_id: Option<ProcessId>,
    page: RunsPage,
) -> Answer<Response> {
    let status = page
        .status
        .map(|status| status.parse::<RunStatus>())
        .transpose()
        .map_err(|error| Problem::new(ErrorCode::InvalidRequest, error))?;
    let request = RunListRequest {
        process_id,
        workspace_id: caller.workspace_id,
        status,
        cursor: page.cursor,
        limit: page.limit.unwrap_or(PAGE.0).clamp(1, PAGE.1),
    };
    let runs: RunList = app.engine.call(pattern::RUNTIME_RUN_LIST, &request).await?;
    Ok(json(StatusCode::OK, &RunPage::from(runs)))
}

/// A run with its steps.
#[utoipa::path(get, path = "/flow/{id}/runs/{runId}", tag = "runs",
    params(("id" = String, Path), ("runId" = String, Path)),
    responses((status = 200, body = RunFull), (status = 404, body = ErrorBody)))]
pub(crate) async fn get(State(app): State<Arc<App>>, Caller(caller): Caller, run: OfRun) -> Answer<Response> {
    Ok(json(StatusCode::OK, &RunFull::from(detail(&app, &caller, run).await?)))
}

/// A run with its steps, for callers that do not know its process.
#[utoipa::path(get, path = "/runs/{runId}", tag = "runs", params(("runId" = String, Path)),
    responses((status = 200, body = RunFull), (status = 404, body = ErrorBody)))]
pub(crate) async fn find(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    OfAnyRun(run_id): OfAnyRun,
) -> Answer<Response> {
    let row = app.storage.runs().get(run_id).await?.ok_or_else(|| Problem::no_run(run_id))?;
    let run = OfRun { process_id: row.process_id, run_id };
    Ok(json(StatusCode::OK, &RunFull::from(detail(&app, &caller, run).await?)))
}

/// A run's result: the inputs of `system.output`.
#[utoipa::path(get, path = "/flow/{id}/runs/{runId}/result", tag = "runs",
    params(("id" = String, Path), ("runId" = String, Path)),
    responses((status = 200, body = RunResult), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "the run has not ended")))]
pub(crate) async fn result(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    run: OfRun,
) -> Answer<Response> {
    let detail = detail(&app, &caller, run).await?;
    let status = detail.run.status;
    if !status.is_terminal() {
        return Err(Problem::new(
            ErrorCode::Conflict,
            format!("run {} is {}: it has no result yet", run.run_id, status.as_str()),
        ));
    }
    Ok(json(StatusCode::OK, &RunResult { public_inputs: detail.public_inputs.unwrap_or_default() }))
}

#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct HistoryPage {
    /// Only events after this sequence number.
    after: Option<u64>,
    /// Events, 1 to 1000.
    limit: Option<u32>,
}

/// The events of a run, oldest first.
#[utoipa::path(get, path = "/flow/{id}/runs/{runId}/history", tag = "runs",
    params(("id" = String, Path), ("runId" = String, Path), HistoryPage),
    responses((status = 200, body = History), (status = 404, body = ErrorBody)))]
pub(crate) async fn history(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    run: OfRun,
    Asked(page): Asked<HistoryPage>,
) -> Answer<Response> {
    owned_run(&app, &caller, run).await?;
    let limit = page.limit.unwrap_or(EVENTS.0).clamp(1, EVENTS.1);
    let history = events_after(&app, run, page.after.unwrap_or(0), limit).await?;
    Ok(json(StatusCode::OK, &History::from(history)))
}

/// Cancels a run; running steps are told to stop.
#[utoipa::path(post, path = "/flow/{id}/runs/{runId}/cancel", tag = "runs",
    params(("id" = String, Path), ("runId" = String, Path)),
    responses((status = 200, body = Object), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    run: OfRun,
) -> Answer<Response> {
    owned_run(&app, &caller, run).await?;
    let _: Json = app.engine.call(pattern::RUNTIME_RUN_CANCEL, &reference(run)).await?;
    tracing::info!(event = "run_cancel_requested", run_id = %run.run_id, user_id = caller.user_id, "run canceled");
    Ok(json(StatusCode::OK, &value!({ "ok": true })))
}

/// Repeats a failed or canceled run: a new run of the same revision with the same data, in which the
/// steps that had finished keep their outputs.
#[utoipa::path(post, path = "/flow/{id}/runs/{runId}/retry", tag = "runs",
    params(("id" = String, Path), ("runId" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    responses((status = 201, body = Started), (status = 200, body = Started, description = "the key named an earlier run"),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody, description = "the run has not failed")))]
pub(crate) async fn retry(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    run: OfRun,
    headers: HeaderMap,
) -> Answer<Response> {
    owned_run(&app, &caller, run).await?;
    let request = RunRetry {
        run_id: run.run_id,
        process_id: Some(run.process_id),
        user_id: caller.user_id,
        idempotency_key: idempotency_key(&headers)?,
    };
    let started: RunStarted = app.engine.call(pattern::RUNTIME_RUN_RETRY, &request).await?;
    let status = if started.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json(status, &Started { run_id: started.run_id }))
}

/// A person's answer to a waiting step.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct Confirmation {
    /// Yes or no.
    approved: bool,
    /// For the history.
    #[serde(default)]
    comment: Option<String>,
}

/// Answers a step that waits for a person. A slash in `nodePath` is written `%2F`.
#[utoipa::path(post, path = "/flow/{id}/runs/{runId}/steps/{nodePath}/confirm", tag = "runs",
    params(("id" = String, Path), ("runId" = String, Path), ("nodePath" = String, Path)), request_body = Confirmation,
    responses((status = 200, body = Object), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn confirm(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    step: OfStep,
    payload: Payload,
) -> Answer<Response> {
    let run = step.run;
    owned_run(&app, &caller, run).await?;
    let confirmation: Confirmation = payload.read()?;
    let request = StepConfirm {
        run_id: run.run_id,
        process_id: Some(run.process_id),
        node_path: NodePath(step.node_path),
        approved: confirmation.approved,
        comment: confirmation.comment,
        by: caller.user_id,
    };
    let _: Json = app.engine.call(pattern::RUNTIME_STEP_CONFIRM, &request).await?;
    Ok(json(StatusCode::OK, &value!({ "ok": true })))
}

fn reference(run: OfRun) -> RunRef {
    RunRef { run_id: run.run_id, process_id: Some(run.process_id) }
}

async fn detail(app: &App, caller: &Principal, run: OfRun) -> Answer<RunDetail> {
    owned_run(app, caller, run).await?;
    Ok(app.engine.call(pattern::RUNTIME_RUN_GET, &reference(run)).await?)
}

/// The run's row, when the run is the process's and the caller's workspace's. Asked of the store,
/// because the engine knows no callers and the process itself may be deleted.
pub(crate) async fn owned_run(app: &App, caller: &Principal, run: OfRun) -> Answer<RunRow> {
    let row = app.storage.runs().get(run.run_id).await?;
    row.filter(|row| row.workspace_id == caller.workspace_id && row.process_id == run.process_id)
        .ok_or_else(|| Problem::no_run(run.run_id))
}

/// A page of the run's events.
pub(crate) async fn events_after(app: &App, run: OfRun, after: u64, limit: u32) -> Answer<RunHistory> {
    let request = RunHistoryRequest { run_id: run.run_id, process_id: Some(run.process_id), after, limit };
    Ok(app.engine.call(pattern::RUNTIME_RUN_HISTORY, &request).await?)
}
