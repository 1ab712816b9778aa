//! What people and services see of a run: its steps, its result, the tasks of its attempts.

use super::{
    evaluate::Outputs,
    graph::{Kind, NodeIndex, TaskLane},
    policy::Policy,
    state::{Phase, State, bytes_of},
};
use contract::{
    ExecutionId, Millis,
    run::{NodeStatus, RunDetail, RunError, RunStatus, RunSummary, StepDetail},
    task::Task,
};

impl State {
    /// The run with its steps, in document order. When the outputs of all steps have more than
    /// `outputs_bytes`, the largest are left out until the rest fits.
    pub fn detail(&self, outputs_bytes: usize) -> RunDetail {
        let shown = self.largest_shown(outputs_bytes);
        RunDetail {
            run: self.summary(),
            steps: (0..self.nodes.len()).map(|node| self.step(node, shown)).collect(),
            public_inputs: self.status.is_terminal().then(|| self.public_inputs()),
        }
    }

    /// The size above which a step's outputs are left out of a detail.
    fn largest_shown(&self, outputs_bytes: usize) -> usize {
        let mut sizes: Vec<usize> =
            self.nodes.iter().filter_map(|node| node.outputs.as_deref()).map(bytes_of).collect();
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
        let mut inputs = Outputs::new();
        for (node, state) in self.graph.nodes.iter().zip(&self.nodes) {
            if node.kind != Kind::Output {
                continue;
            }
            for (name, value) in state.outputs.iter().flat_map(|outputs| outputs.iter()) {
                inputs.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        inputs
    }

    /// The task of an outstanding attempt and its lane; `None` for any other.
    pub fn task(&self, execution_id: ExecutionId, policy: &Policy) -> Option<(TaskLane, Task)> {
        let attempt = self.attempts.get(&execution_id).filter(|attempt| attempt.phase.is_outstanding())?;
        let node = &self.graph.nodes[attempt.node];
        let Kind::Task(lane) = node.kind else { return None };
        let inputs = self.inputs(attempt.node);
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
            node_path: node.path.clone(),
            node_type: node.node_type.clone(),
            attempt: attempt.number,
            inputs,
            secrets,
            outputs: self.wanted_outputs(attempt.node),
            workspace_id: self.started.workspace_id.clone(),
            user_id: self.started.user_id.clone(),
            diagram_id: self.started.process_id,
            publication_id: pin.map(|pin| pin.publication_id),
            timeout_ms: u64::try_from(policy.step_timeout(node).as_millis()).unwrap_or(u64::MAX),
            traceparent: self.started.traceparent.clone(),
        };
        Some((lane, task))
    }

    /// The widget's outputs; without a list those that its publication declares, else those that
    /// edges leave from.
    fn wanted_outputs(&self, index: NodeIndex) -> Vec<String> {
        let node = &self.graph.nodes[index];
        let declared = self.started.pins.get(&node.node_type).map(|pin| &pin.outputs);
        match (&node.outputs, declared.filter(|outputs| !outputs.is_empty())) {
            (Some(outputs), _) | (None, Some(outputs)) => outputs.clone(),
            (None, None) => self.graph.connected_outputs(index).map(str::to_owned).collect(),
        }
    }

    fn step(&self, index: NodeIndex, largest_shown: usize) -> StepDetail {
        let node = &self.graph.nodes[index];
        let state = &self.nodes[index];
        let outputs = state.outputs.as_deref();
        let shown = outputs.filter(|outputs| bytes_of(outputs) <= largest_shown);
        StepDetail {
            node_path: node.path.clone(),
            node_id: node.id.clone(),
            label: node.label.clone(),
            node_type: node.node_type.clone(),
            status: state.status,
            attempts: state.attempts,
            execution_id: state.newest,
            started_at: state.started_at,
            finished_at: state.finished_at,
            outputs: shown.cloned(),
            outputs_omitted: shown.is_none() && outputs.is_some(),
            error: state.error.clone(),
            waits_for: self.waits_for(index),
        }
    }

    fn waits_for(&self, index: NodeIndex) -> Option<String> {
        let state = &self.nodes[index];
        match state.status {
            NodeStatus::Waiting if self.failure.is_some() => {
                Some("nothing: the run fails when what still runs has ended".to_owned())
            }
            NodeStatus::Waiting => {
                let sources = self.pending_sources(index);
                Some(format!("the results of {}", sources.join(", "))).filter(|_| !sources.is_empty())
            }
            NodeStatus::Queued => {
                let attempt = self.attempts.get(&state.newest?)?;
                debug_assert_eq!(attempt.phase, Phase::Queued);
                Some(match attempt.not_before {
                    Some(at) => {
                        format!("attempt {}, not before {} (epoch milliseconds)", attempt.number, at.0)
                    }
                    None => "somebody who takes the task".to_owned(),
                })
            }
            NodeStatus::Running => Some("the result of the task".to_owned()),
            _ => None,
        }
    }

    /// The nodes that still decide about this one's ports.
    fn pending_sources(&self, index: NodeIndex) -> Vec<&str> {
        let mut sources: Vec<&str> = Vec::new();
        for port in &self.graph.nodes[index].ports {
            if let Some(edge) = self.flow.deciding(&self.graph, *port) {
                let id = self.graph.nodes[self.graph.edges[edge].source].id.as_str();
                if !sources.contains(&id) {
                    sources.push(id);
                }
            }
        }
        sources
    }
}
