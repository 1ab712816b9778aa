//! Counting UTF-16 code units over UTF-8 bytes without decoding them.
//!
//! Invalid UTF-8 counts as Node's decoder replaces it: one unit per maximal invalid subpart.

use std::str;

/// UTF-16 code units of a text.
pub fn utf16_units(text: &str) -> usize {
    units_of_valid(text.as_bytes())
}

/// Units of bytes that are known to be valid UTF-8: every byte that begins a character is one,
/// those that begin a character of four bytes are two.
pub(super) fn units_of_valid(bytes: &[u8]) -> usize {
    // A byte holds the count of so many: only so the compiler counts many at once.
    const AT_ONCE: usize = 127;
    let count = |part: &[u8]| {
        part.iter().map(|byte| u8::from(byte & 0xC0 != 0x80) + u8::from(*byte >= 0xF0)).sum::<u8>()
    };
    bytes.chunks(AT_ONCE).map(|part| usize::from(count(part))).sum()
}

/// How far the body of a frame has been read.
#[derive(Debug)]
pub(super) struct Scan {
    /// Units that are still missing.
    pub(super) remaining: usize,
    /// Bytes already counted.
    pub(super) bytes: usize,
    /// Bytes that replacing invalid sequences by U+FFFD adds to the text.
    pub(super) growth: usize,
    /// Is there an invalid sequence in it?
    pub(super) invalid: bool,
}

/// What a look at the body found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The frame is complete.
    Complete,
    /// More bytes are needed.
    NeedsMore,
    /// The announced length ends in the middle of a character of two units.
    SplitsCharacter,
}

impl Scan {
    pub(super) fn new(units: usize) -> Self {
        Self { remaining: units, bytes: 0, growth: 0, invalid: false }
    }

    /// Counts on in `body`, the bytes from the frame's start. Each byte is counted once however the
    /// frame is cut into segments (up to three bytes of a cut character are looked at again).
    ///
    /// `n` bytes are never more than `n` units, so a window of as many bytes as units are missing
    /// can be validated and counted whole; what is left shrinks geometrically.
    pub(super) fn advance(&mut self, body: &[u8]) -> Progress {
        while self.remaining > 0 {
            let rest = body.get(self.bytes..).unwrap_or_default();
            let window = rest.get(..self.remaining).unwrap_or(rest);
            let valid = valid_prefix(window);
            if !valid.is_empty() {
                self.remaining -= units_of_valid(valid);
                self.bytes += valid.len();
                continue;
            }
            match first_character(rest) {
                None => return Progress::NeedsMore,
                Some(Character { units, .. }) if units > self.remaining => return Progress::SplitsCharacter,
                Some(Character { bytes, units, invalid }) => {
                    self.remaining -= units;
                    self.bytes += bytes;
                    if invalid {
                        self.invalid = true;
                        self.growth += char::REPLACEMENT_CHARACTER.len_utf8() - bytes;
                    }
                }
            }
        }
        Progress::Complete
    }
}

fn valid_prefix(bytes: &[u8]) -> &[u8] {
    match simdutf8::compat::from_utf8(bytes) {
        Ok(_) => bytes,
        Err(error) => bytes.get(..error.valid_up_to()).unwrap_or_default(),
    }
}

struct Character {
    bytes: usize,
    units: usize,
    invalid: bool,
}

/// The character, or the maximal invalid subpart (at most three bytes), at the front; `None` when
/// the bytes may be the beginning of a character.
fn first_character(bytes: &[u8]) -> Option<Character> {
    let head = bytes.get(..4).unwrap_or(bytes);
    let valid = match str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() == 0 => {
            return error.error_len().map(|bytes| Character { bytes, units: 1, invalid: true });
        }
        Err(error) => str::from_utf8(head.get(..error.valid_up_to())?).ok()?,
    };
    let first = valid.chars().next()?;
    Some(Character { bytes: first.len_utf8(), units: first.len_utf16(), invalid: false })
}
