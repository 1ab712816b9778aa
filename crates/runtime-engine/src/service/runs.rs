//! Starting, canceling and reading runs.

use super::{
    committer::{Command, Start, unavailable, unknown_run},
    draw,
    engine::{Engine, answer, outcome},
};
use crate::core::{Input, RunStarted};
use contract::{
    ErrorCode, Json, RpcError, RunId,
    report::{Receipt, ReportOutcome},
    run::{
        HistoryEvent, RunDetail, RunHistory, RunHistoryRequest, RunList, RunListRequest, RunRef, RunStart,
        RunSummary, StepConfirm,
    },
};
use serde::Deserialize;
use storage::runs::{RunFilter, RunRow, StoredEvent};
use tokio::sync::oneshot;

/// Rows of a page of runs.
const MAX_RUNS: u32 = 200;

/// Events of a page of a history.
const MAX_EVENTS: u32 = 1000;

/// `runtime.run_start`
pub(super) async fn start(engine: &Engine, asked: RunStart) -> Result<contract::run::RunStarted, RpcError> {
    let shared = &engine.shared;
    let head =
        shared.storage.processes().head(asked.process_id).await.map_err(|error| unavailable(&error))?;
    let Some(process) = head.filter(|process| process.workspace_id == asked.workspace_id) else {
        let message = format!("no process {} exists in workspace {:?}", asked.process_id, asked.workspace_id);
        return Err(RpcError::new(ErrorCode::NotFound, message));
    };
    let graph = shared.graphs.get(asked.process_id, process.revision).await?;
    let missing = graph.missing_inputs(&asked.payload);
    if !missing.is_empty() {
        return Err(RpcError::of_faults(ErrorCode::InvalidInput, "the data for the run", &missing));
    }
    let pins = shared.catalogue.pins(&graph, &asked.workspace_id).await?;
    let (reply, receiver) = oneshot::channel();
    let started = RunStarted {
        process_id: asked.process_id,
        process_revision: process.revision,
        workspace_id: asked.workspace_id,
        user_id: asked.user_id,
        trigger: asked.trigger,
        payload: asked.payload,
        pins,
        traceparent: asked.traceparent,
    };
    let run_id = draw::run_id();
    let start = Start { run_id, graph, started, idempotency_key: asked.idempotency_key, reply };
    engine.send(Command::Start(Box::new(start))).await;
    answer(receiver).await?
}

/// `runtime.run_cancel`: done, or canceled before; `conflict` when the run ended otherwise.
pub(super) async fn cancel(engine: &Engine, asked: RunRef) -> Result<Receipt, RpcError> {
    row(engine, &asked).await?;
    let (reply, receiver) = oneshot::channel();
    engine.send(Command::input(asked.run_id, Input::Cancel, Some(reply))).await;
    match outcome(receiver).await {
        ReportOutcome::Ok(receipt) => Ok(receipt),
        ReportOutcome::Err(error) => Err(error),
    }
}

/// `runtime.run_get`
pub(super) async fn get(engine: &Engine, asked: RunRef) -> Result<RunDetail, RpcError> {
    let held = engine.shared.load(asked.run_id).await?;
    held.map(|held| held.state.detail(engine.shared.page_bytes))
        .filter(|detail| asked.process_id.is_none_or(|process_id| process_id == detail.run.process_id))
        .ok_or_else(|| not_found(asked.run_id))
}

/// `runtime.run_list`
pub(super) async fn list(engine: &Engine, asked: RunListRequest) -> Result<RunList, RpcError> {
    let limit = page(asked.limit, MAX_RUNS)?;
    let cursor = asked.cursor.map(|cursor| cursor.parse()).transpose();
    let cursor = cursor.map_err(|error: String| RpcError::new(ErrorCode::InvalidRequest, error))?;
    let filter =
        RunFilter { workspace_id: asked.workspace_id, process_id: asked.process_id, status: asked.status };
    let rows = engine.shared.storage.runs().list(&filter, cursor, limit).await;
    let rows = rows.map_err(|error| unavailable(&error))?;
    let is_full = u32::try_from(rows.len()).is_ok_and(|count| count == limit);
    let next_cursor = rows.last().filter(|_| is_full).map(|row| row.cursor().to_string());
    Ok(RunList { runs: rows.into_iter().map(summary).collect(), next_cursor })
}

