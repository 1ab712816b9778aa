//! What people and services see of a run: its steps, its result, the tasks of its attempts.

use super::{
    evaluate::Outputs,
    graph::{Kind, NodeIndex, TaskLane},
    outputs::StepOutputs,
    policy::Policy,
    scope::{ROOT, Scope, ScopeId, bytes_of},
    state::State,
};
use contract::{
    ExecutionId, Millis,
    run::{NodeStatus, RunDetail, RunError, RunStatus, RunSummary, StepDetail},
    task::Task,
};
use std::collections::HashSet;

/// How many of the nodes that a step waits for are named.
const MOST_NAMED: usize = 20;

impl State {
    /// The run with its steps, in document order; those of running iterations stand behind their
    /// loop. When the outputs of all steps have more than `outputs_bytes`, the largest are left out
    /// until the rest fits.
    pub fn detail(&self, outputs_bytes: usize) -> RunDetail {
        let shown = self.largest_shown(outputs_bytes);
        let mut steps = Vec::new();
        self.steps_of(ROOT, shown, &mut steps);
        RunDetail {
            run: self.summary(),
            steps,
            public_inputs: self.status.is_terminal().then(|| self.public_inputs()),
        }
    }

    fn steps_of(&self, id: ScopeId, shown: usize, steps: &mut Vec<StepDetail>) {
        let Some(scope) = self.scopes.get(&id) else { return };
        for node in 0..scope.nodes.len() {
            steps.push(self.step(scope, node, shown));
            if matches!(scope.graph.nodes[node].kind, Kind::Loop(_)) {
                let here = self
                    .scopes
                    .range(id + 1..)
                    .filter(|(_, inner)| inner.of.is_some_and(|of| of.scope == id && of.node == node));
                here.for_each(|(inner, _)| self.steps_of(*inner, shown, steps));
            }
        }
    }

    /// The size above which a step's outputs are left out of a detail.
    fn largest_shown(&self, outputs_bytes: usize) -> usize {
        let nodes = self.scopes.values().flat_map(|scope| &scope.nodes);
        let mut sizes: Vec<usize> =
            nodes.filter_map(|node| node.outputs.as_deref()).map(StepOutputs::bytes).collect();
        sizes.sort_unstable();
        let mut total = 0usize;
        let fitting = sizes.iter().take_while(|size| {
            total = total.saturating_add(**size);
            total <= outputs_bytes
        });
        match fitting.count() {
            all if all == sizes.len() => usize::MAX,
            // Several of this size may not fit although one did: all of them are left out.
            some => sizes[some].saturating_sub(1),
        }
    }

    /// The run without its steps.
    pub fn summary(&self) -> RunSummary {
        RunSummary {
            id: self.run_id,
            process_id: self.started.process_id,
            status: self.status,
            created_at: self.started_at,
            updated_at: self.updated_at,
            finished_at: self.finished_at,
            error: self.run_error(),
        }
    }

    /// Why the run failed, once it has.
    pub fn run_error(&self) -> Option<RunError> {
        self.failure.clone().filter(|_| self.status == RunStatus::Failed)
    }

    /// When the run ended.
    pub fn finished_at(&self) -> Option<Millis> {
        self.finished_at
    }

    /// The inputs of all `system.output` nodes that were evaluated; the first in document order
    /// names a value when several do.
    pub fn public_inputs(&self) -> Outputs {
        self.scopes.get(&ROOT).map(Scope::collected).unwrap_or_default()
    }

    /// The task of an outstanding attempt and its lane; `None` for any other.
    pub fn task(&self, execution_id: ExecutionId, policy: &Policy) -> Option<(TaskLane, Task)> {
        let attempt = self.attempts.get(&execution_id).filter(|attempt| attempt.phase.is_outstanding())?;
        let scope = self.scopes.get(&attempt.place.scope)?;
        let node = &scope.graph.nodes[attempt.place.node];
        let Kind::Task(lane) = node.kind else { return None };
        let inputs = scope.inputs(attempt.place.node);
        let secrets = node
            .inputs
            .iter()
            .filter(|input| input.is_secret && inputs.get(&input.name).is_some_and(|value| !value.is_null()))
            .map(|input| input.name.clone())
            .collect();
        let pin = self.started.pins.get(&node.node_type);
        let task = Task {
            run_id: self.run_id,
            execution_id,
            node_id: node.id.clone(),
            node_path: scope.path(attempt.place.node),
            node_type: node.node_type.clone(),
            attempt: attempt.number,
            inputs,
            secrets,
            outputs: self.wanted_outputs(scope, attempt.place.node),
            workspace_id: self.started.workspace_id.clone(),
            user_id: self.started.user_id.clone(),
            diagram_id: self.started.process_id,
            publication_id: pin.map(|pin| pin.publication_id),
            timeout_ms: u64::try_from(policy.step_timeout(node).as_millis()).unwrap_or(u64::MAX),
            traceparent: self.started.traceparent.clone(),
            tracestate: self.started.tracestate.clone(),
        };
        Some((lane, task))
    }

