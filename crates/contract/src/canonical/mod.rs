//! One spelling for equal JSON values, and digests over it: two reports or publications are the
//! same when their canonical texts are (protocol sections 3 and 4).
//!
//! Canonical: object keys sorted by code point, no white space, strings in `serde_json`'s escaping,
//! numbers as written (`1` and `1.0` differ: values are never re-typed).

mod rewrite;

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
    match rewrite::rewrite(json.text()) {
        Some(canonical) => hash(canonical.as_bytes()),
        None => hash(json.text().as_bytes()),
    }
}

/// [`digest_json`] of an object, given as the JSON texts of its fields in the order of their names, which
/// need no escapes. `None` when no tree can hold it.
pub(crate) fn digest_object(fields: &[(&str, &str)]) -> Option<Digest> {
    rewrite::object(fields).map(|canonical| hash(canonical.as_bytes()))
}

fn hash(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};
    use serde_json::json;

    #[test]
    fn key_order_and_white_space_do_not_matter() {
        let one = Json::parse(r#"{"b":[1,{"y":2,"x":1}],"a":"Ж😀"}"#).unwrap();
        let other = Json::parse(r#" { "a" : "\u0416😀", "b" : [ 1, {"x":1,"y":2} ] } "#.trim()).unwrap();
        assert_eq!(digest_json(&one), digest_json(&other));
        assert_eq!(text(&json!({"b": 1, "a": null})), r#"{"a":null,"b":1}"#);
    }

    /// JSON texts in many spellings, also such as no tree holds.
    fn spelling() -> impl Strategy<Value = String> {
        let scalar = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            Just("false".to_owned()),
            "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,3})?",
            string(),
        ];
        scalar.prop_recursive(4, 64, 6, |inner| {
            let field = (string(), inner.clone()).prop_map(|(name, value)| format!("{name} :\t{value}"));
            prop_oneof![
                vec(inner, 0..6).prop_map(|items| format!("[ {}\n]", items.join(" , "))),
                vec(field, 0..6).prop_map(|fields| format!("{{{} }}", fields.join(","))),
            ]
        })
    }

    fn string() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => "[a-c]",
            1 => prop_oneof!["Ж", "😀", " ", "\u{7f}", "/"].prop_map(|text| text),
            1 => prop::sample::select(vec![
                r#"\""#, r"\\", r"\/", r"\n", r"\u0061", r"\u0416", r"\ud83d\ude00", r"\ud800", r"\u0000", r"\u001F",
            ]).prop_map(str::to_owned),
        ];
        vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
    }

    proptest! {
        #[test]
        fn text_is_rewritten_as_its_tree_is_written(spelled in spelling()) {
            let json = Json::parse(spelled).unwrap();
            let through_tree = json.value().ok().map(|value| text(&value));
            prop_assert_eq!(rewrite::rewrite(json.text()), through_tree);
        }
    }

    #[test]
    fn nesting_is_refused_where_a_tree_refuses_it() {
        for depth in 125..130 {
            for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
                let spelled = format!("{}1{}", open.repeat(depth), close.repeat(depth));
                let json = Json::parse(spelled).unwrap();
                assert_eq!(rewrite::rewrite(json.text()).is_some(), json.value().is_ok(), "{depth}");
            }
        }
    }

    #[test]
    fn big_numbers_stay_apart() {
        let one = Json::parse("9007199254740993").unwrap();
        let other = Json::parse("9007199254740992").unwrap();
        assert_ne!(digest_json(&one), digest_json(&other));
    }
}
