//! `system.loop` (protocol section 7).

use super::stage::{Stage, builtin, code, failure, field, graph, output_node, outputs, process, task};
use crate::core::{Event, Input, Policy, State};
use contract::{
    Json,
    run::{NodeStatus, RunStatus},
};
use serde_json::{Value, json};

/// A body: trigger with these fields → task `b` → output.
fn body(fields: &[&str], results: &[&str]) -> Value {
    let config: Vec<Value> = fields.iter().map(|name| json!({"name": name})).collect();
    let mut edges: Vec<String> = fields.iter().map(|name| format!("t.{name} -> b.{name}")).collect();
    edges.extend(results.iter().map(|name| format!("b.{name} -> out.{name}")));
    let edges: Vec<&str> = edges.iter().map(String::as_str).collect();
    process(
        &[
            builtin("t", "system.trigger.input", &config.into()),
            task("b", &json!({"outputs": results})),
            output_node(&json!([])),
        ],
        &edges,
    )
}

/// A loop node.
fn looping(settings: &[Value], more: &Value) -> Value {
    let mut widget =
        json!({"id": "w", "label": "Цикл", "source": {"nodeType": "system.loop"}, "config": settings});
    if let (Some(widget), Some(more)) = (widget.as_object_mut(), more.as_object()) {
        widget.extend(more.clone());
    }
    widget
}

/// A loop node whose `items` are the run's result.
fn run_of(settings: &[Value]) -> Value {
    process(
        &[looping(settings, &json!({})), output_node(&json!([]))],
        &["w.items -> out.items", "w.last -> out.last"],
    )
}

#[test]
fn a_loop_over_a_list_gives_each_iteration_item_index_and_the_free_ports() {
    let settings = [
        field("iterator", &json!(["a", {"n": 1}])),
        field("body", &body(&["item", "index", "free"], &["r"])),
        field("free", &json!("same")),
    ];
    let mut stage = Stage::of(&run_of(&settings), &json!({}));
    assert_eq!(stage.inputs("w[0]/b"), json!({"item": "a", "index": 0, "free": "same"}));
    assert_eq!(stage.step("w").waits_for.as_deref(), Some("its iterations"));
    stage.finish("w[0]/b", &json!({"r": "one"}));
    assert_eq!(stage.inputs("w[1]/b"), json!({"item": {"n": 1}, "index": 1, "free": "same"}));
    stage.finish("w[1]/b", &json!({"r": "two"}));
    assert_eq!(stage.run(), RunStatus::Finished);
    assert_eq!(stage.public_inputs(), json!({"items": [{"r": "one"}, {"r": "two"}], "last": {"r": "two"}}));
}

#[test]
fn an_iteration_whose_output_was_skipped_keeps_its_place_with_nothing_in_it() {
    let settings = [field("iterator", &json!([1, 2])), field("body", &body(&["item"], &["r"]))];
    let mut stage = Stage::of(&run_of(&settings), &json!({}));
    stage.finish("w[0]/b", &json!({}));
    stage.finish("w[1]/b", &json!({"r": "two"}));
    assert_eq!(stage.public_inputs(), json!({"items": [{}, {"r": "two"}], "last": {"r": "two"}}));
}

