//! Which statuses are failures: `errorStatuses`.

use super::invalid;
use plugin_sdk::Failure;
use std::ops::RangeInclusive;

/// A list of statuses such as `429, 5xx, 400-403`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Statuses(Vec<RangeInclusive<u16>>);

impl Statuses {
    pub(super) fn read(text: &str) -> Result<Self, Failure> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(range).collect::<Option<_>>().map(Self).ok_or_else(|| {
            invalid("input `errorStatuses` must list statuses, classes or ranges, such as 429, 5xx, 400-403")
        })
    }

    pub(super) fn contain(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }
}

fn range(part: &str) -> Option<RangeInclusive<u16>> {
    let status = |text: &str| text.trim().parse().ok().filter(|status| (100..=599).contains(status));
    if let Some(class) = part.strip_suffix("xx").or_else(|| part.strip_suffix("XX")) {
        let class: u16 = class.parse().ok().filter(|class| (1..=5).contains(class))?;
        return Some(class * 100..=class * 100 + 99);
    }
    match part.split_once('-') {
        Some((first, last)) => Some(status(first)?..=status(last)?),
        None => status(part).map(|status| status..=status),
    }
}

/// May the same request succeed later? Those statuses say so by their meaning.
pub(super) fn is_transient(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500..=599)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_classes_and_ranges_are_listed() {
        let statuses = Statuses::read(" 429, 5xx,400-403 ,").unwrap();
        for (status, listed) in
            [(429, true), (500, true), (599, true), (403, true), (404, false), (200, false)]
        {
            assert_eq!(statuses.contain(status), listed, "{status}");
        }
        assert_eq!(Statuses::read("").unwrap(), Statuses::default());
        for wrong in ["abc", "6xx", "99", "400-", "-", "xx"] {
            assert!(Statuses::read(wrong).is_err(), "{wrong}");
        }
    }
}
