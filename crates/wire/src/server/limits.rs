//! Bounds of a server (protocol section 1).

use std::time::Duration;

const MIB: usize = 1024 * 1024;

/// Bounds of a server. Every refusal is counted by reason, see [`super::Refusal`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one frame's JSON text, both ways.
    pub max_frame_bytes: usize,
    /// Bytes that all connections hold together: unparsed input, payloads in work, replies not yet
    /// written. A small part of each connection is not counted.
    pub max_buffered_bytes: usize,
    /// Open connections.
    pub max_connections: usize,
    /// Requests and events of one connection in work at once; reading pauses above.
    pub max_in_flight: u32,
    /// Bytes of replies that wait for one peer to take them.
    pub write_queue_bytes: usize,
    /// From the connection to the first byte of the first frame; and how long a peer may stay, idle,
    /// of whom no request was accepted yet (wrong or no credential, unknown patterns only).
    pub first_byte_timeout: Duration,
    /// From the first byte of a frame to its last.
    pub frame_timeout: Duration,
    /// How long a connection that is to be closed may take to finish and write what it owes.
    pub flush_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_frame_bytes: 16 * MIB,
            max_buffered_bytes: 256 * MIB,
            max_connections: 4096,
            max_in_flight: 1024,
            write_queue_bytes: 32 * MIB,
            first_byte_timeout: Duration::from_secs(10),
            frame_timeout: Duration::from_secs(10),
            flush_timeout: Duration::from_secs(10),
        }
    }
}
