//! Compiled processes by revision. Revisions never change, so an entry is right for ever; the
//! cache is bounded by forgetting all when it is full, which costs one compilation per process.

use super::committer::unavailable;
use crate::core::Graph;
use contract::{ErrorCode, Json, ProcessId, RpcError, process::Process};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use storage::Storage;

/// The most graphs that are held.
const CAPACITY: usize = 1024;

#[derive(Debug)]
pub(crate) struct Graphs {
    storage: Storage,
    known: Mutex<HashMap<(ProcessId, i64), Arc<Graph>>>,
}

impl Graphs {
    pub(crate) fn new(storage: Storage) -> Self {
        Self { storage, known: Mutex::new(HashMap::new()) }
    }

    /// The graph of a revision.
    ///
    /// # Errors
    /// `engine_unavailable`; `not_found` for an unknown revision; `invalid_process` for one that this engine
    /// cannot run.
    pub(crate) async fn get(&self, process_id: ProcessId, revision: i64) -> Result<Arc<Graph>, RpcError> {
        let key = (process_id, revision);
        if let Some(graph) = self.known.lock().get(&key) {
            return Ok(Arc::clone(graph));
        }
        let document = self.storage.processes().revision(process_id, revision).await;
        let document = document.map_err(|error| unavailable(&error))?;
        let Some(document) = document else {
            let message = format!("revision {revision} of process {process_id} is not in the database");
            return Err(RpcError::new(ErrorCode::NotFound, message));
        };
        let graph = Arc::new(compile(&document)?);
        let mut known = self.known.lock();
        if known.len() >= CAPACITY {
            known.clear();
        }
        known.insert(key, Arc::clone(&graph));
        Ok(graph)
    }
}

fn compile(document: &Json) -> Result<Graph, RpcError> {
    let process: Process = document.read().map_err(|error| {
        RpcError::new(ErrorCode::InvalidProcess, format!("the process document cannot be read: {error}"))
    })?;
    Graph::compile(&process)
}
