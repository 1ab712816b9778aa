//! Lanes, notices and leases between the services: in this process, or over Redis 7 (one server or
//! a Cluster).
//!
//! Everything here is a **hint**. Items and notices may be lost, doubled or late; the database is
//! the truth, a sweep publishes again what nobody took (protocol section 5), and a poll finds what
//! no notice told. A lease may end at any time, so whatever it guards must also be safe without it.
//! This crate must never hold the only copy of anything.
//!
//! Both backends pass the same suite, `tests/conformance.rs`. Only this crate knows Redis.

mod backoff;
mod error;
mod memory;
mod notices;
mod shared;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use error::Error;
pub use notices::{MAX_NOTICE_BYTES, Notice, Notices};
pub use shared::RedisSettings;

/// How many items a lane holds at most; a push beyond it is refused with [`Error::Full`].
pub const MAX_LANE_ITEMS: usize = 100_000;

/// How many bytes of items a lane of the in-process backend holds at most. In Redis the memory
/// limit of the server takes this part.
pub const MAX_LANE_BYTES: usize = 256 * 1024 * 1024;

/// The longest time that a lease runs without being renewed.
pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// The largest single item, in bytes.
pub const MAX_ITEM_BYTES: usize = 32 * 1024 * 1024;

/// A queue of task hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Tasks of plugins, taken by control planes.
    Plugin,
    /// Tasks of built-in nodes, taken by executors.
    Executor,
}

impl Lane {
    /// All lanes.
    pub const ALL: [Self; 2] = [Self::Plugin, Self::Executor];

    /// The stable name, as in keys, metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plugin => "plugin",
            Self::Executor => "executor",
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A subject of notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// The plugin catalogue changed.
    Catalogue,
    /// A run changed.
    Runs,
    /// Word to those who hold steps, such as a cancellation.
    Steps,
}

impl Topic {
    /// All topics.
    pub const ALL: [Self; 3] = [Self::Catalogue, Self::Runs, Self::Steps];

    /// The stable name, as in channels, metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Catalogue => "catalogue",
            Self::Runs => "runs",
            Self::Steps => "steps",
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Lanes, notices and leases. Clones share one backend, which lives as long as the last of them.
#[derive(Clone, Debug)]
pub struct Queue {
    backend: Backend,
}

#[derive(Clone, Debug)]
enum Backend {
    Memory(Arc<memory::Memory>),
    Redis(Arc<shared::Shared>),
}

impl Queue {
    /// A queue within this process; nothing outside of it takes part.
    pub fn in_process() -> Self {
        Self { backend: Backend::Memory(Arc::default()) }
    }

    /// A queue over Redis, shared by all processes with the same server and prefix.
    ///
    /// Returns after Redis answered. Later outages need no restart: operations fail with
    /// [`Error::Unavailable`] meanwhile and work again when Redis is back.
    ///
    /// # Errors
    /// [`Error::Settings`] for a malformed URL or prefix, [`Error::Unavailable`] if Redis cannot be
    /// reached within some seconds, [`Error::Refused`] for wrong credentials.
    pub async fn redis(settings: RedisSettings) -> Result<Self, Error> {
        let shared = shared::Shared::connect(&settings).await?;
        Ok(Self { backend: Backend::Redis(Arc::new(shared)) })
    }

    /// Appends `items` to the lane, in their order, and wakes waiting takers.
    ///
    /// # Errors
    /// [`Error::TooLarge`] before anything is appended; [`Error::Full`] and, with Redis,
    /// [`Error::Unavailable`] or [`Error::Refused`]: the first of the items may be in the lane then.
    pub async fn push(&self, lane: Lane, items: Vec<String>) -> Result<(), Error> {
        check_items(&items)?;
        match &self.backend {
            Backend::Memory(memory) => memory.push(lane, items),
            Backend::Redis(shared) => shared.push(lane, items).await,
        }
    }

