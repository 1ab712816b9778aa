//! The state of a run: the fold of its events.

use super::{
    evaluate::{self, Outputs},
    event::{Event, Failure, RunStarted},
    graph::{Graph, Kind, Node},
    outputs::StepOutputs,
    scope::{Place, ROOT, Scope, ScopeId},
    sequences::Sequences,
};
use contract::{
    Digest, ExecutionId, Millis, NodePath, RunId,
    process::OnError,
    run::{NodeStatus, RunError, RunStatus},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// A history that does not fit its process: a bug or a damaged database, never a user's fault.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Broken {
    /// The first event is another one, or there is none.
    #[error("the history does not begin with run_started")]
    NoStart,
    /// The run was started twice.
    #[error("run_started stands within the history")]
    StartedTwice,
    /// An event names a node that the process does not have.
    #[error("the event {kind} names the node {path}, which the process does not have")]
    UnknownNode {
        /// The event.
        kind: &'static str,
        /// The node.
        path: NodePath,
    },
    /// An event names an attempt that was never scheduled.
    #[error("the event {kind} names the attempt {execution_id}, which was never scheduled")]
    UnknownAttempt {
        /// The event.
        kind: &'static str,
        /// The attempt.
        execution_id: ExecutionId,
    },
    /// Something concerns an iteration that has ended, or a loop that does not run.
    #[error("the scope {0} does not run")]
    NoScope(ScopeId),
}

/// The state of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub(super) run_id: RunId,
    pub(super) started: Arc<RunStarted>,
    pub(super) started_at: Millis,
    pub(super) updated_at: Millis,
    pub(super) finished_at: Option<Millis>,
    pub(super) status: RunStatus,
    /// What fails the run; set while what already runs is waited for.
    pub(super) failure: Option<RunError>,
    /// The process, and the iterations of its loops that run.
    pub(super) scopes: BTreeMap<ScopeId, Scope>,
    pub(super) by_prefix: HashMap<String, ScopeId>,
    pub(super) next_scope: ScopeId,
    pub(super) attempts: HashMap<ExecutionId, Attempt>,
    /// How many attempts are outstanding.
    pub(super) outstanding: usize,
    /// How many of them nobody works on.
    pub(super) queued: usize,
    /// What people answered, also in iterations that are forgotten.
    pub(super) answers: HashMap<NodePath, Answer>,
    /// By what the run's deadline is watched.
    pub(super) deadline: Option<ExecutionId>,
}

/// A person's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) approved: bool,
    pub(super) by: String,
}

/// One attempt, kept after its end: its reports must be known again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) place: Place,
    /// Does somebody work on it? Else it waits for a person or a moment.
    pub(super) is_task: bool,
    /// Where it was, once its iteration is forgotten and a late result may still come.
    pub(super) forgotten_path: Option<NodePath>,
    pub(super) number: u32,
    /// How many attempts its node has; kept here so that it outlives the node's scope.
    pub(super) newest: u32,
    pub(super) phase: Phase,
    pub(super) is_acked: bool,
    /// Whose ack counts.
    pub(super) worker_id: Option<String>,
    /// Since when its step deadline runs.
    pub(super) running_since: Option<Millis>,
    pub(super) not_before: Option<Millis>,
    pub(super) partials: Sequences,
    /// Of the result that ended it.
    pub(super) digest: Option<Digest>,
    /// A result came after the run's end and is in the history.
    pub(super) has_late_result: bool,
}

/// How an attempt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// On its lane, or waiting for it.
    Queued,
    /// It reached somebody.
    Running,
    /// Its result ended it well.
    Finished,
    /// It failed.
    Failed(Failure),
    /// It was withdrawn.
    Canceled,
}

impl Phase {
    pub(super) fn is_outstanding(self) -> bool {
        matches!(self, Self::Queued | Self::Running)
    }
}

impl State {
    /// The state after `run_started`.
    pub(super) fn begun(run_id: RunId, graph: Arc<Graph>, started: Arc<RunStarted>, at: Millis) -> Self {
        let inputs = Arc::new(started.payload.clone());
        let root = Scope::new(graph, String::new(), None, inputs, at);
        Self {
            run_id,
            started_at: at,
            updated_at: at,
            finished_at: None,
            status: RunStatus::Running,
            failure: None,
            scopes: BTreeMap::from([(ROOT, root)]),
            by_prefix: HashMap::from([(String::new(), ROOT)]),
            next_scope: ROOT + 1,
            attempts: HashMap::new(),
            outstanding: 0,
            queued: 0,
            answers: HashMap::new(),
            deadline: None,
            started,
        }
    }

