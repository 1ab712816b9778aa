//! The encoder: body first, then its length in front of it, in one buffer.

use super::units::units_of_valid;
use bytes::Bytes;
use serde::Serialize;
use zeroize::Zeroizing;

/// Room for 20 digits (any `usize`) and `#`.
const HEADER_ROOM: &str = "                    #";

/// The frame of one JSON text.
pub fn encode(json: &str) -> Bytes {
    FrameText::with_capacity(json.len()).raw(json).finish()
}

/// A frame whose JSON text is written piece by piece.
pub(crate) struct FrameText(Vec<u8>);

impl FrameText {
    /// An empty text with room for `body` bytes.
    pub(crate) fn with_capacity(body: usize) -> Self {
        let mut text = Vec::with_capacity(HEADER_ROOM.len() + body);
        text.extend_from_slice(HEADER_ROOM.as_bytes());
        Self(text)
    }

    /// Appends JSON as it is.
    pub(crate) fn raw(mut self, json: &str) -> Self {
        self.0.extend_from_slice(json.as_bytes());
        self
    }

    /// Appends the JSON of a value.
    ///
    /// # Errors
    /// Those of the value's own serialisation.
    pub(crate) fn value<T: Serialize + ?Sized>(mut self, value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_writer(&mut self.0, value)?;
        Ok(self)
    }

    /// Puts the length in front.
    pub(crate) fn finish(self) -> Bytes {
        let (bytes, start) = self.headed();
        Bytes::from(bytes).slice(start..)
    }

    /// [`Self::finish`], in a buffer that is wiped with its last holder. The text must not have
    /// outgrown the capacity that it began with.
    pub(crate) fn finish_secret(self) -> Frame {
        let (bytes, start) = self.headed();
        Frame { bytes: Bytes::from_owner(Zeroizing::new(bytes)).slice(start..), is_secret: true }
    }

    /// The buffer, and where the frame begins in it.
    fn headed(self) -> (Vec<u8>, usize) {
        let mut bytes = self.0;
        // Made of texts and of what `serde_json` writes.
        let units = units_of_valid(&bytes) - HEADER_ROOM.len();
        let digits = units.to_string();
        let start = HEADER_ROOM.len() - 1 - digits.len();
        bytes[start..HEADER_ROOM.len() - 1].copy_from_slice(digits.as_bytes());
        (bytes, start)
    }
}

/// A frame to be written.
#[derive(Clone)]
pub(crate) struct Frame {
    pub(crate) bytes: Bytes,
    /// It is wiped where it is: no copy of it may be made.
    pub(crate) is_secret: bool,
}

impl From<Bytes> for Frame {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, is_secret: false }
    }
}

/// Bytes of the JSON text of an encoded frame.
pub(crate) fn body_bytes(frame: &[u8]) -> usize {
    let header = frame.iter().position(|byte| *byte == b'#').map_or(0, |end| end + 1);
    frame.len() - header
}
