//! One spelling for equal patterns. `NestJS` compares route strings that it makes on both ends; here
//! both sides of the comparison are ours, so any fixed spelling serves.

use contract::{Json, canonical};
use serde_json::{Number, Value};

/// Longer patterns (JSON text, bytes) match nothing: a tree of them would cost many times their size.
const MAX_PATTERN_BYTES: usize = 4096;

/// The canonical text of a pattern, or `None` when it cannot name a handler.
///
/// A string is itself, unless it holds JSON, which is then taken for it (`"{ \"cmd\" : \"sum\" }"`
/// equals `{"cmd":"sum"}`, `"7"` equals `7`). `{"cmd": "x"}` equals `"x"` (protocol section 1).
/// Other objects are their JSON with sorted keys. `true`, `false` and `null` name no handler.
pub fn canonical_pattern(pattern: &Json) -> Option<String> {
    canonical_text(pattern.text())
}

/// [`canonical_pattern`] of a JSON text.
pub(super) fn canonical_text(pattern: &str) -> Option<String> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return None;
    }
    match serde_json::from_str(pattern).ok()? {
        Value::String(text) => match text.trim_start().as_bytes().first() {
            Some(b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                match serde_json::from_str(&text) {
                    Ok(inner) => route(inner),
                    Err(_) => Some(text),
                }
            }
            _ => Some(text),
        },
        other => route(other),
    }
}

fn route(pattern: Value) -> Option<String> {
    match pattern {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(js_number(&number)),
        Value::Object(fields) if fields.len() == 1 => match fields.get("cmd") {
            Some(Value::String(command)) => Some(command.clone()),
            _ => Some(canonical::text(&Value::Object(fields))),
        },
        Value::Object(_) | Value::Array(_) => Some(canonical::text(&pattern)),
        Value::Null | Value::Bool(_) => None,
    }
}

/// A number as JavaScript prints it, as far as patterns need it: `7.0` is `7`.
fn js_number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) => float.to_string(),
        None => number.to_string(),
    }
}
