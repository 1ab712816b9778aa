//! Random nested loops, sequential and parallel, with failing steps, in random orders of reports:
//! they end as a naive recursion says.

use super::stage::{Stage, code, failure, graph, output_node, outputs, process, task};
use crate::core::{Event, Input, Policy};
use contract::{
    ExecutionId, NodePath,
    report::StepResult,
    run::{NodeStatus, RunStatus},
};
use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::{Value, json};
use std::collections::HashSet;

/// What a loop repeats.
#[derive(Clone, Debug)]
enum Body {
    Task,
    Loop(Box<Shape>),
}

/// A loop.
#[derive(Clone, Debug)]
struct Shape {
    count: usize,
    concurrency: Option<u64>,
    is_tolerant: bool,
    body: Body,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let one = (0usize..4, proptest::option::of(1u64..4), any::<bool>());
    let leaf = one.clone().prop_map(|one| shape(one, Body::Task));
    leaf.prop_recursive(2, 8, 1, move |inner| {
        (one.clone(), inner).prop_map(|(one, inner)| shape(one, Body::Loop(Box::new(inner))))
    })
}

fn shape((count, concurrency, is_tolerant): (usize, Option<u64>, bool), body: Body) -> Shape {
    // A sequential loop over nothing would be one whose body decides.
    let count = if concurrency.is_none() { count.max(1) } else { count };
    Shape { count, concurrency, is_tolerant, body }
}

/// The shape without any loop that goes on after a failure.
fn strict(shape: Shape) -> Shape {
    let body = match shape.body {
        Body::Task => Body::Task,
        Body::Loop(inner) => Body::Loop(Box::new(strict(*inner))),
    };
    Shape { is_tolerant: false, body, ..shape }
}

fn widget(shape: &Shape) -> Value {
    let inner = match &shape.body {
        Body::Task => process(&[task("b", &json!({})), output_node(&json!([]))], &["b.o -> out.r"]),
        Body::Loop(inner) => process(&[widget(inner), output_node(&json!([]))], &["w.items -> out.r"]),
    };
    let mut config = vec![
        json!({"name": "iterator", "value": (0..shape.count).collect::<Vec<_>>()}),
        json!({"name": "body", "value": inner}),
    ];
    if let Some(concurrency) = shape.concurrency {
        config.push(json!({"name": "mode", "value": "parallel"}));
        config.push(json!({"name": "concurrency", "value": concurrency}));
    }
    let on_error = if shape.is_tolerant { "continue" } else { "fail" };
    json!({"id": "w", "source": {"nodeType": "system.loop"}, "config": config, "execution": {"onError": on_error}})
}

/// `items` of the loop whose iterations' paths begin with `path`; `None`: it failed.
fn items(shape: &Shape, path: &str, fails: &dyn Fn(&str) -> bool) -> Option<Value> {
    let mut items = Vec::new();
    for index in 0..shape.count {
        let here = format!("{path}[{index}]/");
        items.push(match &shape.body {
            Body::Task if fails(&format!("{here}b")) => return None,
            Body::Task => json!({"r": format!("{here}b")}),
            Body::Loop(inner) => match items_of(inner, &here, fails) {
                Some(found) => json!({"r": found}),
                None if inner.is_tolerant => json!({}),
                None => return None,
            },
        });
    }
    Some(items.into())
}

fn items_of(shape: &Shape, prefix: &str, fails: &dyn Fn(&str) -> bool) -> Option<Value> {
    items(shape, &format!("{prefix}w"), fails)
}

fn outstanding(stage: &Stage) -> Vec<(NodePath, ExecutionId)> {
    let steps = stage.state.detail(usize::MAX).steps.into_iter();
    steps
        .filter(|step| step.node_id == "b")
        .filter(|step| matches!(step.status, NodeStatus::Queued | NodeStatus::Running))
        .map(|step| (step.node_path, step.execution_id.unwrap()))
        .collect()
}

/// A run waits for attempts and for nothing else, and no step runs twice.
fn check(stage: &Stage) {
    assert_eq!(stage.run() == RunStatus::Running, stage.state.outstanding() > 0);
    let mut begun = HashSet::new();
    for (_, event) in &stage.history {
        if let Event::StepScheduled(step) = event {
            assert!(begun.insert(step.node_path.clone()), "{} runs twice", step.node_path);
        }
    }
}

