//! Taking items: pop without blocking, wait for a wake-up, pop again.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::keys::Channel;
use super::{End, Shared};
use crate::backoff::Backoff;
use crate::{Error, Lane};

/// How long a waiting taker relies on wake-ups before it looks for itself.
const POLL: Duration = Duration::from_secs(1);

/// How many items one pop fetches at most.
const MAX_POP: usize = 1000;

impl Shared {
    pub(crate) async fn take(
        self: &Arc<Self>,
        lane: Lane,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<String>, Error> {
        if max == 0 {
            return Ok(Vec::new());
        }
        self.hub.want(Channel::Wake(lane));
        let start = Instant::now();
        let mut backoff = Backoff::new();
        loop {
            let outcome = self.pop_or_give_back(lane, max).await;
            let pause = match &outcome {
                Ok(items) if items.is_empty() => {
                    backoff.reset();
                    POLL
                }
                Err(error) if error.is_retryable() => backoff.next_pause(),
                _ => return outcome,
            };
            let left = wait.saturating_sub(start.elapsed());
            if left.is_zero() {
                return outcome;
            }
            tokio::select! {
                () = self.hub.wake(lane).notified() => {}
                () = sleep_until(Instant::now() + pause.min(left)) => {}
            }
        }
    }

    /// Pops in a task of its own, so that the answer of Redis is received also when the caller has
    /// gone; then the items go back.
    async fn pop_or_give_back(self: &Arc<Self>, lane: Lane, max: usize) -> Result<Vec<String>, Error> {
        let (sender, receiver) = oneshot::channel();
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let taken = shared.pop(lane, max).await.map(|items| Taken { items, lane, shared });
            // A caller that has gone leaves `taken` to be dropped here, or in the channel.
            let _ = sender.send(taken);
        });
        match receiver.await {
            Ok(taken) => taken.map(Taken::keep),
            // The runtime is shutting down and has dropped the task.
            Err(gone) => Err(Error::Unavailable { operation: "take", source: Box::new(gone) }),
        }
    }

    async fn pop(&self, lane: Lane, max: usize) -> Result<Vec<String>, Error> {
        let key = self.keys.lane(lane);
        let mut pipeline = redis::pipe();
        pipeline.cmd("LPOP").arg(&key).arg(max.min(MAX_POP)).cmd("LLEN").arg(&key);
        let pipeline = &pipeline;
        let (popped, left): (Option<Vec<Vec<u8>>>, u64) = self
            .call("take", |mut connection| async move { pipeline.query_async(&mut connection).await })
            .await?;
        // Pushes that came together left one permit: each taker passes it on while there is more.
        if left > 0 {
            self.hub.wake(lane).notify_one();
        }
        Ok(popped.unwrap_or_default().into_iter().filter_map(|item| readable(lane, item)).collect())
    }
}

/// What is no text was not pushed by us; the lane goes on without it.
fn readable(lane: Lane, item: Vec<u8>) -> Option<String> {
    String::from_utf8(item)
        .inspect_err(
            |_| tracing::warn!(event = "queue.foreign_item", %lane, "dropped an item that is no UTF-8"),
        )
        .ok()
}

/// Items between Redis and the caller: those that nobody [keeps](Taken::keep) go back to the head
/// of their lane.
struct Taken {
    items: Vec<String>,
    lane: Lane,
    shared: Arc<Shared>,
}

impl Taken {
    fn keep(mut self) -> Vec<String> {
        std::mem::take(&mut self.items)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.items.is_empty() {
            return;
        }
        let (items, lane, shared) = (std::mem::take(&mut self.items), self.lane, Arc::clone(&self.shared));
        // Without a runtime the process is ending; the sweep publishes the items again.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                // Backwards, because each is put before the one before it.
                if let Err(error) = shared.add("give back", lane, End::Head, items.iter().rev()).await {
                    tracing::warn!(event = "queue.give_back_failed", %lane, items = items.len(), %error,
                        "could not give items back; they are published again later");
                }
            });
        }
    }
}
