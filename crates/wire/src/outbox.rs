//! The write side of a connection: a queue bounded in bytes that never blocks who fills it, and one
//! task that empties it in few writes. Reading never waits for it (a peer that has stopped reading
//! because its own output is full would wait for ever).

use crate::{
    budget::{Account, Exceeded},
    codec::Frame,
    halves::WriteHalf,
};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{
    sync::{Notify, watch},
    task::yield_now,
};
use tokio_util::sync::CancellationToken;

/// Frames below this size are gathered into one buffer; larger ones are not copied, nor are secret ones.
const GATHER_BYTES: usize = 16 * 1024;

/// Why a frame was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushError {
    /// The connection is closing.
    Closed,
    /// The queue would hold `actual` bytes.
    Full {
        /// Most bytes.
        limit: u64,
        /// Bytes there would be.
        actual: u64,
    },
    /// The server's budget does not suffice.
    OverBudget(Exceeded),
}

#[derive(Debug, Default)]
struct Queue {
    chunks: VecDeque<Bytes>,
    /// The last chunk, still growing.
    tail: BytesMut,
    closed: bool,
}

/// The queue. Its `failed` token ends both sides of the connection.
#[derive(Debug)]
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    /// Something to write, or the end of it.
    wake: Notify,
    /// Bytes queued since the beginning; changed only with the queue locked.
    pushed: AtomicU64,
    /// Bytes written since the beginning.
    written: watch::Sender<u64>,
    limit: u64,
    account: Option<Arc<Account>>,
    failed: CancellationToken,
}

impl Outbox {
    /// A queue of at most `limit` bytes (or one frame), charged to `account`.
    pub(crate) fn new(limit: usize, account: Option<Arc<Account>>) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::default(),
            wake: Notify::new(),
            pushed: AtomicU64::new(0),
            written: watch::Sender::new(0),
            limit: limit as u64,
            account,
            failed: CancellationToken::new(),
        })
    }

    /// Queues a frame. The result is the position in the stream at which it ends, see
    /// [`Self::has_written`].
    pub(crate) fn push(&self, frame: impl Into<Frame>) -> Result<u64, PushError> {
        let Frame { bytes: frame, is_secret } = frame.into();
        let mut queue = self.queue.lock();
        if queue.closed || self.failed.is_cancelled() {
            return Err(PushError::Closed);
        }
        let size = frame.len() as u64;
        let waiting = self.waiting(*self.written.borrow());
        if waiting > 0 && waiting + size > self.limit {
            return Err(PushError::Full { limit: self.limit, actual: waiting + size });
        }
        if let Some(account) = &self.account {
            account.charge(frame.len()).map_err(PushError::OverBudget)?;
        }
        if frame.len() < GATHER_BYTES && !is_secret {
            queue.tail.extend_from_slice(&frame);
        } else {
            let tail = std::mem::take(&mut queue.tail);
            queue.chunks.extend([tail.freeze(), frame]);
        }
        let end = self.pushed.fetch_add(size, Ordering::Relaxed) + size;
        drop(queue);
        self.wake.notify_one();
        Ok(end)
    }

    /// Bytes queued and not written. Does not lock the queue: `push` looks at `written` with the
    /// queue locked, and who looks at `written` must not want the queue.
    fn waiting(&self, written: u64) -> u64 {
        self.pushed.load(Ordering::Relaxed).saturating_sub(written)
    }

    /// Was everything up to the position `end` handed to the socket?
    pub(crate) fn has_written(&self, end: u64) -> bool {
        *self.written.borrow() >= end
    }

    /// Waits until everything up to `end` was handed to the socket; `false` when the connection
    /// broke before.
    pub(crate) async fn flushed(&self, end: u64) -> bool {
        self.progress(|written| written >= end).await
    }

    /// Waits until the queue is at most half full; `false` when the connection broke. Producers of
    /// many frames wait here instead of overflowing the queue.
    pub(crate) async fn room(&self) -> bool {
        self.progress(|written| self.waiting(written) <= self.limit / 2).await
    }

    async fn progress(&self, enough: impl Fn(u64) -> bool) -> bool {
        if enough(*self.written.borrow()) {
            return true;
        }
        let mut written = self.written.subscribe();
        tokio::select! {
            reached = written.wait_for(|written| enough(*written)) => reached.is_ok(),
            () = self.failed.cancelled() => enough(*self.written.borrow()),
        }
    }

    /// Takes no more frames; the writer ends after those that are queued.
    pub(crate) fn close(&self) {
        self.queue.lock().closed = true;
        self.wake.notify_one();
    }

    /// Ends the connection now.
    pub(crate) fn fail(&self) {
        self.failed.cancel();
    }

    /// Has the connection ended?
    pub(crate) fn is_failed(&self) -> bool {
        self.failed.is_cancelled()
    }

    /// Waits until the connection has ended.
    pub(crate) async fn failed(&self) {
        self.failed.cancelled().await;
    }

    /// Everything that is queued; `None` at the end.
    async fn take(&self) -> Option<VecDeque<Bytes>> {
        loop {
            {
                let mut queue = self.queue.lock();
                let mut chunks = std::mem::take(&mut queue.chunks);
                let tail = std::mem::take(&mut queue.tail);
                if !tail.is_empty() {
                    chunks.push_back(tail.freeze());
                }
                if !chunks.is_empty() {
                    return Some(chunks);
                }
                if queue.closed {
                    return None;
                }
            }
            self.wake.notified().await;
            // Whoever is ready to run may have something to say too: one write carries it all.
            yield_now().await;
        }
    }

    fn wrote(&self, bytes: usize) {
        self.written.send_modify(|written| *written += bytes as u64);
        if let Some(account) = &self.account {
            account.release(bytes);
        }
    }

    /// The writer's task: empties the queue until it is closed (then the write side is shut down)
    /// or the connection fails.
    pub(crate) async fn write_to(self: Arc<Self>, mut socket: WriteHalf) {
        let result = self.failed.run_until_cancelled(self.pump(&mut socket)).await;
        if !matches!(result, Some(Ok(()))) {
            self.fail();
        }
    }

    async fn pump(&self, socket: &mut WriteHalf) -> io::Result<()> {
        while let Some(chunks) = self.take().await {
            for mut chunk in chunks {
                while !chunk.is_empty() {
                    // Each partial write is counted: a frame is written when its last byte is,
                    // whatever became of the frames behind it.
                    let count = socket.write_buf(&mut chunk).await?;
                    if count == 0 {
                        return Err(io::ErrorKind::WriteZero.into());
                    }
                    self.wrote(count);
                }
            }
        }
        socket.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::FrameText;

    #[tokio::test]
    async fn small_frames_are_gathered_and_secret_ones_are_written_from_where_they_are_wiped() {
        let outbox = Outbox::new(1024, None);
        let plain = || FrameText::with_capacity(8).raw("1").finish();
        let secret = FrameText::with_capacity(8).raw("2").finish_secret();
        let place = secret.bytes.as_ptr();
        for frame in [plain().into(), plain().into(), secret, Frame::from(plain())] {
            outbox.push(frame).unwrap();
        }
        let chunks = outbox.take().await.unwrap();
        assert_eq!(
            chunks.iter().map(|chunk| &chunk[..]).collect::<Vec<_>>(),
            [&b"1#11#1"[..], b"1#2", b"1#1"]
        );
        assert_eq!(chunks[1].as_ptr(), place);
    }
}
