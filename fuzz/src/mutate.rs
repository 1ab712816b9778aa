//! Seeded mutation of bytes. The generator is our own ten lines, so that a printed seed means the same
//! with every version of every library.

/// What is put in and looked for: texts at which readers of JSON, numbers, addresses and frames turn.
const WORDS: &[&str] = &[
    "#",
    "0#",
    "2#{}",
    "4294967296#",
    "99999999999#",
    "\r\n",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    ",",
    ":",
    "null",
    "true",
    "-0",
    "1e999",
    "18446744073709551616",
    "0.1",
    "\\ud800",
    "\\udc00\\ud800",
    "\\u0000",
    "\u{feff}",
    "\u{2028}",
    "😀",
    "é",
    "__proto__",
    "\"id\":",
    "\"pattern\":",
    "\"data\":",
    "\"cmd\"",
    "\"executionId\":",
    "\"outputs\":{}",
    "\"status\":\"error\"",
    "\"error\":",
    "\"items\":[]",
    "\"body\":",
    "\"edges\":[]",
    "\"widgets\":[]",
    "$secret",
    "system.loop",
    "0.0.0.0/0",
    "::/0",
    "::ffff:1.2.3.4",
    "[::1]:80",
    ",",
    "/33",
    "\r\n\r\n\0\r\nQUIT\n",
];

/// Longest input that mutation makes, bytes.
const MAX_BYTES: usize = 16 * 1024;

/// Changes inputs, the same way for the same seed.
#[derive(Clone, Debug)]
pub struct Mutator(u64);

impl Mutator {
    /// A mutator that begins at `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (`SplitMix64`).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which must not be 0 (then 0).
    pub fn below(&mut self, end: usize) -> usize {
        // The remainder is below `end`, which fits.
        (self.next() % (end.max(1) as u64)) as usize
    }

    /// A changed copy of `input`, now and then spliced with `other`.
    pub fn mutate(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(4) {
            self.change(&mut bytes, other);
        }
        bytes.truncate(MAX_BYTES);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len() + 1);
        let end = at + self.below((bytes.len() - at).min(64) + 1);
        match self.below(9) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes.get(at..end).unwrap_or_default().to_vec();
                self.insert(bytes, &part);
            }
            3 => {
                let word = WORDS.get(self.below(WORDS.len())).copied().unwrap_or_default();
                self.insert(bytes, word.as_bytes());
            }
            4 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = self.next().to_le_bytes()[0];
                }
            }
            5 => {
                let bit = 1 << self.below(8);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= bit;
                }
            }
            6 => {
                let from = self.below(other.len() + 1);
                let to = from + self.below(other.len() - from + 1);
                self.insert(bytes, other.get(from..to).unwrap_or_default());
            }
            7 => self.nest(bytes, at),
            _ => self.change_number(bytes),
        }
    }

    fn insert(&mut self, bytes: &mut Vec<u8>, part: &[u8]) {
        let at = self.below(bytes.len() + 1);
        bytes.splice(at..at, part.iter().copied());
    }

    /// Opens many brackets: readers must not follow them on the stack.
    fn nest(&mut self, bytes: &mut Vec<u8>, at: usize) {
        let bracket = [&b"["[..], b"{\"a\":"][self.below(2)];
        let depth = [1, 10, 127, 128, 129, 1000][self.below(6)];
        bytes.splice(at..at, bracket.repeat(depth));
    }

    /// Moves a decimal digit: lengths and counts become wrong by a little.
    fn change_number(&mut self, bytes: &mut [u8]) {
        let digits: Vec<usize> =
            bytes.iter().enumerate().filter(|(_, byte)| byte.is_ascii_digit()).map(|(at, _)| at).collect();
        if let Some(at) = digits.get(self.below(digits.len())) {
            let digit = self.below(10) as u8;
            if let Some(byte) = bytes.get_mut(*at) {
                *byte = b'0' + digit;
            }
        }
    }
}

/// A name for bytes (FNV-1a).
pub fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_makes_the_same_inputs() {
        let make = |seed| {
            let mut mutator = Mutator::new(seed);
            (0..100).map(|_| mutator.mutate(b"40#{\"a\":[1,2]}", b"other")).collect::<Vec<_>>()
        };
        assert_eq!(make(7), make(7));
        assert_ne!(make(7), make(8));
    }

    #[test]
    fn inputs_stay_bounded_and_empty_ones_grow() {
        let mut mutator = Mutator::new(1);
        let mut input = Vec::new();
        let mut largest = 0;
        for _ in 0..10_000 {
            input = mutator.mutate(&input, b"0123456789");
            largest = largest.max(input.len());
        }
        assert!(largest > 100 && largest <= MAX_BYTES, "{largest}");
    }
}
