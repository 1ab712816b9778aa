//! Columns to types of the contract. A value that cannot be read names its row.

use crate::error::{Error, Result};
use contract::{Digest, Json, Millis};
use std::{fmt::Display, str::FromStr};

/// A count or sequence number: a `BIGINT` that is never negative.
pub(crate) fn unsigned(value: i64, what: impl Display) -> Result<u64> {
    u64::try_from(value).map_err(|_| Error::corrupt(what.to_string(), &"a negative number"))
}

/// The `BIGINT` of a count or sequence number.
pub(crate) fn signed(value: u64, what: &str) -> Result<i64> {
    i64::try_from(value)
        .map_err(|_| Error::InvalidValue { reason: format!("{what} {value} is larger than 2^63 - 1") })
}

/// A raw JSON text.
pub(crate) fn json(text: String, what: impl Display) -> Result<Json> {
    Json::parse(text).map_err(|error| Error::corrupt(what.to_string(), &error))
}

/// A nullable raw JSON text.
pub(crate) fn optional_json(text: Option<String>, what: impl Display) -> Result<Option<Json>> {
    text.map(|text| json(text, what)).transpose()
}

/// A SHA-256.
pub(crate) fn digest(bytes: &[u8], what: impl Display) -> Result<Digest> {
    bytes.try_into().map(Digest).map_err(|_| Error::corrupt(what.to_string(), &"a digest is 32 bytes"))
}

/// An enum that is stored as its name.
pub(crate) fn named<T: FromStr<Err: Display>>(text: &str, what: impl Display) -> Result<T> {
    text.parse().map_err(|error: T::Err| Error::corrupt(what.to_string(), &error))
}

/// A nullable time.
pub(crate) fn optional_time(value: Option<i64>) -> Option<Millis> {
    value.map(Millis)
}
