//! Secrets of steps.

use crate::stage::{EMPTY, Stage, code, open, template, website, with_secret};
use contract::{ErrorCode, RpcError, task::Task};

#[tokio::test]
async fn secrets_are_put_into_a_request_after_the_ack_has_won() {
    let mut stage = Stage::start(true).await;
    // The control plane and the secret-manager may be away for a moment.
    stage
        .control_plane
        .secrets_away
        .lock()
        .unwrap()
        .push_back(RpcError::new(ErrorCode::Unavailable, "not now"));
    let (url, asked) = website(EMPTY.into(), open()).await;
    let result = stage.done(&with_secret(&url, "token")).await;
    assert_eq!(result.outputs["status"].text(), "200");
    let asked = asked.await.unwrap();
    assert!(
        asked.contains("x-key: s3cret\r\n") && asked.contains("authorization: Bearer s3cret\r\n"),
        "{asked}"
    );
    stage.stop().await;
}

#[tokio::test]
async fn a_missing_secret_fails_the_step_and_is_named() {
    let mut stage = Stage::start(true).await;
    let result = stage.done(&with_secret("http://127.0.0.1:1", "nope")).await;
    assert_eq!(code(&result), "secret_missing");
    assert!(result.error.unwrap().message.contains("\"nope\""));
    stage.stop().await;
}

#[tokio::test]
async fn a_refusal_of_secrets_fails_the_step_at_once() {
    let mut stage = Stage::start(true).await;
    let refusal = RpcError::new(ErrorCode::SecretUnreadable, "cannot be decrypted");
    stage.control_plane.secrets_away.lock().unwrap().push_back(refusal);
    let result = stage.done(&with_secret("http://127.0.0.1:1", "token")).await;
    assert_eq!((code(&result), result.error.as_ref().unwrap().retryable), ("secret_unreadable", Some(false)));
    stage.stop().await;
}

#[tokio::test]
async fn a_template_takes_no_secret_because_its_text_is_kept() {
    let mut stage = Stage::start(false).await;
    let result = stage.done(&Task { secrets: vec!["name".into()], ..template() }).await;
    assert_eq!(code(&result), "invalid_node_input");
    stage.stop().await;
}
