//! The catalogue in memory, as policy needs it: a notice is a hint, the poll is the guarantee
//! (protocol section 6, failure matrix row 25). Also the database's clock, which deadlines go by.

use contract::Millis;
use queue::Notices;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use storage::{Clock, Storage, catalogue::Snapshot};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

/// How old the snapshot may be.
const POLL: Duration = Duration::from_secs(5);

/// The cached catalogue.
#[derive(Debug)]
pub(crate) struct CatalogueCache {
    storage: Storage,
    current: watch::Sender<Option<Arc<Snapshot>>>,
    /// When the last successful refresh began: whoever asked before it needs no other.
    refreshed: Mutex<Option<Instant>>,
    clock: Clock,
}

impl CatalogueCache {
    pub(crate) fn new(storage: Storage) -> Self {
        Self {
            clock: Clock::new(storage.clone()),
            storage,
            current: watch::Sender::new(None),
            refreshed: Mutex::new(None),
        }
    }

    /// The snapshot in memory; `None` until it was loaded for the first time.
    pub(crate) fn current(&self) -> Option<Arc<Snapshot>> {
        self.current.borrow().clone()
    }

    /// Waits until the catalogue is loaded.
    pub(super) async fn loaded(&self) {
        // The sender is in `self`, so it is not gone.
        let _ = self.current.subscribe().wait_for(Option::is_some).await;
    }

    /// The time by the database's clock, as of the last look at it.
    pub(super) fn now(&self) -> Millis {
        self.clock.now()
    }

    /// A snapshot no older than this call. Callers at the same time share one query, and the
    /// catalogue is read only when its revision has moved.
    pub(super) async fn refresh(&self) -> Result<Arc<Snapshot>, storage::Error> {
        let asked = Instant::now();
        let mut refreshed = self.refreshed.lock().await;
        let current = self.current();
        if let Some(current) = &current
            && refreshed.is_some_and(|began| began >= asked)
        {
            return Ok(Arc::clone(current));
        }
        let began = Instant::now();
        let catalogue = self.storage.catalogue();
        let newer = match &current {
            None => catalogue.snapshot().await?,
            Some(known) => match catalogue.renewed(known).await? {
                Some(newer) => newer,
                None => {
                    *refreshed = Some(began);
                    return Ok(Arc::clone(known));
                }
            },
        };
        tracing::debug!(event = "catalogue_loaded", revision = newer.revision, "catalogue loaded");
        let snapshot = Arc::new(newer);
        self.current.send_replace(Some(Arc::clone(&snapshot)));
        *refreshed = Some(began);
        Ok(snapshot)
    }

    /// Keeps snapshot and clock fresh until `stop`.
    pub(crate) async fn follow(&self, mut notices: Notices, stop: CancellationToken) {
        loop {
            let fresh = async {
                self.clock.refresh().await?;
                self.refresh().await
            };
            match stop.run_until_cancelled(fresh).await {
                Some(Ok(_)) => {}
                Some(Err(error)) => tracing::warn!(
                    event = "catalogue_unreadable",
                    error = %error,
                    "the catalogue cannot be read now; dispatch goes on with what is in memory"
                ),
                None => return,
            }
            tokio::select! {
                _ = notices.recv() => {}
                () = tokio::time::sleep(POLL) => {}
                () = stop.cancelled() => return,
            }
        }
    }
}
