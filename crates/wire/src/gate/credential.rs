//! Credentials: where they are found and how they are judged.

use crate::packet::fields::{self, Fields};
use contract::Json;
use secrecy::{ExposeSecret, SecretString};
use serde::de::{DeserializeSeed, Deserializer, MapAccess};
use serde_json::value::RawValue;
use std::sync::atomic::{AtomicU64, Ordering};
use subtle::ConstantTimeEq;

/// What a credential is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The present one.
    Current,
    /// The one before the rotation: right, and counted.
    Previous,
    /// Neither.
    Wrong,
}

impl Verdict {
    /// Does it open the door?
    pub fn is_right(self) -> bool {
        self != Self::Wrong
    }
}

/// The credential of a door, and the one before it while a rotation is under way.
#[derive(Debug)]
pub struct Credentials {
    current: SecretString,
    previous: Option<SecretString>,
    previous_uses: AtomicU64,
}

impl Credentials {
    /// Empty texts never match anything.
    pub fn new(current: SecretString, previous: Option<SecretString>) -> Self {
        Self { current, previous, previous_uses: AtomicU64::new(0) }
    }

    /// Judges what was presented, in a time that does not depend on where it differs.
    pub fn check(&self, presented: &str) -> Verdict {
        let current = equal(&self.current, presented);
        let previous = self.previous.as_ref().is_some_and(|previous| equal(previous, presented));
        match (current, previous) {
            (true, _) => Verdict::Current,
            (false, true) => {
                self.previous_uses.fetch_add(1, Ordering::Relaxed);
                Verdict::Previous
            }
            (false, false) => Verdict::Wrong,
        }
    }

    /// How often the previous credential was used: when it stays, the rotation is done.
    pub fn previous_uses(&self) -> u64 {
        self.previous_uses.load(Ordering::Relaxed)
    }
}

fn equal(secret: &SecretString, presented: &str) -> bool {
    let secret = secret.expose_secret();
    !secret.is_empty() && bool::from(secret.as_bytes().ct_eq(presented.as_bytes()))
}

/// The credential in a message: the first of `top` that the object `data` holds as a string that is
/// not empty, else the first of `nested_keys` in its object `nested`. Reads only the top level;
/// the rest of the payload is skipped without being built.
pub fn credential_in(data: &Json, top: &[&str], nested: &str, nested_keys: &[&str]) -> Option<SecretString> {
    let mut search = Search { keys: top, found: None, nested: Some((nested, nested_keys)), inner: None };
    fields::read(data.text(), &mut search).ok()?;
    search.found.or(search.inner).map(|(_, secret)| secret)
}

/// The best credential so far, with the rank of its key.
type Found = Option<(usize, SecretString)>;

struct Search<'k> {
    keys: &'k [&'k str],
    found: Found,
    nested: Option<(&'k str, &'k [&'k str])>,
    inner: Found,
}

impl<'de> Fields<'de> for Search<'_> {
    fn take<A: MapAccess<'de>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error> {
        if let Some(rank) = self.keys.iter().position(|wanted| wanted.as_bytes() == key) {
            let value = map.next_value::<&'de RawValue>()?;
            let better = self.found.as_ref().is_none_or(|(best, _)| rank <= *best);
            if better && let Some(text) = fields::text_of(value.get()).filter(|text| !text.is_empty()) {
                self.found = Some((rank, text.into()));
            }
            return Ok(true);
        }
        match self.nested {
            Some((nested, keys)) if nested.as_bytes() == key => {
                let mut inner = Search { keys, found: None, nested: None, inner: None };
                map.next_value_seed(Inner(&mut inner))?;
                self.inner = inner.found;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

/// The nested object, read in the same pass; any other type holds no credential.
struct Inner<'s, 'k>(&'s mut Search<'k>);

impl<'de> DeserializeSeed<'de> for Inner<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let raw: &RawValue = serde::Deserialize::deserialize(deserializer)?;
        // The text is JSON already: what cannot be read holds no credential.
        let _ = fields::read(raw.get(), self.0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: &[&str] = &["token", "ingressToken", "authToken"];

    fn found(data: &str) -> Option<String> {
        credential_in(&Json::parse(data).unwrap(), TOP, "auth", &["token", "key"])
            .map(|secret| secret.expose_secret().to_owned())
    }

    #[test]
    fn credential_is_found_at_the_top_or_under_auth() {
        for (data, wanted) in [
            (r#"{"token":"a"}"#, Some("a")),
            (r#"{"big":{"token":"x"},"authToken":"c","ingressToken":"b"}"#, Some("b")),
            (r#"{"auth":{"key":"d"}}"#, Some("d")),
            (r#"{"auth":{"key":"d","token":"e"},"token":"a"}"#, Some("a")),
            (r#"{"auth":{"key":"d","token":"e"}}"#, Some("e")),
            (r#"{"token":"","auth":{"token":"e"}}"#, Some("e")),
            (r#"{"token":5,"ingressToken":"b"}"#, Some("b")),
            (r#"{"token":"\ud800"}"#, None),
            (r#"{"auth":"x"}"#, None),
            (r#"{"other":{"auth":{"token":"x"}}}"#, None),
            ("null", None),
            ("[1]", None),
        ] {
            assert_eq!(found(data).as_deref(), wanted, "{data}");
        }
    }

    #[test]
    fn previous_credential_is_right_and_counted() {
        let credentials = Credentials::new("new".into(), Some("old".into()));
        assert_eq!(credentials.check("new"), Verdict::Current);
        assert_eq!(credentials.previous_uses(), 0);
        assert_eq!(credentials.check("old"), Verdict::Previous);
        assert_eq!(credentials.previous_uses(), 1);
        for wrong in ["", "ne", "newer", "NEW"] {
            assert_eq!(credentials.check(wrong), Verdict::Wrong, "{wrong}");
        }
    }

    #[test]
    fn empty_credential_opens_nothing() {
        let credentials = Credentials::new("".into(), Some("".into()));
        assert_eq!(credentials.check(""), Verdict::Wrong);
    }

    #[test]
    fn secrets_do_not_show_in_debug() {
        assert!(!format!("{:?}", Credentials::new("hush".into(), None)).contains("hush"));
    }
}
