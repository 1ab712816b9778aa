//! Pauses between tries: exponential with full jitter, ended by a stop.

use std::time::Duration;
use tokio_util::sync::CancellationToken;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);

/// Pauses after the try number `attempt` (from 0); `false` when `stop` came first.
pub(crate) async fn pause(attempt: u32, stop: &CancellationToken) -> bool {
    stop.run_until_cancelled(tokio::time::sleep(length(attempt, rand::random()))).await.is_some()
}

/// `random` is uniform over its type.
fn length(attempt: u32, random: u32) -> Duration {
    let longest = FIRST.saturating_mul(2u32.saturating_pow(attempt)).min(LONGEST);
    longest.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_grows_to_its_bound_and_is_random_below_it() {
        assert_eq!(length(0, u32::MAX), FIRST);
        assert_eq!(length(3, u32::MAX), FIRST * 8);
        assert_eq!(length(60, u32::MAX), LONGEST);
        assert_eq!(length(60, 0), Duration::ZERO);
    }
}
