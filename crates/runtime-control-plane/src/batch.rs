//! Batches inside, single items outside: whoever submits waits for the answer to its own item, while
//! items that arrive during a call are put into the next one. When nothing is under way an item goes
//! out at once; there is no added wait.

use std::{future::Future, sync::Arc};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Bounds of a batcher.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimits {
    /// Items of one batch.
    pub(crate) items: usize,
    /// Bytes of one batch, by the sizes that submitters name; a larger item goes alone.
    pub(crate) bytes: usize,
    /// Batches under way at once.
    pub(crate) pipelined: usize,
    /// Items that wait; more submitters wait for room.
    pub(crate) waiting: usize,
}

struct Entry<T, R> {
    item: T,
    bytes: usize,
    answer: oneshot::Sender<R>,
}

/// Collects items into batches.
#[derive(Debug)]
pub(crate) struct Batcher<T, R> {
    entries: mpsc::Sender<Entry<T, R>>,
}

impl<T: Send + 'static, R: Send + 'static> Batcher<T, R> {
    /// Starts a batcher whose batches go to `send`, which answers item by item in order. It ends
    /// with the last submitter.
    pub(crate) fn start<F, Sending>(limits: BatchLimits, send: F) -> Self
    where
        F: Fn(Vec<T>) -> Sending + Send + Sync + 'static,
        Sending: Future<Output = Vec<R>> + Send + 'static,
    {
        let (entries, waiting) = mpsc::channel(limits.waiting.max(1));
        tokio::spawn(run(limits, waiting, Arc::new(send)));
        Self { entries }
    }

    /// The answer to `item`; `None` when its batch ended without one.
    pub(crate) async fn submit(&self, item: T, bytes: usize) -> Option<R> {
        let (answer, answered) = oneshot::channel();
        self.entries.send(Entry { item, bytes, answer }).await.ok()?;
        answered.await.ok()
    }
}

async fn run<T, R, F, Sending>(limits: BatchLimits, mut waiting: mpsc::Receiver<Entry<T, R>>, send: Arc<F>)
where
    T: Send + 'static,
    R: Send + 'static,
    F: Fn(Vec<T>) -> Sending + Send + Sync + 'static,
    Sending: Future<Output = Vec<R>> + Send + 'static,
{
    let pipeline = Arc::new(Semaphore::new(limits.pipelined.max(1)));
    let mut left_over = None;
    loop {
        // First the permit, then the items: all that arrives meanwhile belongs to this batch.
        let Ok(permit) = Arc::clone(&pipeline).acquire_owned().await else { return };
        let first = match left_over.take() {
            Some(entry) => entry,
            None => match waiting.recv().await {
                Some(entry) => entry,
                None => return,
            },
        };
        let batch = gather(limits, first, &mut waiting, &mut left_over);
        if batch.is_empty() {
            continue;
        }
        let send = Arc::clone(&send);
        tokio::spawn(async move {
            let (items, answers): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|entry| (entry.item, entry.answer)).unzip();
            for (answer, result) in answers.into_iter().zip(send(items).await) {
                // Who no longer waits needs no answer.
                let _ = answer.send(result);
            }
            drop(permit);
        });
    }
}