    /// The run.
    pub fn run_id(&self) -> RunId {
        self.run_id
    }

    /// What is run, and in which revision.
    pub fn started(&self) -> &RunStarted {
        &self.started
    }

    /// How the run stands.
    pub fn status(&self) -> RunStatus {
        self.status
    }

    /// How many attempts are outstanding.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// An estimate of the memory that the state takes, in bytes.
    pub fn size(&self) -> usize {
        const PER_NODE: usize = 400;
        const PER_ATTEMPT: usize = 300;
        let scopes = self.scopes.values().map(|scope| scope.payload_bytes + scope.nodes.len() * PER_NODE);
        scopes.sum::<usize>() + self.attempts.len() * PER_ATTEMPT
    }

    /// Folds one event.
    pub(super) fn apply(&mut self, at: Millis, event: &Event) -> Result<(), Broken> {
        self.updated_at = at;
        let kind = event.kind();
        match event {
            Event::RunStarted(_) => return Err(Broken::StartedTwice),
            Event::StepScheduled(step) => {
                let place = self.place(kind, &step.node_path)?;
                self.scheduled(place, step.execution_id, step.attempt, step.not_before, at)?;
            }
            Event::StepDelivered(step) => self.running(kind, step.execution_id, at)?,
            Event::StepAcked(step) => {
                self.running(kind, step.execution_id, at)?;
                let attempt = self.attempt(kind, step.execution_id)?;
                attempt.is_acked = true;
                attempt.worker_id.clone_from(&step.worker_id);
                attempt.running_since = Some(at);
            }
            Event::StepPartial(step) => {
                self.running(kind, step.execution_id, at)?;
                self.attempt(kind, step.execution_id)?.partials.insert(step.sequence);
            }
            Event::StepFinished(step) => {
                let place = self.end(kind, step.execution_id, Phase::Finished, Some(step.digest))?;
                self.scope_mut(place.scope)?.produced(place.node, Arc::clone(&step.outputs), at);
            }
            Event::StepFailed(step) => {
                let place = self.place(kind, &step.node_path)?;
                if let Some(execution_id) = step.execution_id {
                    self.end(kind, execution_id, Phase::Failed(step.failure), step.digest)?;
                }
                self.failed(place, step, at)?;
            }
            Event::StepCanceled(step) => {
                let place = self.end(kind, step.execution_id, Phase::Canceled, None)?;
                let node = &mut self.scope_mut(place.scope)?.nodes[place.node];
                node.status = NodeStatus::Canceled;
                node.finished_at = Some(at);
            }
            Event::StepEvaluated(step) => {
                let place = self.place(kind, &step.node_path)?;
                self.evaluated(place, step.outputs.as_ref(), at)?;
            }
            Event::StepSkipped(step) => {
                let place = self.place(kind, &step.node_path)?;
                self.scope_mut(place.scope)?.skipped(place.node, at);
            }
            Event::StepKept(step) => {
                let place = self.place(kind, &step.node_path)?;
                self.scope_mut(place.scope)?.produced(place.node, Arc::clone(&step.outputs), at);
            }
            Event::IterationKept(step) => self.iteration_kept(step)?,
            Event::StepConfirmed(step) => self.confirmed(step, at)?,
            Event::StepElapsed(step) => {
                let place = self.end(kind, step.execution_id, Phase::Finished, None)?;
                let scope = self.scope_mut(place.scope)?;
                let value = scope.input(place.node, "value").cloned().unwrap_or_default();
                let outputs: Outputs = std::iter::once(("value".to_owned(), value)).collect();
                scope.produced(place.node, Arc::new(outputs.into()), at);
            }
            Event::LoopStarted(step) => self.loop_started(&step.node_path, at)?,
            Event::IterationStarted(step) => {
                self.iteration_started(&step.node_path, step.index, at)?;
            }
            Event::IterationFinished(step) => self.iteration_finished(&step.node_path, step.index)?,
            Event::RunDeadlineSet(set) => self.deadline = Some(set.execution_id),
            Event::LateResult(step) => {
                self.attempt(kind, step.execution_id)?.has_late_result = true;
            }
            Event::RunFinished(_) => self.run_ended(RunStatus::Finished, at),
            Event::RunFailed(run) => {
                self.failure = Some(run.error.clone());
                self.run_ended(RunStatus::Failed, at);
            }
            Event::RunCanceled(_) => self.run_ended(RunStatus::Canceled, at),
        }
        Ok(())
    }

