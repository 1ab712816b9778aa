//! How much of the database's time a part of a sweep may take.

use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Transactions of one part of a sweep.
const TRANSACTIONS: u32 = 500;

/// The shortest pause between two transactions.
const PAUSE: Duration = Duration::from_millis(5);

/// Counts transactions and paces them.
#[derive(Debug)]
pub(super) struct Budget<'s> {
    left: u32,
    began: Instant,
    stop: &'s CancellationToken,
}

impl<'s> Budget<'s> {
    pub(super) fn new(stop: &'s CancellationToken) -> Self {
        Self { left: TRANSACTIONS, began: Instant::now(), stop }
    }

    /// After a transaction: waits as long as it took, and tells whether there may be another.
    pub(super) async fn goes_on(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            return false;
        }
        let pause = tokio::time::sleep(pause_after(self.began.elapsed()));
        let goes_on = self.stop.run_until_cancelled(pause).await.is_some();
        self.began = Instant::now();
        goes_on
    }
}

/// So long the database has time for others.
fn pause_after(transaction: Duration) -> Duration {
    transaction.max(PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_of_a_sweep_has_a_last_transaction() {
        let stop = CancellationToken::new();
        let mut budget = Budget { left: 3, ..Budget::new(&stop) };
        let goes_on = [budget.goes_on().await, budget.goes_on().await, budget.goes_on().await];
        assert_eq!(goes_on, [true, true, false]);
    }

    #[test]
    fn the_pause_is_as_long_as_the_transaction_and_never_none() {
        assert_eq!(pause_after(Duration::from_millis(70)), Duration::from_millis(70));
        assert_eq!(pause_after(Duration::ZERO), PAUSE);
    }

    #[tokio::test]
    async fn a_stop_ends_the_pause_and_the_sweep() {
        let stop = CancellationToken::new();
        stop.cancel();
        assert!(!Budget::new(&stop).goes_on().await);
    }
}
