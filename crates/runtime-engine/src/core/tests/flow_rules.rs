//! Protocol section 7.

use super::stage::{Stage, failure, graph, output_node, process, task};
use crate::core::{Event, Graph, State, StepFailed};
use contract::{
    Json,
    process::Process,
    report::{StepError, StepResult},
    run::{NodeStatus, RunStatus},
};
use serde_json::{Value, json};

fn trigger(fields: &Value) -> Value {
    json!({"id": "t", "source": {"nodeType": "system.trigger.input"}, "config": fields})
}

fn switch(arms: &Value) -> Value {
    json!({"id": "s", "source": {"nodeType": "system.control.switch"}, "outputs": arms, "config": [{"name": "value"}]})
}

#[test]
fn a_trigger_field_is_the_payloads_value_else_its_default_else_null() {
    let document = process(
        &[
            trigger(
                &json!([{"name": "a"}, {"name": "b", "defaultValue": "d"}, {"name": "c"}, {"name": "n", "defaultValue": 1}]),
            ),
            output_node(&json!([])),
        ],
        &["t.a -> out.a", "t.b -> out.b", "t.c -> out.c", "t.n -> out.n", "t.trigger -> out.t"],
    );
    let stage = Stage::of(&document, &json!({"a": 5, "x": "undeclared", "n": null}));
    assert_eq!(stage.run(), RunStatus::Finished);
    let expected = json!({
        "a": 5, "b": "d", "c": null, "n": null,
        "t": {"type": "manual", "at": 1000, "payload": {"a": 5, "x": "undeclared", "n": null}},
    });
    assert_eq!(stage.public_inputs(), expected);
}

#[test]
fn a_port_without_edges_takes_value_else_default_and_never_blocks() {
    let config = json!({"config": [
        {"name": "a", "value": 1, "defaultValue": 2},
        {"name": "b", "value": null, "defaultValue": 2},
        {"name": "c", "defaultValue": 3},
        {"name": "d"},
    ]});
    let stage = Stage::of(&process(&[task("a", &config)], &[]), &json!({}));
    assert_eq!(stage.inputs("a"), json!({"a": 1, "b": 2, "c": 3}));
}

#[test]
fn a_node_starts_only_when_every_connected_port_has_a_value() {
    let document = process(
        &[task("a", &json!({})), task("b", &json!({})), task("c", &json!({}))],
        &["a.o -> c.x", "b.o -> c.y"],
    );
    let mut stage = Stage::of(&document, &json!({}));
    stage.finish("a", &json!({"o": 1}));
    assert_eq!(stage.status("c"), NodeStatus::Waiting);
    assert_eq!(stage.step("c").waits_for.as_deref(), Some("the results of b"));
    stage.finish("b", &json!({"o": null}));
    assert_eq!(stage.inputs("c"), json!({"x": 1, "y": null}), "null is a value");
}

#[test]
fn of_several_edges_into_a_port_the_first_in_document_order_wins_whatever_comes_first_in_time() {
    let document = process(
        &[task("late", &json!({})), task("early", &json!({})), task("c", &json!({}))],
        &["late.o -> c.i", "early.o -> c.i"],
    );
    let mut stage = Stage::of(&document, &json!({}));
    stage.finish("early", &json!({"o": "early"}));
    assert_eq!(stage.status("c"), NodeStatus::Waiting, "an earlier edge can still produce");
    stage.finish("late", &json!({"o": "late"}));
    assert_eq!(stage.inputs("c"), json!({"i": "late"}));
}

#[test]
fn a_later_edge_counts_once_the_earlier_ones_are_dead() {
    let document = process(
        &[task("first", &json!({})), task("second", &json!({})), task("c", &json!({}))],
        &["first.o -> c.i", "second.o -> c.i"],
    );
    let mut stage = Stage::of(&document, &json!({}));
    stage.finish("second", &json!({"o": 2}));
    stage.finish("first", &json!({}));
    assert_eq!(stage.inputs("c"), json!({"i": 2}));
}

