//! Files in place of values (protocol section 3, *Large outputs*): a value that is too large to stand
//! in a run's history lies in file-service, and the history has a reference to it.
//!
//! A reference is written in one way only, `{"$file":{"id":…,"size":…,"contentType":…,"sha256":…}}`
//! without white space. So it is found in a text without parsing the rest of it: in JSON these
//! characters can only begin an object, since a quotation mark within a string is escaped.

use crate::{Digest, Json};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::ops::Range;

/// How every reference begins.
const BEGINNING: &str = r#"{"$file":"#;

/// The content type of a file that holds a value as JSON text; any other file holds plain bytes.
pub const VALUE_TYPE: &str = "application/json";

/// A file of a run that stands for a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileRef {
    /// The file: `GET /files/{id}` gives its bytes.
    pub id: String,
    /// Bytes.
    pub size: u64,
    /// [`VALUE_TYPE`] for a value; otherwise what the bytes are.
    pub content_type: String,
    /// Of the bytes.
    pub sha256: Digest,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrapped<F> {
    #[serde(rename = "$file")]
    file: F,
}

impl FileRef {
    /// The value that stands in the history.
    pub fn to_json(&self) -> Json {
        // Texts and numbers always serialise.
        Json::of(&Wrapped { file: self }).unwrap_or_default()
    }

    /// Is the value a reference, and to what?
    pub fn of(value: &Json) -> Option<Self> {
        match find(value.text()).next() {
            Some((place, file)) if place == (0..value.text().len()) => Some(file),
            _ => None,
        }
    }

    /// Does the file hold a value, which can be put back in its place?
    pub fn holds_value(&self) -> bool {
        self.content_type == VALUE_TYPE
    }
}

/// All references in a JSON text, at any depth, with their places. Texts without one cost a search.
pub fn find(text: &str) -> impl Iterator<Item = (Range<usize>, FileRef)> {
    text.match_indices(BEGINNING).filter_map(|(start, _)| {
        let rest = text.get(start..)?;
        let mut objects = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
        let object = objects.next()?.ok()?;
        let wrapped: Wrapped<FileRef> = serde_json::from_str(object.get()).ok()?;
        Some((start..start + object.get().len(), wrapped.file))
    })
}

/// The text with some of its references replaced by what `value_of` gives for them.
pub fn replace(text: &str, mut value_of: impl FnMut(&FileRef) -> Option<String>) -> Option<String> {
    let mut replaced = String::new();
    let mut end = 0;
    for (place, file) in find(text) {
        if let Some(value) = value_of(&file) {
            replaced.push_str(text.get(end..place.start)?);
            replaced.push_str(&value);
            end = place.end;
        }
    }
    if end == 0 {
        return None;
    }
    replaced.push_str(text.get(end..)?);
    Some(replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(id: &str, content_type: &str) -> FileRef {
        FileRef { id: id.into(), size: 7, content_type: content_type.into(), sha256: Digest([1; 32]) }
    }

    #[test]
    fn a_reference_is_written_and_read_in_one_way() {
        let reference = file("f-1", VALUE_TYPE);
        let json = reference.to_json();
        assert!(json.text().starts_with(r#"{"$file":{"id":"f-1","size":7,"contentType":"application/json""#));
        assert_eq!(FileRef::of(&json), Some(reference));
        for other in [
            r#"{"$file":5}"#.to_owned(),
            r#"{"$file":{"id":"f-1"}}"#.to_owned(),
            r#"["x"]"#.to_owned(),
            format!("[{}]", json.text()),
            json.text().replace("}}", r#"},"more":1}"#),
            json.text().replacen('{', "{ ", 1),
        ] {
            assert_eq!(FileRef::of(&Json::parse(other.clone()).unwrap()), None, "{other}");
        }
    }

    #[test]
    fn references_are_found_at_any_depth_and_never_in_a_string() {
        let (one, two) = (file("f-1", VALUE_TYPE), file("f-2", "image/png"));
        let text = format!(r#"{{"a":[{}],"b":{{"c":{}}}}}"#, one.to_json().text(), two.to_json().text());
        let found: Vec<_> = find(&text).collect();
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|(place, file)| &text[place.clone()] == file.to_json().text()));
        let quoted = Json::of(&text).unwrap();
        assert_eq!(find(quoted.text()).count(), 0, "a text that speaks of a file is a text");
    }

    #[test]
    fn what_stands_around_a_replaced_reference_keeps_its_spelling() {
        let (one, two) = (file("f-1", VALUE_TYPE), file("f-2", VALUE_TYPE));
        let text = format!(
            r#"{{ "n":1.0, "a":{},"b":{} , "s":"\ud800"}}"#,
            one.to_json().text(),
            two.to_json().text()
        );
        let replaced =
            replace(&text, |file| (file.id == "f-1").then(|| "[12345678901234567890123.0]".into()));
        let rest = two.to_json();
        let expected =
            format!(r#"{{ "n":1.0, "a":[12345678901234567890123.0],"b":{} , "s":"\ud800"}}"#, rest.text());
        assert_eq!(replaced, Some(expected));
        assert_eq!(replace(&text, |_| None), None);
    }
}
