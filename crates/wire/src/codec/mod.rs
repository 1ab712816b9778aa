//! The frame: `<length>#<json>`, the length in UTF-16 code units of the JSON text, which is UTF-8 on
//! the wire. Pure: bytes in, frames out.

mod decode;
mod encode;
mod header;
mod refused;
mod units;
mod wiped;

pub use decode::Decoder;
pub use encode::encode;
pub(crate) use encode::{Frame, FrameText, body_bytes};
pub use header::MAX_HEADER_BYTES;
pub use refused::BEGINNING_BYTES;
pub(crate) use refused::Refused;
pub use units::utf16_units;

#[cfg(test)]
mod tests;

/// Why a byte stream cannot be read on. After any of these the stream is out of step for good.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// No `#` within the bytes that a header may have, or a length of too many digits.
    #[error("no frame length ends within {limit} bytes (at most 10 digits); {actual} bytes came")]
    HeaderTooLong {
        /// Bytes a header may have before its `#`.
        limit: usize,
        /// Bytes that came without one.
        actual: usize,
    },
    /// The text before `#` is no number.
    #[error("the frame length is not a number")]
    CorruptLength,
    /// The frame is longer than the limit.
    #[error("the frame has {actual} or more bytes, the limit is {limit}")]
    TooLarge {
        /// Most bytes that a frame may have.
        limit: usize,
        /// Announced length, or the bytes seen so far where the announced units hide more bytes.
        actual: u64,
    },
    /// The frame's text is not JSON: empty, cut inside a character, or malformed.
    #[error("the frame is not valid JSON; its length may not be counted in UTF-16 code units")]
    NotJson,
}

impl CodecError {
    /// Is a limit exceeded (and to be named to the peer), as opposed to malformed input?
    pub fn is_limit(&self) -> bool {
        matches!(self, Self::HeaderTooLong { .. } | Self::TooLarge { .. })
    }
}
