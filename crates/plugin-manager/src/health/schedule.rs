//! When each plugin is probed: every plugin has its own phase in the interval, the same on every
//! replica and after every restart, so that probes never come all at once (failure matrix row 34).
//! Pure.

use contract::Millis;
use sha2::{Digest, Sha256};
use std::time::Duration;

/// The plugin's place in the interval, in milliseconds.
fn phase(plugin_id: &str, interval_ms: i64) -> i64 {
    let hash = Sha256::digest(plugin_id.as_bytes());
    let head = hash.iter().take(7).fold(0_i64, |value, byte| value << 8 | i64::from(*byte));
    head % interval_ms
}

/// The plugin's first slot after `now`. The first round is spread like every other one.
pub(crate) fn next_slot(plugin_id: &str, now: Millis, interval: Duration) -> Millis {
    let interval_ms = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX).max(1);
    let into_round = (now.0 - phase(plugin_id, interval_ms)).rem_euclid(interval_ms);
    Millis(now.0.saturating_add(interval_ms - into_round))
}

/// The random delay of a probe, for a `draw` from 0 to 1.
pub(crate) fn jitter(interval: Duration, ratio: f64, draw: f64) -> Duration {
    interval.mul_f64((ratio * draw).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(15);

    #[test]
    fn slots_of_a_plugin_are_one_interval_apart() {
        let first = next_slot("jira", Millis(1_000_000), INTERVAL);
        assert!(first > Millis(1_000_000) && first <= Millis(1_015_000));
        assert_eq!(next_slot("jira", first, INTERVAL), Millis(first.0 + 15_000));
        assert_eq!(next_slot("jira", Millis(first.0 - 1), INTERVAL), first);
    }

    #[test]
    fn the_phase_is_the_plugins_own_and_the_first_round_is_spread() {
        let slots: std::collections::BTreeSet<_> = (0..100)
            .map(|index| next_slot(&format!("plugin-{index}"), Millis(0), INTERVAL).0 / 1_000)
            .collect();
        assert!(slots.len() >= 12, "100 plugins fall into {} of 15 seconds", slots.len());
    }

    #[test]
    fn jitter_is_a_part_of_the_interval() {
        assert_eq!(jitter(INTERVAL, 0.2, 0.0), Duration::ZERO);
        assert_eq!(jitter(INTERVAL, 0.2, 1.0), Duration::from_secs(3));
        assert_eq!(jitter(INTERVAL, 0.0, 1.0), Duration::ZERO);
    }
}
