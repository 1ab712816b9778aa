//! The judge sees what it is there for: each broken promise in a run that is otherwise in order.

use super::*;
use crate::chaos::Shape;
use contract::{ExecutionId, RunId};
use serde_json::json;
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

const NODE: &str = "step";
/// The input of the run.
const INPUT: i64 = 6;

fn id(number: u128) -> ExecutionId {
    ExecutionId(uuid(number))
}

fn uuid<T: serde::de::DeserializeOwned>(number: u128) -> T {
    let text = format!("00000000-0000-7000-8000-{number:012}");
    serde_json::from_value(json!(text)).unwrap()
}

/// An execution that was told `applied`.
fn execution(number: u128) -> Execution {
    Execution {
        run_id: uuid::<RunId>(0),
        node_path: NODE.to_owned(),
        execution_id: id(number),
        began: Instant::now(),
        ack: Some(Answer::Applied),
        result: Some(Answer::Applied),
        again: None,
        is_lost: false,
        after_ack_of: None,
    }
}

/// A finished run with these attempts, the last of which finished the node.
fn ended(shape: Shape, attempts: &[u128]) -> Ended {
    let mut events = Vec::new();
    let mut push = |kind: &str, body: Value| {
        let sequence = events.len() + 1;
        events.push(json!({"sequence": sequence, "kind": kind, "event": body}));
    };
    for (number, attempt) in attempts.iter().enumerate() {
        let body = |failure: &str| json!({"nodePath": NODE, "executionId": id(*attempt), "failure": failure});
        push("step_scheduled", body(""));
        let is_last = number + 1 == attempts.len();
        push(if is_last { "step_finished" } else { "step_failed" }, body("reported"));
    }
    push("run_finished", json!({}));
    let asked = Asked {
        shape,
        process: "process".to_owned(),
        input: INPUT,
        runs: BTreeSet::from(["run".to_owned()]),
        deed: Deed::Nothing,
    };
    Ended {
        run: "run".to_owned(),
        detail: json!({"run": {"status": "finished"}}),
        public_inputs: shape.result(INPUT, None).unwrap(),
        history: History::new(events),
        asked,
    }
}

fn violations(ended: &Ended, executions: &[&Execution]) -> usize {
    let mut verdict = Verdict::default();
    verdict.judge_run(ended, executions);
    verdict.violations.len()
}

#[test]
fn a_run_in_order_breaks_no_promise() {
    assert_eq!(violations(&ended(Shape::Chain, &[1]), &[&execution(1)]), 0);
    let repeated = Execution { after_ack_of: Some(id(1)), ..execution(2) };
    assert_eq!(violations(&ended(Shape::Flaky, &[1, 2]), &[&execution(1), &repeated]), 0);
}

#[test]
fn an_answered_result_that_is_not_in_the_history_is_seen() {
    let ended = ended(Shape::Chain, &[1]);
    let lost = Execution { execution_id: id(2), ..execution(1) };
    // Neither its result nor its attempt is there.
    assert_eq!(violations(&ended, &[&lost]), 2);
}

#[test]
fn an_execution_after_an_answered_ack_is_seen() {
    let again = Execution { after_ack_of: Some(id(1)), ..execution(1) };
    assert_eq!(violations(&ended(Shape::Flaky, &[1]), &[&again]), 1, "the same attempt");
    let again = Execution { after_ack_of: Some(id(1)), ..execution(2) };
    let never_repeated = ended(Shape::Chain, &[1, 2]);
    assert_eq!(violations(&never_repeated, &[&again]), 1, "another attempt of a node that is not repeated");
    let not_failed = ended(Shape::Flaky, &[2]);
    assert_eq!(violations(&not_failed, &[&again]), 1, "another attempt, and the first has not failed");
}

#[test]
fn wrong_answers_and_missing_answers_are_seen() {
    let ended = ended(Shape::Chain, &[1]);
    let stale = Execution { result: Some(Answer::Stale(ErrorCode::Superseded)), ..execution(1) };
    assert_eq!(violations(&ended, &[&stale]), 1, "superseded, but stored");
    let unanswered = Execution { result: None, ..execution(1) };
    assert_eq!(violations(&ended, &[&unanswered]), 1);
    let twice = Execution { again: Some(Answer::Applied), ..execution(1) };
    assert_eq!(violations(&ended, &[&twice]), 1, "applied twice");
}

#[test]
fn a_wrong_result_and_a_wrong_end_are_seen() {
    let wrong = Ended { public_inputs: json!({"value": 0}), ..ended(Shape::Chain, &[1]) };
    assert_eq!(violations(&wrong, &[&execution(1)]), 1);
    let still_running = Ended { detail: json!({"run": {"status": "running"}}), ..ended(Shape::Fan, &[1]) };
    assert_eq!(violations(&still_running, &[&execution(1)]), 1);
    let failed = Ended { detail: json!({"run": {"status": "failed"}}), ..ended(Shape::Chain, &[1]) };
    assert_eq!(violations(&failed, &[&execution(1)]), 1, "failed, and nothing exceeded its time");
}

/// A run that waited for a person; `stored` is what its history says that persons said.
fn answered(said: &[(bool, bool)], stored: &[bool]) -> Ended {
    let mut ended = ended(Shape::Approval, &[1]);
    ended.asked.deed = Deed::Answered(said.to_vec());
    let event = |(number, approved): (usize, &bool)| {
        let body = json!({"nodePath": format!("ask-{number}"), "approved": approved});
        json!({"sequence": number + 1, "kind": "step_confirmed", "event": body})
    };
    ended.public_inputs = Shape::Approval.result(INPUT, stored.first().copied()).unwrap();
    ended.history = History::new(stored.iter().enumerate().map(event).collect());
    ended
}

#[test]
fn an_answer_that_was_accepted_and_is_not_in_the_history_is_seen() {
    assert_eq!(violations(&answered(&[(true, true)], &[true]), &[]), 0);
    assert_eq!(violations(&answered(&[(true, true), (false, false)], &[true]), &[]), 0);
    assert_eq!(violations(&answered(&[(true, true)], &[false]), &[]), 1, "the other one is stored");
    assert_eq!(violations(&answered(&[(true, true), (false, true)], &[true]), &[]), 1, "both accepted");
    assert_eq!(violations(&answered(&[(true, true)], &[true, true]), &[]), 1, "twice in the history");
    assert_eq!(violations(&answered(&[(true, true)], &[]), &[]), 2, "lost");
}

#[test]
fn work_of_a_canceled_run_that_begins_long_after_is_seen() {
    let mut ended = ended(Shape::Cancel, &[1]);
    let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
    ended.asked.deed = Deed::Canceled { accepted: true, at: long_ago.into() };
    assert_eq!(violations(&ended, &[]), 1, "not canceled, though that was accepted");
    ended.detail = json!({"run": {"status": "canceled"}});
    assert_eq!(violations(&ended, &[]), 0);
    assert_eq!(violations(&ended, &[&execution(1)]), 1);
    ended.asked.deed = Deed::Canceled { accepted: true, at: Instant::now().into() };
    assert_eq!(violations(&ended, &[&execution(1)]), 0, "it may have been on its way");
}

#[test]
fn a_repetition_that_does_not_keep_what_was_done_is_seen() {
    let mut ended = ended(Shape::Repeat, &[1]);
    ended.asked.deed = Deed::Repeats;
    let again = Execution { node_path: "kept".to_owned(), ..execution(1) };
    assert_eq!(violations(&ended, &[]), 1, "not in the history");
    assert_eq!(violations(&ended, &[&again]), 2, "and executed");
}