    pub(super) fn scope(&self, scope: ScopeId) -> Result<&Scope, Broken> {
        self.scopes.get(&scope).ok_or(Broken::NoScope(scope))
    }

    pub(super) fn scope_mut(&mut self, scope: ScopeId) -> Result<&mut Scope, Broken> {
        self.scopes.get_mut(&scope).ok_or(Broken::NoScope(scope))
    }

    /// The node at a path, if its scope runs.
    pub(super) fn find(&self, path: &NodePath) -> Option<Place> {
        let id = path.node_id();
        let prefix = path.0.strip_suffix(id).unwrap_or_default();
        let scope = *self.by_prefix.get(prefix)?;
        let node = self.scopes.get(&scope)?.graph.node_with(id)?;
        Some(Place { scope, node })
    }

    pub(super) fn place(&self, kind: &'static str, path: &NodePath) -> Result<Place, Broken> {
        self.find(path).ok_or_else(|| Broken::UnknownNode { kind, path: path.clone() })
    }

    pub(super) fn path(&self, place: Place) -> Result<NodePath, Broken> {
        Ok(self.scope(place.scope)?.path(place.node))
    }

    /// The widget of an attempt; `None` when its iteration is forgotten.
    pub(super) fn widget(&self, place: Place) -> Option<&Node> {
        self.scopes.get(&place.scope)?.graph.nodes.get(place.node)
    }

    fn attempt(&mut self, kind: &'static str, execution_id: ExecutionId) -> Result<&mut Attempt, Broken> {
        self.attempts.get_mut(&execution_id).ok_or(Broken::UnknownAttempt { kind, execution_id })
    }

    fn scheduled(
        &mut self,
        place: Place,
        execution_id: ExecutionId,
        number: u32,
        not_before: Option<Millis>,
        at: Millis,
    ) -> Result<(), Broken> {
        let scope = self.scope_mut(place.scope)?;
        scope.flow.decided(place.node);
        scope.open_attempts += 1;
        scope.attempts.push(execution_id);
        let is_task = matches!(scope.graph.nodes[place.node].kind, Kind::Task(_));
        let node = &mut scope.nodes[place.node];
        node.status = if is_task { NodeStatus::Queued } else { NodeStatus::Running };
        node.attempts = number;
        node.started_at = Some(at);
        node.finished_at = None;
        let before = node.newest.replace(execution_id);
        if let Some(before) = before.and_then(|before| self.attempts.get_mut(&before)) {
            before.newest = number;
        }
        self.outstanding += 1;
        self.queued += 1;
        let attempt = Attempt {
            place,
            is_task,
            forgotten_path: None,
            number,
            newest: number,
            phase: Phase::Queued,
            is_acked: false,
            worker_id: None,
            running_since: None,
            not_before,
            partials: Sequences::default(),
            digest: None,
            has_late_result: false,
        };
        self.attempts.insert(execution_id, attempt);
        Ok(())
    }

    /// The attempt reached somebody, if that is news.
    fn running(&mut self, kind: &'static str, execution_id: ExecutionId, at: Millis) -> Result<(), Broken> {
        let attempt = self.attempt(kind, execution_id)?;
        if attempt.phase != Phase::Queued {
            return Ok(());
        }
        attempt.phase = Phase::Running;
        attempt.running_since = Some(at);
        let place = attempt.place;
        self.queued -= 1;
        let node = &mut self.scope_mut(place.scope)?.nodes[place.node];
        node.status = NodeStatus::Running;
        node.undelivered = 0;
        Ok(())
    }

