//! The length field, read as JavaScript's `parseInt(text, 10)` reads it: peers write what Node accepts.

use super::CodecError;

/// Bytes that a header may have before its `#`.
pub const MAX_HEADER_BYTES: usize = 16;

/// Digits that a length may have.
const MAX_DIGITS: usize = 10;

/// Looks for the header at the front of `bytes`: its length without the `#`, or `None` when more
/// bytes are needed.
pub(super) fn find_end(bytes: &[u8]) -> Result<Option<usize>, CodecError> {
    let window = bytes.get(..=MAX_HEADER_BYTES).unwrap_or(bytes);
    match window.iter().position(|byte| *byte == b'#') {
        Some(end) => Ok(Some(end)),
        None if bytes.len() > MAX_HEADER_BYTES => {
            Err(CodecError::HeaderTooLong { limit: MAX_HEADER_BYTES, actual: bytes.len() })
        }
        None => Ok(None),
    }
}

/// Is there nothing but white space, which may follow the frame before rather than begin a new one?
pub(super) fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

/// The announced length. Leading white space, a sign, leading zeros and anything behind the digits
/// are accepted; a length of zero or below announces an empty text, which is no JSON.
pub(super) fn parse_length(header: &[u8]) -> Result<u64, CodecError> {
    let text = String::from_utf8_lossy(header);
    let text = text.trim_start_matches(is_js_space);
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit);
    let (count, length) = digits
        .fold((0, 0u64), |(count, sum), digit| (count + 1, sum.saturating_mul(10) + u64::from(digit - b'0')));
    match count {
        0 => Err(CodecError::CorruptLength),
        _ if count > MAX_DIGITS => {
            Err(CodecError::HeaderTooLong { limit: MAX_HEADER_BYTES, actual: header.len() })
        }
        _ if negative || length == 0 => Err(CodecError::NotJson),
        _ => Ok(length),
    }
}

/// ECMAScript's white space and line ends.
fn is_js_space(c: char) -> bool {
    (c.is_whitespace() && c != '\u{85}') || c == '\u{feff}'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_as_parse_int_reads_them() {
        for text in ["36", "+36", "0036", "36.9", "36abc", "36 ", " 36", "\r\n 36.9", "\u{feff}36"] {
            assert_eq!(parse_length(text.as_bytes()), Ok(36), "{text:?}");
        }
        for text in ["", "abc", "-", "+ 3", "#"] {
            assert_eq!(parse_length(text.as_bytes()), Err(CodecError::CorruptLength), "{text:?}");
        }
        for text in ["0", "-5", "0x28"] {
            assert_eq!(parse_length(text.as_bytes()), Err(CodecError::NotJson), "{text:?}");
        }
    }

    #[test]
    fn more_than_ten_digits_are_refused() {
        assert_eq!(parse_length(b"9999999999"), Ok(9_999_999_999));
        assert!(matches!(parse_length(b"00000000036"), Err(CodecError::HeaderTooLong { .. })));
    }

    #[test]
    fn a_header_ends_within_its_limit() {
        assert_eq!(find_end(b"0000000000000036#"), Ok(Some(16)));
        assert_eq!(find_end(b"0000000000000036"), Ok(None));
        assert!(matches!(find_end(b"00000000000000036#"), Err(CodecError::HeaderTooLong { .. })));
    }
}
