//! `system.http.request`.

use crate::stage::{EMPTY, Stage, code, open, task, website, with_secret};
use contract::builtin;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn an_http_response_becomes_outputs() {
    let mut stage = Stage::start(true).await;
    let body = r#"{"big":12345678901234567890123}"#;
    let response =
        format!("HTTP/1.1 404 Not Found\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let (url, asked) = website(response, open()).await;
    let inputs = json!({"url": url, "method": "POST", "body": {"a": 1}, "headers": {"X-Key": "k"}});
    let result =
        stage.done(&task(builtin::HTTP_REQUEST, inputs, &["status", "headers", "body", "json"])).await;
    assert_eq!(result.outputs["status"].text(), "404");
    assert_eq!(result.outputs["json"].text(), body);
    assert_eq!(result.outputs["headers"].value().unwrap()["x-a"], "1, 2");
    assert_eq!(result.outputs["body"].read::<String>().unwrap(), body);
    let asked = asked.await.unwrap();
    assert!(
        asked.starts_with("POST / HTTP/1.1\r\n")
            && asked.contains("x-key: k\r\n")
            && asked.ends_with(r#"{"a":1}"#),
        "{asked}"
    );
    stage.stop().await;
}

#[tokio::test]
async fn addresses_within_are_out_of_reach_also_by_name() {
    let mut stage = Stage::start(false).await;
    for url in ["http://127.0.0.1:1/", "http://localhost:1/", "http://[::ffff:10.0.0.1]/"] {
        let result = stage.done(&task(builtin::HTTP_REQUEST, json!({"url": url}), &[])).await;
        assert_eq!(code(&result), "forbidden_address", "{url}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn an_endless_response_fails_the_step() {
    let mut stage = Stage::start(true).await;
    let size = 10 * 1024 * 1024 + 1;
    let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n{}", "x".repeat(size));
    let (url, _) = website(response, open()).await;
    let result = stage.done(&task(builtin::HTTP_REQUEST, json!({"url": url}), &[])).await;
    assert_eq!(code(&result), "payload_too_large");
    stage.stop().await;
}

#[tokio::test]
async fn a_failed_request_names_the_host_and_keeps_the_url_to_itself() {
    let mut stage = Stage::start(true).await;
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://user:hush@{unused}/?token=hush");
    let result = stage.done(&task(builtin::HTTP_REQUEST, json!({"url": url}), &[])).await;
    assert_eq!(code(&result), "unavailable");
    let message = result.error.unwrap().message;
    assert!(message.contains("127.0.0.1") && !message.contains("hush"), "{message}");
    stage.stop().await;
}

#[tokio::test]
async fn the_metadata_address_of_clouds_is_out_of_reach_and_not_tried_again() {
    let mut stage = Stage::start(false).await;
    let inputs = json!({"url": "http://169.254.169.254/latest/meta-data"});
    let result = stage.done(&task(builtin::HTTP_REQUEST, inputs, &[])).await;
    assert_eq!((code(&result), result.error.as_ref().unwrap().retryable), ("forbidden_address", Some(false)));
    stage.stop().await;
}

#[tokio::test]
async fn redirects_are_followed_and_secrets_stay_with_the_first_origin() {
    let mut stage = Stage::start(true).await;
    let (target, second) = website(EMPTY.into(), open()).await;
    let redirect = format!("HTTP/1.1 302 Found\r\nLocation: {target}/there\r\nContent-Length: 0\r\n\r\n");
    let (url, first) = website(redirect.clone(), open()).await;
    let result = stage.done(&with_secret(&url, "token")).await;
    assert_eq!(result.outputs["status"].text(), "200");
    assert!(first.await.unwrap().contains("s3cret"));
    let second = second.await.unwrap();
    assert!(second.starts_with("GET /there ") && !second.contains("s3cret"), "{second}");

    let (url, _) = website(redirect, open()).await;
    let inputs = json!({"url": url, "followRedirects": "false"});
    let result = stage.done(&task(builtin::HTTP_REQUEST, inputs, &["status"])).await;
    assert_eq!(result.outputs["status"].text(), "302");
    stage.stop().await;
}

#[tokio::test]
async fn statuses_that_are_errors_fail_the_step_and_say_whether_to_try_again() {
    let mut stage = Stage::start(true).await;
    for (status, retryable) in [(503, true), (404, false)] {
        let (url, _) = website(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n"), open()).await;
        let inputs = json!({"url": url, "errorStatuses": "4xx, 5xx"});
        let result = stage.done(&task(builtin::HTTP_REQUEST, inputs, &[])).await;
        assert_eq!(
            (code(&result), result.error.as_ref().unwrap().retryable),
            ("http_status", Some(retryable))
        );
    }
    stage.stop().await;
}

#[tokio::test]
async fn a_website_that_is_silent_for_too_long_is_a_timeout() {
    let mut stage = Stage::start(true).await;
    let (url, _website) = website(EMPTY.into(), CancellationToken::new()).await;
    let result = stage.done(&task(builtin::HTTP_REQUEST, json!({"url": url, "timeoutMs": 1}), &[])).await;
    assert_eq!((code(&result), result.error.as_ref().unwrap().retryable), ("timeout", Some(true)));
    stage.stop().await;
}
