//! Trust: is a publication signed, and by whom (protocol section 3)? Pure.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use contract::{
    Digest, Warning,
    signature::{Signature, SignatureState, signed_text},
};
use std::{collections::BTreeMap, fmt, str::FromStr};
use storage::catalogue::Seal;

/// Bytes of an Ed25519 public key.
const KEY_BYTES: usize = 32;

/// The public keys that publications may be signed with.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SigningKeys(BTreeMap<String, [u8; KEY_BYTES]>);

impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl FromStr for SigningKeys {
    type Err = String;

    /// Lines of `KEYID BASE64`; empty lines and those that begin with `#` are skipped.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut keys = BTreeMap::new();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            let mut words = line.split_whitespace();
            let (Some(key_id), Some(key), None) = (words.next(), words.next(), words.next()) else {
                return Err(format!("{line:?} is no signing key; write KEYID BASE64, one key a line"));
            };
            let bytes = STANDARD.decode(key).ok().and_then(|bytes| bytes.try_into().ok());
            let Some(bytes) = bytes else {
                return Err(format!(
                    "the key {key_id:?} is no Ed25519 public key: {KEY_BYTES} bytes in base64 are needed"
                ));
            };
            if keys.insert(key_id.to_owned(), bytes).is_some() {
                return Err(format!("the key {key_id:?} is named twice"));
            }
        }
        Ok(Self(keys))
    }
}

impl SigningKeys {
    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Judges the signature of a publication with this digest; a warning says why one is invalid.
    pub(crate) fn judge(&self, signature: Option<&Signature>, digest: Digest) -> (Seal, Option<Warning>) {
        let Some(signature) = signature else { return (Seal::default(), None) };
        let key_id = Some(signature.key_id.clone());
        match self.verify(signature, digest) {
            Ok(()) => (Seal { state: SignatureState::Signed, key_id }, None),
            Err(reason) => {
                let warning = Warning {
                    path: "$.signature".to_owned(),
                    code: "signature_invalid".to_owned(),
                    message: reason,
                };
                (Seal { state: SignatureState::Invalid, key_id }, Some(warning))
            }
        }
    }

    fn verify(&self, signature: &Signature, digest: Digest) -> Result<(), String> {
        let key_id = &signature.key_id;
        let key = self.0.get(key_id).ok_or_else(|| {
            format!("plugin-manager knows no key {key_id:?}; add it to PLUGIN_MANAGER_SIGNING_KEYS_FILE")
        })?;
        let value = STANDARD
            .decode(&signature.value)
            .map_err(|error| format!("the value is not base64: {error}; sign the digest again"))?;
        UnparsedPublicKey::new(&ED25519, key).verify(signed_text(digest).as_bytes(), &value).map_err(|_| {
            format!(
                "it was not made with the key {key_id:?} over the digest {digest}; sign that digest again"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};

    const DIGEST: Digest = Digest([7; 32]);

    fn pair(seed: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
    }

    fn keys() -> SigningKeys {
        let key = STANDARD.encode(pair(1).public_key().as_ref());
        format!("# for releases\n\n  release {key}\n").parse().unwrap()
    }

    fn signed(key_id: &str, seed: u8, digest: Digest) -> Signature {
        let value = STANDARD.encode(pair(seed).sign(signed_text(digest).as_bytes()).as_ref());
        Signature { key_id: key_id.into(), value }
    }

    fn state(signature: Option<&Signature>) -> SignatureState {
        keys().judge(signature, DIGEST).0.state
    }

    #[test]
    fn a_signature_is_valid_only_with_its_key_over_its_digest() {
        assert_eq!(state(None), SignatureState::Unsigned);
        assert_eq!(state(Some(&signed("release", 1, DIGEST))), SignatureState::Signed);
        assert_eq!(state(Some(&signed("release", 2, DIGEST))), SignatureState::Invalid);
        assert_eq!(state(Some(&signed("release", 1, Digest([8; 32])))), SignatureState::Invalid);
        assert_eq!(state(Some(&signed("other", 1, DIGEST))), SignatureState::Invalid);
        let broken = Signature { value: "%%%".into(), ..signed("release", 1, DIGEST) };
        assert_eq!(state(Some(&broken)), SignatureState::Invalid);
    }

    #[test]
    fn an_invalid_signature_is_explained_with_its_path() {
        let (seal, warning) = keys().judge(Some(&signed("other", 1, DIGEST)), DIGEST);
        assert_eq!(seal.key_id.as_deref(), Some("other"));
        let warning = warning.unwrap();
        assert_eq!((warning.path.as_str(), warning.code.as_str()), ("$.signature", "signature_invalid"));
        assert!(warning.message.contains("PLUGIN_MANAGER_SIGNING_KEYS_FILE"), "{}", warning.message);
    }

    #[test]
    fn keys_that_cannot_be_used_are_refused_by_name() {
        let key = STANDARD.encode([1; 32]);
        for (text, named) in [
            ("lonely".to_owned(), "lonely"),
            ("short AAAA".to_owned(), "short"),
            (format!("twice {key}\ntwice {key}"), "twice"),
            (format!("many {key} {key}"), "many"),
        ] {
            assert!(text.parse::<SigningKeys>().unwrap_err().contains(named), "{text}");
        }
        assert!(SigningKeys::from_str("").unwrap().is_empty());
    }
}
