//! The state of a run: the fold of its events.

use super::{
    evaluate::{self, Outputs},
    event::{Event, Failure, RunStarted},
    flow::{Flow, PortState},
    graph::{Graph, Kind, NodeIndex, PortIndex},
    sequences::Sequences,
};
use contract::{
    Digest, ExecutionId, Json, Millis, NodePath, RunId,
    report::StepError,
    run::{NodeStatus, RunError, RunStatus},
};
use std::{collections::HashMap, sync::Arc};

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
}

/// The state of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub(super) graph: Arc<Graph>,
    pub(super) run_id: RunId,
    pub(super) started: Arc<RunStarted>,
    pub(super) started_at: Millis,
    pub(super) updated_at: Millis,
    pub(super) finished_at: Option<Millis>,
    pub(super) status: RunStatus,
    /// The first failure that fails the run; set while what already runs is waited for.
    pub(super) failure: Option<RunError>,
    pub(super) flow: Flow,
    pub(super) nodes: Vec<NodeState>,
    pub(super) attempts: HashMap<ExecutionId, Attempt>,
    /// How many attempts are outstanding.
    pub(super) outstanding: usize,
    /// Bytes of the payloads that the state holds.
    pub(super) payload_bytes: usize,
}

/// The state of one node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeState {
    pub(super) status: NodeStatus,
    /// Attempts so far.
    pub(super) attempts: u32,
    /// The newest attempt.
    pub(super) newest: Option<ExecutionId>,
    /// Failed deliveries since a task last reached somebody.
    pub(super) undelivered: u32,
    /// Attempts that failed after they had reached somebody.
    pub(super) failed_tries: u32,
    pub(super) started_at: Option<Millis>,
    pub(super) finished_at: Option<Millis>,
    pub(super) outputs: Option<Arc<Outputs>>,
    pub(super) error: Option<StepError>,
}

