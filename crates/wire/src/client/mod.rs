//! The client: a small pool of lazily opened connections to one server, with pipelined requests.
//!
//! A lost connection is opened again by the next call, after a pause that grows with the failures
//! (exponential, full jitter). Nothing is ever sent twice: whether a failed call may be repeated is
//! for the caller to decide, from [`CallError`].

mod config;
mod connection;
mod error;
mod sent;
mod slot;

pub use config::ClientConfig;
pub use error::CallError;
pub use sent::{Link, Sent};

use crate::{codec::Frame, outbox::PushError, packet};
use connection::Connection;
use contract::Json;
use serde::{Serialize, de::DeserializeOwned};
use slot::Slot;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, timeout_at},
};

/// JSON of data whose size nobody tells.
const USUAL_BYTES: usize = 256;

/// A client of one server. Clones share its connections, which are closed with the last clone.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    slots: Vec<Slot>,
    turn: AtomicUsize,
    in_flight: Arc<Semaphore>,
    config: ClientConfig,
    address: String,
}

impl Client {
    /// A client; it connects at the first call.
    pub fn new(host: impl Into<String>, port: u16, config: ClientConfig) -> Self {
        let host = host.into();
        let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let slots =
            (0..config.connections.max(1)).map(|_| Slot::new(&host, port, &address, &config)).collect();
        let in_flight = Arc::new(Semaphore::new(config.max_in_flight.clamp(1, Semaphore::MAX_PERMITS)));
        Self(Arc::new(Inner { slots, turn: AtomicUsize::new(0), in_flight, config, address }))
    }

    /// The server's `host:port`.
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// Calls `pattern` and waits for its reply: the last value of it, or `null` when it has none.
    ///
    /// Dropping the future forgets the call; a request already queued is still sent.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn request(&self, pattern: &str, data: &Json, deadline: Duration) -> Result<Json, CallError> {
        let frame = |pattern: &Json, id| Ok(packet::write_request(pattern, data.into(), id));
        self.requested(pattern, data.text().len(), frame, deadline).await
    }

    /// Sends the request that `frame` makes of the pattern's JSON and an id, and waits for its reply.
    async fn requested(
        &self,
        pattern: &str,
        data_bytes: usize,
        frame: impl FnOnce(&Json, u64) -> Result<Frame, CallError>,
        deadline: Duration,
    ) -> Result<Json, CallError> {
        let until = Instant::now() + deadline;
        let (connection, _permit) = self.ready(until, data_bytes).await?;
        let mut call = connection.begin().ok_or(CallError::Closed { written: false })?;
        let frame = self.sized(frame(&pattern_json(pattern), call.id())?)?;
        let end = self.push(&connection, frame)?;
        match timeout_at(until, call.outcome()).await {
            Ok(Some(result)) => result,
            Ok(None) => Err(CallError::Closed { written: connection.outbox().has_written(end) }),
            Err(_) => Err(CallError::Timeout {
                written: connection.outbox().has_written(end),
                alive: connection.is_open(),
            }),
        }
    }

    /// Sends an event; done when it was handed whole to the socket. Nobody confirms it.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn emit(&self, pattern: &str, data: &Json, deadline: Duration) -> Result<(), CallError> {
        let until = Instant::now() + deadline;
        let (connection, _permit) = self.ready(until, data.text().len()).await?;
        let frame = self.sized(packet::write_event(&pattern_json(pattern), data.into()))?;
        let end = self.push(&connection, frame)?;
        match timeout_at(until, connection.outbox().flushed(end)).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(CallError::Closed { written: false }),
            Err(_) => Err(CallError::Timeout { written: false, alive: connection.is_open() }),
        }
    }

    /// [`Self::request`] with typed data and reply.
    ///
    /// # Errors
    /// See [`CallError`]; [`CallError::Encode`] and [`CallError::Decode`] where a type does not fit.
    pub async fn call<T, R>(&self, pattern: &str, data: &T, deadline: Duration) -> Result<R, CallError>
    where
        T: Serialize + ?Sized + Sync,
        R: DeserializeOwned,
    {
        self.call_sized(pattern, data, USUAL_BYTES, deadline).await
    }

    /// [`Self::call`] for data of about `expected_bytes` of JSON, which saves moving them about.
    ///
    /// # Errors
    /// As of [`Self::call`].
    pub async fn call_sized<T, R>(
        &self,
        pattern: &str,
        data: &T,
        expected_bytes: usize,
        deadline: Duration,
    ) -> Result<R, CallError>
    where
        T: Serialize + ?Sized + Sync,
        R: DeserializeOwned,
    {
        let frame = |text: &Json, id| {
            packet::write_value_request(text, data, expected_bytes, id)
                .map_err(|source| CallError::Encode { pattern: pattern.to_owned(), source: Arc::new(source) })
        };
        // How large it is turns out when it is written.
        let reply = self.requested(pattern, 0, frame, deadline).await?;
        reply
            .read()
            .map_err(|source| CallError::Decode { pattern: pattern.to_owned(), source: Arc::new(source) })
    }

    /// A connection with room for one more call.
    async fn ready(
        &self,
        until: Instant,
        data_bytes: usize,
    ) -> Result<(Arc<Connection>, SemaphorePermit<'_>), CallError> {
        let permit = match timeout_at(until, self.0.in_flight.acquire()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) | Err(_) => return Err(CallError::Overloaded),
        };
        Ok((self.connection(until, data_bytes).await?, permit))
    }

    /// A connection with room in its queue.
    async fn connection(&self, until: Instant, data_bytes: usize) -> Result<Arc<Connection>, CallError> {
        let inner = &*self.0;
        // Refused before it is copied into a frame.
        self.check_size(data_bytes)?;
        let turn = inner.turn.fetch_add(1, Ordering::Relaxed) % inner.slots.len();
        let connection = inner.slots[turn].connection(until).await?;
        match timeout_at(until, connection.outbox().room()).await {
            Ok(true) => Ok(connection),
            Ok(false) => Err(CallError::Closed { written: false }),
            Err(_) => Err(CallError::Overloaded),
        }
    }

    fn push(&self, connection: &Connection, frame: Frame) -> Result<u64, CallError> {
        connection.outbox().push(frame).map_err(|error| match error {
            PushError::Closed => CallError::Closed { written: false },
            PushError::Full { .. } | PushError::OverBudget(_) => CallError::Overloaded,
        })
    }

    fn sized(&self, frame: Frame) -> Result<Frame, CallError> {
        self.check_size(crate::codec::body_bytes(&frame.bytes)).map(|()| frame)
    }

    fn check_size(&self, bytes: usize) -> Result<(), CallError> {
        let limit = self.0.config.max_frame_bytes;
        if bytes > limit {
            return Err(CallError::TooLarge { what: "request", limit, actual: bytes as u64 });
        }
        Ok(())
    }
}

/// A pattern's JSON text: always a string, which servers take for the JSON that it may hold.
fn pattern_json(pattern: &str) -> Json {
    // A string always serialises.
    Json::of(pattern).unwrap_or_default()
}
