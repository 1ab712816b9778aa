//! Committers: each owns the runs of its shard, decides about whatever arrived while its last
//! transaction was under way, stores all of it in one transaction, and only then answers.

mod cache;
mod draft;
mod work;

pub(crate) use super::draw::Fresh;
pub(crate) use cache::Held;
pub(crate) use work::{Command, Start, too_many_running};

use super::{Shared, publisher::Publisher, publisher::Word};
use crate::core::{Input, State, TaskLane};
use cache::Cache;
use contract::{
    ErrorCode, ExecutionId, Millis, RpcError, RunId,
    report::{Dispatched, ReportOutcome, StepError},
    run::RunStatus,
};
use draft::Draft;
use futures::{StreamExt, future::join_all, stream};
use queue::Lane;
use std::sync::Arc;
use storage::runs::{Append, Appended};
use tokio::{sync::mpsc, time::Instant};
use wire::LogGate;
use work::{Ask, Item, Replies, Work};

/// Commands that are decided together at most.
const BATCH: usize = 512;

/// Commands that wait for a committer; above it senders wait.
pub(crate) const BACKLOG: usize = 4096;

/// How often a decision is made again when other engines keep winning.
const ROUNDS: usize = 8;

/// Runs that are read at the same time.
const LOADS: usize = 8;

/// One committer.
#[derive(Debug)]
pub(crate) struct Committer {
    shared: Arc<Shared>,
    publisher: Publisher,
    cache: Cache,
    /// Commands that this committer gave itself.
    own: Vec<Command>,
}

/// A run that is decided about, before its append is stored.
struct Decided {
    held: Held,
    draft: Draft,
    replies: Replies,
    work: Work,
    was_running: bool,
}

impl Committer {
    pub(crate) fn new(shared: Arc<Shared>, publisher: Publisher, cache_bytes: usize) -> Self {
        Self { shared, publisher, cache: Cache::new(cache_bytes), own: Vec::new() }
    }