    fn end(
        &mut self,
        kind: &'static str,
        execution_id: ExecutionId,
        phase: Phase,
        digest: Option<Digest>,
    ) -> Result<Place, Broken> {
        let attempt = self.attempt(kind, execution_id)?;
        let (was_outstanding, was_queued) = (attempt.phase.is_outstanding(), attempt.phase == Phase::Queued);
        attempt.phase = phase;
        attempt.digest = digest;
        let place = attempt.place;
        if was_outstanding {
            self.outstanding -= 1;
            self.queued -= usize::from(was_queued);
            self.scope_mut(place.scope)?.open_attempts -= 1;
        }
        Ok(place)
    }

    fn evaluated(
        &mut self,
        place: Place,
        outputs: Option<&Arc<StepOutputs>>,
        at: Millis,
    ) -> Result<(), Broken> {
        let started = Arc::clone(&self.started);
        let scope = self.scope_mut(place.scope)?;
        scope.nodes[place.node].started_at.get_or_insert(at);
        let outputs =
            outputs.cloned().unwrap_or_else(|| Arc::new(scope.copied_outputs(place.node, &started).into()));
        scope.produced(place.node, outputs, at);
        Ok(())
    }

    fn confirmed(&mut self, step: &super::event::StepConfirmed, at: Millis) -> Result<(), Broken> {
        let place = self.end("step_confirmed", step.execution_id, Phase::Finished, None)?;
        let answer = Answer { approved: step.approved, by: step.by.clone() };
        self.answers.insert(step.node_path.clone(), answer);
        let scope = self.scope_mut(place.scope)?;
        if step.approved || scope.graph.is_output_connected(place.node, "reject") {
            scope.produced(place.node, Arc::new(super::waits::answered(step, at).into()), at);
        }
        Ok(())
    }

    fn failed(&mut self, place: Place, step: &super::event::StepFailed, at: Millis) -> Result<(), Broken> {
        let scope = self.scope_mut(place.scope)?;
        scope.flow.decided(place.node);
        let node = &mut scope.nodes[place.node];
        match step.failure {
            Failure::Undelivered => node.undelivered += 1,
            Failure::Reported | Failure::TimedOut => {
                node.failed_tries += 1;
                node.undelivered = 0;
            }
            Failure::Refused | Failure::Evaluation | Failure::Rejected => {}
        }
        node.error = Some(step.error.clone());
        if step.will_retry {
            return Ok(());
        }
        node.status = NodeStatus::Failed;
        node.finished_at = Some(at);
        let within = node.looping.as_ref().and_then(|own| own.failure.clone());
        scope.loop_failed(place.node);
        let graph = Arc::clone(&scope.graph);
        let on_error = graph.nodes[place.node].on_error;
        if on_error == OnError::Continue {
            let error = step.error_output.then(|| evaluate::failed(&step.node_path, &step.error));
            scope.failed_on(place.node, error);
        } else {
            let error = within.unwrap_or_else(|| RunError {
                node_path: Some(step.node_path.clone()),
                label: Some(graph.nodes[place.node].label.clone()),
                error: step.error.clone(),
            });
            self.fail_scope(place.scope, error)?;
        }
        if matches!(graph.nodes[place.node].kind, Kind::Loop(_)) {
            for scope in self.under(place) {
                self.scope_mut(scope)?.canceled(at);
            }
        }
        Ok(())
    }

    /// The scope fails, and with it its loop or the run; the first failure counts.
    fn fail_scope(&mut self, scope: ScopeId, error: RunError) -> Result<(), Broken> {
        let scope = self.scope_mut(scope)?;
        scope.failure.get_or_insert_with(|| error.clone());
        match scope.of {
            Some(of) => {
                self.looping(of)?.failure.get_or_insert(error);
            }
            None => {
                self.failure.get_or_insert(error);
            }
        }
        Ok(())
    }

    fn run_ended(&mut self, status: RunStatus, at: Millis) {
        self.status = status;
        self.finished_at = Some(at);
        for attempt in self.attempts.values_mut().filter(|attempt| attempt.phase.is_outstanding()) {
            attempt.phase = Phase::Canceled;
        }
        self.scopes.values_mut().for_each(|scope| scope.canceled(at));
        self.outstanding = 0;
        self.queued = 0;
    }
}
