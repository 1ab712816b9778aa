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

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    let Some(first) = needle.first() else { return true };
    let begins = |at: &usize| bytes.get(*at) == Some(first);
    (0..bytes.len()).filter(begins).any(|at| bytes.get(at..at + needle.len()) == Some(needle))
}

#[cfg(test)]
mod tests {
    use super::*;

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
