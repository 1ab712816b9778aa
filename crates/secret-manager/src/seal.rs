//! Sealing and opening. The envelope is
//! `format (1 byte) | key id (8) | nonce (24) | ciphertext and tag`.

use crate::key::{KEY_ID_BYTES, KeyId, MasterKey};
use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use contract::secret::SecretText;
use zeroize::Zeroizing;

const FORMAT: u8 = 1;
const NONCE_BYTES: usize = 24;
const HEAD_BYTES: usize = 1 + KEY_ID_BYTES;

/// Seals with the present key, opens with the present and the previous one.
pub(crate) struct Keys {
    current: Key,
    previous: Option<Key>,
}

struct Key {
    id: KeyId,
    cipher: XChaCha20Poly1305,
}

/// Why a sealed value does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("it is no envelope that this version knows")]
    Format,
    #[error("it was sealed with another master key")]
    OtherKey,
    #[error("it was changed, or belongs to another workspace or name")]
    Forged,
}

impl Keys {
    pub(crate) fn new(current: &MasterKey, previous: Option<&MasterKey>) -> Self {
        Self { current: Key::new(current), previous: previous.map(Key::new) }
    }

    /// Seals a value for its place. `None` only for values beyond what the cipher can take, which
    /// the limit on values excludes.
    pub(crate) fn seal(&self, workspace: &str, name: &str, value: &SecretText) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_BYTES];
        rand::fill(&mut nonce[..]);
        let head = head(&self.current.id);
        let payload = Payload { msg: value.expose().as_bytes(), aad: &place(&head, workspace, name) };
        let sealed = self.current.cipher.encrypt(&XNonce::from(nonce), payload).ok()?;
        Some([&head[..], &nonce, &sealed].concat())
    }

    /// Opens what was sealed for the same place.
    pub(crate) fn open(
        &self,
        workspace: &str,
        name: &str,
        envelope: &[u8],
    ) -> Result<SecretText, Unreadable> {
        let (head, rest) = envelope.split_at_checked(HEAD_BYTES).ok_or(Unreadable::Format)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_BYTES).ok_or(Unreadable::Format)?;
        let nonce = <[u8; NONCE_BYTES]>::try_from(nonce).map_err(|_| Unreadable::Format)?;
        let (format, id) = head.split_first().ok_or(Unreadable::Format)?;
        if *format != FORMAT {
            return Err(Unreadable::Format);
        }
        let keys = std::iter::once(&self.current).chain(&self.previous);
        let key = keys.into_iter().find(|key| key.id == *id).ok_or(Unreadable::OtherKey)?;
        let payload = Payload { msg: sealed, aad: &place(head, workspace, name) };
        let value = key.cipher.decrypt(&XNonce::from(nonce), payload).map_err(|_| Unreadable::Forged)?;
        String::from_utf8(value).map(SecretText::from).map_err(|error| {
            drop(Zeroizing::new(error.into_bytes()));
            Unreadable::Forged
        })
    }
}

impl Key {
    fn new(key: &MasterKey) -> Self {
        Self { id: key.id(), cipher: XChaCha20Poly1305::new(key.bytes().into()) }
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(redacted)")
    }
}

fn head(id: &KeyId) -> [u8; HEAD_BYTES] {
    let mut head = [FORMAT; HEAD_BYTES];
    head[1..].copy_from_slice(id);
    head
}

/// What is authenticated beside the value: `head | length of workspace | workspace | name`. The
/// length keeps `a` + `b/c` and `a/b` + `c` apart.
fn place(head: &[u8], workspace: &str, name: &str) -> Vec<u8> {
    [head, &(workspace.len() as u64).to_be_bytes(), workspace.as_bytes(), name.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(keys: &Keys) -> Vec<u8> {
        keys.seal("w", "name", &"значение".into()).unwrap()
    }

    #[test]
    fn a_sealed_value_opens_in_its_place_only() {
        let keys = Keys::new(&MasterKey::generate(), None);
        let envelope = sealed(&keys);
        assert_eq!(keys.open("w", "name", &envelope).unwrap().expose(), "значение");
        for (workspace, name) in [("v", "name"), ("w", "other"), ("wn", "ame"), ("", "wname")] {
            assert_eq!(keys.open(workspace, name, &envelope).unwrap_err(), Unreadable::Forged);
        }
    }

    #[test]
    fn any_changed_byte_is_found() {
        let keys = Keys::new(&MasterKey::generate(), None);
        let envelope = sealed(&keys);
        for index in 0..envelope.len() {
            let mut changed = envelope.clone();
            changed[index] ^= 1;
            assert!(keys.open("w", "name", &changed).is_err(), "byte {index}");
            assert!(keys.open("w", "name", &envelope[..index]).is_err(), "cut at {index}");
        }
    }

    #[test]
    fn the_previous_key_opens_and_the_present_one_seals() {
        let (old, new) = (MasterKey::generate(), MasterKey::generate());
        let before = sealed(&Keys::new(&old, None));
        let rotated = Keys::new(&new, Some(&old));
        assert!(rotated.open("w", "name", &before).is_ok());
        assert!(Keys::new(&new, None).open("w", "name", &sealed(&rotated)).is_ok());
        assert_eq!(Keys::new(&new, None).open("w", "name", &before).unwrap_err(), Unreadable::OtherKey);
    }

    #[test]
    fn equal_values_are_sealed_differently() {
        let keys = Keys::new(&MasterKey::generate(), None);
        assert_ne!(sealed(&keys), sealed(&keys));
    }
}
