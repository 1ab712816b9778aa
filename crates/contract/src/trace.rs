//! W3C trace context (level 1): `traceparent` and `tracestate`, carried unchanged from who started a run
//! to the plugins, and from the plugins' reports into the history (protocol section 3).

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

/// Characters of a `tracestate` that is carried, and its members.
const STATE_LENGTH: usize = 512;
const STATE_MEMBERS: usize = 32;

/// Characters of a member's key and of its value.
const KEY_LENGTH: usize = 256;
const VALUE_LENGTH: usize = 256;

/// The members of these lines of `tracestate`, joined without white space. Lines that are too long, have
/// too many members or one of another form count as none, all of them: so says the recommendation.
pub fn tracestate<'l>(lines: impl IntoIterator<Item = &'l str>) -> Option<String> {
    let mut state = String::new();
    let members = lines.into_iter().flat_map(|line| line.split(','));
    // Members without a text are allowed, and say nothing.
    let members = members.map(|member| member.trim_matches([' ', '\t'])).filter(|member| !member.is_empty());
    for (count, member) in members.enumerate() {
        let room = STATE_LENGTH.saturating_sub(state.len() + usize::from(count > 0));
        if count == STATE_MEMBERS || member.len() > room || !is_member(member) {
            return None;
        }
        if count > 0 {
            state.push(',');
        }
        state.push_str(member);
    }
    (!state.is_empty()).then_some(state)
}

/// `key=value`, the key of one system or `tenant@system`.
fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else { return false };
    let is_key = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
            && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/'))
    };
    let fits = match key.split_once('@') {
        Some((tenant, system)) => is_key(tenant) && is_key(system),
        None => is_key(key),
    };
    let is_value = value.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=');
    fits && key.len() <= KEY_LENGTH && is_value && (1..=VALUE_LENGTH).contains(&value.len())
}

/// A trace context as somebody named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Where in which trace the work belongs.
    pub traceparent: String,
    /// What tracing systems add to it.
    pub tracestate: Option<String>,
}

impl TraceContext {
    /// Reads a trace context; without a `traceparent` of the right form there is none, whatever
    /// `tracestate` says.
    pub fn read<'l>(text: &str, state: impl IntoIterator<Item = &'l str>) -> Option<Self> {
        let traceparent = traceparent(text)?.to_owned();
        Some(Self { traceparent, tracestate: tracestate(state) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn form_of_the_recommendation_is_taken_and_nothing_else() {
        assert_eq!(traceparent(&format!(" {GOOD} ")), Some(GOOD));
        assert_eq!(trace_id(GOOD), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        let later = format!("{}-what-comes", GOOD.replacen("00", "cc", 1));
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
    #[test]
    fn trace_state_is_joined_from_its_lines_and_keeps_its_members_as_they_are() {
        let joined = |lines: &[&str]| tracestate(lines.iter().copied());
        assert_eq!(
            joined(&["rojo=00f067aa0ba902b7 , congo=t61rcWkgMzE", "", ",,4tenant@sys*_-/=a b~"]).as_deref(),
            Some("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE,4tenant@sys*_-/=a b~")
        );
        assert_eq!(joined(&[]), None);
        assert_eq!(joined(&[" ", ", ,"]), None);
    }

    #[test]
    fn trace_state_of_another_form_or_beyond_the_limits_is_dropped_whole() {
        let members = |count: usize| (0..count).map(|at| format!("k{at}=v")).collect::<Vec<_>>().join(",");
        let long = |length: usize| format!("a={},b={}", "v".repeat(256), "v".repeat(length));
        assert_eq!(tracestate([members(32).as_str()]), Some(members(32)));
        assert_eq!(tracestate([members(33).as_str()]), None);
        assert_eq!(tracestate([long(251).as_str()]).map(|state| state.len()), Some(512));
        assert_eq!(tracestate([long(252).as_str()]), None);
        for wrong in [
            "a", "=1", "a=", "A=1", "a=1=2", "-a=1", "a@=1", "@a=1", "a@b@c=1", "a b=1", "a=\u{1}", "a=é",
            "a=1,b",
        ] {
            assert_eq!(tracestate([wrong]), None, "{wrong}");
        }
        assert_eq!(tracestate([format!("{}=1", "k".repeat(257)).as_str()]), None);
        assert_eq!(tracestate([format!("k={}", "v".repeat(257)).as_str()]), None);
    }

    #[test]
    fn trace_state_without_a_trace_context_is_none() {
        assert_eq!(TraceContext::read("nonsense", ["a=1"]), None);
        let context = TraceContext::read(GOOD, ["A"]).unwrap();
        assert_eq!((context.traceparent.as_str(), context.tracestate), (GOOD, None));
    }
}