fn report(path: &NodePath, fails: &dyn Fn(&str) -> bool) -> StepResult {
    if fails(&path.0) { failure("broken") } else { StepResult::ok(outputs(&json!({"o": path.0}))) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_reports_ends_as_a_recursion_over_the_loops_says(
        shape in shapes(),
        seed in any::<u64>(),
        order in vec((any::<Index>(), any::<bool>()), 16),
    ) {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let fails = move |path: &str| {
            let mut hasher = DefaultHasher::new();
            (seed, path).hash(&mut hasher);
            hasher.finish().is_multiple_of(9)
        };
        let document = process(&[widget(&shape), output_node(&json!([]))], &["w.items -> out.items"]);
        let mut stage = Stage::of(&document, &json!({}));
        let mut order = order.into_iter().cycle();
        loop {
            check(&stage);
            let open = outstanding(&stage);
            if open.is_empty() {
                break;
            }
            let (which, acks) = order.next().unwrap();
            let (path, attempt) = &open[which.index(open.len())];
            if acks {
                stage.ack(*attempt);
            }
            prop_assert_eq!(code(&stage.result(*attempt, report(path, &fails))), "applied");
        }
        match (items_of(&shape, "", &fails), shape.is_tolerant) {
            (Some(items), _) => prop_assert_eq!(stage.public_inputs(), json!({"items": items})),
            (None, true) => prop_assert_eq!((stage.run(), stage.public_inputs()), (RunStatus::Finished, json!({}))),
            (None, false) => prop_assert_eq!(stage.run(), RunStatus::Failed),
        }
        let live = stage.state.detail(usize::MAX).steps.len();
        prop_assert!(stage.run() != RunStatus::Finished || shape.is_tolerant || live == 2, "iterations are forgotten");
    }

    #[test]
    fn a_repetition_runs_no_finished_step_again_and_ends_as_a_run_that_never_failed(
        shape in shapes().prop_map(strict),
        breaks_at in any::<Index>(),
        order in vec(any::<Index>(), 16),
        cancels in any::<bool>(),
    ) {
        let document = process(&[widget(&shape), output_node(&json!([]))], &["w.items -> out.items"]);
        let mut order = order.into_iter().cycle();
        let mut done: HashSet<NodePath> = HashSet::new();
        let mut stage = Stage::of(&document, &json!({}));
        let breaks_at = breaks_at.index(8);
        loop {
            let open = outstanding(&stage);
            if open.is_empty() {
                break;
            }
            let (path, attempt) = &open[order.next().unwrap().index(open.len())];
            match done.len() == breaks_at {
                true if cancels => drop(stage.decide(Input::Cancel)),
                true => {
                    stage.result(*attempt, failure("broken"));
                    // What runs beside it is withdrawn: nobody had acknowledged it.
                    prop_assert_eq!(stage.run(), RunStatus::Failed);
                }
                false => {
                    stage.result(*attempt, report(path, &|_| false));
                    done.insert(path.clone());
                }
            }
        }
        if stage.run() != RunStatus::Finished {
            let kept = stage.state.kept();
            stage = Stage::keeping(graph(&document), &json!({}), Policy::default(), kept);
        }
        loop {
            check(&stage);
            let open = outstanding(&stage);
            if open.is_empty() {
                break;
            }
            let (path, attempt) = &open[order.next().unwrap().index(open.len())];
            prop_assert!(done.insert(path.clone()), "{} ran again", path);
            stage.result(*attempt, report(path, &|_| false));
        }
        prop_assert_eq!(stage.run(), RunStatus::Finished);
        let items = items_of(&shape, "", &|_| false).unwrap();
        prop_assert_eq!(stage.public_inputs(), json!({"items": items}));
    }

    #[test]
    fn a_canceled_run_has_no_open_iteration_whenever_it_comes(shape in shapes(), steps in 0usize..6) {
        let document = process(&[widget(&shape)], &[]);
        let mut stage = Stage::of(&document, &json!({}));
        for _ in 0..steps {
            let open = outstanding(&stage);
            let Some((path, attempt)) = open.first() else { break };
            stage.result(*attempt, report(path, &|_| false));
        }
        stage.decide(Input::Cancel);
        prop_assert!(outstanding(&stage).is_empty());
        check(&stage);
    }
}
