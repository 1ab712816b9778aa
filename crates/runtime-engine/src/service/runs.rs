//! Starting, canceling and reading runs.

use super::{
    committer::{Command, Start, too_many_running, unavailable},
    draw,
    engine::{Engine, answer, outcome},
};
use crate::core::{Confirmation, Graph, Input, Kept, RunStarted};
use contract::{
    ErrorCode, Json, ProcessId, RpcError, RunId,
    report::{Receipt, ReportOutcome},
    run::{
        HistoryEvent, RunDetail, RunHistory, RunHistoryRequest, RunList, RunListRequest, RunRef, RunRetry,
        RunStart, RunStatus, RunSummary, StepConfirm, StepWord, not_found,
    },
};
use serde::Deserialize;
use std::{collections::HashMap, sync::Arc};
use storage::runs::{RunFilter, RunRow, StoredEvent};
use tokio::sync::oneshot;

/// Rows of a page of runs.
const MAX_RUNS: u32 = 200;

/// Steps of a run whose words are shown.
const MAX_WORDS: u32 = 1000;

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
    let started = RunStarted {
        process_id: asked.process_id,
        process_revision: process.revision,
        workspace_id: asked.workspace_id,
        user_id: asked.user_id,
        trigger: asked.trigger,
        payload: asked.payload,
        pins,
        traceparent: asked.traceparent,
        tracestate: asked.tracestate,
        retry_of: None,
    };
    begin(engine, graph, started, Kept::new(), asked.idempotency_key).await
}

/// `runtime.run_retry`: the revision, payload and publications of the run that ended; what had
/// finished there is kept.
pub(super) async fn retry(engine: &Engine, asked: RunRetry) -> Result<contract::run::RunStarted, RpcError> {
    row(engine, &RunRef { run_id: asked.run_id, process_id: asked.process_id }).await?;
    let held = engine.shared.load(asked.run_id).await?;
    let state = held.map(|held| held.state).ok_or_else(|| not_found(asked.run_id))?;
    if !matches!(state.status(), RunStatus::Failed | RunStatus::Canceled) {
        let message = format!(
            "run {} is {}; only a failed or canceled run can be repeated",
            asked.run_id,
            state.status().as_str()
        );
        return Err(RpcError::new(ErrorCode::Conflict, message));
    }
    let before = state.started();
    let graph = engine.shared.graphs.get(before.process_id, before.process_revision).await?;
    let started = RunStarted { user_id: asked.user_id, retry_of: Some(asked.run_id), ..before.clone() };
    begin(engine, graph, started, state.kept(), asked.idempotency_key).await
}

async fn begin(
    engine: &Engine,
    graph: Arc<Graph>,
    started: RunStarted,
    kept: Kept,
    idempotency_key: Option<String>,
) -> Result<contract::run::RunStarted, RpcError> {
    if let Some(most) = graph.max_concurrent_runs
        && let Some(answer) = beyond(engine, started.process_id, most, idempotency_key.as_deref()).await?
    {
        return answer;
    }
    let run_id = draw::run_id();
    if let Some(before) = started.retry_of {
        share_files(engine, before, run_id).await?;
    }
    let (reply, receiver) = oneshot::channel();
    let start = Start { run_id, graph, started, kept, idempotency_key, reply };
    engine.send(Command::Start(Box::new(start))).await;
    answer(receiver).await?
}

/// Outputs that a run keeps of another may lie in files. Owned before the run exists, so that it is
/// never without; an owner whose run does not come into being is cleared like that of one that is gone.
async fn share_files(engine: &Engine, from: RunId, to: RunId) -> Result<(), RpcError> {
    let now = engine.shared.clock.now();
    engine.shared.storage.blobs().share(from, to, now).await.map_err(|error| unavailable(&error))
}

