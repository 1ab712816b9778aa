//! Properties over random acyclic processes and random orders of reports. The stage proves after
//! every decision that the replayed history equals the live state, and that nothing moves after the
//! end.

use super::{
    reference::{ERROR, Edge, End, Kind, Node, interpret},
    stage::{Stage, code, failure, outputs},
};
use crate::core::{Event, Input};
use contract::{
    ExecutionId,
    report::{Dispatched, StepError, StepResult},
    run::{NodeStatus, RunStatus},
};
use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};

const OUTPUTS: [&str; 2] = ["o0", "o1"];
/// What edges may leave from, in the order of the numbers of outputs.
const HANDLES: [&str; 3] = ["o0", "o1", "error"];
const PORTS: [&str; 3] = ["p0", "p1", "p2"];

/// A random acyclic process: edges lead from lower to higher numbers, in a random document order.
fn processes() -> impl Strategy<Value = (Vec<Node>, Vec<Edge>)> {
    let node = (
        prop_oneof![5 => Just(Kind::Task), 1 => Just(Kind::Output)],
        proptest::option::weighted(0.85, any::<[bool; 2]>()),
    );
    vec(node, 1..12)
        .prop_flat_map(|nodes| {
            let nodes: Vec<Node> =
                nodes.into_iter().map(|(kind, produces)| Node { kind, produces }).collect();
            let count = nodes.len();
            let edge = (0..count, 0..count, 0..HANDLES.len(), 0..PORTS.len());
            let edges = vec(edge, 0..(count * 3)).prop_map(move |edges| {
                edges
                    .into_iter()
                    .filter(|(one, other, ..)| one != other)
                    .map(|(one, other, output, port)| Edge {
                        source: one.min(other),
                        output,
                        target: one.max(other),
                        port,
                    })
                    // Output nodes of this test have no outputs of their own.
                    .collect::<Vec<_>>()
            });
            (Just(nodes), edges)
        })
        .prop_map(|(nodes, edges)| {
            let from_task = |edge: &Edge| nodes[edge.source].kind == Kind::Task;
            let edges = edges.iter().copied().filter(from_task).collect();
            (nodes, edges)
        })
}

fn id(node: usize) -> String {
    format!("n{node}")
}

fn document(nodes: &[Node], edges: &[Edge], on_error: &str) -> Value {
    let widgets: Vec<Value> = nodes
        .iter()
        .enumerate()
        .map(|(number, node)| match node.kind {
            Kind::Task => json!({"id": id(number), "source": {"nodeType": "plugin.test"}, "outputs": OUTPUTS,
                "execution": {"onError": on_error}}),
            Kind::Output => json!({"id": id(number), "source": {"nodeType": "system.output"}}),
        })
        .collect();
    // Only who goes on after a failure has the output `error`.
    let edges: Vec<Value> = edges
        .iter()
        .filter(|edge| edge.output != ERROR || on_error == "continue")
        .map(|edge| {
            json!({"source": id(edge.source), "sourceHandle": HANDLES[edge.output],
                "target": id(edge.target), "targetHandle": PORTS[edge.port]})
        })
        .collect();
    json!({"widgets": widgets, "edges": edges})
}

/// What the node's task reports: each produced output's value names where it came from.
fn report(number: usize, node: &Node) -> StepResult {
    let Some(produces) = node.produces else { return failure("broken") };
    let values: serde_json::Map<String, Value> = OUTPUTS
        .iter()
        .zip(produces)
        .enumerate()
        .filter(|(_, (_, produced))| *produced)
        .map(|(output, (name, _))| ((*name).to_owned(), json!([number, output])))
        .collect();
    StepResult::ok(outputs(&values.into()))
}

fn number_of(node: &str) -> usize {
    node.trim_start_matches('n').parse().unwrap()
}

fn outstanding(stage: &Stage) -> Vec<(usize, ExecutionId)> {
    let steps = stage.state.detail(usize::MAX).steps.into_iter();
    steps
        .filter(|step| matches!(step.status, NodeStatus::Queued | NodeStatus::Running))
        .map(|step| (number_of(&step.node_id), step.execution_id.unwrap()))
        .collect()
}

fn end_of(stage: &Stage, nodes: &[Node], taken: &BTreeMap<(usize, usize), (usize, usize)>) -> End {
    let statuses = stage.state.detail(usize::MAX).steps.into_iter().map(|step| step.status).collect();
    let mut inputs = taken.clone();
    for (number, step) in stage.state.detail(usize::MAX).steps.into_iter().enumerate() {
        if nodes[number].kind == Kind::Output && step.status == NodeStatus::Finished {
            note_inputs(number, &serde_json::to_value(step.outputs).unwrap(), &mut inputs);
        }
    }
    End { statuses, inputs }
}

