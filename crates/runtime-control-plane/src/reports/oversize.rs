//! Whose report was too large: the `executionId` in the part of a body that was read.

use contract::ExecutionId;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// The top-level `executionId` of a JSON object of which only the beginning is there; `None` when it
/// does not stand in that part.
pub(crate) fn execution_in_prefix(prefix: &[u8]) -> Option<ExecutionId> {
    let mut found = None;
    // The text ends in the middle: an error is certain and says nothing.
    let _ = serde_json::Deserializer::from_slice(prefix).deserialize_map(Search(&mut found));
    found
}

struct Search<'f>(&'f mut Option<ExecutionId>);

impl<'de> Visitor<'de> for Search<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a report")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "executionId" {
                *self.0 = map.next_value::<String>()?.parse().ok();
            } else {
                map.next_value::<IgnoredAny>()?;
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
    fn id_is_found_in_front_of_the_cut_and_only_at_the_top() {
        let text = format!(r#"{{"status":"ok","executionId":"{ID}","outputs":{{"a":"xxxxxx"#);
        assert_eq!(execution_in_prefix(text.as_bytes()), Some(ID.parse().unwrap()));
        let nested = format!(r#"{{"outputs":{{"executionId":"{ID}"}},"more":"x"#);
        assert_eq!(execution_in_prefix(nested.as_bytes()), None);
        for text in ["", "[", r#"{"executionId":"01"#, r#"{"executionId":5"#, "\u{0}"] {
            assert_eq!(execution_in_prefix(text.as_bytes()), None, "{text}");
        }
    }
}
