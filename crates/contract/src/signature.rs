//! Signatures of publications (protocol section 3): an Ed25519 signature over a publication's
//! digest, which the manifest may carry and which is no part of the digest itself. Only the form is
//! known here; plugin-manager verifies.

use crate::{Digest, check::Checker};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The signature in a manifest, `signature: {keyId, value}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Signature {
    /// Names the key among those that plugin-manager was given.
    pub key_id: String,
    /// The 64 bytes of the signature over [`signed_text`], in base64.
    pub value: String,
}

/// What plugin-manager found about the signature of a publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignatureState {
    /// The manifest carries none.
    #[default]
    Unsigned,
    /// It was made over this digest by a key that plugin-manager knows.
    Signed,
    /// There is one, but it does not fit the digest, or its key is not known.
    Invalid,
}

impl SignatureState {
    /// The name on the wire and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unsigned => "unsigned",
            Self::Signed => "signed",
            Self::Invalid => "invalid",
        }
    }
}

impl std::str::FromStr for SignatureState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Unsigned, Self::Signed, Self::Invalid]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no signature state"))
    }
}

/// What is signed: the digest as 64 lower-case hexadecimal digits, so that a shell can sign it.
pub fn signed_text(digest: Digest) -> String {
    digest.to_string()
}

/// Checks the form of a manifest's `signature`.
pub(crate) fn check(value: Option<&Value>, check: &mut Checker) {
    let Some(value) = value.filter(|value| !value.is_null()) else { return };
    let Some(object) = check.object(value, "$.signature") else { return };
    check.text(object, "keyId", "$.signature");
    check.text(object, "value", "$.signature");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_survives_its_text() {
        for state in [SignatureState::Unsigned, SignatureState::Signed, SignatureState::Invalid] {
            assert_eq!(state.as_str().parse(), Ok(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        assert!("maybe".parse::<SignatureState>().is_err());
    }
}