    /// Takes up to `max` items off the head of the lane, oldest first. If there is none, waits for
    /// one up to `wait` and returns an empty list after that (at once for `max` = 0).
    ///
    /// Several takers share the lane: each item goes to one of them. In the process the call is
    /// cancel-safe. With Redis, items that were taken for a dropped call go back to the head of the
    /// lane; they are lost only if the process or the connection ends at that moment.
    ///
    /// # Errors
    /// Only with Redis: [`Error::Unavailable`] if it is still away when `wait` is over (during
    /// `wait` the call tries again by itself), [`Error::Refused`] at once.
    pub async fn take(&self, lane: Lane, max: usize, wait: Duration) -> Result<Vec<String>, Error> {
        match &self.backend {
            Backend::Memory(memory) => Ok(memory.take(lane, max, wait).await),
            Backend::Redis(shared) => shared.take(lane, max, wait).await,
        }
    }

    /// How many items the lane holds now.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Refused`], only with Redis.
    pub async fn depth(&self, lane: Lane) -> Result<u64, Error> {
        match &self.backend {
            Backend::Memory(memory) => Ok(memory.depth(lane)),
            Backend::Redis(shared) => shared.depth(lane).await,
        }
    }

    /// Tells `message` to everybody who is subscribed to the topic now.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond [`MAX_NOTICE_BYTES`]; with Redis also [`Error::Unavailable`] or
    /// [`Error::Refused`].
    pub async fn notify(&self, topic: Topic, message: &str) -> Result<(), Error> {
        if message.len() > MAX_NOTICE_BYTES {
            return Err(Error::TooLarge {
                what: "notice",
                size_bytes: message.len(),
                limit_bytes: MAX_NOTICE_BYTES,
            });
        }
        match &self.backend {
            Backend::Memory(memory) => {
                memory.notify(topic, message);
                Ok(())
            }
            Backend::Redis(shared) => shared.notify(topic, message).await,
        }
    }

    /// Subscribes to the topic: a [`Queue::notify`] that starts after this call has returned is
    /// heard. If Redis is away the subscription is returned all the same after some seconds; it
    /// says [`Notice::Missed`] once it is connected.
    ///
    /// # Errors
    /// None today; reserved for backends that can refuse a subscriber.
    pub async fn subscribe(&self, topic: Topic) -> Result<Notices, Error> {
        let receiver = match &self.backend {
            Backend::Memory(memory) => memory.subscribe(topic),
            Backend::Redis(shared) => shared.subscribe(topic).await,
        };
        Ok(Notices::new(receiver, self.clone()))
    }

    /// Takes the lease `name` for `holder`, or renews it, for `ttl` from now (at least 1 ms,
    /// at most [`MAX_LEASE`]). `true`: `holder` has it now. `false`: somebody else has it.
    ///
    /// A lease can be lost before `ttl` (a flushed or failed-over Redis): it avoids double work,
    /// it does not guarantee that there is none.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Refused`], only with Redis.
    pub async fn lease(&self, name: &str, holder: &str, ttl: Duration) -> Result<bool, Error> {
        let ttl = ttl.clamp(Duration::from_millis(1), MAX_LEASE);
        match &self.backend {
            Backend::Memory(memory) => Ok(memory.lease(name, holder, ttl)),
            Backend::Redis(shared) => shared.lease(name, holder, ttl).await,
        }
    }

    /// Gives the lease back if `holder` has it; otherwise does nothing.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Refused`], only with Redis.
    pub async fn release(&self, name: &str, holder: &str) -> Result<(), Error> {
        match &self.backend {
            Backend::Memory(memory) => {
                memory.release(name, holder);
                Ok(())
            }
            Backend::Redis(shared) => shared.release(name, holder).await,
        }
    }

    /// Checks that the backend answers for every lane; for readiness.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Refused`], only with Redis.
    pub async fn ping(&self) -> Result<(), Error> {
        for lane in Lane::ALL {
            self.depth(lane).await?;
        }
        Ok(())
    }

    /// Do other processes take part (Redis), or is this queue within the process only?
    pub fn is_shared(&self) -> bool {
        matches!(self.backend, Backend::Redis(_))
    }
}

fn check_items(items: &[String]) -> Result<(), Error> {
    match items.iter().map(String::len).max() {
        Some(size_bytes) if size_bytes > MAX_ITEM_BYTES => {
            Err(Error::TooLarge { what: "item", size_bytes, limit_bytes: MAX_ITEM_BYTES })
        }
        _ => Ok(()),
    }
}
