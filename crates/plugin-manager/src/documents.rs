//! Manifests and items in memory. A publication's documents never change under its digest, so what
//! was read once is right for good; readers that come together cost one query.

use crate::metrics::Metrics;
use contract::{Digest, ErrorCode, PublicationId, RpcError};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use storage::{
    Catalogue,
    catalogue::{PublicationKey, PublicationRow, StoredPublication},
};
use tokio::sync::OnceCell;

/// Bytes of text that are kept; what was not used for longest goes first.
const MAX_BYTES: usize = 64 * 1024 * 1024;

type Key = (PublicationId, Digest);

/// The cache.
#[derive(Debug)]
pub(crate) struct Documents {
    catalogue: Catalogue,
    metrics: Arc<Metrics>,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<Key, Entry>,
    uses: u64,
}

#[derive(Debug, Default)]
struct Entry {
    cell: Arc<OnceCell<Arc<StoredPublication>>>,
    used: u64,
}

impl Documents {
    pub(crate) fn new(catalogue: Catalogue, metrics: Arc<Metrics>) -> Self {
        Self { catalogue, metrics, entries: Mutex::default() }
    }

    /// The documents of a publication that the snapshot names.
    ///
    /// # Errors
    /// `unavailable` when the database is away, `conflict` (retryable) when the publication was
    /// replaced at this moment.
    pub(crate) async fn of(&self, row: &PublicationRow) -> Result<Arc<StoredPublication>, RpcError> {
        let key = (row.publication_id, row.digest);
        let cell = self.entries.lock().touch(key);
        let result = cell.get_or_try_init(|| self.load(key)).await.cloned();
        let mut entries = self.entries.lock();
        match result {
            Ok(_) => entries.shrink(MAX_BYTES),
            Err(_) => entries.forget_empty(key),
        }
        result
    }

    async fn load(&self, (publication_id, digest): Key) -> Result<Arc<StoredPublication>, RpcError> {
        self.metrics.hand_out_loaded();
        let stored = self.catalogue.publication(PublicationKey::Id(publication_id)).await;
        match stored.map_err(|error| error.to_rpc())? {
            Some(stored) if stored.digest == digest => Ok(Arc::new(stored)),
            _ => {
                let message = format!("publication {publication_id} was replaced at this moment; ask again");
                let mut error = RpcError::new(ErrorCode::Conflict, message);
                error.retryable = true;
                Err(error)
            }
        }
    }
}

impl Entries {
    fn touch(&mut self, key: Key) -> Arc<OnceCell<Arc<StoredPublication>>> {
        self.uses += 1;
        let entry = self.by_key.entry(key).or_default();
        entry.used = self.uses;
        Arc::clone(&entry.cell)
    }

    fn forget_empty(&mut self, key: Key) {
        if self.by_key.get(&key).is_some_and(|entry| entry.cell.get().is_none()) {
            self.by_key.remove(&key);
        }
    }

    fn shrink(&mut self, max_bytes: usize) {
        let mut bytes: usize = self.by_key.values().map(Entry::bytes).sum();
        while bytes > max_bytes && self.by_key.len() > 1 {
            let oldest = self.by_key.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key);
            let Some(entry) = oldest.and_then(|key| self.by_key.remove(&key)) else { return };
            bytes -= entry.bytes();
        }
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        self.cell.get().map_or(0, |stored| stored.manifest.text().len() + stored.items.text().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{Json, Millis};
    use uuid::Uuid;

    fn stored(id: PublicationId, bytes: usize) -> Arc<StoredPublication> {
        Arc::new(StoredPublication {
            publication_id: id,
            plugin_id: "p".into(),
            version: "1".into(),
            digest: Digest([0; 32]),
            published_at: Millis(0),
            manifest: Json::of(&"x".repeat(bytes)).unwrap(),
            items: Json::null(),
            assets: Vec::new(),
            seal: storage::catalogue::Seal::default(),
        })
    }

    #[test]
    fn what_was_not_used_for_longest_is_forgotten_first() {
        let mut entries = Entries::default();
        let ids = [1, 2, 3].map(|n| PublicationId(Uuid::from_u128(n)));
        for id in ids {
            entries.touch((id, Digest([0; 32]))).set(stored(id, 100)).unwrap();
        }
        entries.touch((ids[0], Digest([0; 32])));
        entries.shrink(250);
        let kept = |id: PublicationId| entries.by_key.contains_key(&(id, Digest([0; 32])));
        assert!(kept(ids[0]) && !kept(ids[1]) && kept(ids[2]));
    }
}
