//! A JSON value carried as its text: payloads pass through the platform without being parsed, so
//! big integers, key order and Unicode stay exactly as they were sent (protocol section 7, rule 5).

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::{fmt, sync::Arc};
use zeroize::Zeroize;

/// One JSON value as text. Cloning shares the text.
#[derive(Clone)]
pub struct Json(Text);

#[derive(Clone)]
enum Text {
    Plain(Arc<RawValue>),
    /// Known to be JSON. One copy less to make than [`Text::Plain`], at the price of a look through it
    /// where it becomes a part of another value.
    Written(Arc<str>),
    Secret(Arc<Wiped>),
}

impl From<Box<RawValue>> for Text {
    fn from(raw: Box<RawValue>) -> Self {
        Self::Plain(raw.into())
    }
}

/// A text with secrets in it: wiped with its last holder.
struct Wiped(Box<RawValue>);

impl Drop for Wiped {
    fn drop(&mut self) {
        let raw = std::mem::replace(&mut self.0, RawValue::NULL.to_owned());
        // Neither step copies the text.
        String::from(Box::<str>::from(raw)).zeroize();
    }
}

impl Json {
    /// Takes a JSON text; the error tells where it stops being JSON.
    pub fn parse(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text.into()).map(|raw| Self(raw.into()))
    }

    /// The JSON of any serialisable value. Fails only where `T`'s own serialisation fails (a map
    /// with keys that are no strings, for example).
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(|raw| Self(raw.into()))
    }

    /// [`Self::of`] for a value that will not become a part of another: its text is wanted, and has
    /// about `expected_bytes`.
    pub fn written<T: Serialize + ?Sized>(
        value: &T,
        expected_bytes: usize,
    ) -> Result<Self, serde_json::Error> {
        let mut text = Vec::with_capacity(expected_bytes);
        serde_json::to_writer(&mut text, value)?;
        let text = simdutf8::basic::from_utf8(&text).map_err(serde::ser::Error::custom)?;
        Ok(Self(Text::Written(text.into())))
    }

    /// A copy of a value in a text that is read, for who wants its text.
    pub fn copied(raw: &RawValue) -> Self {
        Self(Text::Written(raw.get().into()))
    }

    /// JSON `null`.
    pub fn null() -> Self {
        Self(RawValue::NULL.to_owned().into())
    }

    /// JSON `{}`.
    pub fn empty_object() -> Self {
        Self(Text::Written("{}".into()))
    }

    /// A text with secrets in it: it is wiped when the last holder of it is dropped. What is read out
    /// of it is its reader's to wipe.
    pub fn secret(raw: Box<RawValue>) -> Self {
        Self(Text::Secret(Arc::new(Wiped(raw))))
    }

    /// The text, as it was received.
    pub fn text(&self) -> &str {
        match &self.0 {
            Text::Plain(raw) => raw.get(),
            Text::Written(text) => text,
            Text::Secret(wiped) => wiped.0.get(),
        }
    }

    /// Is this the value `null`?
    pub fn is_null(&self) -> bool {
        self.text() == "null"
    }

    /// Reads the text into a type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.text())
    }

    /// The value as a tree; fails on what a tree cannot hold (lone surrogates, nesting over 128).
    pub fn value(&self) -> Result<serde_json::Value, serde_json::Error> {
        self.read()
    }
}

impl From<Box<RawValue>> for Json {
    fn from(raw: Box<RawValue>) -> Self {
        Self(raw.into())
    }
}

impl Default for Json {
    fn default() -> Self {
        Self::null()
    }
}

impl From<&serde_json::Value> for Json {
    fn from(value: &serde_json::Value) -> Self {
        // A `Value` always serialises: its keys are strings and its numbers are finite.
        Self::of(value).unwrap_or_default()
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        Self::from(&value)
    }
}

/// Equal texts; use [`crate::canonical`] to compare values whatever their spelling.
impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Json {}

/// Shows the size only: payloads may hold secrets and must not reach a log by `{:?}`.
impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.text().len())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Text::Plain(raw) => raw.serialize(serializer),
            Text::Written(text) => {
                let raw: &RawValue = serde_json::from_str(text).map_err(serde::ser::Error::custom)?;
                raw.serialize(serializer)
            }
            Text::Secret(wiped) => wiped.0.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|raw| Self(raw.into()))
    }
}

/// Reads a tree into a type, by way of its text: serde's own buffering of flattened fields refuses
/// integers beyond 64 bits when it reads from a tree, not when it reads from text.
pub fn read_tree<T: DeserializeOwned>(value: &serde_json::Value) -> Result<T, serde_json::Error> {
    serde_json::from_str(&value.to_string())
}

/// For `#[serde(default, deserialize_with = "json::present")]` on `Option<Json>` fields: keeps an
/// explicit `null` as `Some(null)`; serde alone would turn it into `None`.
pub fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_kept_as_sent() {
        let text = r#"{"b":12345678901234567890123, "a":"\ud800", "n":1.0}"#;
        let json: Json = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&json).unwrap(), text);
    }

    #[test]
    fn written_and_copied_values_are_the_same_values() {
        let text = r#"{"b":12345678901234567890123,"a":"\ud800 ж"}"#;
        let plain = Json::parse(text).unwrap();
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        for json in [Json::written(&plain, 3).unwrap(), Json::copied(raw)] {
            assert_eq!(json, plain);
            assert_eq!(serde_json::to_string(&[&json]).unwrap(), format!("[{text}]"));
        }
    }

    #[test]
    fn debug_shows_no_content() {
        assert_eq!(format!("{:?}", Json::parse("\"secret\"").unwrap()), "Json(8 bytes)");
    }
}
