//! Secrets for executors.

use crate::{
    dispatch::{secret_manager, with_secrets},
    world::{KEY, NODE_TYPE, PATIENCE, World, id},
};
use contract::{
    ErrorCode, ExecutionId, Json, Millis, RpcError, builtin, run::RunStatus, secret::ResolvedSecrets,
};
use queue::Lane;
use serde_json::{Value, json};
use storage::runs::{Append, Appended, NewEvent};

async fn call(world: &World, body: Value) -> Result<Vec<Option<String>>, RpcError> {
    let answer = world.tcp().call::<_, ResolvedSecrets>("executor.secrets", &body, PATIENCE).await;
    let plain = |resolved: ResolvedSecrets| {
        resolved.values.iter().map(|value| value.as_ref().map(|value| value.expose().to_owned())).collect()
    };
    answer.map(plain).map_err(|error| error.to_rpc(ErrorCode::Unavailable, "it"))
}

async fn ask(
    world: &World,
    execution_id: ExecutionId,
    names: &[&str],
) -> Result<Vec<Option<String>>, ErrorCode> {
    let body = json!({"key": KEY, "executionId": execution_id, "names": names});
    call(world, body).await.map_err(|error| error.code)
}

#[tokio::test]
async fn an_attempt_of_the_executor_lane_gets_the_secrets_of_its_runs_workspace() {
    let manager = secret_manager(None);
    let world = with_secrets(manager.endpoint()).await;
    let task = world.attempt_on(Lane::Executor, builtin::HTTP_REQUEST).await;
    // The scripted secret-manager checks that the workspace is the run's.
    let values = ask(&world, task.execution_id, &["nope", "token"]).await.unwrap();
    assert_eq!(values, [None, Some("s3cret \"quoted\"".to_owned())]);
    let named = json!({
        "key": KEY, "executionId": task.execution_id, "names": ["token"], "workspaceId": "another"
    });
    assert_eq!(call(&world, named).await.unwrap(), [Some("s3cret \"quoted\"".to_owned())]);
}

#[tokio::test]
async fn an_attempt_of_the_plugin_lane_gets_nothing() {
    let manager = secret_manager(None);
    let world = with_secrets(manager.endpoint()).await;
    let task = world.attempt(NODE_TYPE).await;
    assert_eq!(ask(&world, task.execution_id, &["token"]).await, Err(ErrorCode::UnknownExecution));
}

#[tokio::test]
async fn an_attempt_that_is_over_or_whose_run_has_ended_or_that_never_was_gets_nothing() {
    let manager = secret_manager(None);
    let world = with_secrets(manager.endpoint()).await;
    assert_eq!(ask(&world, id(), &["token"]).await, Err(ErrorCode::UnknownExecution));
    for (status, close) in [(RunStatus::Running, true), (RunStatus::Canceled, false)] {
        let task = world.attempt_on(Lane::Executor, builtin::HTTP_REQUEST).await;
        let append = Append {
            events: vec![NewEvent { kind: "test".into(), body: Json::from(json!({})) }],
            close: if close { vec![task.execution_id] } else { Vec::new() },
            ..Append::new(task.run_id, 0, status, Millis(2))
        };
        assert_eq!(world.storage.runs().append(&[append]).await.unwrap(), [Appended::Done]);
        assert_eq!(ask(&world, task.execution_id, &["token"]).await, Err(ErrorCode::UnknownExecution));
    }
}

#[tokio::test]
async fn a_stranger_a_malformed_body_and_too_many_names_are_refused() {
    let manager = secret_manager(None);
    let world = with_secrets(manager.endpoint()).await;
    let task = world.attempt_on(Lane::Executor, builtin::HTTP_REQUEST).await;
    let many: Vec<String> = (0..257).map(|n| n.to_string()).collect();
    for (body, code) in [
        (json!({"executionId": task.execution_id, "names": ["token"]}), ErrorCode::Unauthorized),
        (
            json!({"key": "wrong", "executionId": task.execution_id, "names": ["token"]}),
            ErrorCode::Unauthorized,
        ),
        (json!({"key": KEY, "executionId": "x", "names": ["token"]}), ErrorCode::InvalidRequest),
        (json!({"key": KEY, "executionId": task.execution_id, "names": many}), ErrorCode::InvalidRequest),
    ] {
        assert_eq!(call(&world, body).await.unwrap_err().code, code);
    }
}

#[tokio::test]
async fn an_absent_secret_manager_can_be_asked_again() {
    let manager = secret_manager(None);
    let world = with_secrets(manager.endpoint()).await;
    let task = world.attempt_on(Lane::Executor, builtin::HTTP_REQUEST).await;
    manager.stop().await;
    let body = json!({"key": KEY, "executionId": task.execution_id, "names": ["token"]});
    let error = call(&world, body).await.unwrap_err();
    assert_eq!((error.code, error.retryable), (ErrorCode::Unavailable, true));
}
