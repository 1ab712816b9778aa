//! The bytes that all connections of a server hold together: unparsed input, payloads of requests in
//! work, replies not yet written.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

/// Each connection holds this much without being charged: while large frames exhaust the budget,
/// peers with small messages go on.
const FREE_BYTES: i64 = 16 * 1024;

/// The budget of a server.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: i64,
    used: AtomicI64,
}

/// The budget does not suffice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all connections together would hold {actual} bytes, the limit is {limit}; try again later")]
pub(crate) struct Exceeded {
    pub(crate) limit: i64,
    pub(crate) actual: i64,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit: signed(limit), used: AtomicI64::new(0) })
    }

    /// Bytes charged now.
    pub(crate) fn used(&self) -> u64 {
        u64::try_from(self.used.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

/// What one connection holds of the budget.
#[derive(Debug)]
pub(crate) struct Account {
    budget: Arc<Budget>,
    held: AtomicI64,
}

impl Account {
    pub(crate) fn new(budget: Arc<Budget>) -> Arc<Self> {
        Arc::new(Self { budget, held: AtomicI64::new(0) })
    }

    /// Takes `bytes`, or nothing when the budget does not suffice.
    pub(crate) fn charge(&self, bytes: usize) -> Result<(), Exceeded> {
        let actual = self.shift(signed(bytes));
        if actual > self.budget.limit {
            self.release(bytes);
            return Err(Exceeded { limit: self.budget.limit, actual });
        }
        Ok(())
    }

    /// Gives `bytes` back.
    pub(crate) fn release(&self, bytes: usize) {
        self.shift(-signed(bytes));
    }

    /// Takes `bytes` until the guard is dropped.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Result<Held, Exceeded> {
        self.charge(bytes)?;
        Ok(Held { account: Arc::clone(self), bytes })
    }

    /// Moves what is held, and the budget by what lies over the free part; what the budget would
    /// be, or zero when it is not touched. Concurrent moves telescope, so the sum stays right; the
    /// counters are signed because a release may reach the budget before its charge does.
    fn shift(&self, bytes: i64) -> i64 {
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        match over_free(before + bytes) - over_free(before) {
            0 => 0,
            delta => self.budget.used.fetch_add(delta, Ordering::Relaxed) + delta,
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let held = *self.held.get_mut();
        self.shift(-held);
    }
}

/// A part of the budget, given back on drop.
#[derive(Debug)]
pub(crate) struct Held {
    account: Arc<Account>,
    bytes: usize,
}

impl Held {
    /// Changes the size; on error it is unchanged.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), Exceeded> {
        if bytes > self.bytes {
            self.account.charge(bytes - self.bytes)?;
        } else {
            self.account.release(self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.account.release(self.bytes);
    }
}

fn over_free(held: i64) -> i64 {
    (held - FREE_BYTES).max(0)
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_holdings_are_free_and_large_ones_come_back() {
        let budget = Budget::new(100);
        let account = Account::new(Arc::clone(&budget));
        let held = account.hold(16 * 1024).unwrap();
        assert_eq!(budget.used(), 0);
        let more = account.hold(100).unwrap();
        assert_eq!(budget.used(), 100);
        assert_eq!(account.hold(1).unwrap_err(), Exceeded { limit: 100, actual: 101 });
        drop((held, more));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn closed_connection_gives_everything_back() {
        let budget = Budget::new(100_000);
        let account = Account::new(Arc::clone(&budget));
        account.charge(50_000).unwrap();
        assert!(budget.used() > 0);
        drop(account);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn holding_is_resized() {
        let budget = Budget::new(100_000);
        let account = Account::new(Arc::clone(&budget));
        let mut held = account.hold(0).unwrap();
        held.resize(16 * 1024 + 7).unwrap();
        assert_eq!(budget.used(), 7);
        assert!(held.resize(1 << 20).is_err());
        held.resize(1).unwrap();
        assert_eq!(budget.used(), 0);
    }
}
