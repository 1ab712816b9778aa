//! A stage for the core: plays a process, keeps its history and proves after every decision that
//! the replayed history equals the live state.

use crate::core::{
    Awaited, Confirmation, Decision, Draw, Event, Graph, Input, Kept, Opened, Outputs, Policy, RunStarted,
    State, StepOutputs, shared_result,
};
use contract::{
    ExecutionId, Json, Millis, NodePath, ProcessId, RunId,
    report::{Ack, Heartbeat, Partial, ReportOutcome, StepError, StepResult},
    run::{NodeStatus, RunStatus, StepDetail, TriggerKind},
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// Ids that count, and chance that is always one half.
#[derive(Debug, Default)]
pub(super) struct Counter(u128);

impl Draw for Counter {
    fn execution_id(&mut self) -> ExecutionId {
        self.0 += 1;
        ExecutionId(Uuid::from_u128(self.0))
    }

    fn chance(&mut self) -> f64 {
        0.5
    }
}

pub(super) struct Stage {
    graph: Arc<Graph>,
    pub(super) state: State,
    pub(super) history: Vec<(Millis, Event)>,
    pub(super) now: Millis,
    pub(super) policy: Policy,
    draw: Counter,
    pub(super) last: Decision,
}

pub(super) fn graph(document: &Value) -> Arc<Graph> {
    Arc::new(Graph::compile(&Json::from(document).read().unwrap()).unwrap())
}

pub(super) fn outputs(value: &Value) -> Outputs {
    Json::from(value).read().unwrap()
}

/// Outputs as a report brings them: as text.
#[expect(clippy::needless_pass_by_value, reason = "it goes where outputs are given away")]
pub(super) fn reported(outputs: Outputs) -> StepOutputs {
    Json::of(&outputs).unwrap().read().unwrap()
}

pub(super) fn started(payload: &Value) -> RunStarted {
    RunStarted {
        process_id: ProcessId(Uuid::from_u128(77)),
        process_revision: 1,
        workspace_id: "default".into(),
        user_id: "local".into(),
        trigger: TriggerKind::Manual,
        payload: outputs(payload),
        pins: Default::default(),
        traceparent: None,
        tracestate: None,
        retry_of: None,
    }
}

impl Stage {
    pub(super) fn of(document: &Value, payload: &Value) -> Self {
        Self::with(graph(document), payload, Policy::default())
    }

    pub(super) fn with(graph: Arc<Graph>, payload: &Value, policy: Policy) -> Self {
        Self::keeping(graph, payload, policy, Kept::new())
    }

    /// A repetition that keeps these outputs.
    pub(super) fn keeping(graph: Arc<Graph>, payload: &Value, policy: Policy, kept: Kept) -> Self {
        let now = Millis(1_000);
        let mut draw = Counter::default();
        let run_id = RunId(Uuid::from_u128(99));
        let (state, last) =
            State::start(run_id, Arc::clone(&graph), (started(payload), kept), now, &policy, &mut draw)
                .unwrap();
        let history = last.events.iter().cloned().map(|event| (now, event)).collect();
        let stage = Self { graph, state, history, now, policy, draw, last };
        stage.prove_replay();
        stage
    }

    /// The stored history, read back, folds to the live state.
    fn prove_replay(&self) {
        let stored = self
            .history
            .iter()
            .map(|(at, event)| (*at, Event::read(event.kind(), &event.body().unwrap()).unwrap()));
        let replayed = State::replay(self.state.run_id(), Arc::clone(&self.graph), stored).unwrap();
        assert!(replayed == self.state, "replay differs from the live state");
    }

    pub(super) fn decide(&mut self, input: Input) -> ReportOutcome {
        self.now = self.now.plus(Duration::from_millis(1));
        let was_terminal = self.state.status().is_terminal();
        let before = self.state.clone();
        self.last = self.state.decide(input, self.now, &self.policy, &mut self.draw).unwrap();
        self.history.extend(self.last.events.iter().cloned().map(|event| (self.now, event)));
        self.prove_replay();
        if was_terminal {
            assert!(self.last.opened.is_empty(), "something starts after the end");
            assert_eq!(
                (self.state.status(), self.state.detail(usize::MAX)),
                (before.status(), {
                    let mut detail = before.detail(usize::MAX);
                    detail.run.updated_at = self.state.detail(usize::MAX).run.updated_at;
                    detail
                }),
                "the end is not the end"
            );
        }
        self.last.answer.clone()
    }

    /// The newest attempt of a node.
    pub(super) fn attempt(&self, node: &str) -> ExecutionId {
        self.step(node).execution_id.unwrap_or_else(|| panic!("{node} has no attempt"))
    }

    pub(super) fn step(&self, node: &str) -> StepDetail {
        let steps = self.state.detail(usize::MAX).steps;
        let path = NodePath(node.to_owned());
        steps.into_iter().find(|step| step.node_path == path).unwrap_or_else(|| panic!("no step {node}"))
    }

    pub(super) fn status(&self, node: &str) -> NodeStatus {
        self.step(node).status
    }

    pub(super) fn run(&self) -> RunStatus {
        self.state.status()
    }

    /// The inputs of a node's outstanding task, as JSON.
    pub(super) fn inputs(&self, node: &str) -> Value {
        let (_, task) = self.state.task(self.attempt(node), &self.policy).expect("outstanding");
        serde_json::to_value(task.inputs).unwrap()
    }

    pub(super) fn public_inputs(&self) -> Value {
        serde_json::to_value(self.state.public_inputs()).unwrap()
    }

    pub(super) fn kinds(&self) -> Vec<&'static str> {
        self.last.events.iter().map(Event::kind).collect()
    }

    pub(super) fn ack(&mut self, id: ExecutionId) -> ReportOutcome {
        self.decide(Input::Ack(id, Ack::default()))
    }

    pub(super) fn heartbeat(&mut self, id: ExecutionId) -> ReportOutcome {
        self.decide(Input::Heartbeat(id, Heartbeat::default()))
    }

    pub(super) fn partial(&mut self, id: ExecutionId, sequence: u64) -> ReportOutcome {
        self.decide(Input::Partial(
            id,
            Partial { sequence, outputs: reported(outputs(&json!({"o": "part"}))) },
        ))
    }

    pub(super) fn result(&mut self, id: ExecutionId, result: StepResult) -> ReportOutcome {
        let digest = result.digest();
        self.decide(Input::Result(id, shared_result(result.with_outputs(reported)), digest))
    }

    /// A person answers.
    pub(super) fn confirm(&mut self, node: &str, approved: bool, by: &str) -> ReportOutcome {
        let comment = Some("so it is".to_owned());
        let confirmation =
            Confirmation { node_path: NodePath(node.to_owned()), approved, comment, by: by.to_owned() };
        self.decide(Input::Confirm(Box::new(confirmation)))
    }

    /// How many events of a kind the history holds.
    pub(super) fn count(&self, kind: &str) -> usize {
        self.history.iter().filter(|(_, event)| event.kind() == kind).count()
    }

    /// The newest attempt of the node ends well.
    pub(super) fn finish(&mut self, node: &str, values: &Value) -> ReportOutcome {
        self.result(self.attempt(node), StepResult::ok(outputs(values)))
    }

    /// The newest attempt of the node fails.
    pub(super) fn fail(&mut self, node: &str, message: &str) -> ReportOutcome {
        self.result(self.attempt(node), failure(message))
    }
}

