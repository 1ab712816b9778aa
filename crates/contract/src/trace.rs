//! W3C trace context (level 1), as far as the platform carries it: `traceparent`, unchanged from who
//! started a run to the plugins, and from the plugins' reports into the history (protocol section 3).

use crate::Json;

/// Characters of a `traceparent` of version 00.
const LENGTH: usize = 55;

/// `text`, if it is a `traceparent`: version, trace id, parent id and flags in lower-case hexadecimal
/// digits, neither id all zeros. Later versions may have more behind that. Anything else counts as no
/// trace context, as the recommendation asks for, and is no reason to refuse the request around it.
pub fn traceparent(text: &str) -> Option<&str> {
    let text = text.trim();
    let known = text.get(..LENGTH)?;
    let mut parts = known.split('-');
    let mut part = |digits: usize| {
        parts.next().filter(|part| {
            part.len() == digits && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
    };
    let version = part(2)?;
    let ids = [part(32)?, part(16)?];
    part(2)?;
    let is_zero = |id: &str| id.bytes().all(|byte| byte == b'0');
    let ends = match (version, text.get(LENGTH..)?) {
        ("ff", _) => false,
        (_, "") => true,
        ("00", _) => false,
        // No longer than anybody could have a reason for.
        (_, more) => more.starts_with('-') && more.len() <= LENGTH && more.is_ascii(),
    };
    (ends && parts.next().is_none() && !ids.into_iter().any(is_zero)).then_some(text)
}

/// The trace id in a `traceparent`: what log lines are found by.
pub fn trace_id(traceparent: &str) -> Option<&str> {
    traceparent.split('-').nth(1)
}

/// The `traceparent` that a JSON value is.
pub(crate) fn of_json(json: &Json) -> Option<String> {
    traceparent(&json.read::<String>().ok()?).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn form_of_the_recommendation_is_taken_and_nothing_else() {
        assert_eq!(traceparent(&format!(" {GOOD} ")), Some(GOOD));
        assert_eq!(trace_id(GOOD), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        let later = format!("cc-{}-what-comes", &GOOD[3..]);
        assert_eq!(traceparent(&later), Some(later.as_str()));
        for wrong in [
            "",
            "00",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01more",
            "004bf92f3577b34da6a3ce929d0e0e4736000f067aa0ba902b7001aa",
            "00-4bf92f3577b34da6a3ce929d0e0e473ж-00f067aa0ba902b7-01",
        ] {
            assert_eq!(traceparent(wrong), None, "{wrong}");
        }
    }
}
