//! The frame decoder. The input is a byte stream.

use wire::codec::{CodecError, Decoder, encode, utf16_units};

const LIMIT: usize = 4096;

/// However the stream is cut, the same frames come out; memory never exceeds what came; every frame
/// that came out can be written and read again.
pub(super) fn run(input: &[u8]) -> String {
    let (frames, end) = decode(Decoder::new(LIMIT), [input]);
    // The first byte decides where the stream is cut.
    let step = usize::from(*input.first().unwrap_or(&0)) % 7 + 1;
    let (pieces, end_of_pieces) = decode(Decoder::new(LIMIT), input.chunks(step));
    assert_eq!(frames, pieces, "cut into pieces of {step} bytes the stream has other frames");
    let wiping = decode(Decoder::new(LIMIT).wiping(true), input.chunks(step));
    assert!(wiping == (pieces, end_of_pieces.clone()), "a decoder that wipes finds something else");
    match (&end, &end_of_pieces) {
        // How much was seen when a limit was exceeded depends on the cut.
        (Some(end), Some(other)) => {
            assert_eq!(kind(end), kind(other), "another end in pieces of {step} bytes");
        }
        (end, other) => assert_eq!(end, other, "another end in pieces of {step} bytes"),
    }
    for frame in &frames {
        assert!(frame.len() <= LIMIT, "a frame of {} bytes passed the limit", frame.len());
        let again = encode(frame);
        let header = format!("{}#", utf16_units(frame));
        assert!(again.starts_with(header.as_bytes()), "the length is not counted in UTF-16 units");
        assert_eq!(
            decode(Decoder::new(LIMIT), [&again[..]]),
            (vec![frame.clone()], None),
            "a frame is not read as it was written"
        );
    }
    let frames = ["no frame", "one frame", "frames"][frames.len().min(2)];
    format!("{frames}, {}", end.map_or("open", |end| kind(&end)))
}

fn decode<'p>(
    mut decoder: Decoder,
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> (Vec<String>, Option<CodecError>) {
    let mut frames = Vec::new();
    let mut came = 0;
    for piece in pieces {
        decoder.push(piece);
        came += piece.len();
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => {
                    let text = std::str::from_utf8(&frame).map(str::to_owned);
                    frames.push(text.unwrap_or_else(|_| panic!("a frame is not UTF-8")));
                }
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(decoder.buffered() <= came, "more is buffered than came");
        assert!(
            decoder.buffered() <= LIMIT + piece.len() + wire::codec::MAX_HEADER_BYTES,
            "{} bytes are buffered for a frame of at most {LIMIT}",
            decoder.buffered()
        );
    }
    (frames, None)
}

fn kind(error: &CodecError) -> &'static str {
    match error {
        CodecError::HeaderTooLong { .. } => "header too long",
        CodecError::CorruptLength => "corrupt length",
        CodecError::TooLarge { .. } => "too large",
        CodecError::NotJson => "not JSON",
    }
}
