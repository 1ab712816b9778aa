//! The `Range` header (RFC 9110 section 14), one range of bytes.

use std::ops::RangeInclusive;

/// Which bytes are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// All of them: no range, or one that need not be heeded (another unit, several ranges,
    /// malformed).
    Whole,
    /// These.
    Part(RangeInclusive<u64>),
    /// Bytes that the file does not have.
    Beyond,
}

/// Reads the header for a file of `size` bytes.
pub(super) fn asked(header: Option<&str>, size: u64) -> Asked {
    let Some((first, last)) = header.and_then(bounds) else { return Asked::Whole };
    let end = size.saturating_sub(1);
    match (first, last) {
        (Some(first), Some(last)) if last < first => Asked::Whole,
        (Some(first), _) if first >= size => Asked::Beyond,
        (Some(first), last) => Asked::Part(first..=last.unwrap_or(end).min(end)),
        (None, Some(0)) => Asked::Beyond,
        (None, Some(_)) if size == 0 => Asked::Beyond,
        (None, Some(suffix)) => Asked::Part(size.saturating_sub(suffix)..=end),
        (None, None) => Asked::Whole,
    }
}

fn bounds(header: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (first, last) = header.trim().strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| match text.trim() {
        "" => Some(None),
        digits => digits.parse().ok().map(Some),
    };
    Some((number(first)?, number(last)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_heeded_and_everything_else_means_the_whole_file() {
        for (header, wanted) in [
            ("bytes=0-0", Asked::Part(0..=0)),
            ("bytes=2-", Asked::Part(2..=9)),
            ("bytes=2-99", Asked::Part(2..=9)),
            ("bytes=-3", Asked::Part(7..=9)),
            ("bytes=-99", Asked::Part(0..=9)),
            ("bytes=10-", Asked::Beyond),
            ("bytes=-0", Asked::Beyond),
            ("bytes=5-2", Asked::Whole),
            ("bytes=0-1,3-4", Asked::Whole),
            ("items=0-1", Asked::Whole),
            ("bytes=-", Asked::Whole),
            ("bytes=a-b", Asked::Whole),
        ] {
            assert_eq!(asked(Some(header), 10), wanted, "{header}");
        }
        assert_eq!(asked(None, 10), Asked::Whole);
        assert_eq!(asked(Some("bytes=0-"), 0), Asked::Beyond);
        assert_eq!(asked(Some("bytes=-1"), 0), Asked::Beyond);
    }
}
