//! What can go wrong in the queue.

use crate::Lane;

/// A failure of a queue operation.
///
/// No variant means that work is lost: lanes and notices are hints, the database is the truth.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings cannot work; a retry with the same settings fails again.
    #[error("queue settings: {0}")]
    Settings(String),

    /// The lane holds as much as it may. The sweep publishes again what did not fit.
    #[error(
        "lane {lane} is full at its limit of {limit} {unit}: nobody takes from it, or takers are too slow; \
         start more of them, what did not fit is published again later"
    )]
    Full {
        /// The lane that refused.
        lane: Lane,
        /// The limit that was reached, in `unit`.
        limit: usize,
        /// What the limit counts: `items` or `bytes`.
        unit: &'static str,
    },

    /// One item or message is larger than the queue carries.
    #[error("{what} of {size_bytes} bytes is larger than the queue's limit of {limit_bytes} bytes")]
    TooLarge {
        /// What was too large: `item` or `notice`.
        what: &'static str,
        /// Its size in bytes.
        size_bytes: usize,
        /// The limit in bytes.
        limit_bytes: usize,
    },

    /// Redis is away, starting, failing over or too slow. The same call can succeed later.
    #[error(
        "redis is not available for `{operation}`; check that it runs, can be reached and, with TLS, \
         that its certificate is trusted"
    )]
    Unavailable {
        /// The queue operation that failed.
        operation: &'static str,
        /// The cause, for logs.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// Redis answered and refused: credentials, permissions, memory limit, a foreign key in the way.
    #[error("redis refused `{operation}`")]
    Refused {
        /// The queue operation that failed.
        operation: &'static str,
        /// The cause, for logs.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// Can the same call succeed later without being changed?
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Unavailable { .. })
    }
}
