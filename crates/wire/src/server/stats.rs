//! What a server counts.

use crate::budget::Budget;
use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Why a connection was refused or closed by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The address is not in the allowlist.
    AddressNotAllowed,
    /// Too many connections are open.
    TooManyConnections,
    /// No byte came in time.
    FirstByteTimeout,
    /// A frame was begun and not completed in time.
    FrameTimeout,
    /// A frame is larger than the limit.
    FrameTooLarge,
    /// No length where one must be.
    HeaderTooLong,
    /// A length that is no number, or a text that is no JSON.
    Malformed,
    /// All connections together hold too many bytes.
    BufferBudget,
    /// The peer does not take its replies.
    WriteQueue,
    /// A peer that has connected for a while, idle now, has never made a request that was accepted.
    IdleStranger,
    /// A trusted proxy did not say in time, or not in good form, for whom it connects.
    ProxyHeader,
    /// The TLS handshake failed or took too long.
    TlsHandshake,
}

impl Refusal {
    /// All reasons.
    pub const ALL: [Self; 12] = [
        Self::AddressNotAllowed,
        Self::TooManyConnections,
        Self::FirstByteTimeout,
        Self::FrameTimeout,
        Self::FrameTooLarge,
        Self::HeaderTooLong,
        Self::Malformed,
        Self::BufferBudget,
        Self::WriteQueue,
        Self::IdleStranger,
        Self::ProxyHeader,
        Self::TlsHandshake,
    ];

    /// The reason as a metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AddressNotAllowed => "address_not_allowed",
            Self::TooManyConnections => "too_many_connections",
            Self::FirstByteTimeout => "first_byte_timeout",
            Self::FrameTimeout => "frame_timeout",
            Self::FrameTooLarge => "frame_too_large",
            Self::HeaderTooLong => "header_too_long",
            Self::Malformed => "malformed",
            Self::BufferBudget => "buffer_budget",
            Self::WriteQueue => "write_queue",
            Self::IdleStranger => "idle_stranger",
            Self::ProxyHeader => "proxy_header",
            Self::TlsHandshake => "tls_handshake",
        }
    }
}

/// Counters of a server (TCP or HTTP) since its start, and what is open now.
#[derive(Debug)]
pub struct Stats {
    pub(crate) accepted: AtomicU64,
    pub(crate) open: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) events: AtomicU64,
    pub(crate) panics: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
    logged: [LogGate; Refusal::ALL.len()],
    budget: Arc<Budget>,
}

impl Stats {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self {
            accepted: AtomicU64::new(0),
            open: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            events: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            refused: Default::default(),
            logged: Default::default(),
            budget,
        }
    }

    /// Connections accepted by the kernel, refused ones included.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections open now.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Requests received.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Events received.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Handlers that panicked.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Connections refused or closed for this reason.
    pub fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason as usize].load(Ordering::Relaxed)
    }

    /// Bytes of the budget in use now.
    pub fn buffered_bytes(&self) -> u64 {
        self.budget.used()
    }

    /// Counts a connection as open until the guard is dropped.
    pub(crate) fn open_connection(&self) -> OpenConnection<'_> {
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenConnection(self)
    }

    /// Counts a refusal and logs it, at most once a second and reason.
    pub(crate) fn refuse(&self, server: &'static str, peer: SocketAddr, reason: Refusal, message: &str) {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(unlogged_before) = self.logged[reason as usize].pass(Instant::now()) {
            tracing::warn!(
                event = "connection_refused",
                server,
                peer = %peer,
                reason = reason.as_str(),
                unlogged_before,
                "connection refused: {message}"
            );
        }
    }
}

/// See [`Stats::open_connection`].
#[derive(Debug)]
pub(crate) struct OpenConnection<'s>(&'s Stats);

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// At most one log line a second: refusals come as fast as an attacker likes, and failures as fast as
/// work does while a neighbour is away. One gate per reason.
#[derive(Debug, Default)]
pub struct LogGate(Mutex<(Option<Instant>, u64)>);

impl LogGate {
    /// A gate through which nothing has passed.
    pub const fn new() -> Self {
        Self(Mutex::new((None, 0)))
    }

    /// [`Self::pass`] at this moment.
    pub fn pass_now(&self) -> Option<u64> {
        self.pass(Instant::now())
    }

    /// May a line be written now? Then how many were left out since the last one.
    pub fn pass(&self, now: Instant) -> Option<u64> {
        let (last, suppressed) = &mut *self.0.lock();
        if last.is_some_and(|last| now.saturating_duration_since(last) < Duration::from_secs(1)) {
            *suppressed += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_counter_and_label() {
        let stats = Stats::new(Budget::new(0));
        for reason in Refusal::ALL {
            stats.refuse("test", ([127, 0, 0, 1], 1).into(), reason, "as a test");
            assert_eq!(stats.refused(reason), 1, "{reason:?}");
        }
        let mut labels = Refusal::ALL.map(Refusal::as_str);
        labels.sort_unstable();
        assert!(labels.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn log_tells_how_many_lines_it_left_out() {
        let gate = LogGate::default();
        let start = Instant::now();
        assert_eq!(gate.pass(start), Some(0));
        assert_eq!(gate.pass(start), None);
        assert_eq!(gate.pass(start), None);
        assert_eq!(gate.pass(start + Duration::from_secs(2)), Some(2));
    }
}
