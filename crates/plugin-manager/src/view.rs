//! The catalogue in memory: one snapshot that all calls share, renewed by commits of this process,
//! by notices of others, and by polling, which is the guarantee (failure matrix row 25).

use contract::RpcError;
use queue::{Queue, Topic};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use storage::{Catalogue, catalogue::Snapshot};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

/// How stale the snapshot may be when every notice is lost. One poll is a query of one row.
const POLL: Duration = Duration::from_secs(1);

type Loaded = Result<Arc<Snapshot>, RpcError>;

/// The shared snapshot.
#[derive(Debug)]
pub(crate) struct View {
    catalogue: Catalogue,
    queue: Queue,
    snapshot: watch::Sender<Arc<Snapshot>>,
    /// How many looks at the database have begun.
    begun: AtomicU64,
    /// The last look that ended; held while one is under way. One that was abandoned leaves no trace.
    last: Mutex<Look>,
}

/// What a look at the database found.
#[derive(Debug)]
struct Look {
    number: u64,
    found: Loaded,
}

impl View {
    /// Loads the catalogue.
    pub(crate) async fn open(catalogue: Catalogue, queue: Queue) -> Result<Self, storage::Error> {
        let snapshot = Arc::new(catalogue.snapshot().await?);
        Ok(Self {
            catalogue,
            queue,
            snapshot: watch::Sender::new(Arc::clone(&snapshot)),
            begun: AtomicU64::new(0),
            last: Mutex::new(Look { number: 0, found: Ok(snapshot) }),
        })
    }

    /// The snapshot as it is known now.
    pub(crate) fn current(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.borrow())
    }

    /// Tells of each newer snapshot.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshot.subscribe()
    }

    /// A snapshot that was true after this call began. Callers that come together share one look.
    pub(crate) async fn fresh(&self) -> Loaded {
        let begun_before = self.begun.load(Ordering::Acquire);
        let mut last = self.last.lock().await;
        if last.number <= begun_before {
            let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
            let found = self.load().await.map_err(|error| error.to_rpc());
            *last = Look { number, found };
        }
        last.found.clone()
    }

    async fn load(&self) -> Result<Arc<Snapshot>, storage::Error> {
        let known = self.current();
        let Some(snapshot) = self.catalogue.renewed(&known).await? else { return Ok(known) };
        let snapshot = Arc::new(snapshot);
        self.snapshot.send_replace(Arc::clone(&snapshot));
        Ok(snapshot)
    }

    /// Makes a change of this process seen here at once and elsewhere soon. Failures are logged
    /// only: the change is stored, and everyone polls.
    pub(crate) async fn announce(&self, revision: i64) {
        if let Err(error) = self.fresh().await {
            tracing::warn!(
                event = "catalogue_unreadable",
                revision,
                error = %error,
                "the changed catalogue could not be read again"
            );
        }
        if let Err(error) = self.queue.notify(Topic::Catalogue, &revision.to_string()).await {
            tracing::warn!(
                event = "catalogue_notice_failed",
                revision,
                error = %error,
                "others will see the change when they poll"
            );
        }
    }

    /// Keeps the snapshot fresh until `stop`.
    pub(crate) async fn run(&self, mut notices: queue::Notices, stop: CancellationToken) {
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut failing = false;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = notices.recv() => {}
                _ = poll.tick() => {}
            }
            let result = self.fresh().await;
            match &result {
                Err(error) if !failing => {
                    tracing::warn!(
                        event = "catalogue_unreadable",
                        error = %error,
                        "the catalogue cannot be read; answers come from the last known one"
                    );
                }
                Ok(_) if failing => {
                    tracing::info!(event = "catalogue_readable", "the catalogue can be read again");
                }
                _ => {}
            }
            failing = result.is_err();
        }
    }
}
