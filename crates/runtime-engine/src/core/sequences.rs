//! A set of numbers that mostly come in order.

/// Numbers seen so far, as ranges: one range for a reporter that counts up without gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sequences {
    /// Disjoint inclusive ranges, ascending, never adjacent.
    ranges: Vec<(u64, u64)>,
}

impl Sequences {
    /// Was the number seen?
    pub(super) fn contains(&self, number: u64) -> bool {
        let after = self.ranges.partition_point(|(first, _)| *first <= number);
        after > 0 && self.ranges[after - 1].1 >= number
    }

    /// Notes the number.
    pub(super) fn insert(&mut self, number: u64) {
        if self.contains(number) {
            return;
        }
        let after = self.ranges.partition_point(|(first, _)| *first <= number);
        let joins_left = after > 0 && self.ranges[after - 1].1.checked_add(1) == Some(number);
        let joins_right =
            self.ranges.get(after).is_some_and(|(first, _)| number.checked_add(1) == Some(*first));
        match (joins_left, joins_right) {
            (true, true) => {
                self.ranges[after - 1].1 = self.ranges[after].1;
                self.ranges.remove(after);
            }
            (true, false) => self.ranges[after - 1].1 = number,
            (false, true) => self.ranges[after].0 = number,
            (false, false) => self.ranges.insert(after, (number, number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn counting_up_costs_one_range() {
        let mut seen = Sequences::default();
        (1..=1_000).for_each(|number| seen.insert(number));
        assert_eq!(seen.ranges, [(1, 1_000)]);
        seen.insert(u64::MAX);
        seen.insert(0);
        assert_eq!(seen.ranges, [(0, 1_000), (u64::MAX, u64::MAX)]);
    }

    proptest! {
        #[test]
        fn behaves_as_a_set_in_any_order(numbers in proptest::collection::vec(0u64..40, 0..60)) {
            let mut seen = Sequences::default();
            let mut model = BTreeSet::new();
            for number in numbers {
                prop_assert_eq!(seen.contains(number), model.contains(&number));
                seen.insert(number);
                model.insert(number);
            }
            for number in 0..41 {
                prop_assert_eq!(seen.contains(number), model.contains(&number));
            }
        }
    }
}
