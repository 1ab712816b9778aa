//! One publication of a plugin at a time within this process. Across replicas the store decides.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};
use tokio::sync::OwnedMutexGuard;

/// Locks by key, made when wanted and forgotten when free.
#[derive(Debug, Default)]
pub(crate) struct KeyedLocks(Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>);

impl KeyedLocks {
    /// Waits for the key's turn. Waiters are served in the order of their coming.
    pub(crate) async fn lock(&self, key: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock();
            locks.retain(|_, lock| lock.strong_count() > 0);
            match locks.get(key).and_then(Weak::upgrade) {
                Some(lock) => lock,
                None => {
                    let lock = Arc::new(tokio::sync::Mutex::new(()));
                    locks.insert(key.to_owned(), Arc::downgrade(&lock));
                    lock
                }
            }
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn one_key_is_held_once_and_other_keys_are_free() {
        let locks = KeyedLocks::default();
        let held = locks.lock("a").await;
        assert!(locks.lock("a").now_or_never().is_none());
        assert!(locks.lock("b").now_or_never().is_some());
        drop(held);
        assert!(locks.lock("a").now_or_never().is_some());
    }

    #[tokio::test]
    async fn free_locks_are_forgotten() {
        let locks = KeyedLocks::default();
        for key in ["a", "b", "c"] {
            drop(locks.lock(key).await);
        }
        let _held = locks.lock("d").await;
        assert_eq!(locks.0.lock().len(), 1);
    }
}
