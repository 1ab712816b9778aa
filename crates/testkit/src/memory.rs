//! What a process holds in its memory.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
};

/// Bytes read at once.
const CHUNK: usize = 1024 * 1024;

/// Does the process hold `needle` anywhere in memory that it can write, freed memory included?
///
/// # Errors
/// When the process is gone, or not ours to look into.
pub fn holds(pid: u32, needle: &[u8]) -> io::Result<bool> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut chunk = vec![0; CHUNK + needle.len()];
    Ok(maps.lines().filter_map(writable).any(|region| region_holds(&memory, region, needle, &mut chunk)))
}

/// Beginning and end of a region that can be read and written: `START-END rw…`.
fn writable(line: &str) -> Option<(u64, u64)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-').filter(|_| rest.starts_with("rw"))?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

/// What cannot be read has been given back meanwhile.
fn region_holds(memory: &File, (start, end): (u64, u64), needle: &[u8], chunk: &mut [u8]) -> bool {
    let mut at = start;
    while at < end {
        let Ok(count @ 1..) = memory.read_at(chunk, at) else { return false };
        if chunk.get(..count).is_some_and(|bytes| contains(bytes, needle)) {
            return true;
        }
        // The next chunk begins with what may be the beginning of a needle that is cut here.
        let step = count.saturating_sub(needle.len().saturating_sub(1)).max(1);
        at += step as u64;
    }
    false
}

/// Looks at the byte under the needle's end and moves on by as much as that rules out (Horspool), since
/// memory is large and tests are built without optimisation.
fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    let Some((_, others)) = needle.split_last() else { return true };
    let mut steps = [needle.len(); 256];
    for (at, byte) in others.iter().enumerate() {
        steps[usize::from(*byte)] = others.len() - at;
    }
    let mut at = 0;
    while let Some(window) = bytes.get(at..at + needle.len()) {
        if window == needle {
            return true;
        }
        at += steps[usize::from(window[others.len()])];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_needle_is_found_wherever_it_stands() {
        let hay = b"abcabcabdabcd....";
        for (at, length) in (0..hay.len()).flat_map(|at| (1..=hay.len() - at).map(move |length| (at, length)))
        {
            assert!(contains(hay, &hay[at..at + length]));
        }
        for absent in [&b"abcabd.."[..], b"x", b".....", b"dd"] {
            assert!(!contains(hay, absent));
        }
    }

    #[test]
    fn what_a_process_holds_is_found_and_what_it_does_not_hold_is_not() {
        // Made here, byte by byte, so that no other copy is in the program.
        let made = |seed: u8| (0..64).map(|at: u8| at.wrapping_mul(seed) ^ 0xa5).collect::<Vec<u8>>();
        let mut child = std::process::Command::new("sleep").arg("60").env("HELD", "h-e-l-d").spawn().unwrap();
        let found = holds(child.id(), b"h-e-l-d");
        let absent = holds(child.id(), &made(31));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.unwrap());
        assert!(!absent.unwrap());
    }
}
