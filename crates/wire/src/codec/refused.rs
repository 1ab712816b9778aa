//! A frame that is too large and is not kept: its beginning, and what its end says. The text between
//! them is counted and forgotten.

use super::units::{Progress, Scan};
use bytes::BytesMut;
use zeroize::Zeroize;

/// What is kept of the beginning, bytes: its reader may want to know whose it was.
pub const BEGINNING_BYTES: usize = 16 * 1024;

/// What is kept of the end, bytes: room for an id.
const END_BYTES: usize = 512;

/// Bytes counted at once.
const STEP: usize = 64 * 1024;

/// The refused frame, as far as it came.
#[derive(Debug)]
pub(crate) struct Refused {
    beginning: BytesMut,
    scan: Scan,
    /// The bytes of a character that is cut.
    cut: Vec<u8>,
    end: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Ended,
    /// It ends inside a character.
    Broken,
}

impl Refused {
    /// A frame of which `text` has come. `scan` has counted the first part of it.
    pub(super) fn new(text: &[u8], scan: Scan) -> Self {
        let counted = text.get(..scan.bytes).unwrap_or(text);
        let mut refused = Self {
            beginning: counted.get(..BEGINNING_BYTES).unwrap_or(counted).into(),
            end: counted.get(counted.len().saturating_sub(END_BYTES)..).unwrap_or_default().to_vec(),
            scan,
            cut: Vec::new(),
            state: State::Open,
        };
        refused.push(text.get(counted.len()..).unwrap_or_default());
        refused
    }

    /// Takes what came next; what stands behind the frame is forgotten.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let room = BEGINNING_BYTES.saturating_sub(self.beginning.len());
        self.beginning.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        for step in bytes.chunks(STEP) {
            if self.state != State::Open {
                return;
            }
            self.cut.extend_from_slice(step);
            self.scan.bytes = 0;
            self.state = match self.scan.advance(&self.cut) {
                Progress::Complete => State::Ended,
                Progress::NeedsMore => State::Open,
                Progress::SplitsCharacter => State::Broken,
            };
            self.end.extend(self.cut.drain(..self.scan.bytes));
            self.end.drain(..self.end.len().saturating_sub(END_BYTES));
        }
    }

    /// Can more of it come?
    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// The least number of bytes that are still to come.
    pub(crate) fn missing(&self) -> usize {
        self.scan.remaining
    }

    /// The first part of its text, at most [`BEGINNING_BYTES`], cut anywhere.
    pub(crate) fn beginning(&self) -> &[u8] {
        &self.beginning
    }

    /// The last part of its text, when it has come to its end.
    pub(crate) fn end(&self) -> Option<&[u8]> {
        (self.state == State::Ended).then_some(&self.end)
    }
}

/// It may have had secrets in it.
impl Drop for Refused {
    fn drop(&mut self) {
        self.beginning.as_mut().zeroize();
        self.end.zeroize();
        self.cut.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_is_found_however_the_text_is_cut_and_what_follows_is_no_part_of_it() {
        let text = format!("{{\"data\":\"{}\",\"id\":\"7\"}}", "ю😀".repeat(20_000));
        let units = text.encode_utf16().count();
        let sent = format!("{text}12#next");
        for step in [1, 7, 100_000, sent.len()] {
            let mut refused = Refused::new(b"", Scan::new(units));
            sent.as_bytes().chunks(step).for_each(|bytes| refused.push(bytes));
            assert_eq!(refused.end(), Some(&text.as_bytes()[text.len() - END_BYTES..]), "{step}");
            assert_eq!(refused.beginning(), &text.as_bytes()[..BEGINNING_BYTES]);
            assert!(!refused.is_open());
        }
    }

    #[test]
    fn frame_that_has_not_come_or_ends_inside_a_character_has_no_end() {
        let mut refused = Refused::new(b"abc", Scan::new(5));
        assert_eq!((refused.end(), refused.missing(), refused.is_open()), (None, 2, true));
        refused.push("x😀".as_bytes());
        assert_eq!((refused.end(), refused.is_open()), (None, false));
    }
}
