use super::*;
use serde_json::json;

fn built(asked: serde_json::Value) -> Result<Request, String> {
    let asked = Json::from(asked).read().unwrap();
    request(asked).map_err(|failure| failure.to_string())
}

#[test]
fn inputs_make_the_request() {
    let request = built(json!({
        "url": "http://example.org/a?x=1",
        "method": " post ",
        "query": {"y": ["2", 3], "z": null, "ю": true},
        "headers": {"X-One": 1, "Content-Type": "application/xml"},
        "body": {"k": 1},
        "timeoutMs": 5,
    }))
    .unwrap();
    assert_eq!(request.method(), Method::POST);
    assert_eq!(request.url().as_str(), "http://example.org/a?x=1&y=2&y=3&%D1%8E=true");
    assert_eq!(request.headers()["x-one"], "1");
    assert_eq!(request.headers()[CONTENT_TYPE], "application/xml");
    assert_eq!(request.body().unwrap().as_bytes().unwrap(), br#"{"k":1}"#);
    assert_eq!(request.timeout(), Some(&Duration::from_millis(5)));
}

#[test]
fn a_text_is_sent_as_text_and_a_value_as_json() {
    let kind = |body| {
        built(json!({"url": "http://a", "body": body})).unwrap().headers()[CONTENT_TYPE]
            .to_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(kind(json!("x")), "text/plain; charset=utf-8");
    assert_eq!(kind(json!([1])), "application/json");
    assert!(built(json!({"url": "http://a", "body": null})).unwrap().body().is_none());
}

#[test]
fn what_is_no_request_is_named_without_its_secrets() {
    for (asked, named) in [
        (json!({"url": "example.org"}), "`url`"),
        (json!({"url": "file:///etc/passwd"}), "`url`"),
        (json!({"url": "http://a", "method": "a b"}), "`method`"),
        (json!({"url": "http://a", "headers": {"a b": "hush"}}), "\"a b\""),
        (json!({"url": "http://a", "headers": {"X": "hush\n"}, "query": {}}), ""),
        (json!({"url": "http://a", "headers": {"X": "hu\nsh"}}), "\"X\""),
    ] {
        if named.is_empty() {
            // White space around a value is dropped.
            assert!(built(asked).is_ok());
            continue;
        }
        let message = built(asked).unwrap_err();
        assert!(message.contains(named) && !message.contains("hush"), "{message}");
    }
}
