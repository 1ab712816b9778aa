//! Whose report was too large: what the beginning of its text says. The text is cut somewhere, so what
//! stands behind large outputs is not found.

use contract::{ExecutionId, Json};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::{collections::BTreeMap, fmt};
use wire::packet::canonical_pattern;

/// Fields of a report that are looked for.
const EXECUTION_ID: &str = "executionId";
const CREDENTIALS: [&str; 4] = ["key", "controlPlaneKey", "token", "auth"];

/// The top-level `executionId` of a report's body of which only the beginning is there.
pub(crate) fn execution_in_body(beginning: &[u8]) -> Option<ExecutionId> {
    let mut fields = Fields::new();
    // The text ends in the middle: an error is certain and says nothing.
    let _ = serde_json::Deserializer::from_slice(beginning).deserialize_map(Report(&mut fields));
    execution_in(&fields)
}

/// What the beginning of a TCP message says.
#[derive(Debug)]
pub(crate) struct Beginning {
    /// The canonical pattern.
    pub(crate) pattern: String,
    /// The attempt.
    pub(crate) execution_id: ExecutionId,
    /// An object with the credentials at their places.
    pub(crate) credentials: Json,
}

/// Pattern, attempt and credentials of a TCP message of which only the beginning is there; `None` when
/// pattern or attempt do not stand in it.
pub(crate) fn read_beginning(beginning: &[u8]) -> Option<Beginning> {
    let mut packet = Packet { pattern: None, fields: Fields::new() };
    let _ = serde_json::Deserializer::from_slice(beginning).deserialize_map(&mut packet);
    let execution_id = execution_in(&packet.fields)?;
    packet.fields.remove(EXECUTION_ID);
    Some(Beginning {
        pattern: canonical_pattern(&packet.pattern?)?,
        execution_id,
        credentials: Json::of(&packet.fields).ok()?,
    })
}

type Fields = BTreeMap<String, Json>;

fn execution_in(fields: &Fields) -> Option<ExecutionId> {
    fields.get(EXECUTION_ID)?.read::<String>().ok()?.parse().ok()
}

/// Collects the wanted fields of a report.
struct Report<'f>(&'f mut Fields);

impl<'de> Visitor<'de> for Report<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a report")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == EXECUTION_ID || CREDENTIALS.contains(&key.as_str()) {
                let value = map.next_value()?;
                self.0.insert(key, value);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Report<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

/// Collects the pattern of a message and the wanted fields of the report in it.
struct Packet {
    pattern: Option<Json>,
    fields: Fields,
}

impl<'de> Visitor<'de> for &mut Packet {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "pattern" => self.pattern = Some(map.next_value()?),
                "data" => map.next_value_seed(Report(&mut self.fields))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "019364f1-0000-7000-8000-000000000001";

    #[test]
    fn attempt_of_a_body_is_found_in_front_of_the_cut_and_only_at_the_top() {
        let text = format!(r#"{{"status":"ok","executionId":"{ID}","outputs":{{"a":"xxxxxx"#);
        assert_eq!(execution_in_body(text.as_bytes()), Some(ID.parse().unwrap()));
        let nested = format!(r#"{{"outputs":{{"executionId":"{ID}"}},"more":"x"#);
        assert_eq!(execution_in_body(nested.as_bytes()), None);
        for text in ["", "[", r#"{"executionId":"01"#, r#"{"executionId":5"#, "\u{0}"] {
            assert_eq!(execution_in_body(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn message_tells_pattern_attempt_and_credentials_in_front_of_the_cut() {
        let text = format!(
            r#"{{"pattern":{{"cmd":"step_result"}},"data":{{"auth":{{"key":"k"}},"executionId":"{ID}","outputs":{{"a":"x"#
        );
        let beginning = read_beginning(text.as_bytes()).unwrap();
        assert_eq!(
            (beginning.pattern.as_str(), beginning.execution_id),
            ("step_result", ID.parse().unwrap())
        );
        assert_eq!(beginning.credentials.text(), r#"{"auth":{"key":"k"}}"#);
        let without = format!(r#"{{"data":{{"executionId":"{ID}","outputs":{{"a":"x"#);
        assert!(read_beginning(without.as_bytes()).is_none());
        assert!(read_beginning(br#"{"pattern":"step_result","data":{"outputs":{"a":"x"#).is_none());
    }
}