#[test]
fn an_absent_key_of_a_result_makes_that_output_dead_and_skipping_spreads() {
    let document = process(
        &[
            task("a", &json!({"outputs": ["o", "p"]})),
            task("b", &json!({})),
            task("c", &json!({})),
            task("d", &json!({})),
        ],
        &["a.o -> b.i", "a.p -> c.i", "c.o -> d.i"],
    );
    let mut stage = Stage::of(&document, &json!({}));
    stage.finish("a", &json!({"o": 1}));
    assert_eq!(stage.status("b"), NodeStatus::Queued);
    assert_eq!((stage.status("c"), stage.status("d")), (NodeStatus::Skipped, NodeStatus::Skipped));
    stage.finish("b", &json!({}));
    assert_eq!(stage.run(), RunStatus::Finished, "skipping is no error");
}

#[test]
fn a_node_with_one_dead_port_is_skipped_only_when_all_its_ports_are_settled() {
    let document = process(
        &[task("a", &json!({})), task("b", &json!({})), task("c", &json!({}))],
        &["a.o -> c.x", "b.o -> c.y"],
    );
    let mut stage = Stage::of(&document, &json!({}));
    stage.finish("a", &json!({}));
    assert_eq!(stage.status("c"), NodeStatus::Waiting);
    stage.finish("b", &json!({"o": 1}));
    assert_eq!(stage.status("c"), NodeStatus::Skipped);
}

#[test]
fn keys_beyond_the_declared_outputs_are_kept_and_produce_nothing() {
    let document = process(&[task("a", &json!({})), output_node(&json!([]))], &["a.o -> out.r"]);
    let mut stage = Stage::of(&document, &json!({}));
    stage.finish("a", &json!({"o": 1, "beyond": 2}));
    assert_eq!(serde_json::to_value(stage.step("a").outputs).unwrap(), json!({"o": 1, "beyond": 2}));
    assert_eq!(stage.public_inputs(), json!({"r": 1}));
}

#[test]
fn an_output_node_collects_what_is_alive_and_falls_back_for_what_is_dead() {
    let document = process(
        &[
            task("a", &json!({"outputs": ["o", "p", "q"]})),
            output_node(&json!([{"name": "x"}, {"name": "y", "defaultValue": "fallback"}, {"name": "z"}])),
        ],
        &["a.o -> out.x", "a.p -> out.y", "a.q -> out.z"],
    );
    let mut stage = Stage::of(&document, &json!({}));
    stage.finish("a", &json!({"o": 1}));
    assert_eq!(stage.public_inputs(), json!({"x": 1, "y": "fallback"}));
    assert_eq!(stage.run(), RunStatus::Finished);
}

#[test]
fn an_output_node_is_skipped_only_when_all_its_connected_ports_are_dead() {
    let document = process(
        &[
            task("a", &json!({})),
            output_node(&json!([{"name": "x", "defaultValue": 1}, {"name": "y", "value": 2}])),
        ],
        &["a.o -> out.x"],
    );
    let mut stage = Stage::of(&document, &json!({}));
    stage.finish("a", &json!({}));
    assert_eq!((stage.status("out"), stage.public_inputs()), (NodeStatus::Skipped, json!({})));
}

#[test]
fn a_switch_opens_one_arm_and_the_others_end_without_error() {
    let document = process(
        &[
            trigger(&json!([{"name": "q"}])),
            switch(&json!(["direct", "search"])),
            task("d", &json!({})),
            task("r", &json!({})),
            task("join", &json!({})),
        ],
        &["t.q -> s.value", "s.direct -> d.go", "s.search -> r.go", "r.o -> join.i", "d.o -> join.i"],
    );
    let mut stage = Stage::of(&document, &json!({"q": "direct"}));
    assert_eq!((stage.status("d"), stage.status("r")), (NodeStatus::Queued, NodeStatus::Skipped));
    assert_eq!(stage.inputs("d"), json!({"go": true}));
    stage.finish("d", &json!({"o": "answer"}));
    assert_eq!(stage.inputs("join"), json!({"i": "answer"}), "the untaken arm's edge is dead");
}

