//! Why the service cannot start or go on.

use std::{io, net::SocketAddr};

/// Faults of starting and serving; what callers of the API are told is `contract::RpcError`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The HTTP listener could not be bound.
    #[error("the api cannot listen on {address}: {source}; free the port or set API_HTTP_PORT")]
    Bind {
        /// The wanted address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The HTTP client for file-service could not be made.
    #[error("the api cannot make its HTTP client: {0}")]
    HttpClient(#[from] reqwest::Error),
    /// The store refused the token or the local user.
    #[error("the api cannot prepare its users: {0}")]
    Storage(#[from] storage::Error),
    /// The listener failed for good.
    #[error("the api stopped serving: {0}")]
    Serve(#[source] io::Error),
}
