//! The encoder: body first, then its length in front of it, in one buffer.

use super::units::utf16_units;
use bytes::Bytes;

/// Room for 20 digits (any `usize`) and `#`.
const HEADER_ROOM: &str = "                    #";

/// The frame of one JSON text.
pub fn encode(json: &str) -> Bytes {
    FrameText::with_capacity(json.len()).raw(json).finish()
}

/// A frame whose JSON text is written piece by piece.
pub(crate) struct FrameText(String);

impl FrameText {
    /// An empty text with room for `body` bytes.
    pub(crate) fn with_capacity(body: usize) -> Self {
        let mut text = String::with_capacity(HEADER_ROOM.len() + body);
        text.push_str(HEADER_ROOM);
        Self(text)
    }

    /// Appends JSON as it is.
    pub(crate) fn raw(mut self, json: &str) -> Self {
        self.0.push_str(json);
        self
    }

    /// Puts the length in front.
    pub(crate) fn finish(self) -> Bytes {
        let units = utf16_units(&self.0) - HEADER_ROOM.len();
        let digits = units.to_string();
        let start = HEADER_ROOM.len() - 1 - digits.len();
        let mut bytes = self.0.into_bytes();
        bytes[start..HEADER_ROOM.len() - 1].copy_from_slice(digits.as_bytes());
        Bytes::from(bytes).slice(start..)
    }
}

/// Bytes of the JSON text of an encoded frame.
pub(crate) fn body_bytes(frame: &[u8]) -> usize {
    let header = frame.iter().position(|byte| *byte == b'#').map_or(0, |end| end + 1);
    frame.len() - header
}
