//! One spelling for equal JSON values, and digests over it: two reports or publications are the
//! same when their canonical texts are (protocol sections 3 and 4).
//!
//! Canonical: object keys sorted by code point, no white space, strings in `serde_json`'s escaping,
//! numbers as written (`1` and `1.0` differ: values are never re-typed).

use crate::{Digest, Json};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The canonical text of a tree.
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (index, (key, item)) in fields.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(&Value::String(key.clone()), out);
                out.push(':');
                write(item, out);
            }
            out.push('}');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// SHA-256 of the canonical text.
pub fn digest(value: &Value) -> Digest {
    hash(text(value).as_bytes())
}

/// SHA-256 of the canonical text of a carried value. A text that no tree can hold (lone
/// surrogates, very deep nesting) is its own canonical form.
pub fn digest_json(json: &Json) -> Digest {
    match json.value() {
        Ok(value) => digest(&value),
        Err(_) => hash(json.text().as_bytes()),
    }
}

fn hash(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn key_order_and_white_space_do_not_matter() {
        let one = Json::parse(r#"{"b":[1,{"y":2,"x":1}],"a":"Ж😀"}"#).unwrap();
        let other = Json::parse(r#" { "a" : "\u0416😀", "b" : [ 1, {"x":1,"y":2} ] } "#.trim()).unwrap();
        assert_eq!(digest_json(&one), digest_json(&other));
        assert_eq!(text(&json!({"b": 1, "a": null})), r#"{"a":null,"b":1}"#);
    }

    #[test]
    fn big_numbers_stay_apart() {
        let one = Json::parse("9007199254740993").unwrap();
        let other = Json::parse("9007199254740992").unwrap();
        assert_ne!(digest_json(&one), digest_json(&other));
    }
}
