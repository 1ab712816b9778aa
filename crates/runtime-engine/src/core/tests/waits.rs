//! Steps that wait for a person or a moment, the run's deadline, and repetitions of runs.

use super::stage::{Stage, builtin, code, field, graph, output_node, process, task};
use crate::core::{Awaited, Input, Policy};
use contract::{
    Millis,
    run::{NodeStatus, RunStatus},
};
use serde_json::{Value, json};

fn asking(edges: &[&str], more: &Value) -> Value {
    let mut ask = builtin("ask", "user.validation", &json!([{"name": "value", "value": "sure?"}]));
    ask["execution"] = more.clone();
    process(&[ask, task("yes", &json!({})), task("no", &json!({}))], edges)
}

const BOTH: [&str; 2] = ["ask.confirm -> yes.i", "ask.reject -> no.i"];

#[test]
fn a_validation_waits_for_a_person_without_a_task() {
    let stage = Stage::of(&asking(&BOTH, &json!({})), &json!({}));
    let step = stage.step("ask");
    assert_eq!((step.status, step.waits_for.as_deref()), (NodeStatus::Running, Some("a person's answer")));
    assert_eq!(serde_json::to_value(step.inputs).unwrap(), json!({"value": "sure?"}), "what is asked about");
    assert_eq!(stage.last.opened[0].awaited, Awaited::Person { until: None });
    assert!(stage.state.task(stage.attempt("ask"), &stage.policy).is_none());
}

#[test]
fn consent_carries_who_when_and_why() {
    let mut stage = Stage::of(&asking(&BOTH, &json!({})), &json!({}));
    let attempt = stage.attempt("ask");
    assert_eq!(code(&stage.confirm("ask", true, "ann")), "applied");
    assert_eq!(stage.last.closed, [attempt]);
    let at = stage.now.0;
    assert_eq!(
        stage.inputs("yes"),
        json!({"i": {"approved": true, "comment": "so it is", "by": "ann", "at": at}})
    );
    assert_eq!(stage.status("no"), NodeStatus::Skipped);
}

#[test]
fn refusal_takes_the_other_way() {
    let mut stage = Stage::of(&asking(&BOTH, &json!({})), &json!({}));
    stage.confirm("ask", false, "ann");
    assert_eq!(stage.status("yes"), NodeStatus::Skipped);
    assert_eq!(stage.inputs("no")["i"]["approved"], json!(false));
}

#[test]
fn refusal_fails_the_run_when_reject_is_not_connected() {
    let mut stage = Stage::of(&asking(&BOTH[..1], &json!({})), &json!({}));
    assert_eq!(code(&stage.confirm("ask", false, "ann")), "applied");
    let error = stage.step("ask").error.unwrap();
    assert_eq!(error.code.as_deref(), Some("rejected"));
    assert!(error.message.contains("ann") && error.message.contains("so it is"), "{}", error.message);
    assert_eq!(stage.run(), RunStatus::Failed);
    let mut stage = Stage::of(&asking(&BOTH[..1], &json!({"onError": "continue"})), &json!({}));
    stage.confirm("ask", false, "ann");
    assert_eq!((stage.status("yes"), stage.status("no")), (NodeStatus::Skipped, NodeStatus::Queued));
}

#[test]
fn the_same_answer_again_is_a_duplicate_another_one_a_conflict() {
    let mut stage = Stage::of(&asking(&BOTH, &json!({})), &json!({}));
    assert_eq!(code(&stage.confirm("yes", true, "ann")), "conflict", "it waits for no person");
    assert_eq!(code(&stage.confirm("nobody", true, "ann")), "not_found");
    stage.confirm("ask", true, "ann");
    assert_eq!(code(&stage.confirm("ask", true, "bob")), "duplicate");
    assert_eq!(code(&stage.confirm("ask", false, "bob")), "conflict");
    assert_eq!(stage.kinds(), [""; 0]);
    stage.decide(Input::Cancel);
    assert_eq!(code(&stage.confirm("ask", true, "ann")), "duplicate", "also after the end");
}

#[test]
fn a_person_has_as_long_as_the_steps_timeout() {
    let mut stage = Stage::of(&asking(&BOTH, &json!({"timeoutMs": 500})), &json!({}));
    assert_eq!(stage.last.opened[0].awaited, Awaited::Person { until: Some(Millis(stage.now.0 + 500)) });
    stage.decide(Input::TimerDue(stage.attempt("ask")));
    assert_eq!(stage.step("ask").error.unwrap().code.as_deref(), Some("step_timeout"));
}

#[test]
fn nobody_reports_about_a_step_that_waits_for_no_task() {
    let mut stage = Stage::of(&asking(&BOTH, &json!({})), &json!({}));
    let attempt = stage.attempt("ask");
    let result = contract::report::StepResult::ok(super::stage::outputs(&json!({"confirm": true})));
    assert_eq!(code(&stage.result(attempt, result)), "unknown_execution");
    assert_eq!(code(&stage.ack(attempt)), "unknown_execution");
    assert_eq!(stage.status("ask"), NodeStatus::Running);
}

#[test]
fn a_failing_run_waits_for_no_person() {
    let document = process(&[builtin("ask", "user.validation", &json!([])), task("a", &json!({}))], &[]);
    let mut stage = Stage::of(&document, &json!({}));
    stage.fail("a", "broken");
    assert_eq!((stage.run(), stage.status("ask")), (RunStatus::Failed, NodeStatus::Canceled));
    assert_eq!(code(&stage.confirm("ask", true, "ann")), "conflict");
}

fn delaying(config: &Value) -> Value {
    process(&[builtin("d", "system.delay", config), output_node(&json!([]))], &["d.value -> out.value"])
}

