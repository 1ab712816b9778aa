//! Receiving notices: the same for every backend.

use tokio::sync::broadcast;

use crate::Queue;

/// How many undelivered notices a subscriber may be behind before it is told [`Notice::Missed`].
pub(crate) const BACKLOG: usize = 1024;

/// The longest notice that [`Queue::notify`] carries, in bytes. A notice says that something
/// changed and where to read it; it does not carry the thing.
pub const MAX_NOTICE_BYTES: usize = 64 * 1024;

/// What a subscriber hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A message as it was given to [`Queue::notify`].
    Message(String),
    /// Messages may have been lost (the subscriber lagged, or the connection to Redis was
    /// renewed): read the truth again.
    Missed,
}

/// A subscription to one topic; ends when it is dropped.
#[derive(Debug)]
pub struct Notices {
    receiver: broadcast::Receiver<Notice>,
    /// Keeps the backend, and with it the sending side of `receiver`, alive.
    _queue: Queue,
}

impl Notices {
    pub(crate) fn new(receiver: broadcast::Receiver<Notice>, queue: Queue) -> Self {
        Self { receiver, _queue: queue }
    }

    /// Waits for the next notice. Cancel-safe: a dropped call loses nothing.
    pub async fn recv(&mut self) -> Notice {
        match self.receiver.recv().await {
            Ok(notice) => notice,
            Err(broadcast::error::RecvError::Lagged(_)) => Notice::Missed,
            // Cannot happen while `_queue` lives; silence is the right answer of a closed topic.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
