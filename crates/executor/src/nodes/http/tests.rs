use super::request::prepared;
use contract::Json;
use reqwest::{
    Method, Request,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use serde_json::{Value, json};
use std::time::Duration;

fn built(asked: Value) -> Result<Request, String> {
    let inputs = Json::from(asked).read().unwrap();
    prepared(inputs).map(|prepared| prepared.request).map_err(|failure| failure.to_string())
}

#[test]
fn inputs_make_the_request() {
    let asked = json!({
        "url": "http://example.org/a?x=1",
        "method": " post ",
        "query": {"y": ["2", 3], "z": null, "ю": true},
        "query.key": "k&1",
        "headers": {"X-One": 1, "Content-Type": "application/xml"},
        "header.X-Two": "2",
        "body": {"k": 1},
        "timeoutMs": 5,
    });
    let prepared = prepared(Json::from(asked).read().unwrap()).unwrap();
    let request = prepared.request;
    assert_eq!(request.method(), Method::POST);
    assert_eq!(request.url().as_str(), "http://example.org/a?x=1&y=2&y=3&%D1%8E=true&key=k%261");
    assert_eq!(
        (&request.headers()["x-one"], &request.headers()["x-two"]),
        (&"1".parse().unwrap(), &"2".parse().unwrap())
    );
    assert_eq!(request.headers()[CONTENT_TYPE], "application/xml");
    assert_eq!(request.body().unwrap().as_bytes().unwrap(), br#"{"k":1}"#);
    assert_eq!((prepared.timeout, prepared.follow), (Duration::from_millis(5), true));
}

#[test]
fn credentials_become_an_authorization_that_debug_output_hides() {
    let header = |asked: Value| built(asked).unwrap().headers()[AUTHORIZATION].clone();
    let bearer = header(json!({"url": "http://a", "bearerToken": " hush "}));
    assert_eq!(bearer, "Bearer hush");
    assert!(!format!("{bearer:?}").contains("hush"));
    assert_eq!(header(json!({"url": "http://a", "username": "u", "password": "p"})), "Basic dTpw");
    assert_eq!(header(json!({"url": "http://a", "header.Authorization": "Token hush"})), "Token hush");
    for both in [json!({"bearerToken": "hush", "username": "u"}), json!({"password": "hush"})] {
        let mut asked = both;
        asked["url"] = json!("http://a");
        assert!(!built(asked).unwrap_err().contains("hush"));
    }
}

#[test]
fn what_is_no_request_is_named_without_its_secrets() {
    for (asked, named) in [
        (json!({"url": "example.org"}), "`url`"),
        (json!({"url": "file:///etc/passwd"}), "`url`"),
        (json!({"url": 5}), "`url`"),
        (json!({"url": "http://a", "method": "a b"}), "`method`"),
        (json!({"url": "http://a", "headers": {"a b": "hush"}}), "\"a b\""),
        (json!({"url": "http://a", "headers": {"X": "hu\nsh"}}), "\"X\""),
        (json!({"url": "http://a", "header.X": "hu\nsh"}), "\"X\""),
        (json!({"url": "http://a", "headers": "hush"}), "`headers`"),
        (json!({"url": "http://a", "timeoutMs": "hush"}), "`timeoutMs`"),
        (json!({"url": "http://a", "errorStatuses": "hush"}), "`errorStatuses`"),
    ] {
        let message = built(asked).unwrap_err();
        assert!(message.contains(named) && !message.contains("hush"), "{message}");
    }
    // White space around a value is dropped.
    assert!(built(json!({"url": "http://a", "headers": {"X": "v\n"}, "query": {}})).is_ok());
}