#[test]
fn extract_feeds_what_it_finds_and_fails_the_run_when_it_cannot_read() {
    let extract = json!({"id": "e", "source": {"nodeType": "system.object.extract"}, "outputs": ["x", "y"],
        "config": [{"name": "map", "value": "{\"x\":\"[-1].n\",\"y\":\"[9].n\"}"}, {"name": "source"}]});
    let document = process(
        &[trigger(&json!([{"name": "list"}])), extract, task("b", &json!({})), task("c", &json!({}))],
        &["t.list -> e.source", "e.x -> b.i", "e.y -> c.i"],
    );
    let stage = Stage::of(&document, &json!({"list": [{"n": 1}, {"n": 2}]}));
    assert_eq!((stage.inputs("b"), stage.status("c")), (json!({"i": 2}), NodeStatus::Skipped));

    let payload = contract::Json::parse(r#"{"list":["\ud800"]}"#).unwrap();
    let mut started = super::stage::started(&json!({}));
    started.payload = payload.read().unwrap();
    let (state, _) = crate::core::State::start(
        contract::RunId(uuid::Uuid::nil()),
        super::stage::graph(&document),
        (started, Default::default()),
        contract::Millis(0),
        &crate::core::Policy::default(),
        &mut super::stage::Counter::default(),
    )
    .unwrap();
    assert_eq!(state.status(), RunStatus::Failed);
    let error = state.summary().error.unwrap();
    assert_eq!(
        (error.node_path.unwrap().0.as_str(), error.error.code.as_deref()),
        ("e", Some("invalid_node_input"))
    );
}

#[test]
fn values_pass_unchanged() {
    let document = process(&[trigger(&json!([{"name": "v"}])), task("a", &json!({}))], &["t.v -> a.v"]);
    let text = r#"{"n":123456789012345678901234567890.10,"s":"\ud800\u0416","z":1E400}"#;
    let mut started = super::stage::started(&json!({}));
    started.payload = [("v".to_owned(), contract::Json::parse(text).unwrap())].into_iter().collect();
    let policy = crate::core::Policy::default();
    let (state, decision) = crate::core::State::start(
        contract::RunId(uuid::Uuid::nil()),
        super::stage::graph(&document),
        (started, Default::default()),
        contract::Millis(0),
        &policy,
        &mut super::stage::Counter::default(),
    )
    .unwrap();
    let (_, task) = state.task(decision.opened[0].execution_id, &policy).unwrap();
    assert_eq!(task.inputs["v"].text(), text);
}

#[test]
fn a_failed_node_fails_the_run_after_those_already_running_have_ended() {
    let document =
        process(&[task("a", &json!({})), task("b", &json!({})), task("c", &json!({}))], &["b.o -> c.i"]);
    let mut stage = Stage::of(&document, &json!({}));
    let (a, b) = (stage.attempt("a"), stage.attempt("b"));
    stage.ack(a);
    stage.ack(b);
    stage.fail("a", "broken");
    assert_eq!((stage.run(), stage.status("a")), (RunStatus::Running, NodeStatus::Failed));
    assert!(stage.step("c").waits_for.unwrap().starts_with("nothing: the run fails"));
    stage.finish("b", &json!({"o": 1}));
    assert_eq!(stage.kinds(), ["step_finished", "run_failed"]);
    assert_eq!(
        (stage.run(), stage.status("c")),
        (RunStatus::Failed, NodeStatus::Canceled),
        "nothing starts any more"
    );
    let error = stage.state.summary().error.unwrap();
    assert_eq!((error.node_path.unwrap().0.as_str(), error.error.message.as_str()), ("a", "broken"));
}

#[test]
fn a_failing_run_withdraws_what_nobody_works_on_yet() {
    let document = process(&[task("a", &json!({})), task("b", &json!({}))], &[]);
    let mut stage = Stage::of(&document, &json!({}));
    let b = stage.attempt("b");
    stage.fail("a", "broken");
    assert_eq!(stage.last.closed, [stage.attempt("a"), b]);
    assert_eq!(stage.last.withdrawn, [b]);
    assert_eq!((stage.run(), stage.status("b")), (RunStatus::Failed, NodeStatus::Canceled));
}

#[test]
fn what_one_decision_opens_and_withdraws_never_comes_into_being() {
    let bad = json!({"id": "e", "source": {"nodeType": "system.object.extract"}, "outputs": ["x"],
        "config": [{"name": "map", "value": {"x": "a"}}, {"name": "source"}]});
    let document =
        process(&[task("a", &json!({})), task("b", &json!({})), bad], &["a.o -> b.i", "a.o -> e.source"]);
    let mut stage = Stage::of(&document, &json!({}));
    let result =
        contract::report::StepResult::ok(contract::Json::parse(r#"{"o":"\ud800"}"#).unwrap().read().unwrap());
    stage.result(stage.attempt("a"), result);
    assert_eq!((stage.run(), stage.last.opened.len(), stage.last.withdrawn.len()), (RunStatus::Failed, 0, 0));
    assert_eq!(stage.last.closed, [stage.attempt("a")]);
}

#[test]
fn under_continue_a_failure_makes_the_outputs_dead_and_the_run_goes_on() {
    let document = process(
        &[
            task("a", &json!({"execution": {"onError": "continue"}})),
            task("b", &json!({})),
            output_node(&json!([])),
        ],
        &["a.o -> out.x", "b.o -> out.x"],
    );
    let mut stage = Stage::of(&document, &json!({}));
    stage.result(stage.attempt("a"), failure("broken"));
    stage.finish("b", &json!({"o": "instead"}));
    assert_eq!((stage.run(), stage.public_inputs()), (RunStatus::Finished, json!({"x": "instead"})));
    assert_eq!(
        (stage.status("a"), stage.step("a").error.unwrap().message.as_str()),
        (NodeStatus::Failed, "broken")
    );
}

#[test]
fn a_run_without_work_finishes_at_once() {
    let stage = Stage::of(&process(&[], &[]), &json!({}));
    assert_eq!(stage.run(), RunStatus::Finished);
    assert_eq!(stage.kinds(), ["run_started", "run_finished"]);
}

#[test]
fn of_several_output_nodes_the_first_in_the_document_names_a_value() {
    let out = |id: &str, value: u8| {
        json!({"id": id, "source": {"nodeType": "system.output"},
        "config": [{"name": "x", "value": value}, {"name": id, "value": value}]})
    };
    let stage = Stage::of(&process(&[out("one", 1), out("two", 2)], &[]), &json!({}));
    assert_eq!(stage.public_inputs(), json!({"x": 1, "one": 1, "two": 2}));
}

#[test]
fn a_task_names_its_secrets_its_outputs_and_its_publication() {
    let widget = task(
        "a",
        &json!({"outputs": null, "config": [
            {"name": "k", "type": "ref", "value": {"$secret": "jira"}}, {"name": "empty", "type": "ref"}, {"name": "q", "value": 1},
        ]}),
    );
    let mut started = super::stage::started(&json!({}));
    let publication_id = contract::PublicationId(uuid::Uuid::from_u128(5));
    let pin = crate::core::Pin { publication_id, outputs: vec!["declared".into()] };
    started.pins = [("plugin.test".to_owned(), pin)].into_iter().collect();
    let policy = crate::core::Policy::default();
    let (state, decision) = crate::core::State::start(
        contract::RunId(uuid::Uuid::nil()),
        super::stage::graph(&process(&[widget], &[])),
        (started, Default::default()),
        contract::Millis(0),
        &policy,
        &mut super::stage::Counter::default(),
    )
    .unwrap();
    let (lane, task) = state.task(decision.opened[0].execution_id, &policy).unwrap();
    assert_eq!(
        (lane.as_str(), task.secrets, task.outputs),
        ("plugin", vec!["k".to_owned()], vec!["declared".to_owned()])
    );
    assert_eq!((task.publication_id, task.timeout_ms, task.attempt), (Some(publication_id), 3_600_000, 1));
}

#[test]
fn under_continue_a_failed_node_produces_its_error_once_it_is_not_repeated() {
    let retry = json!({"execution": {"onError": "continue", "retry": {"maxAttempts": 2, "backoffMs": 1}}});
    let mut stage = Stage::of(
        &process(
            &[task("a", &retry), task("ok", &json!({})), task("alert", &json!({})), output_node(&json!([]))],
            &["a.o -> ok.i", "a.error -> alert.reason", "alert.o -> out.alerted", "a.error -> out.why"],
        ),
        &json!({}),
    );
    stage.fail("a", "broken");
    assert_eq!(stage.status("alert"), NodeStatus::Waiting, "another attempt follows");
    let error = StepError {
        code: Some("no_stock".into()),
        message: "nichts da".into(),
        retryable: Some(false),
        details: Some(Json::parse("[1.0]").unwrap()),
    };
    stage.result(stage.attempt("a"), StepResult::failed(error));
    assert_eq!((stage.status("a"), stage.status("ok")), (NodeStatus::Failed, NodeStatus::Skipped));
    let told = json!({"code": "no_stock", "message": "nichts da", "retryable": false, "details": [1.0],
        "nodePath": "a"});
    assert_eq!(stage.inputs("alert"), json!({"reason": told}));
    stage.finish("alert", &json!({"o": true}));
    assert_eq!(stage.run(), RunStatus::Finished);
    assert_eq!(stage.public_inputs(), json!({"alerted": true, "why": told}));
}

#[test]
fn an_error_without_a_code_is_step_failed() {
    let more = json!({"execution": {"onError": "continue"}});
    let document = process(&[task("a", &more), output_node(&json!([]))], &["a.error -> out.why"]);
    let mut stage = Stage::of(&document, &json!({}));
    stage.fail("a", "broken");
    let told = json!({"why": {"code": "step_failed", "message": "broken", "nodePath": "a"}});
    assert_eq!(stage.public_inputs(), told);
}

#[test]
fn a_node_that_finished_leaves_its_error_dead() {
    let more = json!({"execution": {"onError": "continue"}});
    let mut stage =
        Stage::of(&process(&[task("a", &more), task("b", &json!({}))], &["a.error -> b.i"]), &json!({}));
    stage.finish("a", &json!({"o": 1}));
    assert_eq!((stage.status("b"), stage.run()), (NodeStatus::Skipped, RunStatus::Finished));
}

#[test]
fn a_node_that_fails_the_run_has_no_error_output() {
    let document = process(&[task("a", &json!({})), task("b", &json!({}))], &["a.error -> b.i"]);
    let process: Process = Json::from(&document).read().unwrap();
    let fault = Graph::compile(&process).unwrap_err();
    assert!(fault.to_string().contains("\"error\""), "{fault}");
}

/// A failure of before the rule left every output dead, and its history still says so.
#[test]
fn a_history_from_before_the_error_output_stays_as_it_was() {
    let more = json!({"execution": {"onError": "continue"}});
    let document = process(&[task("a", &more), task("b", &json!({}))], &["a.error -> b.i"]);
    let mut stage = Stage::of(&document, &json!({}));
    stage.fail("a", "broken");
    let events = stage.history.iter().filter_map(|(at, event)| match event {
        Event::StepFailed(failed) => {
            let error_output = false;
            Some((*at, Event::StepFailed(StepFailed { error_output, ..failed.clone() })))
        }
        Event::StepScheduled(step) if step.node_path.0 == "b" => None,
        other => Some((*at, other.clone())),
    });
    let state = State::replay(stage.state.run_id(), graph(&document), events).unwrap();
    let steps = state.detail(usize::MAX).steps;
    assert_eq!(steps[0].outputs, None);
    assert!(steps[1].status == NodeStatus::Waiting && state.outstanding() == 0);
}
