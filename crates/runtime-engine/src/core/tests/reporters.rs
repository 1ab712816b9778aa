//! What reporters are told: the table of protocol section 4, in its order.

use super::stage::{Stage, code, failure, outputs, process, task};
use crate::core::Input;
use contract::{
    ExecutionId, Json,
    report::{Accepted, Ack, Dispatched, Heartbeat, Receipt, ReportOutcome, StepError, StepResult},
    run::{NodeStatus, RunStatus},
};
use serde_json::{Value, json};
use uuid::Uuid;

/// One task `a`, and `b` that runs beside it.
fn stage(a: &Value) -> Stage {
    Stage::of(&process(&[task("a", a), task("b", &json!({}))], &[]), &json!({}))
}

fn retrying() -> Value {
    json!({"execution": {"retry": {"maxAttempts": 3, "backoffMs": 100}}})
}

fn ok(value: u8) -> StepResult {
    StepResult::ok(outputs(&json!({"o": value})))
}

fn previous_state(outcome: &ReportOutcome) -> String {
    let ReportOutcome::Err(error) = outcome else { panic!("{outcome:?}") };
    error.details.as_ref().unwrap()["previousState"].as_str().unwrap().to_owned()
}

#[test]
fn a_report_about_no_known_attempt_is_unknown() {
    let mut stage = stage(&json!({}));
    let id = ExecutionId(Uuid::from_u128(12345));
    for outcome in [stage.ack(id), stage.heartbeat(id), stage.partial(id, 1), stage.result(id, ok(1))] {
        assert_eq!(code(&outcome), "unknown_execution");
    }
    assert_eq!(
        code(&stage.decide(Input::Dispatched(id, Dispatched::Delivered { implicit: false }))),
        "unknown_execution"
    );
}

#[test]
fn the_same_report_again_is_a_duplicate_and_changes_nothing() {
    let mut stage = stage(&json!({}));
    let a = stage.attempt("a");
    assert_eq!(code(&stage.ack(a)), "applied");
    assert_eq!(code(&stage.ack(a)), "duplicate");
    assert_eq!(code(&stage.partial(a, 1)), "applied");
    assert_eq!(code(&stage.partial(a, 1)), "duplicate");
    assert_eq!(code(&stage.result(a, ok(1))), "applied");
    let sequence = stage.history.len();
    assert_eq!(code(&stage.result(a, ok(1))), "duplicate");
    assert_eq!(code(&stage.partial(a, 1)), "duplicate");
    assert_eq!(code(&stage.ack(a)), "duplicate");
    assert_eq!(stage.history.len(), sequence);
    stage.finish("b", &json!({}));
    assert_eq!(stage.run(), RunStatus::Finished);
    assert_eq!(code(&stage.result(a, ok(1))), "duplicate", "also after the run has ended");
}

#[test]
fn another_body_under_the_same_execution_id_conflicts() {
    let mut stage = stage(&json!({}));
    let a = stage.attempt("a");
    stage.result(a, ok(1));
    assert_eq!(code(&stage.result(a, ok(2))), "conflicting_result");
    assert_eq!(code(&stage.result(a, failure("x"))), "conflicting_result");
    stage.finish("b", &json!({}));
    assert_eq!(code(&stage.result(a, ok(2))), "conflicting_result", "before run_terminal");
    assert_eq!(serde_json::to_value(stage.step("a").outputs).unwrap(), json!({"o": 1}));
}

#[test]
fn a_result_before_its_ack_is_fine_and_the_late_ack_is_a_duplicate() {
    let mut stage = stage(&json!({}));
    let a = stage.attempt("a");
    assert_eq!(code(&stage.result(a, ok(1))), "applied");
    assert_eq!(code(&stage.ack(a)), "duplicate");
    assert_eq!(code(&stage.heartbeat(a)), "duplicate");
    assert_eq!(code(&stage.partial(a, 7)), "duplicate", "the result contains it");
}

#[test]
fn the_first_ack_names_the_worker_that_counts() {
    let mut stage = stage(&json!({}));
    let a = stage.attempt("a");
    let by = |worker: &str| Input::Ack(a, Ack { worker_id: Some(worker.into()), ..Ack::default() });
    let told = |status, worker: &str| ReportOutcome::Ok(Receipt { status, worker_id: Some(worker.into()) });
    assert_eq!(stage.decide(by("one")), told(Accepted::Applied, "one"));
    assert_eq!(stage.decide(by("two")), told(Accepted::Duplicate, "one"));
    assert_eq!(stage.decide(by("one")), told(Accepted::Duplicate, "one"));
}

