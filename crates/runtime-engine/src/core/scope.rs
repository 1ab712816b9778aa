//! A scope: one graph being run. The process itself is the root scope, each running iteration of a
//! loop is another. A finished iteration leaves its output in its loop, and its scope is forgotten.

use super::{
    evaluate::{self, ERROR_OUTPUT, Outputs},
    event::RunStarted,
    flow::{Flow, PortState},
    graph::{Graph, Kind, NodeIndex, PortIndex},
    looping::LoopState,
    outputs::StepOutputs,
};
use contract::{
    ExecutionId, Json, Millis, NodePath,
    report::StepError,
    run::{NodeStatus, RunError},
};
use std::sync::Arc;

/// Scopes are numbered in the order in which they begin.
pub(super) type ScopeId = u64;

/// The scope of the process itself.
pub(super) const ROOT: ScopeId = 0;

/// A node in a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) scope: ScopeId,
    pub(super) node: NodeIndex,
}

/// One graph being run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scope {
    pub(super) graph: Arc<Graph>,
    /// What the paths of its nodes begin with: nothing, or `w-loop[3]/`.
    pub(super) prefix: String,
    /// The loop that it is an iteration of.
    pub(super) of: Option<Place>,
    /// What its triggers give.
    pub(super) inputs: Arc<Outputs>,
    pub(super) began_at: Millis,
    pub(super) flow: Flow,
    pub(super) nodes: Vec<NodeState>,
    /// The first failure that fails the scope; set while what already runs is waited for.
    pub(super) failure: Option<RunError>,
    /// Outstanding attempts of its own nodes.
    pub(super) open_attempts: usize,
    /// Loops among its own nodes that have begun and not ended.
    pub(super) open_loops: usize,
    /// All attempts of its own nodes.
    pub(super) attempts: Vec<ExecutionId>,
    /// Bytes of the payloads that it holds.
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
    pub(super) outputs: Option<Arc<StepOutputs>>,
    pub(super) error: Option<StepError>,
    /// A loop that has begun and not ended.
    pub(super) looping: Option<Box<LoopState>>,
    /// A loop that ended before it was through: what a repetition of the run keeps of it.
    pub(super) unfinished: Option<Box<LoopState>>,
}

impl NodeState {
    const WAITING: Self = Self {
        status: NodeStatus::Waiting,
        attempts: 0,
        newest: None,
        undelivered: 0,
        failed_tries: 0,
        started_at: None,
        finished_at: None,
        outputs: None,
        error: None,
        looping: None,
        unfinished: None,
    };
}

impl Scope {
    pub(super) fn new(
        graph: Arc<Graph>,
        prefix: String,
        of: Option<Place>,
        inputs: Arc<Outputs>,
        at: Millis,
    ) -> Self {
        Self {
            prefix,
            of,
            began_at: at,
            flow: Flow::new(&graph),
            nodes: vec![NodeState::WAITING; graph.nodes.len()],
            failure: None,
            open_attempts: 0,
            open_loops: 0,
            attempts: Vec::new(),
            payload_bytes: bytes_of(&inputs),
            inputs,
            graph,
        }
    }

    pub(super) fn path(&self, node: NodeIndex) -> NodePath {
        NodePath(format!("{}{}", self.prefix, self.graph.nodes[node].id))
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

    /// Does an edge lead into this input?
    pub(super) fn is_connected(&self, index: NodeIndex, name: &str) -> bool {
        self.graph.nodes[index].inputs.iter().any(|input| input.name == name && input.port.is_some())
    }

    fn port_value(&self, port: PortIndex) -> Option<&Json> {
        let PortState::Alive(edge) = self.flow.port(port) else { return None };
        let edge = &self.graph.edges[edge];
        self.nodes[edge.source].outputs.as_ref()?.values().get(&edge.output)
    }

    /// The values of a node whose outputs are copies: of what the scope began with, of what a loop
    /// gathered, or of the node's inputs.
    pub(super) fn copied_outputs(&self, index: NodeIndex, started: &RunStarted) -> Outputs {
        let node = &self.graph.nodes[index];
        match &node.kind {
            Kind::Trigger => evaluate::trigger(node, started.trigger, &self.inputs, self.began_at),
            Kind::Loop(_) => self.nodes[index].looping.as_ref().map(|own| own.outputs()).unwrap_or_default(),
            _ => self.inputs(index),
        }
    }

    /// The inputs of all `system.output` nodes that were evaluated; the first in document order
    /// names a value when several do.
    pub(super) fn collected(&self) -> Outputs {
        let mut inputs = Outputs::new();
        for (node, state) in self.graph.nodes.iter().zip(&self.nodes) {
            if node.kind != Kind::Output {
                continue;
            }
            for (name, value) in state.outputs.iter().flat_map(|outputs| outputs.values()) {
                inputs.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        inputs
    }

    /// The node has ended with these outputs.
    pub(super) fn produced(&mut self, index: NodeIndex, outputs: Arc<StepOutputs>, at: Millis) {
        let is_unwanted = self.graph.nodes[index].leaving.is_empty();
        let outputs = if is_unwanted { outputs } else { outputs.taken_apart() };
        self.payload_bytes += outputs.bytes();
        self.flow.decided(index);
        self.flow.node_ended(&self.graph, index, |output| outputs.values().contains_key(output));
        let node = &mut self.nodes[index];
        node.status = NodeStatus::Finished;
        node.finished_at = Some(at);
        node.error = None;
        node.outputs = Some(outputs);
        if node.looping.take().is_some() {
            self.open_loops = self.open_loops.saturating_sub(1);
        }
    }

    /// The node has failed and what is around it goes on; `error` is what it produces.
    pub(super) fn failed_on(&mut self, index: NodeIndex, error: Option<Outputs>) {
        self.flow.node_ended(&self.graph, index, |output| error.is_some() && output == ERROR_OUTPUT);
        self.payload_bytes += error.as_ref().map_or(0, bytes_of);
        self.nodes[index].outputs = error.map(|error| Arc::new(error.into()));
    }

    pub(super) fn skipped(&mut self, index: NodeIndex, at: Millis) {
        self.flow.decided(index);
        self.nodes[index].status = NodeStatus::Skipped;
        self.nodes[index].finished_at = Some(at);
        self.flow.node_ended(&self.graph, index, |_| false);
    }

    /// A loop that failed is no longer waited for.
    pub(super) fn loop_failed(&mut self, index: NodeIndex) {
        let node = &mut self.nodes[index];
        if let Some(looping) = node.looping.take() {
            node.unfinished = Some(looping);
            self.open_loops = self.open_loops.saturating_sub(1);
        }
    }

    /// Everything that has not ended is canceled.
    pub(super) fn canceled(&mut self, at: Millis) {
        for node in &mut self.nodes {
            if matches!(node.status, NodeStatus::Waiting | NodeStatus::Queued | NodeStatus::Running) {
                node.status = NodeStatus::Canceled;
                node.finished_at = Some(at);
            }
            if let Some(looping) = node.looping.take() {
                node.unfinished = Some(looping);
            }
        }
        self.open_attempts = 0;
        self.open_loops = 0;
    }
}

/// Bytes of names and values.
pub(super) fn bytes_of(outputs: &Outputs) -> usize {
    outputs.iter().map(|(name, value)| name.len() + value.text().len()).sum()
}
