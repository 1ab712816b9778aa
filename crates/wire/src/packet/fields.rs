//! One pass over the top level of a JSON object.

use crate::codec::CodecError;
use contract::Json;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// What to do with a key's value.
pub(crate) trait Fields<'de> {
    /// Takes the value of `key` from `map`, or leaves it and says `false`.
    fn take<A: MapAccess<'de>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error>;
}

/// Hands each member of the object `text` to `fields`. A text that is JSON but no object has no
/// members.
pub(crate) fn read<'de, F: Fields<'de>>(text: &'de str, fields: &mut F) -> Result<(), CodecError> {
    let mut json = serde_json::Deserializer::from_str(text);
    let result = if text.trim_ascii_start().starts_with('{') {
        json.deserialize_map(Members(fields))
    } else {
        serde::Deserialize::deserialize(&mut json).map(|_: IgnoredAny| ())
    };
    result.and_then(|()| json.end()).map_err(|_| CodecError::NotJson)
}

struct Members<'f, F>(&'f mut F);

impl<'de, F: Fields<'de>> Visitor<'de> for Members<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        // Keys are read as bytes: only so a lone surrogate in a key is no error.
        while let Some(key) = map.next_key_seed(KeyBytes)? {
            if !self.0.take(&key, &mut map)? {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

struct KeyBytes;

impl<'de> DeserializeSeed<'de> for KeyBytes {
    type Value = std::borrow::Cow<'de, [u8]>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl<'de> Visitor<'de> for KeyBytes {
    type Value = std::borrow::Cow<'de, [u8]>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_bytes<E: serde::de::Error>(self, key: &'de [u8]) -> Result<Self::Value, E> {
        Ok(key.into())
    }

    fn visit_bytes<E: serde::de::Error>(self, key: &[u8]) -> Result<Self::Value, E> {
        Ok(key.to_owned().into())
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(key.as_bytes().into())
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<Self::Value, E> {
        self.visit_bytes(key.as_bytes())
    }
}

/// A member's value; one with secrets in it is wiped with its last holder.
pub(crate) fn value<'de, A: MapAccess<'de>>(map: &mut A, is_secret: bool) -> Result<Json, A::Error> {
    match is_secret {
        false => map.next_value().map(Json::copied),
        true => map.next_value().map(Json::secret),
    }
}

/// A string, or nothing when the value is of another type or is no valid Unicode.
pub(crate) fn text_of(json: &str) -> Option<String> {
    json.starts_with('"').then(|| serde_json::from_str(json).ok()).flatten()
}