#[test]
fn an_ack_never_ends_the_attempt() {
    let mut stage = stage(&json!({}));
    let a = stage.attempt("a");
    stage.ack(a);
    assert_eq!((stage.last.closed.len(), stage.state.outstanding()), (0, 2));
    let (id, touched) = &stage.last.touched[0];
    assert_eq!(
        (*id, touched.is_running, touched.deadline),
        (a, true, Some(stage.now.plus(stage.policy.step_timeout)))
    );
}

#[test]
fn every_terminal_answer_ends_the_outstanding_attempt() {
    let endings: [fn(&mut Stage, ExecutionId); 5] = [
        |stage, a| drop(stage.result(a, ok(1))),
        |stage, a| drop(stage.result(a, failure("x"))),
        |stage, a| drop(stage.decide(Input::Dispatched(a, Dispatched::Refused(StepError::default())))),
        |stage, a| {
            stage.ack(a);
            stage.decide(Input::StepOverdue(a));
        },
        |stage, _| drop(stage.decide(Input::Cancel)),
    ];
    for (number, end) in endings.into_iter().enumerate() {
        let mut stage = stage(&json!({"execution": {"onError": "continue"}}));
        let a = stage.attempt("a");
        end(&mut stage, a);
        assert!(stage.last.closed.contains(&a), "ending {number}");
        assert!(!stage.state.is_outstanding(a), "ending {number}");
    }
}

#[test]
fn only_the_newest_attempt_counts() {
    let mut stage = stage(&retrying());
    let first = stage.attempt("a");
    stage.ack(first);
    stage.result(first, failure("once"));
    let second = stage.attempt("a");
    assert_ne!(first, second);
    assert_eq!(code(&stage.result(first, failure("once"))), "duplicate");
    assert_eq!(code(&stage.result(first, ok(1))), "conflicting_result");
    let told = stage.heartbeat(first);
    assert_eq!((code(&told), previous_state(&told).as_str()), ("superseded", "failed"));
    assert_eq!(previous_state(&stage.partial(first, 1)), "failed");
    assert_eq!(code(&stage.ack(first)), "duplicate", "the same ack again");
    assert_eq!(code(&stage.result(second, ok(2))), "applied");
    assert_eq!(stage.step("a").attempts, 2);
}

#[test]
fn an_attempt_that_was_not_delivered_in_time_is_superseded_by_the_next() {
    let mut stage = stage(&json!({}));
    let first = stage.attempt("a");
    stage.decide(Input::DeliveryOverdue(first));
    for told in
        [stage.ack(first), stage.heartbeat(first), stage.partial(first, 1), stage.result(first, ok(1))]
    {
        assert_eq!((code(&told), previous_state(&told).as_str()), ("superseded", "delivery_failed"));
    }
    assert_eq!(stage.status("a"), NodeStatus::Queued, "a late report of the first changes nothing");
}

#[test]
fn an_attempt_that_timed_out_is_superseded_even_after_the_run_has_ended() {
    let mut stage = Stage::of(&process(&[task("a", &json!({}))], &[]), &json!({}));
    let a = stage.attempt("a");
    stage.ack(a);
    stage.decide(Input::StepOverdue(a));
    assert_eq!(stage.run(), RunStatus::Failed);
    assert_eq!(stage.step("a").error.unwrap().code.as_deref(), Some("step_timeout"));
    assert_eq!(stage.last.withdrawn, [a]);
    let told = stage.result(a, ok(1));
    assert_eq!((code(&told), previous_state(&told).as_str()), ("superseded", "timed_out"));
}

#[test]
fn a_result_after_the_runs_end_is_kept_once_in_the_history_and_changes_nothing() {
    let mut stage = stage(&json!({}));
    let a = stage.attempt("a");
    stage.ack(a);
    stage.decide(Input::Cancel);
    assert_eq!((stage.run(), stage.status("a")), (RunStatus::Canceled, NodeStatus::Canceled));
    assert_eq!(code(&stage.result(a, ok(1))), "run_terminal");
    assert_eq!(stage.kinds(), ["late_result"]);
    assert_eq!(code(&stage.result(a, ok(1))), "run_terminal", "as the lost answer was");
    assert_eq!(code(&stage.result(a, ok(2))), "run_terminal");
    assert_eq!(stage.kinds(), [""; 0]);
    for told in [stage.heartbeat(a), stage.partial(a, 4)] {
        assert_eq!(code(&told), "run_terminal");
    }
    assert_eq!(code(&stage.ack(a)), "duplicate", "the same ack again");
    assert_eq!(code(&stage.ack(stage.attempt("b"))), "run_terminal");
}