fn note_inputs(node: usize, inputs: &Value, taken: &mut BTreeMap<(usize, usize), (usize, usize)>) {
    for (port, value) in inputs.as_object().unwrap() {
        let port = PORTS.iter().position(|name| name == port).unwrap();
        let from = match value["nodePath"].as_str() {
            Some(failed) => (number_of(failed), ERROR),
            None => serde_json::from_value(value.clone()).unwrap(),
        };
        taken.insert((node, port), from);
    }
}

/// Every started run ends, or waits for an outstanding attempt; each node has at most one.
fn check_liveness(stage: &Stage) {
    let waits = stage.state.outstanding();
    assert_eq!(stage.run() == RunStatus::Running, waits > 0, "a run waits for attempts and for nothing else");
    assert_eq!(outstanding(stage).len(), waits);
    for step in stage.state.detail(usize::MAX).steps {
        if matches!(step.status, NodeStatus::Waiting | NodeStatus::Queued | NodeStatus::Running) {
            assert!(step.waits_for.is_some(), "{} waits without a reason", step.node_id);
        }
    }
}

/// No step is scheduled while an attempt of it is outstanding.
fn check_history(stage: &Stage) {
    let mut open = HashSet::new();
    for (_, event) in &stage.history {
        match event {
            Event::StepScheduled(step) => {
                assert!(open.insert(step.node_path.clone()), "{} runs twice", step.node_path);
            }
            Event::StepFinished(step) => assert!(open.remove(&step.node_path)),
            Event::StepFailed(step) if step.execution_id.is_some() => assert!(open.remove(&step.node_path)),
            Event::StepCanceled(step) => assert!(open.remove(&step.node_path)),
            Event::RunCanceled(_) => open.clear(),
            Event::RunFinished(_) | Event::RunFailed(_) => assert!(open.is_empty()),
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_reports_ends_as_the_reference_says(
        (nodes, edges) in processes(),
        orders in vec(vec(any::<Index>(), 16), 2),
    ) {
        let expected = interpret(&nodes, &edges);
        for order in orders {
            let mut stage = Stage::of(&document(&nodes, &edges, "continue"), &json!({}));
            let mut taken = BTreeMap::new();
            let mut order = order.into_iter().cycle();
            loop {
                check_liveness(&stage);
                let open = outstanding(&stage);
                if open.is_empty() {
                    break;
                }
                let (number, attempt) = open[order.next().unwrap().index(open.len())];
                note_inputs(number, &stage.inputs(&id(number)), &mut taken);
                let told = stage.result(attempt, report(number, &nodes[number]));
                prop_assert_eq!(code(&told), "applied");
            }
            check_history(&stage);
            prop_assert_eq!(stage.run(), RunStatus::Finished);
            prop_assert_eq!(&end_of(&stage, &nodes, &taken), &expected);
        }
    }

    #[test]
    fn whatever_happens_history_and_state_agree_and_the_run_never_hangs(
        (nodes, edges) in processes(),
        moves in vec((0u8..12, any::<Index>(), any::<Index>()), 0..60),
    ) {
        let mut stage = Stage::of(&document(&nodes, &edges, "fail"), &json!({}));
        let mut seen: Vec<(usize, ExecutionId)> = Vec::new();
        for (kind, which, sequence) in moves {
            for one in outstanding(&stage) {
                if !seen.contains(&one) {
                    seen.push(one);
                }
            }
            if seen.is_empty() {
                break;
            }
            let (number, attempt) = seen[which.index(seen.len())];
            match kind {
                0 | 1 => drop(stage.ack(attempt)),
                2 => drop(stage.heartbeat(attempt)),
                3 => drop(stage.partial(attempt, sequence.index(5) as u64)),
                4..=6 => drop(stage.result(attempt, report(number, &nodes[number]))),
                7 => drop(stage.result(attempt, failure("other"))),
                8 => drop(stage.decide(Input::DeliveryOverdue(attempt))),
                9 => drop(stage.decide(Input::StepOverdue(attempt))),
                10 => drop(stage.decide(Input::Dispatched(attempt, Dispatched::Failed(StepError::default())))),
                _ if sequence.index(4) == 0 => drop(stage.decide(Input::Cancel)),
                _ => drop(stage.decide(Input::Dispatched(attempt, Dispatched::Delivered { implicit: true }))),
            }
            check_liveness(&stage);
        }
        check_history(&stage);
    }
}
