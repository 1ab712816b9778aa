use crate::{Error, Settings, held::Held, nodes::Nodes, secrets::Secrets, take::Worker};
use plugin_sdk::reporter::{Backoff, Reporter};
use queue::{Lane, Queue, Topic};
use run_files::RunFiles;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long one wait for items takes; after it the wait begins anew.
const WAIT: Duration = Duration::from_secs(5);

/// The executor, ready and not yet running. It listens nowhere.
#[derive(Debug)]
pub struct Service {
    worker: Arc<Worker>,
    queue: Queue,
    room: Arc<Semaphore>,
    drain: Duration,
}

impl Service {
    /// Makes the executor ready.
    ///
    /// # Errors
    /// [`Error::HttpClient`] when the system lets no HTTP client be made.
    pub async fn bind(settings: Settings, queue: Queue) -> Result<Self, Error> {
        let files = RunFiles::new(&settings.files)?;
        let nodes = Nodes::new(settings.allow_private, &files)?;
        let secrets = Secrets::new(&settings.control_plane);
        let reporter = Reporter::new(settings.control_plane);
        let room = Arc::new(Semaphore::new(settings.concurrency.clamp(1, Semaphore::MAX_PERMITS)));
        let (held, heartbeat) = (Arc::new(Held::default()), settings.heartbeat);
        let worker = Arc::new(Worker { nodes, reporter, secrets, files, held, heartbeat });
        Ok(Self { worker, queue, room, drain: settings.drain })
    }

    /// Nothing: the executor listens nowhere.
    pub fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        Vec::new()
    }

    /// Works until `stop`. Then it takes no more tasks, and finishes and reports what is under way
    /// within the time to drain.
    ///
    /// # Errors
    /// [`Error::Queue`] when the queue cannot be subscribed to.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let notices = self.queue.subscribe(Topic::Steps).await?;
        // Steps are cancelled until the last of them has ended.
        tokio::select! {
            () = self.worker.held.heed(notices) => {}
            () = self.work(stop) => {}
        }
        Ok(())
    }

    async fn work(&self, stop: CancellationToken) {
        let steps = TaskTracker::new();
        let abandoned = CancellationToken::new();
        stop.run_until_cancelled(self.take_forever(&steps, &abandoned)).await;
        steps.close();
        if timeout(self.drain, steps.wait()).await.is_err() {
            tracing::error!(
                event = "steps_abandoned",
                steps = steps.len(),
                "steps were not finished and reported within the time to drain"
            );
            abandoned.cancel();
            steps.wait().await;
        }
    }

    async fn take_forever(&self, steps: &TaskTracker, abandoned: &CancellationToken) {
        let pauses = || Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
        let mut backoff = pauses();
        // The semaphore is never closed.
        while let Ok(first) = Arc::clone(&self.room).acquire_owned().await {
            // Only this loop takes room, so there is at least this much.
            let max = 1 + self.room.available_permits();
            match self.queue.take(Lane::Executor, max, WAIT).await {
                Ok(items) => {
                    backoff = pauses();
                    self.start(items, first, steps, abandoned);
                }
                Err(error) => {
                    let pause = backoff.next_pause();
                    tracing::warn!(event = "lane_take_failed", lane = %Lane::Executor, %error, "no tasks can be taken now");
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    fn start(
        &self,
        items: Vec<String>,
        first: OwnedSemaphorePermit,
        steps: &TaskTracker,
        abandoned: &CancellationToken,
    ) {
        let mut first = Some(first);
        for item in items {
            // Never more items than room was counted for; one too many would be published again.
            let Some(room) = first.take().or_else(|| Arc::clone(&self.room).try_acquire_owned().ok()) else {
                return;
            };
            let (worker, abandoned) = (Arc::clone(&self.worker), abandoned.clone());
            steps.spawn(async move {
                abandoned.run_until_cancelled(worker.handle(&item)).await;
                drop(room);
            });
        }
    }
}