/// `runtime.run_history`
pub(super) async fn history(engine: &Engine, asked: RunHistoryRequest) -> Result<RunHistory, RpcError> {
    let limit = page(asked.limit, MAX_EVENTS)?;
    // The row first: an event that comes meanwhile may then be on the page, never missing before `last`.
    let row = row(engine, &RunRef { run_id: asked.run_id, process_id: asked.process_id }).await?;
    let events = engine.shared.storage.runs().events(asked.run_id, asked.after, limit).await;
    let events = fitting(events.map_err(|error| unavailable(&error))?, engine.shared.page_bytes);
    let events: Vec<HistoryEvent> = events.map(shown).collect::<Result<_, _>>()?;
    let newest = events.last().map_or(0, |event| event.sequence);
    Ok(RunHistory { events, last: row.sequence.max(newest) })
}

/// `runtime.step_confirm`: no node of this version waits for a person.
pub(super) async fn confirm(engine: &Engine, asked: StepConfirm) -> Result<Json, RpcError> {
    let run = RunRef { run_id: asked.run_id, process_id: asked.process_id };
    let detail = get(engine, run).await?;
    if !detail.steps.iter().any(|step| step.node_path == asked.node_path) {
        let message = format!("run {} has no step {}", asked.run_id, asked.node_path);
        return Err(RpcError::new(ErrorCode::NotFound, message));
    }
    let message =
        format!("step {} of run {} does not wait for a confirmation", asked.node_path, asked.run_id);
    Err(RpcError::new(ErrorCode::Conflict, message))
}

async fn row(engine: &Engine, asked: &RunRef) -> Result<RunRow, RpcError> {
    let row = engine.shared.storage.runs().get(asked.run_id).await.map_err(|error| unavailable(&error))?;
    row.filter(|row| asked.process_id.is_none_or(|process_id| process_id == row.process_id))
        .ok_or_else(|| not_found(asked.run_id))
}

fn not_found(run_id: RunId) -> RpcError {
    unknown_run(run_id)
}

fn page(limit: u32, most: u32) -> Result<u32, RpcError> {
    if (1..=most).contains(&limit) {
        return Ok(limit);
    }
    Err(RpcError::new(ErrorCode::InvalidRequest, format!("limit {limit} must be from 1 to {most}")))
}

fn summary(row: RunRow) -> RunSummary {
    RunSummary {
        id: row.run_id,
        process_id: row.process_id,
        status: row.status,
        created_at: row.created_at,
        updated_at: row.updated_at,
        finished_at: row.finished_at,
        error: row.error.and_then(|error| error.read().ok()),
    }
}

/// As many of the first events as an answer holds, but always one.
fn fitting(events: Vec<StoredEvent>, page_bytes: usize) -> impl Iterator<Item = StoredEvent> {
    let mut total = 0usize;
    events
        .into_iter()
        .enumerate()
        .take_while(move |(place, event)| {
            total = total.saturating_add(event.body.text().len());
            *place == 0 || total <= page_bytes
        })
        .map(|(_, event)| event)
}

/// An event as it is shown: without the envelope that the engine stores it in.
fn shown(event: StoredEvent) -> Result<HistoryEvent, RpcError> {
    #[derive(Deserialize)]
    struct Body {
        data: Json,
    }
    let body: Body = event.body.read().map_err(|error| {
        RpcError::new(ErrorCode::Internal, format!("event {} cannot be read: {error}", event.sequence))
    })?;
    Ok(HistoryEvent { sequence: event.sequence, at: event.at, kind: event.kind, event: body.data })
}