/// Looks ahead whether a start will be refused, which costs no decision then: an answer without it.
/// The append decides.
async fn beyond(
    engine: &Engine,
    process_id: ProcessId,
    most: u32,
    key: Option<&str>,
) -> Result<Option<Result<contract::run::RunStarted, RpcError>>, RpcError> {
    let runs = engine.shared.storage.runs();
    if runs.running_places(process_id).await.map_err(|error| unavailable(&error))? < u64::from(most) {
        return Ok(None);
    }
    if let Some(key) = key
        && let Some(run_id) = runs.with_key(process_id, key).await.map_err(|error| unavailable(&error))?
    {
        return Ok(Some(Ok(contract::run::RunStarted { run_id, created: false })));
    }
    Ok(Some(Err(too_many_running(process_id, Some(most)))))
}

/// `runtime.run_cancel`: done, or canceled before; `conflict` when the run ended otherwise.
pub(super) async fn cancel(engine: &Engine, asked: RunRef) -> Result<Receipt, RpcError> {
    row(engine, &asked).await?;
    let (reply, receiver) = oneshot::channel();
    engine.send(Command::input(asked.run_id, Input::Cancel, Some(reply))).await;
    into_result(outcome(receiver).await)
}

/// `runtime.run_get`
pub(super) async fn get(engine: &Engine, asked: RunRef) -> Result<RunDetail, RpcError> {
    let held = engine.shared.load(asked.run_id).await?;
    let detail = held.map(|held| held.state.detail(engine.shared.page_bytes));
    let mut detail = detail
        .filter(|detail| asked.process_id.is_none_or(|process_id| process_id == detail.run.process_id))
        .ok_or_else(|| not_found(asked.run_id))?;
    if !detail.run.status.is_terminal() {
        add_words(engine, &mut detail).await?;
    }
    Ok(detail)
}

/// Adds what running steps last said of themselves: heartbeats are no events.
async fn add_words(engine: &Engine, detail: &mut RunDetail) -> Result<(), RpcError> {
    let words = engine.shared.storage.runs().words(detail.run.id, MAX_WORDS).await;
    let words = words.map_err(|error| unavailable(&error))?.into_iter();
    let mut words: HashMap<_, _> = words.map(|word| (word.execution_id, word)).collect();
    if words.is_empty() {
        return Ok(());
    }
    for step in &mut detail.steps {
        let told = step.execution_id.and_then(|execution_id| words.remove(&execution_id));
        let word = |told: storage::runs::StepWord| StepWord {
            at: told.heartbeat_at,
            progress: told.progress,
            message: told.message,
        };
        step.word = told.map(word);
    }
    Ok(())
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
    // As many as an answer holds.
    let bytes = u32::try_from(engine.shared.page_bytes).unwrap_or(u32::MAX);
    let events = engine.shared.storage.runs().events(asked.run_id, asked.after, limit, bytes).await;
    let events = events.map_err(|error| unavailable(&error))?.into_iter();
    let events: Vec<HistoryEvent> = events.map(shown).collect::<Result<_, _>>()?;
    let newest = events.last().map_or(0, |event| event.sequence);
    Ok(RunHistory { events, last: row.sequence.max(newest) })
}

/// `runtime.step_confirm`: a person's answer; the same answer again is a `duplicate`, another one, or
/// one to a step that does not wait, a `conflict`.
pub(super) async fn confirm(engine: &Engine, asked: StepConfirm) -> Result<Receipt, RpcError> {
    row(engine, &RunRef { run_id: asked.run_id, process_id: asked.process_id }).await?;
    let StepConfirm { run_id, node_path, approved, comment, by, .. } = asked;
    let confirmation = Confirmation { node_path, approved, comment, by };
    let (reply, receiver) = oneshot::channel();
    engine.send(Command::input(run_id, Input::Confirm(Box::new(confirmation)), Some(reply))).await;
    into_result(outcome(receiver).await)
}

fn into_result(outcome: ReportOutcome) -> Result<Receipt, RpcError> {
    match outcome {
        ReportOutcome::Ok(receipt) => Ok(receipt),
        ReportOutcome::Err(error) => Err(error),
    }
}

async fn row(engine: &Engine, asked: &RunRef) -> Result<RunRow, RpcError> {
    let row = engine.shared.storage.runs().get(asked.run_id).await.map_err(|error| unavailable(&error))?;
    row.filter(|row| asked.process_id.is_none_or(|process_id| process_id == row.process_id))
        .ok_or_else(|| not_found(asked.run_id))
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