#[test]
fn a_delay_waits_for_its_moment_and_hands_its_value_on() {
    let document = delaying(&json!([field("milliseconds", &json!(250)), field("value", &json!({"k": 1.0}))]));
    let mut stage = Stage::of(&document, &json!({}));
    assert_eq!(stage.last.opened[0].awaited, Awaited::Time { at: Millis(1_250) });
    assert_eq!(stage.step("d").waits_for.as_deref(), Some("the moment 1250 (epoch milliseconds)"));
    let attempt = stage.attempt("d");
    stage.decide(Input::TimerDue(attempt));
    assert_eq!((stage.run(), stage.last.closed.clone()), (RunStatus::Finished, vec![attempt]));
    assert_eq!(stage.public_inputs(), json!({"value": {"k": 1.0}}));
    stage.decide(Input::TimerDue(attempt));
    assert_eq!(stage.kinds(), [""; 0], "it fires once");
}

#[test]
fn a_moment_that_lies_ahead_again_is_waited_for() {
    let stage = |until: i64| Stage::of(&delaying(&json!([field("until", &json!(until))])), &json!({}));
    let mut stage = stage(3_600_000);
    let attempt = stage.attempt("d");
    stage.decide(Input::TimerDue(attempt));
    assert_eq!(stage.status("d"), NodeStatus::Running, "the clock has gone back");
    assert_eq!(stage.last.touched[0].1.deadline, Some(Millis(3_600_000)));
    stage.now = Millis(3_600_000);
    stage.decide(Input::TimerDue(attempt));
    assert_eq!(stage.status("d"), NodeStatus::Finished);
}

#[test]
fn a_delay_until_a_moment_takes_epoch_milliseconds_and_rfc_3339() {
    for until in
        [json!(5_000), json!("5000"), json!("1970-01-01T00:00:05Z"), json!("1970-01-01T03:00:05+03:00")]
    {
        let stage = Stage::of(&delaying(&json!([field("until", &until)])), &json!({}));
        assert_eq!(stage.last.opened[0].awaited, Awaited::Time { at: Millis(5_000) }, "{until}");
    }
}

#[test]
fn a_moment_that_has_passed_is_not_waited_for() {
    for config in [json!([field("until", &json!(900))]), json!([field("milliseconds", &json!(0))])] {
        let stage = Stage::of(&delaying(&config), &json!({}));
        assert_eq!((stage.run(), stage.public_inputs()), (RunStatus::Finished, json!({"value": null})));
    }
}

#[test]
fn a_delay_without_end_is_refused() {
    for config in [
        json!([]),
        json!([field("milliseconds", &json!(-1))]),
        json!([field("milliseconds", &json!("soon"))]),
        json!([field("until", &json!("tomorrow"))]),
        json!([field("milliseconds", &json!(u64::MAX))]),
    ] {
        let stage = Stage::of(&delaying(&config), &json!({}));
        assert_eq!(stage.step("d").error.unwrap().code.as_deref(), Some("invalid_node_input"), "{config}");
    }
}

fn limited() -> Value {
    let mut document = process(&[task("a", &json!({}))], &[]);
    document["settings"] = json!({"name": "x", "timeoutMs": 5000});
    document
}

#[test]
fn a_run_that_exceeds_its_deadline_fails_and_stops_its_steps() {
    let mut stage = Stage::of(&limited(), &json!({}));
    let timer = stage.last.opened[0].clone();
    assert_eq!(timer.awaited, Awaited::Time { at: Millis(6_000) });
    let attempt = stage.attempt("a");
    stage.ack(attempt);
    stage.decide(Input::TimerDue(timer.execution_id));
    assert_eq!(stage.state.run_error().unwrap().error.code.as_deref(), Some("run_timeout"));
    assert_eq!(stage.last.withdrawn, [attempt]);
    assert_eq!(stage.last.closed, [attempt, timer.execution_id]);
    assert_eq!(code(&stage.finish("a", &json!({}))), "run_terminal");
}

#[test]
fn however_a_run_ends_its_deadline_is_watched_no_more() {
    let ends: [fn(&mut Stage); 3] = [
        |stage| drop(stage.finish("a", &json!({}))),
        |stage| drop(stage.fail("a", "broken")),
        |stage| drop(stage.decide(Input::Cancel)),
    ];
    for end in ends {
        let mut stage = Stage::of(&limited(), &json!({}));
        let timer = stage.last.opened[0].execution_id;
        end(&mut stage);
        assert!(stage.last.closed.contains(&timer));
        stage.decide(Input::TimerDue(timer));
        assert_eq!((stage.kinds().len(), stage.last.closed.len()), (0, 1));
    }
}

#[test]
fn a_repetition_keeps_what_had_finished_and_runs_the_rest() {
    let document = process(
        &[
            builtin("t", "system.trigger.input", &json!([{"name": "q"}])),
            task("a", &json!({})),
            task("b", &json!({})),
            output_node(&json!([])),
        ],
        &["t.q -> a.i", "a.o -> b.i", "b.o -> out.r"],
    );
    let mut first = Stage::of(&document, &json!({"q": 1}));
    first.finish("a", &json!({"o": "dear"}));
    first.fail("b", "broken");
    let kept = first.state.kept();
    let mut second = Stage::keeping(graph(&document), &json!({"q": 1}), Policy::default(), kept);
    assert_eq!((second.status("a"), second.step("a").attempts), (NodeStatus::Finished, 0));
    assert_eq!(second.inputs("b"), json!({"i": "dear"}));
    assert_eq!(code(&second.finish("b", &json!({"o": 2}))), "applied");
    assert_eq!(second.public_inputs(), json!({"r": 2}));
}