#[test]
fn elements_and_outputs_pass_through_unchanged() {
    let settings = [
        json!({"name": "iterator", "value": "[12345678901234567890123.0]"}),
        field("body", &Value::String(body(&["item"], &["r"]).to_string())),
    ];
    let mut stage = Stage::of(&run_of(&settings), &json!({}));
    let attempt = stage.attempt("w[0]/b");
    let (_, task) = stage.state.task(attempt, &stage.policy).unwrap();
    assert_eq!(task.inputs["item"].text(), "12345678901234567890123.0", "JSON text is read, values are not");
    assert_eq!((task.node_id.as_str(), task.node_path.0.as_str()), ("b", "w[0]/b"));
    let mut result = contract::report::StepResult::ok(outputs(&json!({})));
    result.outputs.insert("r".into(), Json::parse(r#""\ud800""#).unwrap());
    stage.result(attempt, result);
    assert_eq!(stage.state.public_inputs()["items"].text(), r#"[{"r":"\ud800"}]"#);
}

#[test]
fn without_a_list_the_body_decides_and_its_outputs_are_the_next_inputs() {
    let settings = [
        field("iterator", &json!([])),
        field("body", &body(&["query", "history"], &["history", "continueLoop"])),
        field("query", &json!("q")),
        field("history", &json!("")),
    ];
    let mut stage = Stage::of(&run_of(&settings), &json!({}));
    assert_eq!(stage.inputs("w[0]/b"), json!({"query": "q", "history": ""}));
    let run_id = stage.state.task(stage.attempt("w[0]/b"), &stage.policy).unwrap().1.run_id;
    assert_eq!(run_id, stage.state.run_id(), "the run's id is the same in all iterations");
    stage.finish("w[0]/b", &json!({"history": "h1", "continueLoop": true}));
    assert_eq!(stage.inputs("w[1]/b"), json!({"query": "q", "history": "h1"}));
    stage.finish("w[1]/b", &json!({"history": "h2", "continueLoop": "true"}));
    stage.finish("w[2]/b", &json!({"history": "h3", "continueLoop": false}));
    assert_eq!(stage.run(), RunStatus::Finished);
    assert_eq!(stage.public_inputs()["last"], json!({"history": "h3", "continueLoop": false}));
    assert_eq!(stage.public_inputs()["items"].as_array().unwrap().len(), 3);
}

#[test]
fn a_loop_that_does_not_ask_to_go_on_runs_once() {
    let settings = [field("body", &body(&[], &["r"]))];
    let mut stage = Stage::of(&run_of(&settings), &json!({}));
    stage.finish("w[0]/b", &json!({"r": 1}));
    assert_eq!(stage.public_inputs()["items"], json!([{"r": 1}]));
}

#[test]
fn more_iterations_than_allowed_fail_the_loop() {
    let settings = [field("body", &body(&[], &["continueLoop"])), field("maxIterations", &json!("2"))];
    let mut stage = Stage::of(&run_of(&settings), &json!({}));
    stage.finish("w[0]/b", &json!({"continueLoop": true}));
    stage.finish("w[1]/b", &json!({"continueLoop": true}));
    assert_eq!(stage.run(), RunStatus::Failed);
    assert_eq!(stage.step("w").error.unwrap().code.as_deref(), Some("loop_limit"));

    let long = [
        field("iterator", &json!([1, 2, 3])),
        field("body", &body(&["item"], &["r"])),
        field("maxIterations", &json!(2)),
    ];
    let stage = Stage::of(&run_of(&long), &json!({}));
    assert_eq!(stage.step("w").error.unwrap().code.as_deref(), Some("loop_limit"));
}

#[test]
fn a_parallel_loop_runs_so_many_iterations_at_once_and_keeps_the_order_of_its_items() {
    let settings = [
        field("iterator", &json!([0, 1, 2, 3])),
        field("body", &body(&["item"], &["r"])),
        field("mode", &json!("parallel")),
        field("concurrency", &json!(2)),
    ];
    let mut stage = Stage::of(&run_of(&settings), &json!({}));
    assert_eq!(stage.state.outstanding(), 2);
    stage.finish("w[1]/b", &json!({"r": 1}));
    assert_eq!(stage.state.outstanding(), 2);
    stage.finish("w[2]/b", &json!({"r": 2}));
    stage.finish("w[3]/b", &json!({"r": 3}));
    assert_eq!(stage.status("w"), NodeStatus::Running);
    stage.finish("w[0]/b", &json!({"r": 0}));
    assert_eq!(stage.public_inputs()["items"], json!([{"r": 0}, {"r": 1}, {"r": 2}, {"r": 3}]));
}

#[test]
fn loops_nest_and_paths_name_every_iteration() {
    let inner = [field("iterator", &json!(["x", "y"])), field("body", &body(&["item", "outer"], &["r"]))];
    let mut widget = looping(&inner, &json!({}));
    widget["id"] = json!("v");
    widget["config"].as_array_mut().unwrap().push(json!({"name": "outer"}));
    let middle = process(
        &[builtin("t", "system.trigger.input", &json!([{"name": "item"}])), widget, output_node(&json!([]))],
        &["t.item -> v.outer", "v.items -> out.inner"],
    );
    let settings = [field("iterator", &json!([1, 2])), field("body", &middle)];
    let mut stage = Stage::of(&run_of(&settings), &json!({}));
    let mut seen = Vec::new();
    for outer in 0..2 {
        for inner in 0..2 {
            let path = format!("w[{outer}]/v[{inner}]/b");
            seen.push(stage.inputs(&path));
            stage.finish(&path, &json!({"r": outer * 10 + inner}));
        }
    }
    assert_eq!(seen[3], json!({"item": "y", "outer": 2}));
    assert_eq!(
        stage.public_inputs()["items"],
        json!([{"inner": [{"r": 0}, {"r": 1}]}, {"inner": [{"r": 10}, {"r": 11}]}])
    );
}

#[test]
fn a_failing_step_of_the_body_fails_the_loop_and_is_named() {
    let settings = [field("iterator", &json!([1, 2])), field("body", &body(&["item"], &["r"]))];
    let mut stage = Stage::of(&run_of(&settings), &json!({}));
    stage.fail("w[0]/b", "broken");
    assert_eq!((stage.run(), stage.status("w")), (RunStatus::Failed, NodeStatus::Failed));
    assert!(stage.step("w").error.unwrap().message.contains("w[0]/b"), "the loop's error names the step");
    let error = stage.state.run_error().unwrap();
    assert_eq!((error.node_path.unwrap().0.as_str(), error.error.message.as_str()), ("w[0]/b", "broken"));
    assert_eq!(stage.status("w[0]/b"), NodeStatus::Failed, "the failed iteration stays to be seen");
}

#[test]
fn on_error_of_the_loop_counts_for_its_body() {
    let settings = [field("iterator", &json!([1, 2])), field("body", &body(&["item"], &["r"]))];
    let more = json!({"execution": {"onError": "continue"}});
    let document = process(
        &[looping(&settings, &more), task("after", &json!({})), task("beside", &json!({}))],
        &["w.items -> after.i"],
    );
    let mut stage = Stage::of(&document, &json!({}));
    stage.fail("w[0]/b", "broken");
    assert_eq!((stage.status("w"), stage.status("after")), (NodeStatus::Failed, NodeStatus::Skipped));
    stage.finish("beside", &json!({}));
    assert_eq!(stage.run(), RunStatus::Finished);
}

#[test]
fn a_failing_iteration_withdraws_what_waits_in_the_others_and_waits_for_what_runs() {
    let settings = [
        field("iterator", &json!([0, 1, 2])),
        field("body", &body(&["item"], &["r"])),
        field("mode", &json!("parallel")),
    ];
    let mut stage = Stage::of(&run_of(&settings), &json!({}));
    let (running, queued) = (stage.attempt("w[1]/b"), stage.attempt("w[2]/b"));
    stage.ack(running);
    stage.fail("w[0]/b", "broken");
    assert_eq!(stage.last.withdrawn, [queued]);
    assert_eq!((stage.run(), stage.status("w")), (RunStatus::Running, NodeStatus::Running));
    assert_eq!(code(&stage.ack(queued)), "superseded");
    assert_eq!(code(&stage.finish("w[1]/b", &json!({"r": 1}))), "applied");
    assert_eq!(stage.run(), RunStatus::Failed);
}

#[test]
fn a_failure_outside_lets_running_iterations_end_and_starts_no_more() {
    let settings = [field("iterator", &json!([0, 1])), field("body", &body(&["item"], &["r"]))];
    let document = process(&[looping(&settings, &json!({})), task("a", &json!({}))], &[]);
    let mut stage = Stage::of(&document, &json!({}));
    stage.ack(stage.attempt("w[0]/b"));
    stage.fail("a", "broken");
    assert_eq!(stage.run(), RunStatus::Running);
    stage.finish("w[0]/b", &json!({"r": 1}));
    assert_eq!((stage.run(), stage.status("w")), (RunStatus::Failed, NodeStatus::Canceled));
    assert_eq!(stage.count("iteration_started"), 1);
}

#[test]
fn an_iteration_retries_its_own_steps_and_its_reports_stay_known_when_it_is_forgotten() {
    let retrying = json!({"outputs": ["r"], "execution": {"retry": {"maxAttempts": 2, "backoffMs": 0}}});
    let inner = process(&[task("b", &retrying), output_node(&json!([]))], &["b.r -> out.r"]);
    let settings = [field("iterator", &json!([0, 1])), field("body", &inner)];
    let mut stage = Stage::of(&run_of(&settings), &json!({}));
    let first = stage.attempt("w[0]/b");
    stage.ack(first);
    stage.fail("w[0]/b", "once");
    let second = stage.attempt("w[0]/b");
    assert_ne!(first, second);
    stage.finish("w[0]/b", &json!({"r": 1}));
    assert!(stage.state.detail(usize::MAX).steps.iter().all(|step| !step.node_path.0.starts_with("w[0]")));
    let same = contract::report::StepResult::ok(outputs(&json!({"r": 1})));
    assert_eq!(code(&stage.result(second, same)), "duplicate");
    assert_eq!(code(&stage.result(second, failure("other"))), "conflicting_result");
    assert_eq!(code(&stage.ack(second)), "duplicate");
    assert_eq!(code(&stage.heartbeat(first)), "superseded");
}

#[test]
fn a_late_result_of_a_forgotten_iteration_is_kept_with_its_path() {
    let inner = [
        field("iterator", &json!([0, 1])),
        field("body", &body(&["item"], &["r"])),
        field("mode", &json!("parallel")),
    ];
    let mut widget = looping(&inner, &json!({"execution": {"onError": "continue"}}));
    widget["id"] = json!("v");
    let settings = [field("iterator", &json!([0])), field("body", &process(&[widget], &[]))];
    let mut stage = Stage::of(&run_of(&settings), &json!({}));
    let withdrawn = stage.attempt("w[0]/v[1]/b");
    stage.fail("w[0]/v[0]/b", "broken");
    assert_eq!(stage.run(), RunStatus::Finished);
    let late = contract::report::StepResult::ok(outputs(&json!({"r": 1})));
    assert_eq!(code(&stage.result(withdrawn, late)), "run_terminal");
    let Some((_, Event::LateResult(late))) = stage.history.last() else { panic!("kept") };
    assert_eq!(late.node_path.0, "w[0]/v[1]/b");
}

#[test]
fn a_connected_empty_list_means_no_iteration() {
    let document = process(
        &[
            builtin("t", "system.trigger.input", &json!([{"name": "list"}])),
            looping(&[field("body", &body(&["item"], &["r"]))], &json!({})),
            output_node(&json!([])),
        ],
        &["t.list -> w.iterator", "w.items -> out.items", "w.last -> out.last"],
    );
    let stage = Stage::of(&document, &json!({"list": []}));
    assert_eq!((stage.run(), stage.public_inputs()), (RunStatus::Finished, json!({"items": []})));
    let stage = Stage::of(&document, &json!({"list": "no list"}));
    assert_eq!(stage.step("w").error.unwrap().code.as_deref(), Some("invalid_node_input"));
}

#[test]
fn cancel_ends_the_iterations_too() {
    let settings = [field("iterator", &json!([0, 1])), field("body", &body(&["item"], &["r"]))];
    let mut stage = Stage::of(&run_of(&settings), &json!({}));
    let attempt = stage.attempt("w[0]/b");
    stage.decide(Input::Cancel);
    assert_eq!(stage.last.closed, [attempt]);
    assert_eq!((stage.status("w"), stage.status("w[0]/b")), (NodeStatus::Canceled, NodeStatus::Canceled));
}

#[test]
fn ten_thousand_iterations_hold_their_outputs_only() {
    let items: Vec<u32> = (0..10_000).collect();
    let inner = process(
        &[builtin("t", "system.trigger.input", &json!([{"name": "index"}])), output_node(&json!([]))],
        &["t.index -> out.i"],
    );
    let settings = [field("iterator", &json!(items)), field("body", &inner)];
    let stage = Stage::with(graph(&run_of(&settings)), &json!({}), Policy::default());
    assert_eq!(stage.run(), RunStatus::Finished);
    assert_eq!(stage.public_inputs()["last"], json!({"i": 9_999}));
    assert_eq!(stage.state.detail(usize::MAX).steps.len(), 2, "no iteration is left");
    assert!(stage.state.size() < 1_000_000, "{} bytes", stage.state.size());
    let bytes: usize = stage.history.iter().map(|(_, event)| event.body().unwrap().text().len()).sum();
    assert!(bytes < 4_000_000, "{bytes} bytes of history");
}

#[test]
fn loops_without_any_task_are_stopped_before_they_fill_the_history() {
    let endless = |inner: &Value| {
        looping(
            &[field("iterator", &json!((0..2_000).collect::<Vec<u32>>())), field("body", inner)],
            &json!({}),
        )
    };
    let empty = json!({"widgets": []});
    let nested = process(&[endless(&empty)], &[]);
    let document = graph(&process(&[endless(&nested)], &[]));
    let started = (super::stage::started(&json!({})), Default::default());
    let run_id = contract::RunId(uuid::Uuid::nil());
    let mut draw = super::stage::Counter::default();
    let (state, decision) =
        State::start(run_id, document, started, contract::Millis(0), &Policy::default(), &mut draw).unwrap();
    assert_eq!(state.run_error().unwrap().error.code.as_deref(), Some("loop_limit"));
    assert!(decision.events.len() < 210_000);
}

/// A repetition of the stage's run.
fn repeated(document: &Value, first: &Stage) -> Stage {
    Stage::keeping(graph(document), &json!({}), Policy::default(), first.state.kept())
}

#[test]
fn a_repetition_resumes_a_failed_loop_at_the_failed_iteration() {
    let settings = [field("iterator", &json!(["a", "b", "c", "d"])), field("body", &body(&["item"], &["r"]))];
    let document = run_of(&settings);
    let mut first = Stage::of(&document, &json!({}));
    first.finish("w[0]/b", &json!({"r": 0}));
    first.finish("w[1]/b", &json!({"r": 1}));
    first.fail("w[2]/b", "broken");
    let mut second = repeated(&document, &first);
    assert_eq!(second.count("iteration_kept"), 2);
    assert_eq!(second.inputs("w[2]/b"), json!({"item": "c"}));
    second.finish("w[2]/b", &json!({"r": 2}));
    second.fail("w[3]/b", "broken");
    let mut third = repeated(&document, &second);
    assert_eq!(third.count("iteration_kept"), 3, "what was kept is kept on");
    third.finish("w[3]/b", &json!({"r": 3}));
    assert_eq!(third.public_inputs()["items"], json!([{"r": 0}, {"r": 1}, {"r": 2}, {"r": 3}]));
}

#[test]
fn a_repetition_goes_on_with_what_the_last_iteration_handed_on() {
    let settings = [
        field("body", &body(&["query", "history"], &["history", "continueLoop"])),
        field("query", &json!("q")),
        field("history", &json!("")),
    ];
    let document = run_of(&settings);
    let mut first = Stage::of(&document, &json!({}));
    first.finish("w[0]/b", &json!({"history": "h1", "continueLoop": true}));
    first.fail("w[1]/b", "broken");
    let mut second = repeated(&document, &first);
    assert_eq!(second.inputs("w[1]/b"), json!({"query": "q", "history": "h1"}));
    second.finish("w[1]/b", &json!({"history": "h2", "continueLoop": false}));
    let items = json!([{"history": "h1", "continueLoop": true}, {"history": "h2", "continueLoop": false}]);
    assert_eq!(second.public_inputs()["items"], items);
}

#[test]
fn a_repetition_of_a_parallel_loop_runs_only_what_had_not_finished() {
    let settings = [
        field("iterator", &json!([0, 1, 2, 3, 4])),
        field("body", &body(&["item"], &["r"])),
        field("mode", &json!("parallel")),
        field("concurrency", &json!(3)),
    ];
    let document = run_of(&settings);
    let mut first = Stage::of(&document, &json!({}));
    first.finish("w[1]/b", &json!({"r": 1}));
    first.finish("w[3]/b", &json!({"r": 3}));
    first.decide(Input::Cancel);
    let mut second = repeated(&document, &first);
    assert_eq!(second.state.outstanding(), 3);
    for (path, number) in [("w[0]/b", 0), ("w[2]/b", 2), ("w[4]/b", 4)] {
        second.finish(path, &json!({"r": number}));
    }
    assert_eq!(second.public_inputs()["items"], json!([{"r": 0}, {"r": 1}, {"r": 2}, {"r": 3}, {"r": 4}]));
}

#[test]
fn a_repetition_keeps_the_finished_steps_of_the_failed_iteration() {
    let inner = process(
        &[
            builtin("t", "system.trigger.input", &json!([{"name": "item"}])),
            task("a", &json!({})),
            task("b", &json!({})),
            output_node(&json!([])),
        ],
        &["t.item -> a.i", "a.o -> b.i", "b.o -> out.r"],
    );
    let document = run_of(&[field("iterator", &json!([1, 2])), field("body", &inner)]);
    let mut first = Stage::of(&document, &json!({}));
    first.finish("w[0]/a", &json!({"o": "dear"}));
    first.fail("w[0]/b", "broken");
    let second = repeated(&document, &first);
    assert_eq!((second.status("w[0]/a"), second.step("w[0]/a").attempts), (NodeStatus::Finished, 0));
    assert_eq!(second.inputs("w[0]/b"), json!({"i": "dear"}));
}

#[test]
fn kept_iterations_of_another_list_are_not_used() {
    let document = |list: Value| run_of(&[field("iterator", &list), field("body", &body(&["item"], &["r"]))]);
    let mut first = Stage::of(&document(json!([1, 2])), &json!({}));
    first.finish("w[0]/b", &json!({"r": 0}));
    first.fail("w[1]/b", "broken");
    let second = repeated(&document(json!([1, 2, 3])), &first);
    assert_eq!((second.count("iteration_kept"), second.status("w[0]/b")), (0, NodeStatus::Queued));
}
