//! A receive buffer that leaves nothing behind: what was taken out of it, and what it grew out of, is
//! wiped at once.

use bytes::{Buf, Bytes, BytesMut};
use std::mem;
use zeroize::{Zeroize, Zeroizing};

/// Makes room for `bytes` more. `BytesMut` would free the smaller buffer as it is.
pub(super) fn reserve(buffer: &mut BytesMut, bytes: usize) {
    if buffer.capacity() - buffer.len() < bytes {
        let mut larger = BytesMut::with_capacity((buffer.len() + bytes).max(buffer.capacity() * 2));
        larger.extend_from_slice(buffer);
        buffer.as_mut().zeroize();
        *buffer = larger;
    }
}

/// Takes the first `bytes` out, into a buffer of their own that is wiped with its last holder.
pub(super) fn take(buffer: &mut BytesMut, bytes: usize) -> Bytes {
    let (taken, _) = buffer.as_mut().split_at_mut(bytes);
    let frame = Zeroizing::new(taken.to_vec());
    taken.zeroize();
    buffer.advance(bytes);
    Bytes::from_owner(frame)
}

/// Empties the buffer and gives its memory back.
pub(super) fn clear(buffer: &mut BytesMut) {
    mem::take(buffer).as_mut().zeroize();
}

/// The text with its invalid sequences replaced, as wiped as the original.
pub(super) fn lossy(text: &Bytes) -> Bytes {
    Bytes::from_owner(Zeroizing::new(String::from_utf8_lossy(text).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_wiped_where_it_was_received() {
        let mut buffer = BytesMut::with_capacity(16);
        buffer.extend_from_slice(b"s3cretrest");
        // The two halves of one allocation: what is behind the first is left in the second's reach.
        let taken = take(&mut buffer, 6);
        assert_eq!((&taken[..], &buffer[..]), (&b"s3cret"[..], &b"rest"[..]));
        // Takes the freed part in front back, as it is.
        assert!(buffer.try_reclaim(12));
        let spare = buffer.len();
        buffer.resize(spare + 8, b'.');
        assert_eq!(&buffer[..], b"rest........");
    }

    #[test]
    fn growth_keeps_what_has_come_and_small_needs_move_nothing() {
        let mut buffer = BytesMut::with_capacity(8);
        buffer.extend_from_slice(b"abcd");
        let place = buffer.as_ptr();
        reserve(&mut buffer, 4);
        assert_eq!(buffer.as_ptr(), place);
        reserve(&mut buffer, 100);
        assert_eq!(&buffer[..], b"abcd");
        assert!(buffer.capacity() >= 104);
        clear(&mut buffer);
        assert_eq!(buffer.capacity(), 0);
    }
}