#[test]
fn a_withdrawn_attempt_is_superseded_while_the_run_waits_for_others() {
    let mut stage = Stage::of(
        &process(&[task("a", &json!({})), task("b", &json!({})), task("c", &json!({}))], &[]),
        &json!({}),
    );
    let b = stage.attempt("b");
    stage.ack(stage.attempt("c"));
    stage.fail("a", "broken");
    let told = stage.ack(b);
    assert_eq!((code(&told), previous_state(&told).as_str()), ("superseded", "canceled"));
    stage.finish("c", &json!({}));
    assert_eq!(code(&stage.result(b, ok(1))), "run_terminal");
}

#[test]
fn cancel_is_idempotent_and_refused_after_another_end() {
    let mut stage = stage(&json!({}));
    let outstanding = vec![stage.attempt("a"), stage.attempt("b")];
    assert_eq!(code(&stage.decide(Input::Cancel)), "applied");
    assert_eq!((&stage.last.closed, &stage.last.withdrawn), (&outstanding, &outstanding));
    assert_eq!(code(&stage.decide(Input::Cancel)), "duplicate");
    let mut ended = Stage::of(&process(&[], &[]), &json!({}));
    assert_eq!(code(&ended.decide(Input::Cancel)), "conflict");
}

#[test]
fn a_heartbeat_extends_the_step_up_to_the_nodes_maximum_and_adds_no_event() {
    let mut stage = stage(&json!({"execution": {"timeoutMs": 1000}}));
    stage.policy.longest_step = std::time::Duration::from_millis(1500);
    let a = stage.attempt("a");
    stage.ack(a);
    let acked = stage.now;
    let half = Json::parse("0.5").unwrap();
    stage.decide(Input::Heartbeat(a, Heartbeat { progress: Some(half.clone()), message: None }));
    assert_eq!(stage.kinds(), [""; 0]);
    let touched = stage.last.touched[0].1.clone();
    assert_eq!(
        (touched.deadline, touched.progress),
        (Some(contract::Millis(stage.now.0 + 1000)), Some(half))
    );
    stage.now = contract::Millis(acked.0 + 900);
    stage.heartbeat(a);
    assert_eq!(stage.last.touched[0].1.deadline, Some(contract::Millis(acked.0 + 1500)));
}

#[test]
fn what_a_heartbeat_says_to_people_is_kept_up_to_a_length() {
    let mut stage = stage(&json!({}));
    let a = stage.attempt("a");
    for (said, kept) in
        [("Страница 3".to_owned(), "Страница 3".to_owned()), ("я".repeat(600), "я".repeat(500) + "…")]
    {
        stage.decide(Input::Heartbeat(a, Heartbeat { progress: None, message: Some(said) }));
        assert_eq!(stage.last.touched.last().unwrap().1.message, Some(kept));
    }
}

#[test]
fn any_sign_of_life_tells_that_the_task_was_delivered() {
    let signs: [fn(&mut Stage, ExecutionId); 4] = [
        |stage, a| drop(stage.ack(a)),
        |stage, a| drop(stage.heartbeat(a)),
        |stage, a| drop(stage.partial(a, 1)),
        |stage, a| drop(stage.decide(Input::Dispatched(a, Dispatched::Delivered { implicit: true }))),
    ];
    for sign in signs {
        let mut stage = stage(&json!({}));
        let a = stage.attempt("a");
        sign(&mut stage, a);
        assert_eq!(stage.status("a"), NodeStatus::Running);
        assert!(stage.last.touched.iter().any(|(id, touched)| *id == a && touched.is_running));
        stage.decide(Input::DeliveryOverdue(a));
        assert_eq!(stage.status("a"), NodeStatus::Running, "the delivery deadline is met");
        let failed = Dispatched::Failed(StepError::default());
        assert_eq!(code(&stage.decide(Input::Dispatched(a, failed))), "duplicate");
        assert_eq!(stage.status("a"), NodeStatus::Running);
    }
}

#[test]
fn an_ack_after_the_delivery_reply_is_applied_once() {
    let mut stage = stage(&json!({}));
    let a = stage.attempt("a");
    stage.decide(Input::Dispatched(a, Dispatched::Delivered { implicit: false }));
    assert_eq!(code(&stage.ack(a)), "applied");
    assert_eq!(code(&stage.ack(a)), "duplicate");
}

#[test]
fn deadlines_of_ended_attempts_are_ignored() {
    let mut stage = stage(&json!({}));
    let a = stage.attempt("a");
    stage.result(a, ok(1));
    stage.decide(Input::StepOverdue(a));
    stage.decide(Input::DeliveryOverdue(a));
    assert_eq!((stage.status("a"), stage.kinds().len()), (NodeStatus::Finished, 0));
}
