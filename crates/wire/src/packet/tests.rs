use super::*;
use contract::{ErrorCode, Json, RpcError};

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn pattern(text: &str) -> Option<String> {
    canonical_pattern(&json(text))
}

#[test]
fn equal_patterns_have_one_spelling() {
    for (one, other) in [
        (r#"{"b":"2","a":"1"}"#, r#"{"a":"1","b":"2"}"#),
        (r#"{"cmd":"sum"}"#, r#""sum""#),
        (r#""{ \"cmd\" : \"sum\" }""#, r#"{"cmd":"sum"}"#),
        ("7", r#""7""#),
        ("7", r#""7.0""#),
        (r#""\"echo\"""#, r#""echo""#),
        (r#"{"x":{"b":1,"a":2}}"#, r#""{\"x\":{\"a\":2,\"b\":1}}""#),
    ] {
        assert_eq!(pattern(one), pattern(other), "{one} and {other}");
        assert!(pattern(one).is_some(), "{one}");
    }
    assert_eq!(pattern(r#""executor.task""#).as_deref(), Some("executor.task"));
    assert_eq!(pattern(r#""{not json""#).as_deref(), Some("{not json"));
}

#[test]
fn patterns_that_name_no_handler() {
    let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    let long = format!("\"{}\"", "x".repeat(5000));
    for text in ["null", "true", r#""false""#, &deep, &long] {
        assert_eq!(pattern(text), None, "{text}");
    }
}

#[test]
fn request_has_an_id_of_any_type_and_an_event_has_none() {
    for id in ["null", "42", "\"\"", "false", r#"{"a":1}"#] {
        let packet =
            parse_packet(format!(r#"{{"pattern":"p","data":1,"id":{id}}}"#).as_bytes(), false).unwrap();
        assert_eq!(packet.id.unwrap().text(), id);
    }
    assert!(parse_packet(br#"{"pattern":"p","data":1}"#, false).unwrap().id.is_none());
}

#[test]
fn order_extra_and_duplicate_keys_do_not_matter() {
    let packet =
        parse_packet(br#"{"id":1,"x":[{}],"data":1,"pattern":"p","data":2,"\ud800":3}"#, false).unwrap();
    assert_eq!((packet.pattern.as_deref(), packet.data.text()), (Some("p"), "2"));
}

#[test]
fn json_that_is_no_object_is_an_event_without_pattern() {
    for text in ["null", "5", "\"x\"", "[]", " 0 "] {
        let packet = parse_packet(text.as_bytes(), false).unwrap();
        assert!(packet.id.is_none() && packet.pattern.is_none(), "{text}");
    }
    for text in ["", "abc", "{", "{} {}", "\"x"] {
        assert!(parse_packet(text.as_bytes(), false).is_err(), "{text}");
    }
}

#[test]
fn payload_passes_unchanged_whatever_node_accepts() {
    let deep = format!("{}{}", "[".repeat(3000), "]".repeat(3000));
    for data in [r#""\ud800""#, "1e400", "9007199254740993", "1.0", "-0", r#"{"a":1,"a":2}"#, &deep] {
        let text = format!(r#"{{"pattern":"p","data":{data},"id":"1"}}"#);
        assert_eq!(parse_packet(text.as_bytes(), false).unwrap().data.text(), data);
    }
}

#[test]
fn reply_with_value_is_final_only_when_disposed() {
    for (text, value, ends) in [
        (r#"{"response":1,"isDisposed":true,"id":"1"}"#, Some("1"), true),
        (r#"{"response":null,"isDisposed":true,"id":"1"}"#, Some("null"), true),
        (r#"{"response":1,"id":"1"}"#, Some("1"), false),
        (r#"{"response":1,"isDisposed":false,"id":"1"}"#, Some("1"), false),
        (r#"{"isDisposed":true,"id":"1"}"#, None, true),
        (r#"{"id":"1"}"#, None, false),
        (r#"{"err":null,"response":1,"isDisposed":true,"id":"1"}"#, Some("1"), true),
        (r#"{"err":"","isDisposed":true,"id":"1","traceId":"x"}"#, None, true),
    ] {
        match parse_reply(text.as_bytes(), false).unwrap().answer {
            Answer::Value { response, last } => {
                assert_eq!((response.as_ref().map(Json::text), last), (value, ends), "{text}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn foreign_errors_are_understood() {
    for (err, code, message) in [
        (r#""text""#, None, "text"),
        (r#"{"status":"error","message":"Internal server error"}"#, None, "Internal server error"),
        (r#"{"code":401,"message":"bad token","extra":{"a":1}}"#, Some("401"), "bad token"),
        (r#"{}"#, None, "the other side gave no reason"),
    ] {
        let text = format!(r#"{{"err":{err},"isDisposed":true,"id":"1"}}"#);
        match parse_reply(text.as_bytes(), false).unwrap().answer {
            Answer::Error(error) => {
                assert_eq!((error.code.as_deref(), error.message.as_str()), (code, message));
                assert_eq!((error.raw.text(), error.retryable), (err, false));
                assert!(error.as_rpc().is_none());
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn our_error_comes_back_as_it_was() {
    let error =
        RpcError::new(ErrorCode::EngineUnavailable, "no engine").with_details(serde_json::json!({"n": 1}));
    let remote = RemoteError::new(Json::of(&error).unwrap());
    assert!(remote.is(ErrorCode::EngineUnavailable) && remote.retryable);
    assert_eq!(remote.as_rpc(), Some(error));
}

#[test]
fn missing_handler_is_recognised() {
    let frame = write_no_handler(&json("\"1\""));
    let text = frame.splitn(2, |byte| *byte == b'#').nth(1).unwrap();
    assert!(matches!(parse_reply(text, false).unwrap().answer, Answer::NoHandler));
}