/// What has arrived, as far as one batch holds it; without items that nobody waits for any more.
fn gather<T, R>(
    limits: BatchLimits,
    first: Entry<T, R>,
    waiting: &mut mpsc::Receiver<Entry<T, R>>,
    left_over: &mut Option<Entry<T, R>>,
) -> Vec<Entry<T, R>> {
    let mut bytes = first.bytes;
    let mut batch = vec![first];
    while batch.len() < limits.items
        && let Ok(entry) = waiting.try_recv()
    {
        if bytes.saturating_add(entry.bytes) > limits.bytes {
            *left_over = Some(entry);
            break;
        }
        bytes += entry.bytes;
        batch.push(entry);
    }
    batch.retain(|entry| !entry.answer.is_closed());
    batch
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::Notify;

    const LIMITS: BatchLimits = BatchLimits { items: 3, bytes: 100, pipelined: 1, waiting: 16 };

    /// A batcher that answers each item with the size of its batch, once `go` is notified per batch.
    fn gated(limits: BatchLimits) -> (Arc<Batcher<u32, usize>>, Arc<Notify>, Arc<Notify>) {
        let (go, began) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let gate = (Arc::clone(&go), Arc::clone(&began));
        let batcher = Batcher::start(limits, move |items: Vec<u32>| {
            let (go, began) = gate.clone();
            async move {
                began.notify_one();
                go.notified().await;
                vec![items.len(); items.len()]
            }
        });
        (Arc::new(batcher), go, began)
    }

    async fn submitted(
        batcher: &Arc<Batcher<u32, usize>>,
        bytes: &[usize],
    ) -> Vec<tokio::task::JoinHandle<Option<usize>>> {
        let mut tasks = Vec::new();
        for bytes in bytes.iter().copied() {
            let batcher = Arc::clone(batcher);
            tasks.push(tokio::spawn(async move { batcher.submit(0, bytes).await }));
            tokio::task::yield_now().await;
        }
        tasks
    }

    #[tokio::test]
    async fn what_arrives_during_a_call_goes_into_the_next() {
        let (batcher, go, began) = gated(LIMITS);
        let first = submitted(&batcher, &[1]).await;
        began.notified().await;
        let rest = submitted(&batcher, &[1, 1, 1, 1]).await;
        go.notify_one();
        began.notified().await;
        go.notify_one();
        began.notified().await;
        go.notify_one();
        let mut sizes = Vec::new();
        for task in first.into_iter().chain(rest) {
            sizes.push(task.await.unwrap().unwrap());
        }
        assert_eq!(sizes, [1, 3, 3, 3, 1]);
    }

    #[tokio::test]
    async fn batch_is_bounded_in_bytes_and_a_large_item_goes_alone() {
        let (batcher, go, began) = gated(LIMITS);
        let first = submitted(&batcher, &[1]).await;
        began.notified().await;
        let rest = submitted(&batcher, &[60, 60, 500]).await;
        for _ in 0..3 {
            go.notify_one();
            began.notified().await;
        }
        go.notify_one();
        let mut sizes = Vec::new();
        for task in first.into_iter().chain(rest) {
            sizes.push(task.await.unwrap().unwrap());
        }
        assert_eq!(sizes, [1, 1, 1, 1]);
    }

    /// In a runtime without timers whoever would wait for one panics.
    #[test]
    fn idle_batcher_sends_at_once_and_waits_for_no_timer() {
        let without_timers = tokio::runtime::Builder::new_current_thread().build().unwrap();
        without_timers.block_on(async {
            let batcher = Batcher::start(LIMITS, |items: Vec<u32>| async move { items });
            for item in 0..100 {
                assert_eq!(batcher.submit(item, 1).await, Some(item));
            }
        });
    }

    #[tokio::test]
    async fn next_batch_goes_out_while_the_first_is_under_way() {
        let (batcher, go, began) = gated(BatchLimits { pipelined: 2, ..LIMITS });
        let first = submitted(&batcher, &[1]).await;
        began.notified().await;
        let second = submitted(&batcher, &[1]).await;
        began.notified().await;
        go.notify_one();
        go.notify_one();
        for task in first.into_iter().chain(second) {
            assert_eq!(task.await.unwrap(), Some(1));
        }
    }

    #[tokio::test]
    async fn missing_answer_is_none_and_the_batcher_goes_on() {
        let batcher = Batcher::start(LIMITS, |items: Vec<bool>| async move {
            items.into_iter().take_while(|answer| *answer).collect::<Vec<_>>()
        });
        assert_eq!(batcher.submit(false, 1).await, None);
        assert_eq!(batcher.submit(true, 1).await, Some(true));
    }
}
