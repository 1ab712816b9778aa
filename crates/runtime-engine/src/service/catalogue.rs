//! Which publications a new run is pinned to: the catalogue as this engine last read it. A notice
//! of a change is a hint, a poll of the revision the guarantee (protocol section 6).

use super::committer::unavailable;
use crate::core::{Graph, Pin};
use contract::{PublicationId, RpcError, manifest::ExecutorItem};
use indexmap::IndexMap;
use parking_lot::Mutex;
use queue::Notices;
use std::{collections::HashMap, sync::Arc, time::Duration};
use storage::{
    Storage,
    catalogue::{PublicationKey, Snapshot},
};
use tokio_util::sync::CancellationToken;

/// How old the engine's view of the catalogue may be, whatever happens to notices.
const POLL: Duration = Duration::from_secs(5);

/// The most publications whose declared outputs are held.
const CAPACITY: usize = 1024;

/// Declared outputs by node type.
type Declared = Arc<HashMap<String, Vec<String>>>;

#[derive(Debug)]
pub(crate) struct Catalogue {
    storage: Storage,
    snapshot: Mutex<Arc<Snapshot>>,
    declared: Mutex<HashMap<PublicationId, Declared>>,
}

impl Catalogue {
    /// Reads the catalogue.
    pub(crate) async fn start(storage: Storage) -> Result<Self, storage::Error> {
        let snapshot = Arc::new(storage.catalogue().snapshot().await?);
        Ok(Self { storage, snapshot: Mutex::new(snapshot), declared: Mutex::default() })
    }

    /// The publications that a run of the graph keeps, by node type. A node type that nobody has is
    /// left out: policy says so at dispatch.
    ///
    /// # Errors
    /// `engine_unavailable`.
    pub(crate) async fn pins(
        &self,
        graph: &Graph,
        workspace: &str,
    ) -> Result<IndexMap<String, Pin>, RpcError> {
        let node_types: Vec<&str> = graph.plugin_node_types();
        let mut snapshot = Arc::clone(&self.snapshot.lock());
        if node_types.iter().any(|name| snapshot.resolve(name, workspace).is_none()) {
            // It may have been published a moment ago.
            self.refresh().await.map_err(|error| unavailable(&error))?;
            snapshot = Arc::clone(&self.snapshot.lock());
        }
        let mut pins = IndexMap::with_capacity(node_types.len());
        for name in node_types {
            if let Some(publication_id) = snapshot.resolve(name, workspace) {
                let outputs = self.outputs(graph, name, publication_id).await?;
                pins.insert(name.to_owned(), Pin { publication_id, outputs });
            }
        }
        Ok(pins)
    }

    /// What the publication declares as the node type's outputs, when a widget needs to know.
    async fn outputs(
        &self,
        graph: &Graph,
        node_type: &str,
        publication_id: PublicationId,
    ) -> Result<Vec<String>, RpcError> {
        let mut is_needed = false;
        graph.walk(&mut |node| is_needed |= node.node_type == node_type && node.outputs.is_none());
        if !is_needed {
            return Ok(Vec::new());
        }
        let declared = self.declared(publication_id).await?;
        Ok(declared.get(node_type).cloned().unwrap_or_default())
    }

    async fn declared(&self, publication_id: PublicationId) -> Result<Declared, RpcError> {
        if let Some(declared) = self.declared.lock().get(&publication_id) {
            return Ok(Arc::clone(declared));
        }
        let key = PublicationKey::Id(publication_id);
        let stored = self.storage.catalogue().publication(key).await.map_err(|error| unavailable(&error))?;
        let items: Vec<ExecutorItem> = match stored {
            Some(stored) => stored.items.read().unwrap_or_else(|error| {
                tracing::warn!(event = "items_unreadable", %publication_id, "declared outputs are unknown: {error}");
                Vec::new()
            }),
            None => Vec::new(),
        };
        let named =
            |item: ExecutorItem| (item.node_type, item.outputs.into_iter().map(|param| param.name).collect());
        let declared: Declared = Arc::new(items.into_iter().map(named).collect());
        let mut known = self.declared.lock();
        if known.len() >= CAPACITY {
            known.clear();
        }
        known.insert(publication_id, Arc::clone(&declared));
        Ok(declared)
    }

    /// Reads the catalogue again, if it has changed.
    async fn refresh(&self) -> Result<(), storage::Error> {
        let known = Arc::clone(&self.snapshot.lock());
        if let Some(snapshot) = self.storage.catalogue().renewed(&known).await? {
            // A republication may have replaced items under their id.
            self.declared.lock().clear();
            *self.snapshot.lock() = Arc::new(snapshot);
        }
        Ok(())
    }

    /// Follows the catalogue until stopped.
    pub(crate) async fn follow(self: Arc<Self>, mut notices: Notices, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = notices.recv() => {}
                () = tokio::time::sleep(POLL) => {}
            }
            if let Err(error) = self.refresh().await {
                tracing::warn!(
                    event = "catalogue_unread",
                    "the catalogue could not be read, the last view stays: {error}"
                );
            }
        }
    }
}
