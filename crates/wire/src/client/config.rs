//! Bounds of a client.

use crate::TlsClient;
use std::time::Duration;

/// Bounds of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Connections to the server, used in turn.
    pub connections: usize,
    /// Longest wait for one connection to be opened, name lookup and TLS handshake included.
    pub connect_timeout: Duration,
    /// Bytes of one frame's JSON text, both ways.
    pub max_frame_bytes: usize,
    /// Calls in flight over all connections; more wait within their deadline.
    pub max_in_flight: usize,
    /// Longest pause after the first failure to connect; doubled with each further one. The actual
    /// pause is random below that.
    pub backoff_base: Duration,
    /// Longest pause between attempts to connect.
    pub backoff_max: Duration,
    /// Speak TLS; `None` is plain TCP. A server that wants a client certificate and does not get it
    /// closes after the handshake: the calls fail as [`super::CallError::Closed`].
    pub tls: Option<TlsClient>,
    /// Replies have secrets in them: what comes in is wiped, and so is each reply with its last holder.
    /// What the kernel and TLS keep is out of reach.
    pub wipe_replies: bool,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            connections: 1,
            connect_timeout: Duration::from_secs(3),
            max_frame_bytes: 16 * 1024 * 1024,
            max_in_flight: 1024,
            backoff_base: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            tls: None,
            wipe_replies: false,
        }
    }
}