/// One attempt, kept after its end: its reports must be known again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) node: NodeIndex,
    pub(super) number: u32,
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
    /// Folds a stored history.
    ///
    /// # Errors
    /// [`Broken`], when the history does not fit the process.
    pub fn replay(
        run_id: RunId,
        graph: Arc<Graph>,
        events: impl IntoIterator<Item = (Millis, Event)>,
    ) -> Result<Self, Broken> {
        let mut events = events.into_iter();
        let Some((at, Event::RunStarted(started))) = events.next() else { return Err(Broken::NoStart) };
        let mut state = Self::begun(run_id, graph, started, at);
        for (at, event) in events {
            state.apply(at, &event)?;
        }
        Ok(state)
    }

    /// The state after `run_started`.
    pub(super) fn begun(run_id: RunId, graph: Arc<Graph>, started: Arc<RunStarted>, at: Millis) -> Self {
        let waiting = NodeState {
            status: NodeStatus::Waiting,
            attempts: 0,
            newest: None,
            undelivered: 0,
            failed_tries: 0,
            started_at: None,
            finished_at: None,
            outputs: None,
            error: None,
        };
        Self {
            run_id,
            started_at: at,
            updated_at: at,
            finished_at: None,
            status: RunStatus::Running,
            failure: None,
            flow: Flow::new(&graph),
            nodes: vec![waiting; graph.nodes.len()],
            attempts: HashMap::new(),
            outstanding: 0,
            payload_bytes: bytes_of(&started.payload),
            started,
            graph,
        }
    }

    /// The run.
    pub fn run_id(&self) -> RunId {
        self.run_id
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
        self.payload_bytes + self.nodes.len() * PER_NODE + self.attempts.len() * PER_ATTEMPT
    }

    /// Folds one event.
    pub(super) fn apply(&mut self, at: Millis, event: &Event) -> Result<(), Broken> {
        self.updated_at = at;
        let kind = event.kind();
        match event {
            Event::RunStarted(_) => return Err(Broken::StartedTwice),
            Event::StepScheduled(step) => {
                let node = self.node(kind, &step.node_path)?;
                self.scheduled(node, step.execution_id, step.attempt, step.not_before, at);
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
                let node = self.end(kind, step.execution_id, Phase::Finished, Some(step.digest))?;
                self.produced(node, Arc::clone(&step.outputs), at);
            }
            Event::StepFailed(step) => {
                let node = self.node(kind, &step.node_path)?;
                if let Some(execution_id) = step.execution_id {
                    self.end(kind, execution_id, Phase::Failed(step.failure), step.digest)?;
                }
                self.failed(node, step, at);
            }
            Event::StepCanceled(step) => {
                let node = self.end(kind, step.execution_id, Phase::Canceled, None)?;
                self.nodes[node].status = NodeStatus::Canceled;
                self.nodes[node].finished_at = Some(at);
            }
            Event::StepEvaluated(step) => {
                let node = self.node(kind, &step.node_path)?;
                self.nodes[node].started_at = Some(at);
                let outputs = step.outputs.clone().unwrap_or_else(|| self.copied_outputs(node));
                self.flow.decided(node);
                self.produced(node, outputs, at);
            }
            Event::StepSkipped(step) => {
                let node = self.node(kind, &step.node_path)?;
                self.skipped(node, at);
            }
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

    fn node(&self, kind: &'static str, path: &NodePath) -> Result<NodeIndex, Broken> {
        self.graph.node_at(path).ok_or_else(|| Broken::UnknownNode { kind, path: path.clone() })
    }

    fn attempt(&mut self, kind: &'static str, execution_id: ExecutionId) -> Result<&mut Attempt, Broken> {
        self.attempts.get_mut(&execution_id).ok_or(Broken::UnknownAttempt { kind, execution_id })
    }

    fn scheduled(
        &mut self,
        index: NodeIndex,
        execution_id: ExecutionId,
        number: u32,
        not_before: Option<Millis>,
        at: Millis,
    ) {
        self.flow.decided(index);
        let node = &mut self.nodes[index];
        node.status = NodeStatus::Queued;
        node.attempts = number;
        node.newest = Some(execution_id);
        node.started_at = Some(at);
        node.finished_at = None;
        self.outstanding += 1;
        let attempt = Attempt {
            node: index,
            number,
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
    }

    /// The attempt reached somebody, if that is news.
    fn running(&mut self, kind: &'static str, execution_id: ExecutionId, at: Millis) -> Result<(), Broken> {
        let attempt = self.attempt(kind, execution_id)?;
        if attempt.phase != Phase::Queued {
            return Ok(());
        }
        attempt.phase = Phase::Running;
        attempt.running_since = Some(at);
        let node = attempt.node;
        self.nodes[node].status = NodeStatus::Running;
        self.nodes[node].undelivered = 0;
        Ok(())
    }

    fn end(
        &mut self,
        kind: &'static str,
        execution_id: ExecutionId,
        phase: Phase,
        digest: Option<Digest>,
    ) -> Result<NodeIndex, Broken> {
        let attempt = self.attempt(kind, execution_id)?;
        let was_outstanding = attempt.phase.is_outstanding();
        attempt.phase = phase;
        attempt.digest = digest;
        let node = attempt.node;
        self.outstanding -= usize::from(was_outstanding);
        Ok(node)
    }

    fn produced(&mut self, index: NodeIndex, outputs: Arc<Outputs>, at: Millis) {
        self.payload_bytes += bytes_of(&outputs);
        self.flow.node_ended(&self.graph, index, |output| outputs.contains_key(output));
        let node = &mut self.nodes[index];
        node.status = NodeStatus::Finished;
        node.finished_at = Some(at);
        node.error = None;
        node.outputs = Some(outputs);
    }

    fn skipped(&mut self, index: NodeIndex, at: Millis) {
        self.flow.decided(index);
        self.nodes[index].status = NodeStatus::Skipped;
        self.nodes[index].finished_at = Some(at);
        self.flow.node_ended(&self.graph, index, |_| false);
    }

    fn failed(&mut self, index: NodeIndex, step: &super::event::StepFailed, at: Millis) {
        self.flow.decided(index);
        let node = &mut self.nodes[index];
        match step.failure {
            Failure::Undelivered => node.undelivered += 1,
            Failure::Reported | Failure::TimedOut => {
                node.failed_tries += 1;
                node.undelivered = 0;
            }
            Failure::Refused | Failure::Evaluation => {}
        }
        node.error = Some(step.error.clone());
        if step.will_retry {
            return;
        }
        node.status = NodeStatus::Failed;
        node.finished_at = Some(at);
        let graph = Arc::clone(&self.graph);
        match graph.nodes[index].on_error {
            contract::process::OnError::Continue => self.flow.node_ended(&graph, index, |_| false),
            contract::process::OnError::Fail => {
                self.failure.get_or_insert_with(|| RunError {
                    node_path: Some(graph.nodes[index].path.clone()),
                    label: Some(graph.nodes[index].label.clone()),
                    error: step.error.clone(),
                });
            }
        }
    }

    fn run_ended(&mut self, status: RunStatus, at: Millis) {
        self.status = status;
        self.finished_at = Some(at);
        for attempt in self.attempts.values_mut().filter(|attempt| attempt.phase.is_outstanding()) {
            attempt.phase = Phase::Canceled;
        }
        for node in &mut self.nodes {
            if matches!(node.status, NodeStatus::Waiting | NodeStatus::Queued | NodeStatus::Running) {
                node.status = NodeStatus::Canceled;
                node.finished_at = Some(at);
            }
        }
        self.outstanding = 0;
    }

    /// The values of a trigger or output node: copies of the run's payload or of the node's inputs.
    fn copied_outputs(&self, index: NodeIndex) -> Arc<Outputs> {
        let node = &self.graph.nodes[index];
        Arc::new(match node.kind {
            Kind::Trigger => evaluate::trigger(node, &self.started, self.started_at),
            _ => self.inputs(index),
        })
    }

    /// The node's inputs by name: a connected port's value; else, or if the port is dead,
    /// `value ?? defaultValue`; else absent.
    pub(super) fn inputs(&self, index: NodeIndex) -> Outputs {
        self.graph.nodes[index]
            .inputs
            .iter()
            .filter_map(|input| {
                let value = match input.port {
                    Some(port) => self.port_value(port).or(input.value.as_ref()),
                    None => input.value.as_ref(),
                };
                Some((input.name.clone(), value?.clone()))
            })
            .collect()
    }

    /// One input of the node, by the same rule.
    pub(super) fn input(&self, index: NodeIndex, name: &str) -> Option<&Json> {
        let input = self.graph.nodes[index].inputs.iter().find(|input| input.name == name)?;
        input.port.and_then(|port| self.port_value(port)).or(input.value.as_ref())
    }

    fn port_value(&self, port: PortIndex) -> Option<&Json> {
        let PortState::Alive(edge) = self.flow.port(port) else { return None };
        let edge = &self.graph.edges[edge];
        self.nodes[edge.source].outputs.as_ref()?.get(&edge.output)
    }
}

/// Bytes of names and values.
pub(super) fn bytes_of(outputs: &Outputs) -> usize {
    outputs.iter().map(|(name, value)| name.len() + value.text().len()).sum()
}
