//! The body of a request: `body` as `bodyType` says.

use super::{invalid, request::texts};
use base64::{Engine, engine::general_purpose::STANDARD};
use contract::Json;
use plugin_sdk::Failure;
use reqwest::Url;

/// Bytes to send, and their type unless a header says otherwise.
#[derive(Debug, PartialEq)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    pub(super) media_type: &'static str,
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const BINARY: &str = "application/octet-stream";

/// A text of `auto` is sent as text, any other value as JSON.
pub(super) fn body(kind: &str, value: &Json) -> Result<Body, Failure> {
    let text = value.read::<String>().ok();
    match (kind.trim(), text) {
        ("" | "auto" | "text", Some(text)) => Ok(Body { bytes: text.into_bytes(), media_type: TEXT }),
        ("text", None) => Ok(Body { bytes: value.text().to_owned().into_bytes(), media_type: TEXT }),
        ("" | "auto" | "json", None) => {
            Ok(Body { bytes: value.text().to_owned().into_bytes(), media_type: JSON })
        }
        // A template renders JSON as text.
        ("json", Some(text)) => match Json::parse(text.trim()) {
            Ok(json) => Ok(Body { bytes: json.text().to_owned().into_bytes(), media_type: JSON }),
            Err(_) => Err(invalid("input `body` is a text that is no JSON, and `bodyType` is json")),
        },
        ("form", _) => form(value),
        ("base64", Some(text)) => match STANDARD.decode(text.trim()) {
            Ok(bytes) => Ok(Body { bytes, media_type: BINARY }),
            Err(_) => Err(invalid("input `body` is no base64, and `bodyType` is base64")),
        },
        ("base64", None) => Err(invalid("input `body` must be a text in base64, as `bodyType` says")),
        _ => Err(invalid("input `bodyType` must be auto, json, form, text or base64")),
    }
}

fn form(value: &Json) -> Result<Body, Failure> {
    let wrong = || invalid("input `body` must be an object {field: value}, as `bodyType` form says");
    let fields: indexmap::IndexMap<String, Json> = match value.read::<String>() {
        Ok(text) => Json::parse(text.trim()).and_then(|json| json.read()).map_err(|_| wrong())?,
        Err(_) => value.read().map_err(|_| wrong())?,
    };
    // The one encoder of forms at hand is that of queries.
    let mut url = Url::parse("http://form").map_err(|_| wrong())?;
    for (name, value) in &fields {
        for value in texts(value) {
            url.query_pairs_mut().append_pair(name, &value);
        }
    }
    Ok(Body { bytes: url.query().unwrap_or_default().to_owned().into_bytes(), media_type: FORM })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn made(kind: &str, value: Value) -> Result<(String, &'static str), String> {
        body(kind, &Json::from(value))
            .map(|body| (String::from_utf8_lossy(&body.bytes).into_owned(), body.media_type))
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_body_is_sent_as_its_type_says() {
        for (kind, value, sent) in [
            ("auto", json!("x"), ("x", TEXT)),
            ("auto", json!([1]), ("[1]", JSON)),
            ("", json!({"a": 1}), (r#"{"a":1}"#, JSON)),
            ("text", json!({"a": 1}), (r#"{"a":1}"#, TEXT)),
            ("json", json!(" {\"n\":1e400} "), (r#"{"n":1e400}"#, JSON)),
            ("form", json!({"a": "b c", "n": [1, "ю"], "z": null}), ("a=b+c&n=1&n=%D1%8E", FORM)),
            ("form", json!("{\"a\":true}"), ("a=true", FORM)),
            ("base64", json!("eHl6"), ("xyz", BINARY)),
        ] {
            assert_eq!(made(kind, value).unwrap(), (sent.0.to_owned(), sent.1), "{kind}");
        }
    }

    #[test]
    fn a_body_that_is_not_what_its_type_says_is_refused_without_its_text() {
        for (kind, value) in [
            ("json", json!("hush {")),
            ("form", json!("hush")),
            ("form", json!([1])),
            ("base64", json!("hush!")),
            ("base64", json!(5)),
            ("xml", json!("hush")),
        ] {
            let message = made(kind, value).unwrap_err();
            assert!(message.contains("`body") && !message.contains("hush"), "{message}");
        }
    }
}
