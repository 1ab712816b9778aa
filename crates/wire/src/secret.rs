//! JSON with secrets in it, on its way out: the buffers that hold it here are wiped once it was
//! written or given up. What the kernel and TLS copy is out of reach. What comes in is wiped where
//! [`crate::ClientConfig::wipe_replies`] or [`crate::ServerConfig::wipe_requests`] says so.

use contract::Json;
use serde::Serialize;
use std::{fmt, io};
use zeroize::Zeroizing;

/// A JSON text with secrets in it. It is wiped when dropped, and so are the frames made of it.
pub struct SecretJson(Zeroizing<String>);

impl SecretJson {
    /// The JSON of any serialisable value; no copy of its text is left behind. `expected_bytes` saves
    /// work when the text is no longer.
    ///
    /// # Errors
    /// Those of the value's own serialisation.
    pub fn of<T: Serialize + ?Sized>(value: &T, expected_bytes: usize) -> Result<Self, serde_json::Error> {
        let mut wiped = Wiped(Zeroizing::new(Vec::with_capacity(expected_bytes)));
        serde_json::to_writer(&mut wiped, value)?;
        // `serde_json` writes only UTF-8, which is checked here once more: no other way takes the text
        // without a copy.
        String::from_utf8(std::mem::take(&mut *wiped.0)).map(|text| Self(Zeroizing::new(text))).map_err(
            |error| {
                let reason = error.utf8_error();
                drop(Zeroizing::new(error.into_bytes()));
                serde::ser::Error::custom(reason)
            },
        )
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// Shows the size only.
impl fmt::Debug for SecretJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretJson({} bytes)", self.0.len())
    }
}

/// A buffer that wipes what it leaves when it grows.
struct Wiped(Zeroizing<Vec<u8>>);

impl io::Write for Wiped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let needed = self.0.len() + bytes.len();
        if needed > self.0.capacity() {
            let mut larger = Zeroizing::new(Vec::with_capacity(needed.max(self.0.capacity() * 2)));
            larger.extend_from_slice(&self.0);
            self.0 = larger;
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a call carries: the text of its `data`, and whether its frame is to be wiped.
#[derive(Clone, Copy)]
pub struct Payload<'p> {
    pub(crate) text: &'p str,
    pub(crate) is_secret: bool,
}

impl<'p> From<&'p Json> for Payload<'p> {
    fn from(json: &'p Json) -> Self {
        Self { text: json.text(), is_secret: false }
    }
}

impl<'p> From<&'p SecretJson> for Payload<'p> {
    fn from(json: &'p SecretJson) -> Self {
        Self { text: json.text(), is_secret: true }
    }
}

/// Shows the size only.
impl fmt::Debug for Payload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_that_of_the_value_however_the_buffer_grew() {
        let value = serde_json::json!({"inputs": {"key": "s3cret \"ю\"", "n": [1, 2, 3]}});
        for expected in [0, 7, 1024] {
            assert_eq!(SecretJson::of(&value, expected).unwrap().text(), value.to_string());
        }
    }

    #[test]
    fn debug_shows_no_content() {
        let secret = SecretJson::of("s3cret", 0).unwrap();
        assert_eq!(
            format!("{secret:?}, {:?}", Payload::from(&secret)),
            "SecretJson(8 bytes), Payload(8 bytes)"
        );
    }
}
