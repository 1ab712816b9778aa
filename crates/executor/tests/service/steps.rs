//! From a task on the lane to its report: who does it, how often, and how it ends.

use crate::stage::{EMPTY, Stage, code, open, task, template, website};
use contract::{
    ErrorCode, RpcError, builtin,
    report::{Ack, ReportBody, StepStatus},
};
use queue::{Lane, Topic};
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn a_template_is_rendered_and_reported_after_an_ack() {
    let mut stage = Stage::start(false).await;
    let task = template();
    stage.push(&task).await;
    let ack = stage.seen.recv().await.unwrap();
    assert!(matches!(ack.body, ReportBody::Ack(Ack { worker_id: Some(_), .. })));
    let (_, result) = stage.result().await;
    assert_eq!(result.outputs["text"].text(), "\"Привет, Аня!\"");
    stage.stop().await;
}

#[tokio::test]
async fn a_task_that_is_taken_twice_is_done_once() {
    let mut stage = Stage::start(false).await;
    let doubled = template();
    stage.push(&doubled).await;
    stage.push(&doubled).await;
    stage.result().await;
    let other = stage.done(&template()).await;
    assert_eq!(other.status, StepStatus::Ok);
    stage.stop().await;
}

#[tokio::test]
async fn a_task_that_another_worker_has_is_left_to_it() {
    let mut stage = Stage::start(false).await;
    let taken = template();
    stage.control_plane.winners.lock().unwrap().insert(taken.execution_id, "other".into());
    stage.push(&taken).await;
    // Only the other task has a result.
    stage.done(&template()).await;
    stage.stop().await;
}

#[tokio::test]
async fn a_result_is_sent_until_it_is_answered() {
    let mut stage = Stage::start(false).await;
    stage
        .control_plane
        .refusals
        .lock()
        .unwrap()
        .push_back(RpcError::new(ErrorCode::EngineUnavailable, "not now"));
    let task = template();
    let first = stage.done(&task).await;
    let (id, second) = stage.result().await;
    assert_eq!((id, second), (task.execution_id, first));
    stage.stop().await;
}

#[tokio::test]
async fn unknown_nodes_fail_the_step_and_broken_items_hurt_nobody() {
    let mut stage = Stage::start(false).await;
    stage.queue.push(Lane::Executor, vec!["{".into()]).await.unwrap();
    let result = stage.done(&task("system.unheard", json!({}), &[])).await;
    assert_eq!(code(&result), "node_type_unknown");
    stage.stop().await;
}

#[tokio::test]
async fn a_withdrawn_step_is_cancelled_by_word_of_the_engine() {
    let mut stage = Stage::start(true).await;
    // The website never answers, and the control plane accepts every heartbeat.
    let (url, _website) = website(EMPTY.into(), CancellationToken::new()).await;
    let [withdrawn, other] = [0, 1].map(|_| task(builtin::HTTP_REQUEST, json!({"url": url}), &["status"]));
    stage.push(&withdrawn).await;
    while !matches!(stage.seen.recv().await.unwrap().body, ReportBody::Heartbeat(_)) {}
    for task in [&other, &withdrawn] {
        let word = json!({"kind": "cancel", "runId": task.run_id, "executionId": task.execution_id});
        stage.queue.notify(Topic::Steps, &word.to_string()).await.unwrap();
    }
    // Its end is told, so that the history has it as a late result.
    let (id, result) = stage.result().await;
    assert_eq!((id, result.status), (withdrawn.execution_id, StepStatus::Error));
    stage.stop().await;
}

#[tokio::test]
async fn long_work_sends_heartbeats_and_a_stop_waits_for_its_result() {
    let mut stage = Stage::start(true).await;
    let gate = CancellationToken::new();
    let (url, _) = website(EMPTY.into(), gate.clone()).await;
    stage.push(&task(builtin::HTTP_REQUEST, json!({"url": url}), &["status"])).await;
    while !matches!(stage.seen.recv().await.unwrap().body, ReportBody::Heartbeat(_)) {}
    stage.stop.cancel();
    gate.cancel();
    let (_, result) = stage.result().await;
    assert_eq!(result.outputs["status"].text(), "200");
    stage.stop().await;
}

#[tokio::test]
async fn an_output_of_a_mebibyte_passes_unchanged() {
    let mut stage = Stage::start(true).await;
    let body = "é".repeat(1024 * 1024 / 2);
    let (url, _) =
        website(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()), open()).await;
    let result = stage.done(&task(builtin::HTTP_REQUEST, json!({"url": url}), &["body"])).await;
    assert_eq!(result.outputs["body"].read::<String>().unwrap(), body);
    stage.stop().await;
}

#[tokio::test]
async fn an_output_that_no_report_can_carry_fails_the_step_with_that_reason() {
    let mut stage = Stage::start(true).await;
    // As JSON each of these characters takes six bytes: within the limit of a body, not of a frame.
    let body = "\u{1}".repeat(3 * 1024 * 1024);
    let (url, _) =
        website(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()), open()).await;
    let result = stage.done(&task(builtin::HTTP_REQUEST, json!({"url": url}), &["body"])).await;
    assert_eq!(code(&result), "payload_too_large");
    stage.stop().await;
}
