//! How a call fails.

use crate::packet::RemoteError;
use contract::{ErrorCode, RpcError};
use std::{io, sync::Arc};

/// How a call fails. `written`: the whole request was handed to the socket, so the other side may
/// have received and may have done it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The server cannot be reached; nothing was sent.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// `host:port`.
        address: String,
        /// The system's reason, shared by all calls that waited for the attempt.
        source: Arc<io::Error>,
    },
    /// The connection was closed before the reply came.
    #[error("the connection was closed before the reply came (request sent: {written})")]
    Closed {
        /// See [`CallError`].
        written: bool,
    },
    /// No reply within the deadline.
    #[error("no reply within the deadline (request sent: {written}, connection alive: {alive})")]
    Timeout {
        /// See [`CallError`].
        written: bool,
        /// The connection still stood at the deadline.
        alive: bool,
    },
    /// The other side replied with an error.
    #[error("the other side refused: {0}")]
    Remote(RemoteError),
    /// The other side does not know the pattern.
    #[error("the other side has no handler for the pattern")]
    NoHandler,
    /// The request (not sent) or the reply is larger than a frame may be.
    #[error("the {what} has {actual} bytes, the limit of a frame is {limit}")]
    TooLarge {
        /// `request` or `reply`.
        what: &'static str,
        /// Most bytes of a frame.
        limit: usize,
        /// Its bytes, as far as they are known.
        actual: u64,
    },
    /// Too many calls are in flight, or too much is waiting to be sent; nothing was sent.
    #[error("too many calls are in flight")]
    Overloaded,
    /// The request's type cannot be written as JSON; nothing was sent.
    #[error("the request of `{pattern}` cannot be written as JSON: {source}")]
    Encode {
        /// The pattern called.
        pattern: String,
        /// The reason.
        #[source]
        source: Arc<serde_json::Error>,
    },
    /// The reply does not have the expected type.
    #[error("the reply to `{pattern}` cannot be read: {source}")]
    Decode {
        /// The pattern called.
        pattern: String,
        /// The reason.
        #[source]
        source: Arc<serde_json::Error>,
    },
}

impl CallError {
    /// Can the same call succeed later? Whether it may be repeated although the other side may have
    /// done it is the caller's knowledge.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Closed { .. } | Self::Timeout { .. } | Self::Overloaded => true,
            Self::Remote(error) => error.retryable,
            Self::NoHandler | Self::TooLarge { .. } | Self::Encode { .. } | Self::Decode { .. } => false,
        }
    }

    /// The error to answer one's own caller with. `what` names the other side (`the engine`), and
    /// `code_when_away` says that it cannot be reached.
    pub fn to_rpc(&self, code_when_away: ErrorCode, what: &str) -> RpcError {
        let code = match self {
            Self::Connect { .. } | Self::Closed { .. } => code_when_away,
            Self::Timeout { alive, .. } => {
                if *alive {
                    ErrorCode::Timeout
                } else {
                    code_when_away
                }
            }
            Self::Overloaded => ErrorCode::Overloaded,
            Self::TooLarge { .. } => ErrorCode::PayloadTooLarge,
            Self::NoHandler => ErrorCode::UnknownPattern,
            Self::Encode { .. } | Self::Decode { .. } => ErrorCode::Internal,
            Self::Remote(error) => match error.as_rpc() {
                Some(error) => return error,
                None => ErrorCode::Internal,
            },
        };
        let mut error = RpcError::new(code, format!("{what}: {self}"));
        error.retryable = self.retryable();
        error
    }
}