/// When the task of an attempt is put on its lane, and whether at once.
pub(super) fn publication(opened: &Opened) -> (Millis, bool) {
    match opened.awaited {
        Awaited::Task { publish_at, is_due, .. } => (publish_at, is_due),
        other => panic!("no task: {other:?}"),
    }
}

/// A field of a widget.
pub(super) fn field(name: &str, value: &Value) -> Value {
    json!({"name": name, "value": value})
}

/// An engine-evaluated widget.
pub(super) fn builtin(id: &str, node_type: &str, config: &Value) -> Value {
    json!({"id": id, "source": {"nodeType": node_type}, "config": config})
}

pub(super) fn failure(message: &str) -> StepResult {
    StepResult::failed(StepError { message: message.into(), ..StepError::default() })
}

/// A widget of a plugin with one output `o`, and what else is given.
pub(super) fn task(id: &str, more: &Value) -> Value {
    let mut widget = json!({"id": id, "source": {"nodeType": "plugin.test"}, "outputs": ["o"]});
    if let (Some(widget), Some(more)) = (widget.as_object_mut(), more.as_object()) {
        widget.extend(more.clone());
    }
    widget
}

/// `a.o -> b.i`
pub(super) fn edge(text: &str) -> Value {
    let (source, target) = text.split_once(" -> ").unwrap();
    let (source, output) = source.split_once('.').unwrap();
    let (target, input) = target.split_once('.').unwrap();
    json!({"source": source, "sourceHandle": output, "target": target, "targetHandle": input})
}

pub(super) fn process(widgets: &[Value], edges: &[&str]) -> Value {
    json!({"widgets": widgets, "edges": edges.iter().map(|text| edge(text)).collect::<Vec<_>>()})
}

pub(super) fn output_node(fields: &Value) -> Value {
    json!({"id": "out", "source": {"nodeType": "system.output"}, "config": fields})
}

pub(super) fn code(outcome: &ReportOutcome) -> &'static str {
    outcome.code()
}
