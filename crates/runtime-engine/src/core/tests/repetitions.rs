//! Deliveries and retries (protocol section 5).

use super::stage::{Stage, failure, process, publication, task};
use crate::core::Input;
use contract::{
    ErrorCode, Millis,
    report::{Dispatched, StepError, StepResult},
    run::{NodeStatus, RunStatus},
};
use serde_json::{Value, json};

fn stage(a: &Value) -> Stage {
    Stage::of(&process(&[task("a", a)], &[]), &json!({}))
}

fn retrying(attempts: u32) -> Value {
    json!({"execution": {"retry": {"maxAttempts": attempts, "backoffMs": 100, "maxBackoffMs": 150}}})
}

fn offline() -> Dispatched {
    Dispatched::Failed(StepError::of(ErrorCode::PluginOffline, "echo@0.0.1 does not answer"))
}

#[test]
fn a_failed_delivery_is_repeated_as_a_new_attempt_after_a_wait_with_jitter() {
    let mut stage = stage(&json!({}));
    let first = stage.attempt("a");
    stage.decide(Input::Dispatched(first, offline()));
    assert_eq!(stage.kinds(), ["step_failed", "step_scheduled"]);
    let opened = &stage.last.opened[0];
    // Half of the first bound of one second: chance is one half on this stage.
    assert_eq!((opened.attempt, publication(opened)), (2, (Millis(stage.now.0 + 500), false)));
    assert_eq!(stage.last.closed, [first]);
    assert!(stage.step("a").waits_for.unwrap().contains("attempt 2"));
}

#[test]
fn after_the_last_redelivery_the_step_fails_with_delivery_failed_and_the_last_cause() {
    let mut stage = stage(&json!({}));
    for attempt in 1..=6 {
        assert_eq!((stage.step("a").attempts, stage.run()), (attempt, RunStatus::Running));
        let id = stage.attempt("a");
        if attempt < 6 {
            stage.decide(Input::DeliveryOverdue(id))
        } else {
            stage.decide(Input::Dispatched(id, offline()))
        };
    }
    assert_eq!((stage.run(), stage.status("a")), (RunStatus::Failed, NodeStatus::Failed));
    let error = stage.step("a").error.unwrap();
    assert_eq!(error.code.as_deref(), Some("delivery_failed"));
    assert!(
        error.message.contains("6 attempts") && error.message.contains("echo@0.0.1"),
        "{}",
        error.message
    );
    assert_eq!(error.details.unwrap().value().unwrap()["lastCode"], "plugin_offline");
}

#[test]
fn a_refused_dispatch_fails_the_step_once() {
    let mut stage = stage(&retrying(5));
    let refused = StepError::of(ErrorCode::PluginDisabled, "jira@1 is not enabled");
    stage.decide(Input::Dispatched(stage.attempt("a"), Dispatched::Refused(refused.clone())));
    assert_eq!(
        (stage.run(), stage.step("a").attempts, stage.step("a").error),
        (RunStatus::Failed, 1, Some(refused))
    );
}

#[test]
fn without_the_nodes_consent_a_step_that_began_is_not_repeated() {
    let mut stage = stage(&json!({}));
    stage.ack(stage.attempt("a"));
    stage.fail("a", "broken");
    assert_eq!((stage.run(), stage.step("a").attempts), (RunStatus::Failed, 1));
}

#[test]
fn a_node_that_consents_is_repeated_with_doubling_waits_up_to_its_attempts() {
    let mut stage = stage(&retrying(3));
    let mut waits = Vec::new();
    for _ in 0..2 {
        stage.fail("a", "broken");
        waits.push(publication(&stage.last.opened[0]).0.0 - stage.now.0);
    }
    assert_eq!((waits, stage.run()), (vec![100, 150], RunStatus::Running));
    stage.fail("a", "broken");
    assert_eq!((stage.run(), stage.step("a").attempts), (RunStatus::Failed, 3));
}

#[test]
fn what_says_that_it_is_not_retryable_is_never_repeated() {
    let mut stage = stage(&retrying(3));
    let error = StepError { retryable: Some(false), message: "bad key".into(), ..StepError::default() };
    stage.result(stage.attempt("a"), StepResult::failed(error));
    assert_eq!((stage.run(), stage.step("a").attempts), (RunStatus::Failed, 1));
}

#[test]
fn a_step_that_timed_out_is_repeated_when_the_node_consents() {
    let mut stage = stage(&retrying(2));
    let first = stage.attempt("a");
    stage.ack(first);
    stage.decide(Input::StepOverdue(first));
    assert_eq!((stage.run(), stage.step("a").attempts), (RunStatus::Running, 2));
    assert_eq!(stage.last.withdrawn, [first], "whoever still works on it is told");
    stage.finish("a", &json!({"o": 1}));
    assert_eq!((stage.run(), stage.step("a").error), (RunStatus::Finished, None));
}

#[test]
fn a_task_that_reached_somebody_has_its_delivery_budget_anew_in_the_next_attempt() {
    let mut stage = stage(&retrying(2));
    for _ in 0..5 {
        stage.decide(Input::DeliveryOverdue(stage.attempt("a")));
    }
    stage.ack(stage.attempt("a"));
    stage.result(stage.attempt("a"), failure("broken"));
    for _ in 0..5 {
        stage.decide(Input::DeliveryOverdue(stage.attempt("a")));
    }
    assert_eq!((stage.run(), stage.step("a").attempts), (RunStatus::Running, 12));
    stage.decide(Input::DeliveryOverdue(stage.attempt("a")));
    assert_eq!(stage.run(), RunStatus::Failed);
}

#[test]
fn a_failing_run_repeats_nothing() {
    let mut stage = Stage::of(&process(&[task("a", &json!({})), task("b", &retrying(5))], &[]), &json!({}));
    stage.ack(stage.attempt("b"));
    stage.fail("a", "broken");
    stage.fail("b", "broken too");
    assert_eq!((stage.run(), stage.step("b").attempts), (RunStatus::Failed, 1));
    assert_eq!(
        stage.state.summary().error.unwrap().error.message,
        "broken",
        "the first failure is the run's"
    );
}

#[test]
fn a_fresh_task_goes_on_its_lane_at_once_and_again_after_the_republish_time() {
    let stage = stage(&json!({}));
    let opened = &stage.last.opened[0];
    assert_eq!(publication(opened), (stage.now.plus(stage.policy.republish_after), true));
}
