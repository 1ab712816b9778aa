//! One run's part of a transaction: the decisions of all its commands, merged into one append.

use crate::core::{Awaited, Decision, Opened, Policy, State, Touched};
use contract::{ErrorCode, ExecutionId, Json, Millis, RpcError};
use std::collections::{HashMap, HashSet};
use storage::runs::{Append, AttemptState, AttemptUpdate, NewAttempt, NewEvent, NewRun};

/// What is to be stored of a run, and told afterwards.
#[derive(Debug)]
pub(super) struct Draft {
    expected: u64,
    at: Millis,
    create: Option<NewRun>,
    max_running: Option<u32>,
    events: Vec<NewEvent>,
    opened: Vec<Opened>,
    touched: HashMap<ExecutionId, AttemptUpdate>,
    closed: HashSet<ExecutionId>,
    /// Attempts whose tasks go on their lanes once the append is stored.
    pub(super) publish: Vec<ExecutionId>,
    /// Attempts that somebody may be working on for nothing.
    pub(super) withdrawn: Vec<ExecutionId>,
    /// How many events an append beyond `expected` holds.
    pub(super) grown: u64,
    /// Did a running step say something to people? That is no event.
    pub(super) has_word: bool,
}

impl Draft {
    pub(super) fn new(expected: u64, at: Millis) -> Self {
        Self {
            expected,
            at,
            create: None,
            max_running: None,
            events: Vec::new(),
            opened: Vec::new(),
            touched: HashMap::new(),
            closed: HashSet::new(),
            publish: Vec::new(),
            withdrawn: Vec::new(),
            grown: 0,
            has_word: false,
        }
    }

    /// Creates the run, unless so many of its process are running.
    pub(super) fn create(&mut self, run: NewRun, max_running: Option<u32>) {
        self.create = Some(run);
        self.max_running = max_running;
    }

    /// Adds a decision.
    ///
    /// # Errors
    /// `internal`, when an event cannot be written: a bug.
    pub(super) fn absorb(&mut self, decision: Decision) -> Result<(), RpcError> {
        for event in &decision.events {
            let body = event.body().map_err(|error| {
                RpcError::new(
                    ErrorCode::Internal,
                    format!("the event {} cannot be written: {error}", event.kind()),
                )
            })?;
            self.events.push(NewEvent { kind: event.kind().to_owned(), body });
            self.grown += 1;
        }
        for (execution_id, touched) in decision.touched {
            self.touch(execution_id, touched);
        }
        self.publish
            .extend(decision.opened.iter().filter(|opened| is_due(opened)).map(|opened| opened.execution_id));
        self.opened.extend(decision.opened);
        self.withdrawn.extend(decision.withdrawn);
        decision.closed.into_iter().for_each(|execution_id| self.close(execution_id));
        Ok(())
    }

    fn touch(&mut self, execution_id: ExecutionId, touched: Touched) {
        let at = self.at;
        let update = self.touched.entry(execution_id).or_insert_with(|| AttemptUpdate::new(execution_id));
        if touched.is_running {
            update.state = Some(AttemptState::Running);
        }
        if touched.heartbeat_at.is_none() && touched.is_running {
            update.acked_at = Some(at);
        }
        self.has_word |= touched.progress.is_some() || touched.message.is_some();
        update.deadline = touched.deadline.map(Some).or(update.deadline);
        update.heartbeat_at = touched.heartbeat_at.or(update.heartbeat_at);
        update.progress = touched.progress.or_else(|| update.progress.take());
        update.message = touched.message.or_else(|| update.message.take());
    }

    /// An attempt is no longer outstanding. One that the same transaction would have opened never
    /// comes into being: nobody was told of it.
    pub(super) fn close(&mut self, execution_id: ExecutionId) {
        self.touched.remove(&execution_id);
        self.publish.retain(|published| *published != execution_id);
        let before = self.opened.len();
        self.opened.retain(|opened| opened.execution_id != execution_id);
        if self.opened.len() < before {
            self.withdrawn.retain(|withdrawn| *withdrawn != execution_id);
        } else {
            self.closed.insert(execution_id);
        }
    }

    /// Is there anything to store?
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.touched.is_empty() && self.closed.is_empty()
    }

    /// Does it rely on attempts being outstanding without comparing the run's sequence number?
    pub(super) fn only_touches(&self) -> bool {
        self.events.is_empty() && self.closed.is_empty() && !self.touched.is_empty()
    }

    /// The append; `state` is the run afterwards.
    pub(super) fn append(&mut self, state: &State) -> Append {
        let mut append = Append::new(state.run_id(), self.expected, state.status(), self.at);
        append.create = self.create.take();
        append.max_running = self.max_running;
        append.events = std::mem::take(&mut self.events);
        append.finished_at = state.finished_at();
        append.error = state.run_error().and_then(|error| Json::of(&error).ok());
        append.open = std::mem::take(&mut self.opened).into_iter().map(new_attempt).collect();
        append.update = std::mem::take(&mut self.touched).into_values().collect();
        append.close = std::mem::take(&mut self.closed).into_iter().collect();
        append
    }
}

/// Is a task to be put on its lane at once?
fn is_due(opened: &Opened) -> bool {
    matches!(opened.awaited, Awaited::Task { is_due: true, .. })
}

fn new_attempt(opened: Opened) -> NewAttempt {
    let (lane, deadline) = match opened.awaited {
        Awaited::Task { lane, publish_at, .. } => (lane.as_str(), Some(publish_at)),
        Awaited::Person { until } => (storage::runs::LANE_PERSON, until),
        Awaited::Time { at } => (storage::runs::LANE_TIMER, Some(at)),
    };
    NewAttempt {
        execution_id: opened.execution_id,
        node_path: opened.node_path,
        node_type: opened.node_type,
        attempt: opened.attempt,
        lane: lane.to_owned(),
        state: AttemptState::Queued,
        deadline,
    }
}

/// The tasks of attempts as JSON, each with its lane; attempts that are over give none.
///
/// # Errors
/// `internal`, when a task cannot be written: a bug.
pub(super) fn task_text(
    state: &State,
    execution_id: ExecutionId,
    policy: &Policy,
) -> Option<(crate::core::TaskLane, Result<String, serde_json::Error>)> {
    let (lane, task) = state.task(execution_id, policy)?;
    Some((lane, serde_json::to_string(&task)))
}
