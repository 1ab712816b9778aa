//! How long this machine has been up: a clock that no step touches, and that goes on while no engine
//! runs, as monotonic clocks of processes do not.

use std::fs;

/// A reading of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Uptime {
    /// Which machine, and since which start of it: readings of others cannot be compared.
    boot_id: String,
    /// Milliseconds since that start.
    at_ms: i64,
}

impl Uptime {
    /// Reads it. From memory, not from a disk: nothing that would block. `None` where the system does
    /// not tell.
    pub(super) fn read() -> Option<Self> {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        // Containers with a time of their own count from another start. Older systems know none.
        let time = fs::read_link("/proc/self/ns/time").unwrap_or_default();
        let boot_id = format!("{} {}", boot_id.trim(), time.display());
        Self::parse(boot_id, &fs::read_to_string("/proc/uptime").ok()?)
    }

    /// `SECONDS.HUNDREDTHS IDLE`
    fn parse(boot_id: String, uptime: &str) -> Option<Self> {
        let (seconds, hundredths) = uptime.split_whitespace().next()?.split_once('.')?;
        let hundredths = hundredths.parse::<i64>().ok().filter(|found| (0..100).contains(found))?;
        let at_ms = seconds.parse::<i64>().ok()?.checked_mul(1000)?.checked_add(hundredths * 10)?;
        Some(Self { boot_id, at_ms })
    }

    /// As it was stored.
    pub(super) fn stored(boot_id: Option<String>, at_ms: Option<i64>) -> Option<Self> {
        Some(Self { boot_id: boot_id?, at_ms: at_ms? })
    }

    pub(super) fn boot_id(&self) -> &str {
        &self.boot_id
    }

    pub(super) fn at_ms(&self) -> i64 {
        self.at_ms
    }

    /// How long after an earlier reading, in milliseconds; `None`: they cannot be compared.
    pub(super) fn since(&self, earlier: &Self) -> Option<i64> {
        let is_comparable = self.boot_id == earlier.boot_id && self.at_ms >= earlier.at_ms;
        is_comparable.then(|| self.at_ms.saturating_sub(earlier.at_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_of_one_start_of_a_machine_tell_what_passed_and_others_nothing() {
        let read = |uptime| Uptime::parse("a".into(), uptime).unwrap();
        let (early, late) = (read("7.05 1.00\n"), read("23316.50 8631.55"));
        assert_eq!((early.at_ms(), late.since(&early)), (7_050, Some(23_309_450)));
        assert_eq!(early.since(&late), None, "a snapshot of the machine was restored");
        assert_eq!(late.since(&Uptime { boot_id: "b".into(), ..early }), None);
    }

    #[test]
    fn what_is_no_reading_is_none() {
        for text in ["", "7", "x.05 1", "7.5x 1", "7.-5", "99999999999999999999.00"] {
            assert_eq!(Uptime::parse("a".into(), text), None, "{text:?}");
        }
    }

    #[test]
    fn this_machine_tells_it() {
        let (one, other) = (Uptime::read().unwrap(), Uptime::read().unwrap());
        assert!(other.since(&one).is_some());
    }
}
