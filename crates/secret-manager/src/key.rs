//! The master key.

use crate::Error;
use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};
use std::{fmt, fs, io, path::Path, str::FromStr};
use zeroize::Zeroizing;

/// Bytes of a master key.
pub(crate) const KEY_BYTES: usize = 32;
/// Bytes of a key's id.
pub(crate) const KEY_ID_BYTES: usize = 8;

/// Which key sealed a value; tells nothing about the key.
pub(crate) type KeyId = [u8; KEY_ID_BYTES];

/// The key that seals secrets: 32 random bytes, base64 in text. Never shown, wiped when dropped.
#[derive(Clone)]
pub struct MasterKey(Zeroizing<[u8; KEY_BYTES]>);

impl MasterKey {
    /// A new random key.
    pub fn generate() -> Self {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        rand::fill(&mut bytes[..]);
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    pub(crate) fn id(&self) -> KeyId {
        let digest =
            Sha256::new().chain_update(b"conveyor secret key id").chain_update(&self.0[..]).finalize();
        let mut id = KeyId::default();
        id.copy_from_slice(&digest[..KEY_ID_BYTES]);
        id
    }

    fn to_base64(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(&self.0[..]))
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(redacted)")
    }
}

impl FromStr for MasterKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let decoded = Zeroizing::new(STANDARD.decode(text.trim()).map_err(|_| Error::MalformedKey)?);
        let bytes = <[u8; KEY_BYTES]>::try_from(&decoded[..]).map_err(|_| Error::MalformedKey)?;
        Ok(Self(Zeroizing::new(bytes)))
    }
}

/// The key in this file; if there is no such file, a new key, which is written to it first and can
/// be read by its owner only. Safe when several processes start at once: all get the same key.
///
/// # Errors
/// [`Error::KeyFile`] when the file cannot be read or made, [`Error::MalformedKeyFile`] when it
/// holds no key: it is never overwritten.
pub fn load_or_create_key(path: &Path) -> Result<MasterKey, Error> {
    let failed = |source| Error::KeyFile { path: path.to_owned(), source };
    match fs::read_to_string(path) {
        Ok(text) => return read(path, text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    config::make_private_file(path, &MasterKey::generate().to_base64()).map_err(failed)?;
    read(path, fs::read_to_string(path).map_err(failed)?)
}

fn read(path: &Path, text: String) -> Result<MasterKey, Error> {
    let text = Zeroizing::new(text);
    warn_if_others_can_read(path);
    text.parse().map_err(|_| Error::MalformedKeyFile { path: path.to_owned() })
}

#[cfg(unix)]
fn warn_if_others_can_read(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    if fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0) {
        tracing::warn!(event = "secret_key_file_open", path = %path.display(), "other users can read the key file; run `chmod 600` on it");
    }
}

#[cfg(not(unix))]
fn warn_if_others_can_read(_path: &Path) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_file_is_made_once_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("master.key");
        let keys: Vec<_> = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8).map(|_| scope.spawn(|| load_or_create_key(&path).unwrap())).collect();
            makers.into_iter().map(|maker| maker.join().unwrap().id()).collect()
        });
        assert!(keys.iter().all(|id| *id == keys[0]));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_broken_key_file_is_named_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("master.key");
        fs::write(&path, "short").unwrap();
        assert!(load_or_create_key(&path).unwrap_err().to_string().contains("master.key"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "short");
    }

    #[test]
    fn a_key_survives_its_text_and_does_not_show() {
        let key = MasterKey::generate();
        let again: MasterKey = key.to_base64().parse().unwrap();
        assert_eq!(again.bytes(), key.bytes());
        assert_eq!(format!("{key:?}"), "MasterKey(redacted)");
        assert!("c2hvcnQ=".parse::<MasterKey>().is_err());
    }
}
