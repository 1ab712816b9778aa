//! Numbers that a seed decides, on every machine and in every version: the schedule of a failed run
//! can be played again.

use std::ops::RangeInclusive;

/// `SplitMix64`.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of this seed. `stream` keeps those of two users apart.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of the range; the range must not be empty.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let width = range.end() - range.start() + 1;
        range.start() + self.next() % width
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.within(1..=times) == 1
    }

    /// Puts the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.within(0..=last as u64) as usize;
            items.swap(last, other);
        }
    }
}
