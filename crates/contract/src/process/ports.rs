//! What the built-in nodes take and produce, where their widgets do not say it.

use super::Widget;
use crate::builtin;

/// The outputs that a built-in node has whatever its widget lists.
pub(super) fn always(node_type: &str) -> &'static [&'static str] {
    match node_type {
        builtin::TRIGGER => &["trigger"],
        builtin::LOOP => &["items", "last"],
        builtin::VALIDATION => &["confirm", "reject"],
        builtin::DELAY => &["value"],
        _ => &[],
    }
}

/// The outputs that a built-in node has when its widget lists none.
pub(super) fn unlisted(node_type: &str) -> &'static [&'static str] {
    match node_type {
        builtin::HTTP_REQUEST => &["status", "ok", "headers", "body", "json", "base64", "file"],
        builtin::TEMPLATE => &["text"],
        _ => &[],
    }
}

/// The inputs of which a built-in node needs one, and what for.
pub(super) fn required(node_type: &str) -> Option<(&'static [&'static str], &'static str)> {
    match node_type {
        builtin::SWITCH => Some((&["value"], "chooses the output")),
        builtin::EXTRACT => Some((&["source"], "is what the fields are taken from")),
        builtin::HTTP_REQUEST => Some((&["url"], "is the address to call")),
        builtin::TEMPLATE => Some((&["template"], "is the text to render")),
        builtin::DELAY => Some((&["milliseconds", "until"], "says how long to wait")),
        _ => None,
    }
}

/// Has the input a value of its own, or says its field that it is required (which is checked there)?
pub(super) fn is_provided(widget: &Widget, input: &str) -> bool {
    widget.field(input).is_some_and(|field| field.effective().is_some() || field.is_required == Some(true))
}
