use super::*;
use bytes::Bytes;
use proptest::prelude::*;

const LIMIT: usize = 1 << 20;

/// All frames of `segments`, and the error that ends them: the same from a decoder that wipes.
fn decode<'a>(
    limit: usize,
    segments: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>,
) -> (Vec<String>, Option<CodecError>) {
    let segments = segments.into_iter();
    let decoded = decode_with(Decoder::new(limit), segments.clone());
    assert_eq!(decode_with(Decoder::new(limit).wiping(true), segments), decoded);
    decoded
}

fn decode_with<'a>(
    mut decoder: Decoder,
    segments: impl Iterator<Item = &'a [u8]>,
) -> (Vec<String>, Option<CodecError>) {
    let mut frames = Vec::new();
    for segment in segments {
        decoder.push(segment);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(String::from_utf8(frame.to_vec()).unwrap()),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

fn framed(bytes: &[u8], units: usize) -> Vec<u8> {
    [format!("{units}#").as_bytes(), bytes].concat()
}

#[test]
fn length_is_counted_in_utf16_units() {
    for (text, units) in [("\"hi\"", 4), ("\"Привет\"", 8), ("\"😀\"", 4), ("\"€\"", 3)] {
        assert_eq!(encode(text), Bytes::from(framed(text.as_bytes(), units)), "{text}");
    }
}

#[test]
fn invalid_utf8_becomes_one_replacement_per_maximal_subpart() {
    for (bytes, units) in [
        (&b"\xff\xfe"[..], 2),
        (b"\xf0\x9f\x98", 1),
        (b"\xed\xa0\x80", 3),
        (b"\xe2\x82", 1),
        (b"\x80", 1),
        (b"\xc0\xaf", 2),
    ] {
        let body = [b"\"", bytes, b"\""].concat();
        let stream = [framed(&body, units + 2), framed(b"{}", 2)].concat();
        let (frames, error) = decode(LIMIT, [&stream[..]]);
        assert_eq!(error, None, "{bytes:x?}");
        assert_eq!(frames, [format!("\"{}\"", "\u{fffd}".repeat(units)), "{}".to_owned()], "{bytes:x?}");
    }
}

#[test]
fn frame_at_the_limit_passes_and_one_byte_more_is_refused_at_its_header() {
    assert_eq!(decode(4, [&b"4#\"ab\""[..]]).0, ["\"ab\""]);
    assert_eq!(decode(4, [&b"5#"[..]]).1, Some(CodecError::TooLarge { limit: 4, actual: 5 }));
    assert_eq!(
        decode(4, [&b"9999999999#"[..]]).1,
        Some(CodecError::TooLarge { limit: 4, actual: 9_999_999_999 })
    );
}

#[test]
fn units_that_hide_more_bytes_than_the_limit_are_refused_while_they_come() {
    let stream = framed("\"Привет\"".as_bytes(), 8);
    assert!(matches!(decode(10, [&stream[..]]).1, Some(CodecError::TooLarge { limit: 10, .. })));
    // Replacing invalid bytes grows the text threefold: what counts is the text.
    let stream = framed(b"\"\xff\xff\xff\xff\"", 6);
    assert!(matches!(decode(10, [&stream[..]]).1, Some(CodecError::TooLarge { limit: 10, .. })));
}

#[test]
fn length_that_cuts_a_surrogate_pair_is_not_json() {
    assert_eq!(decode(LIMIT, ["1#😀".as_bytes()]).1, Some(CodecError::NotJson));
}

#[test]
fn endless_header_is_refused_after_sixteen_bytes() {
    let (_, error) = decode(LIMIT, b"GET / HTTP/1.1\r\nHost: x".chunks(1));
    assert_eq!(error, Some(CodecError::HeaderTooLong { limit: MAX_HEADER_BYTES, actual: 17 }));
}

#[test]
fn white_space_between_frames_starts_no_frame() {
    let mut decoder = Decoder::new(LIMIT);
    decoder.push(b"2#{}\r\n");
    assert!(decoder.next_frame().unwrap().is_some());
    assert_eq!(decoder.next_frame(), Ok(None));
    assert!(!decoder.has_started());
    decoder.push(b"2");
    assert!(decoder.has_started());
    decoder.push(b"#{}");
    assert_eq!(decoder.next_frame(), Ok(Some(Bytes::from_static(b"{}"))));
}

#[test]
fn announced_length_allocates_nothing() {
    let mut decoder = Decoder::new(usize::MAX);
    decoder.push(b"9999999999#{");
    assert_eq!(decoder.next_frame(), Ok(None));
    assert!(decoder.room(0).capacity() < 1024);
}

/// Texts with characters of all lengths.
fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop_oneof![
            4 => any::<char>(),
            4 => proptest::char::range(' ', '~'),
            1 => Just('😀'),
            1 => Just('€'),
            1 => Just('Ж')
        ],
        1..80,
    )
    .prop_map(|chars| chars.into_iter().collect())
}

/// Cuts `bytes` after each of `lengths`, repeated as needed.
fn segments<'a>(bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let (mut rest, mut cut) = (bytes, Vec::new());
    for length in lengths.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (head, tail) = rest.split_at((*length).min(rest.len()));
        cut.push(head);
        rest = tail;
    }
    cut
}

proptest! {
    #[test]
    fn units_equal_those_of_encode_utf16(text in any::<String>()) {
        prop_assert_eq!(utf16_units(&text), text.encode_utf16().count());
    }

    #[test]
    fn any_frames_split_any_way_decode_the_same(
        texts in prop::collection::vec(text(), 1..8),
        lengths in prop::collection::vec(1usize..40, 1..8),
    ) {
        let stream: Vec<u8> = texts.iter().flat_map(|text| encode(text)).collect();
        let (frames, error) = decode(LIMIT, segments(&stream, &lengths));
        prop_assert_eq!(error, None);
        prop_assert_eq!(frames, texts);
    }

    #[test]
    fn any_bytes_are_counted_as_their_lossy_text_however_split(
        bytes in prop::collection::vec(any::<u8>(), 1..200),
        lengths in prop::collection::vec(1usize..20, 1..8),
    ) {
        // An ASCII byte at the end closes whatever sequence the bytes left open.
        let body = [&bytes[..], b"."].concat();
        let text = String::from_utf8_lossy(&body).into_owned();
        let stream = framed(&body, text.encode_utf16().count());
        let (frames, error) = decode(LIMIT, segments(&stream, &lengths));
        prop_assert_eq!(error, None);
        prop_assert_eq!(frames, vec![text]);
    }

    #[test]
    fn garbage_never_panics_and_holds_no_more_than_it_sent(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut decoder = Decoder::new(64);
        for byte in &bytes {
            decoder.push(&[*byte]);
            if decoder.next_frame().is_err() {
                break;
            }
            prop_assert!(decoder.buffered() <= 64 * 3 + MAX_HEADER_BYTES + 1);
        }
    }
}
