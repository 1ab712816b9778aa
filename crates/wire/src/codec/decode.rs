//! The incremental decoder.

use super::{
    CodecError, Refused, header,
    units::{Progress, Scan},
    wiped,
};
use bytes::{Buf, Bytes, BytesMut};

/// Cuts a byte stream into frames. Memory grows with the bytes that came, never with the length
/// that was announced; time is linear in the bytes, however they are segmented.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    /// The body being read; `None` while a header is expected.
    body: Option<Scan>,
    limit: usize,
    frames: u64,
    /// The frame that was too large.
    refused: Option<Refused>,
    /// Does it wipe what it has received?
    wipes: bool,
}

impl Decoder {
    /// A decoder that refuses frames of more than `max_frame_bytes`.
    pub fn new(max_frame_bytes: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            body: None,
            limit: max_frame_bytes,
            frames: 0,
            refused: None,
            wipes: false,
        }
    }

    /// For frames with secrets in them: what was received is wiped, and so is each frame once its
    /// last holder has dropped it. Costs a copy of each frame.
    #[must_use]
    pub fn wiping(mut self, wipes: bool) -> Self {
        self.wipes = wipes;
        self
    }

    /// Takes received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).extend_from_slice(bytes);
    }

    /// The buffer with room for `bytes` more, to read from a socket into it without a copy. Only append,
    /// and no more than that.
    pub fn room(&mut self, bytes: usize) -> &mut BytesMut {
        match self.wipes {
            false => self.buffer.reserve(bytes),
            true => wiped::reserve(&mut self.buffer, bytes),
        }
        &mut self.buffer
    }

    /// The next complete frame: its JSON text, valid UTF-8 (invalid sequences are replaced by
    /// U+FFFD, as Node does). `None`: more bytes are needed.
    ///
    /// # Errors
    /// See [`CodecError`]; the buffered rest is dropped, since the stream is out of step. Only parts of
    /// a frame that is too large are kept.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, CodecError> {
        let result = self.cut();
        if let Err(error) = &result {
            let body = self.body.take().filter(|_| matches!(error, CodecError::TooLarge { .. }));
            self.refused = body.map(|scan| Refused::new(&self.buffer, scan));
            self.clear();
        }
        result
    }

    /// After [`CodecError::TooLarge`]: the refused frame, as far as it came.
    pub(crate) fn take_refused(&mut self) -> Option<Refused> {
        self.refused.take()
    }

    fn cut(&mut self) -> Result<Option<Bytes>, CodecError> {
        if self.body.is_none() {
            let Some(end) = header::find_end(&self.buffer)? else { return Ok(None) };
            let announced = header::parse_length(self.buffer.get(..end).unwrap_or_default())?;
            let units = usize::try_from(announced).unwrap_or(usize::MAX);
            self.buffer.advance(end + 1);
            self.body = Some(Scan::new(units));
            if units > self.limit {
                return Err(CodecError::TooLarge { limit: self.limit, actual: announced });
            }
        }
        let Some(scan) = &mut self.body else { return Ok(None) };
        let progress = scan.advance(&self.buffer);
        let text_bytes = scan.bytes + scan.growth;
        if text_bytes > self.limit {
            return Err(CodecError::TooLarge { limit: self.limit, actual: text_bytes as u64 });
        }
        match progress {
            Progress::NeedsMore => Ok(None),
            Progress::SplitsCharacter => Err(CodecError::NotJson),
            Progress::Complete => {
                let (bytes, invalid) = (scan.bytes, scan.invalid);
                self.body = None;
                self.frames += 1;
                Ok(Some(match (self.wipes, invalid) {
                    (false, false) => self.buffer.split_to(bytes).freeze(),
                    (false, true) => {
                        String::from_utf8_lossy(&self.buffer.split_to(bytes)).into_owned().into()
                    }
                    (true, false) => wiped::take(&mut self.buffer, bytes),
                    (true, true) => wiped::lossy(&wiped::take(&mut self.buffer, bytes)),
                }))
            }
        }
    }

    /// Has a frame begun that is not complete? White space behind a frame begins none.
    pub fn has_started(&self) -> bool {
        self.body.is_some() || !header::is_blank(&self.buffer)
    }

    /// Bytes that are held and belong to no complete frame yet.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Frames given out so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Gives the buffer's memory back when nothing is in it, so that an idle connection holds none.
    pub fn release_memory(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }

    fn clear(&mut self) {
        match self.wipes {
            false => self.buffer = BytesMut::new(),
            true => wiped::clear(&mut self.buffer),
        }
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        self.clear();
    }
}