    /// The widget's outputs; without a list those that its publication declares, else those that
    /// edges leave from.
    fn wanted_outputs(&self, scope: &Scope, index: NodeIndex) -> Vec<String> {
        let node = &scope.graph.nodes[index];
        let declared = self.started.pins.get(&node.node_type).map(|pin| &pin.outputs);
        match (&node.outputs, declared.filter(|outputs| !outputs.is_empty())) {
            (Some(outputs), _) | (None, Some(outputs)) => outputs.clone(),
            (None, None) => scope.graph.connected_outputs(index).map(str::to_owned).collect(),
        }
    }

    fn step(&self, scope: &Scope, index: NodeIndex, largest_shown: usize) -> StepDetail {
        let node = &scope.graph.nodes[index];
        let state = &scope.nodes[index];
        let outputs = state.outputs.as_deref();
        let shown = outputs.filter(|outputs| outputs.bytes() <= largest_shown);
        let waits_for_person = node.kind == Kind::Validation && state.status == NodeStatus::Running;
        let asked = waits_for_person.then(|| scope.inputs(index));
        StepDetail {
            node_path: scope.path(index),
            node_id: node.id.clone(),
            label: node.label.clone(),
            node_type: node.node_type.clone(),
            status: state.status,
            attempts: state.attempts,
            execution_id: state.newest,
            started_at: state.started_at,
            finished_at: state.finished_at,
            inputs: asked.filter(|inputs| bytes_of(inputs) <= largest_shown),
            outputs: shown.map(|outputs| outputs.values().clone()),
            outputs_omitted: shown.is_none() && outputs.is_some(),
            error: state.error.clone(),
            waits_for: self.waits_for(scope, index),
            // Heartbeats are no events: who shows the run adds what they said.
            word: None,
        }
    }

    fn waits_for(&self, scope: &Scope, index: NodeIndex) -> Option<String> {
        let (node, state) = (&scope.graph.nodes[index], &scope.nodes[index]);
        let attempt = state.newest.and_then(|id| self.attempts.get(&id));
        match (state.status, &node.kind) {
            (NodeStatus::Waiting, _) if self.failure.is_some() => {
                Some("nothing: the run fails when what still runs has ended".to_owned())
            }
            (NodeStatus::Waiting, _) if scope.of.is_some() && scope.failure.is_some() => {
                Some("nothing: the loop fails when what still runs in it has ended".to_owned())
            }
            (NodeStatus::Waiting, _) => {
                let sources = pending_sources(scope, index);
                let (named, more) = sources.split_at(sources.len().min(MOST_NAMED));
                let reason = match (named, more.len()) {
                    ([], _) => "nothing: another iteration of the loop has failed".to_owned(),
                    (named, 0) => format!("the results of {}", named.join(", ")),
                    (named, more) => format!("the results of {} and {more} more", named.join(", ")),
                };
                Some(reason).filter(|_| !sources.is_empty() || scope.of.is_some())
            }
            (NodeStatus::Queued, _) => Some(match attempt?.not_before {
                Some(at) => {
                    format!("attempt {}, not before {} (epoch milliseconds)", state.attempts, at.0)
                }
                None => "somebody who takes the task".to_owned(),
            }),
            (NodeStatus::Running, Kind::Validation) => Some("a person's answer".to_owned()),
            (NodeStatus::Running, Kind::Delay) => {
                Some(format!("the moment {} (epoch milliseconds)", attempt?.not_before?.0))
            }
            (NodeStatus::Running, Kind::Loop(_)) => Some("its iterations".to_owned()),
            (NodeStatus::Running, _) => Some("the result of the task".to_owned()),
            _ => None,
        }
    }
}

/// The nodes that still decide about this one's ports, each once.
fn pending_sources(scope: &Scope, index: NodeIndex) -> Vec<&str> {
    let mut seen = HashSet::new();
    let ports = scope.graph.nodes[index].ports.iter();
    let edges = ports.filter_map(|port| scope.flow.deciding(&scope.graph, *port));
    let sources = edges.map(|edge| scope.graph.edges[edge].source).filter(|source| seen.insert(*source));
    sources.map(|source| scope.graph.nodes[source].id.as_str()).collect()
}
