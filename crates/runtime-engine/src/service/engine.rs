//! What all parts of the service share, and the way to the committers.

use super::{
    catalogue::Catalogue,
    committer::{Command, Held, unavailable},
    graphs::Graphs,
    large_outputs::LargeOutputs,
    metrics::Metrics,
};
use crate::core::{Event, Policy, Replay, Unreadable};
use contract::{ErrorCode, RpcError, RunId, report::ReportOutcome};
use std::sync::{Arc, Weak};
use storage::{
    Storage,
    runs::{Page, StoredEvent},
};
use tokio::sync::{mpsc, oneshot};

/// What all parts share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) storage: Storage,
    pub(crate) policy: Policy,
    /// Bytes of payloads in the answer to one query: what callers take in one frame, with room for
    /// what is around them.
    pub(crate) page_bytes: usize,
    pub(crate) clock: storage::Clock,
    pub(crate) graphs: Graphs,
    pub(crate) large_outputs: LargeOutputs,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Shared {
    /// Reads a run and folds its history, page by page; `None`: there is no such run.
    ///
    /// # Errors
    /// `engine_unavailable`, also for a run that only a newer engine can read; `internal` for a history
    /// that cannot be read.
    pub(crate) async fn load(&self, run_id: RunId) -> Result<Option<Held>, RpcError> {
        let history = self.storage.runs().history(run_id).await.map_err(|error| unavailable(&error))?;
        let Some(mut history) = history else { return Ok(None) };
        let run = history.run();
        let sequence = run.sequence;
        let graph = self.graphs.get(run.process_id, run.process_revision).await;
        let mut replay = Replay::new(run_id, graph.map_err(|error| unrunnable(run_id, error))?);
        loop {
            match history.next().await.map_err(|error| unavailable(&error))? {
                Page::Events(events) => fold(&mut replay, run_id, events)?,
                Page::End => break,
                Page::Gone => return Ok(None),
            }
        }
        let state = replay.end().map_err(|error| unreadable(run_id, &error))?;
        Ok(Some(Held { state, sequence }))
    }
}

fn fold(replay: &mut Replay, run_id: RunId, events: Vec<StoredEvent>) -> Result<(), RpcError> {
    for stored in events {
        let event = Event::read(&stored.kind, &stored.body).map_err(|error| match error {
            Unreadable::Malformed { .. } => unreadable(run_id, &error),
            Unreadable::Newer { .. } | Unreadable::UnknownKind(_) => too_old(run_id, &error),
        })?;
        replay.fold(stored.at, event).map_err(|error| unreadable(run_id, &error))?;
    }
    Ok(())
}

fn unreadable(run_id: RunId, error: &dyn std::error::Error) -> RpcError {
    tracing::error!(event = "run_unreadable", %run_id, "{error}");
    RpcError::new(ErrorCode::Internal, format!("the history of run {run_id} cannot be read: {error}"))
}

/// A process that was run once and cannot be now was started by another version of the engine.
fn unrunnable(run_id: RunId, error: RpcError) -> RpcError {
    match error.code {
        ErrorCode::InvalidProcess => too_old(run_id, &error),
        ErrorCode::NotFound => unreadable(run_id, &error),
        _ => error,
    }
}

/// Another engine can read the run, or this one when it is upgraded: reporters keep what they have.
fn too_old(run_id: RunId, error: &dyn std::error::Error) -> RpcError {
    tracing::error!(event = "run_too_new", %run_id, "{error}");
    let message = format!("this engine cannot read run {run_id}: {error}");
    RpcError::new(ErrorCode::EngineUnavailable, message)
}

/// The way to the committers. They end when the last engine is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub(crate) shared: Arc<Shared>,
    committers: Arc<[mpsc::Sender<Command>]>,
}

/// An answer that is under way.
pub(crate) type Pending<T> = oneshot::Receiver<T>;

impl Engine {
    pub(crate) fn new(shared: Arc<Shared>, committers: Vec<mpsc::Sender<Command>>) -> Self {
        Self { shared, committers: committers.into() }
    }

    /// The engine for somebody who must not keep it from ending.
    pub(crate) fn downgrade(&self) -> WeakEngine {
        WeakEngine { shared: Arc::clone(&self.shared), committers: Arc::downgrade(&self.committers) }
    }

    /// Hands a command to the committer of its run; waits while that has too much to do.
    pub(crate) async fn send(&self, command: Command) {
        // The ids are random in their low half.
        let shard =
            command.run_id().0.as_u64_pair().1 % u64::try_from(self.committers.len()).unwrap_or(1).max(1);
        let committer = usize::try_from(shard).ok().and_then(|shard| self.committers.get(shard));
        if let Some(committer) = committer {
            // A committer that is gone drops the command, and whoever waits learns it from that.
            let _ = committer.send(command).await;
        }
    }
}

/// An engine that may have ended.
#[derive(Clone, Debug)]
pub(crate) struct WeakEngine {
    shared: Arc<Shared>,
    committers: Weak<[mpsc::Sender<Command>]>,
}

impl WeakEngine {
    /// The engine, unless it has ended.
    pub(crate) fn upgrade(&self) -> Option<Engine> {
        let committers = self.committers.upgrade()?;
        Some(Engine { shared: Arc::clone(&self.shared), committers })
    }
}

/// Waits for an answer; a dropped one means that nothing is known to be stored.
pub(crate) async fn answer<T>(pending: Pending<T>) -> Result<T, RpcError> {
    pending.await.map_err(|_| stopping())
}

/// Nothing is known to be stored.
pub(crate) fn stopping() -> RpcError {
    RpcError::new(ErrorCode::EngineUnavailable, "the engine is stopping; try again")
}

/// Waits for the answer to a report.
pub(crate) async fn outcome(pending: Pending<ReportOutcome>) -> ReportOutcome {
    answer(pending).await.unwrap_or_else(ReportOutcome::Err)
}
