//! What a reporter is told: the table of protocol section 4, over both doors.

use crate::world::{KEY, PATIENCE, World, data, error, id};
use contract::{
    ErrorCode, ExecutionId, RpcError,
    report::{Accepted, Receipt, ReportOutcome},
};
use serde_json::{Value, json};
use wire::CallError;

/// Code and, where it is one, the error object by which both doors answered a result report.
async fn told(world: &World, body: &Value, status: u16) -> Value {
    let (http_status, http_body, retry_after) = world.post("/internal/steps/result", &body.to_string()).await;
    assert_eq!(http_status, status, "{http_body}");
    assert_eq!(retry_after.is_some(), status == 503);
    let mut with_key = body.clone();
    with_key["key"] = json!(KEY);
    let tcp = world.tcp().request("plugin.executor.step_result", &data(&with_key), PATIENCE).await;
    match tcp {
        Ok(reply) => {
            assert_eq!(status, 200);
            let reply = reply.value().unwrap();
            assert_eq!(reply, http_body, "both doors say the same");
            reply
        }
        Err(CallError::Remote(remote)) => {
            assert_ne!(status, 200);
            let reply = remote.raw.value().unwrap();
            assert_eq!(reply, http_body["error"], "both doors say the same");
            assert_eq!(reply["status"], "error");
            reply
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn both_doors_answer_by_the_table() {
    let world = World::start().await;
    let superseded = RpcError::new(ErrorCode::Superseded, "a newer attempt exists")
        .with_details(json!({"previousState": "timed_out"}));
    let rows: [(ReportOutcome, u16, &str, bool); 8] = [
        (ReportOutcome::applied(), 200, "applied", false),
        (ReportOutcome::duplicate(), 200, "duplicate", false),
        (error(ErrorCode::ConflictingResult), 422, "conflicting_result", false),
        (ReportOutcome::Err(superseded), 409, "superseded", false),
        (error(ErrorCode::RunTerminal), 409, "run_terminal", false),
        (error(ErrorCode::UnknownExecution), 404, "unknown_execution", false),
        (error(ErrorCode::EngineUnavailable), 503, "engine_unavailable", true),
        (error(ErrorCode::MissingExecutionId), 400, "missing_execution_id", false),
    ];
    for (outcome, status, code, retryable) in rows {
        let id = id();
        world.script.answers.lock().unwrap().insert(id, outcome);
        let told = told(&world, &json!({"executionId": id, "outputs": {"a": 1}}), status).await;
        match status {
            200 => assert_eq!(told, json!({"status": code})),
            _ => {
                assert_eq!((&told["code"], &told["retryable"]), (&json!(code), &json!(retryable)));
                let state = if code == "superseded" { json!("timed_out") } else { Value::Null };
                assert_eq!(told["details"]["previousState"], state);
            }
        }
    }
}

#[tokio::test]
async fn form_is_judged_before_the_engine_is_asked_and_every_fault_is_named() {
    let mut world = World::start().await;
    let missing = told(&world, &json!({"outputs": {}}), 400).await;
    assert_eq!(missing["code"], "missing_execution_id");
    let malformed = told(&world, &json!({"executionId": "x", "status": "perhaps", "outputs": []}), 400).await;
    assert_eq!(malformed["code"], "invalid_report");
    let paths: Vec<_> =
        malformed["details"]["faults"].as_array().unwrap().iter().map(|f| f["path"].clone()).collect();
    assert!(paths.contains(&json!("$.executionId")) && paths.contains(&json!("$.status")), "{paths:?}");
    let (status, body, _) = world.post("/internal/steps/result", "{").await;
    assert_eq!((status, &body["error"]["code"]), (400, &json!("invalid_report")));
    assert!(world.reports.try_recv().is_err(), "the engine was asked");
}

#[tokio::test]
async fn receipt_of_an_ack_names_the_worker_that_won() {
    let world = World::start().await;
    let id = id();
    let receipt = Receipt { status: Accepted::Applied, worker_id: Some("worker-7".into()) };
    world.script.answers.lock().unwrap().insert(id, ReportOutcome::Ok(receipt));
    let body = json!({"key": KEY, "executionId": id, "workerId": "worker-8"});
    let expected = json!({"status": "applied", "workerId": "worker-7"});
    let reply = world.tcp().request("step_ack", &data(&body), PATIENCE).await.unwrap();
    assert_eq!(reply.value().unwrap(), expected);
    assert_eq!(world.post("/internal/steps/ack", &body.to_string()).await.1, expected);
}

#[tokio::test]
async fn result_beyond_the_limit_fails_its_step_and_one_at_the_limit_passes() {
    let mut world = World::with(|settings| settings.max_frame_bytes = 4096).await;
    let body = |id: ExecutionId, bytes: usize| {
        let empty = json!({"executionId": id, "outputs": {"a": ""}}).to_string();
        json!({"executionId": id, "outputs": {"a": "x".repeat(bytes - empty.len())}}).to_string()
    };
    let fits = id();
    assert_eq!(world.post("/internal/steps/result", &body(fits, 4096)).await.0, 200);
    assert_eq!(world.next_result(fits).await.outputs.len(), 1);
    let large = id();
    let (status, told, _) = world.post("/internal/steps/result", &body(large, 4097)).await;
    assert_eq!((status, &told["error"]["code"]), (413, &json!("payload_too_large")));
    let failed = world.next_result(large).await.error.unwrap();
    assert_eq!((failed.code.as_deref(), failed.retryable), (Some("payload_too_large"), Some(false)));
}

#[tokio::test]
async fn frame_at_the_limit_passes_and_a_larger_one_fails_its_step_if_it_carries_the_key() {
    let mut world = World::with(|settings| settings.max_frame_bytes = 4096).await;
    let frame = |id: ExecutionId, key: &str, bytes: usize| {
        let packet = |filler: &str| {
            let data = json!({"key": key, "executionId": id, "outputs": {"a": filler}});
            json!({"pattern": "step_result", "data": data, "id": "1"}).to_string()
        };
        let text = packet(&"x".repeat(bytes - packet("").len()));
        format!("{}#{text}", text.len())
    };
    let fits = id();
    let reply = crate::world::raw(world.tcp, frame(fits, KEY, 4096).as_bytes()).await;
    assert!(reply.contains("applied"), "{reply}");
    assert!(world.next_result(fits).await.error.is_none());
    let foreign = crate::world::raw(world.tcp, frame(id(), "wrong", 100_000).as_bytes()).await;
    assert!(foreign.contains("payload_too_large"), "{foreign}");
    for bytes in [4097, 100_000] {
        let large = id();
        let reply = crate::world::raw(world.tcp, frame(large, KEY, bytes).as_bytes()).await;
        assert!(reply.contains("payload_too_large"), "{reply}");
        let failed = world.next_result(large).await.error.unwrap();
        assert_eq!((failed.code.as_deref(), failed.retryable), (Some("payload_too_large"), Some(false)));
    }
}

#[tokio::test]
async fn results_in_a_batch_are_answered_item_by_item() {
    let world = World::start().await;
    let (good, late) = (id(), id());
    world.script.answers.lock().unwrap().insert(late, error(ErrorCode::RunTerminal));
    let items = json!([{"executionId": good}, {"executionId": late}, {}]);
    for body in [items.clone(), json!({"results": items})] {
        let (status, told, _) = world.post("/internal/steps/results", &body.to_string()).await;
        assert_eq!(status, 200);
        assert_eq!(told["outcomes"][0], json!({"ok": {"status": "applied"}}));
        assert_eq!(told["outcomes"][1]["err"]["code"], "run_terminal");
        assert_eq!(told["outcomes"][2]["err"]["code"], "missing_execution_id");
    }
}