    /// Works until all senders are gone and everything they sent is stored and answered.
    pub(crate) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut batch = Vec::with_capacity(BATCH);
        while commands.recv_many(&mut batch, BATCH).await > 0 {
            self.process(std::mem::take(&mut batch)).await;
            while !self.own.is_empty() {
                let own = std::mem::take(&mut self.own);
                self.process(own).await;
            }
        }
    }

    async fn process(&mut self, commands: Vec<Command>) {
        self.shared.metrics.batch_size.observe(commands.len() as f64);
        let mut works = work::by_run(commands);
        for _ in 0..ROUNDS {
            if works.is_empty() {
                return;
            }
            works = self.round(works).await;
        }
        for work in works {
            let message = "other engines changed the run all the time; try again";
            work.refuse(&RpcError::new(ErrorCode::EngineUnavailable, message));
        }
    }

    /// Decides and stores; gives back what has to be decided again.
    async fn round(&mut self, works: Vec<Work>) -> Vec<Work> {
        let now = self.shared.clock.now();
        let mut again = Vec::new();
        let mut decided = Vec::new();
        let loaded = self.load(&works).await;
        for (work, loaded) in works.into_iter().zip(loaded) {
            match loaded {
                Loaded::New => decided.extend(self.start(work, now)),
                Loaded::Held { held, is_fresh } => match self.decide(work, *held, is_fresh, now) {
                    Ok(one) => decided.extend(one),
                    Err(stale) => again.push(stale),
                },
                Loaded::Unknown => work.unknown(),
                Loaded::Failed(error) => work.refuse(&error),
            }
        }
        again.extend(self.drop_stale(&mut decided).await);
        again.extend(self.store(decided).await);
        again
    }

    /// The states of the runs, from the cache or the database.
    async fn load(&mut self, works: &[Work]) -> Vec<Loaded> {
        let mut loaded: Vec<Option<Loaded>> = Vec::with_capacity(works.len());
        let mut missing = Vec::new();
        for (place, work) in works.iter().enumerate() {
            loaded.push(match work {
                Work::Start(_) => Some(Loaded::New),
                Work::Existing(existing) => {
                    let held = self.cache.take(existing.run_id).filter(|_| !existing.must_reload);
                    if held.is_none() {
                        missing.push((place, existing.run_id));
                    }
                    held.map(|held| Loaded::Held { held: Box::new(held), is_fresh: false })
                }
            });
        }
        let shared = &self.shared;
        let reads =
            missing.into_iter().map(|(place, run_id)| async move { (place, shared.load(run_id).await) });
        let mut reads = stream::iter(reads).buffer_unordered(LOADS);
        while let Some((place, read)) = reads.next().await {
            loaded[place] = Some(match read {
                Ok(Some(held)) => Loaded::Held { held: Box::new(held), is_fresh: true },
                Ok(None) => Loaded::Unknown,
                Err(error) => Loaded::Failed(error),
            });
        }
        // Every place was either filled at once or is in `missing`.
        loaded.into_iter().map(|loaded| loaded.unwrap_or(Loaded::Unknown)).collect()
    }

    fn start(&self, work: Work, now: Millis) -> Option<Decided> {
        let Work::Start(start) = work else { return None };
        let policy = &self.shared.policy;
        let graph = Arc::clone(&start.graph);
        let first = (start.started.clone(), start.kept.clone());
        let result = State::start(start.run_id, graph, first, now, policy, &mut Fresh(start.run_id));
        let mut draft = Draft::new(0, now);
        draft.create(start.new_run(), start.graph.max_concurrent_runs);
        let absorbed = result.map_err(|error| broken(start.run_id, &error)).and_then(|(state, decision)| {
            draft.absorb(decision)?;
            Ok(state)
        });
        match absorbed {
            Ok(state) => Some(Decided {
                held: Held { state, sequence: 0 },
                draft,
                replies: Replies::default(),
                work: Work::Start(start),
                was_running: true,
            }),
            Err(error) => {
                Work::Start(start).refuse(&error);
                None
            }
        }
    }

    /// Decides about all commands of a run. `Err`: the held state may be old and must be read again.
    fn decide(
        &mut self,
        work: Work,
        held: Held,
        is_fresh: bool,
        now: Millis,
    ) -> Result<Option<Decided>, Work> {
        let Work::Existing(existing) = work else { return Ok(None) };
        let Held { mut state, sequence } = held;
        if !is_fresh && existing.items.iter().any(|item| item.names_unknown(&state)) {
            return Err(Work::Existing(existing.reloading()));
        }
        let was_running = state.status() == RunStatus::Running;
        let mut draft = Draft::new(sequence, now);
        let mut replies = Replies::default();
        for item in &existing.items {
            match self.one(&mut state, item, &mut draft, now) {
                Ok(outcome) => replies.push(outcome),
                Err(error) => {
                    Work::Existing(existing).refuse(&error);
                    return Ok(None);
                }
            }
        }
        let held = Held { state, sequence };
        if draft.is_empty() {
            self.publish(&held.state, &draft);
            self.cache.put(existing.run_id, held);
            replies.send(existing);
            return Ok(None);
        }
        Ok(Some(Decided { held, draft, replies, work: Work::Existing(existing), was_running }))
    }

    fn one(
        &self,
        state: &mut State,
        item: &Item,
        draft: &mut Draft,
        now: Millis,
    ) -> Result<ReportOutcome, RpcError> {
        match &item.ask {
            Ask::Input(input) => {
                let mut draw = Fresh(state.run_id());
                let decided = state.decide(input.clone(), now, &self.shared.policy, &mut draw);
                let mut decision = decided.map_err(|error| broken(state.run_id(), &error))?;
                let answer = std::mem::replace(&mut decision.answer, ReportOutcome::applied());
                draft.absorb(decision)?;
                Ok(answer)
            }
            Ask::Republish(execution_id) => {
                if state.is_outstanding(*execution_id) {
                    draft.publish.push(*execution_id);
                } else {
                    // The row says outstanding, the history does not: the history is right.
                    draft.close(*execution_id);
                }
                Ok(ReportOutcome::applied())
            }
        }
    }

    /// A heartbeat changes no event, so no compare-and-swap tells that another engine has moved on:
    /// its run's sequence number is read instead.
    async fn drop_stale(&mut self, decided: &mut Vec<Decided>) -> Vec<Work> {
        let checks =
            decided.iter().enumerate().filter(|(_, one)| one.draft.only_touches()).map(|(place, one)| {
                let (runs, run_id, sequence) =
                    (self.shared.storage.runs(), one.held.state.run_id(), one.held.sequence);
                async move {
                    (place, runs.get(run_id).await.map(|row| row.is_some_and(|row| row.sequence == sequence)))
                }
            });
        let mut stale = Vec::new();
        for (place, check) in join_all(checks).await.into_iter().rev() {
            match check {
                Ok(true) => {}
                Ok(false) => stale.push(decided.swap_remove(place).work.reloading()),
                Err(error) => decided.swap_remove(place).work.refuse(&unavailable(&error)),
            }
        }
        stale
    }

    async fn store(&mut self, mut decided: Vec<Decided>) -> Vec<Work> {
        if decided.is_empty() {
            return Vec::new();
        }
        let appends: Vec<Append> = decided.iter_mut().map(|one| one.draft.append(&one.held.state)).collect();
        let results = self.append(&appends).await;
        let mut again = Vec::new();
        for (one, result) in decided.into_iter().zip(results) {
            match result {
                Ok(Appended::Done) => self.done(one),
                Ok(Appended::Exists(run_id)) => one.work.exists(run_id),
                Ok(Appended::Full) => one.work.overloaded(),
                Err(error) => one.work.refuse(&error),
                Ok(Appended::Conflict) => {
                    self.shared.metrics.conflicts.inc();
                    again.push(one.work.reloading());
                }
            }
        }
        again
    }

    /// Stores in one transaction. When the database refuses something in it, each run has one of its
    /// own: whoever brought what is refused must not hinder the others.
    async fn append(&self, appends: &[Append]) -> Vec<Result<Appended, RpcError>> {
        let runs = self.shared.storage.runs();
        let began = Instant::now();
        let stored = runs.append(appends).await;
        self.shared.metrics.commit_seconds.observe(began.elapsed().as_secs_f64());
        match stored {
            Ok(results) => results.into_iter().map(Ok).collect(),
            Err(error) if error.is_unavailable() => {
                static LOG: LogGate = LogGate::new();
                self.shared.metrics.commits_failed.inc();
                if let Some(unlogged_before) = LOG.pass_now() {
                    tracing::error!(
                        event = "commit_failed",
                        runs = appends.len(),
                        unlogged_before,
                        "nothing is answered as stored: {error}"
                    );
                }
                vec![Err(unavailable(&error)); appends.len()]
            }
            Err(_) => {
                let mut results = Vec::with_capacity(appends.len());
                for append in appends {
                    let stored = runs.append(std::slice::from_ref(append)).await;
                    results.push(match stored {
                        Ok(alone) => Ok(alone.first().copied().unwrap_or(Appended::Conflict)),
                        Err(error) => {
                            tracing::error!(event = "append_refused", run_id = %append.run_id, "{error}");
                            Err(unavailable(&error))
                        }
                    });
                }
                results
            }
        }
    }

    fn done(&mut self, one: Decided) {
        let Decided { mut held, draft, replies, work, was_running } = one;
        held.sequence += draft.grown;
        let run_id = held.state.run_id();
        self.count(&held.state, &work, was_running);
        match work {
            Work::Start(start) => start.created(),
            Work::Existing(existing) => replies.send(existing),
        }
        self.publish(&held.state, &draft);
        if draft.grown > 0 {
            self.publisher.say(Word::Changed(run_id));
        } else if draft.has_word {
            self.publisher.say(Word::Said(run_id));
        }
        self.cache.put(run_id, held);
    }

    fn count(&self, state: &State, work: &Work, was_running: bool) {
        let runs = &self.shared.metrics.runs;
        if matches!(work, Work::Start(_)) {
            runs.get_or_create(&super::metrics::Label::of("started")).inc();
        }
        let status = state.status();
        if was_running && status.is_terminal() {
            runs.get_or_create(&super::metrics::Label::of(status.as_str())).inc();
            let duration_ms =
                state.finished_at().map_or(0, |at| at.since(state.summary().created_at).as_millis());
            tracing::info!(
                event = "run_ended",
                run_id = %state.run_id(),
                status = status.as_str(),
                duration_ms,
                "run ended"
            );
        }
    }

    fn publish(&mut self, state: &State, draft: &Draft) {
        for execution_id in &draft.withdrawn {
            self.publisher.say(Word::Withdrawn(state.run_id(), *execution_id));
        }
        for execution_id in &draft.publish {
            match draft::task_text(state, *execution_id, &self.shared.policy) {
                Some((lane, Ok(text))) if text.len() <= queue::MAX_ITEM_BYTES => {
                    self.publisher.say(Word::Task(lane_of(lane), text));
                }
                Some((_, Ok(text))) => self.refuse_task(state.run_id(), *execution_id, text.len()),
                Some((_, Err(error))) => {
                    tracing::error!(event = "task_unwritable", run_id = %state.run_id(), %execution_id, "{error}");
                }
                None => {}
            }
        }
    }

    /// A task that no lane takes would wait for ever: its step fails instead.
    fn refuse_task(&mut self, run_id: RunId, execution_id: ExecutionId, size_bytes: usize) {
        let message = format!(
            "the step's inputs make a task of {size_bytes} bytes; a lane takes {}: pass a file instead",
            queue::MAX_ITEM_BYTES
        );
        let error = StepError::of(ErrorCode::PayloadTooLarge, message);
        let input = Input::Dispatched(execution_id, Dispatched::Refused(error));
        self.own.push(Command::input(run_id, input, None));
    }
}

/// What loading a run gave.
enum Loaded {
    /// It is to be started.
    New,
    /// It is here; read from the database just now?
    Held { held: Box<Held>, is_fresh: bool },
    /// There is no such run.
    Unknown,
    /// It cannot be read.
    Failed(RpcError),
}

fn lane_of(lane: TaskLane) -> Lane {
    match lane {
        TaskLane::Plugin => Lane::Plugin,
        TaskLane::Executor => Lane::Executor,
    }
}

fn broken(run_id: RunId, error: &crate::core::Broken) -> RpcError {
    tracing::error!(event = "run_broken", %run_id, "{error}");
    RpcError::new(ErrorCode::Internal, format!("run {run_id} cannot go on: {error}"))
}

/// The database is away, or refuses: the reporter repeats, and what was stored is a duplicate then.
pub(crate) fn unavailable(error: &storage::Error) -> RpcError {
    if error.is_unavailable() {
        return RpcError::new(ErrorCode::EngineUnavailable, format!("{error}; try again"));
    }
    error.to_rpc()
}
