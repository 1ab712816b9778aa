//! What keeps plugin-manager from starting or running.

use std::{io, net::SocketAddr};

/// Why the service does not start or ends early. Faults of single calls are answered to the caller
/// as [`contract::RpcError`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The TCP door could not be opened.
    #[error("plugin-manager's TCP door: {0}")]
    Door(#[from] wire::Error),
    /// The health listener could not be bound.
    #[error("plugin-manager cannot listen on {address} for health: {source}")]
    Health {
        /// The address that was asked for.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The catalogue could not be read.
    #[error("plugin-manager cannot read the catalogue: {0}")]
    Storage(#[from] storage::Error),
    /// The notices of catalogue changes cannot be heard.
    #[error("plugin-manager cannot subscribe to notices: {0}")]
    Queue(#[from] queue::Error),
    /// The client for assets and files could not be made.
    #[error("plugin-manager's HTTP client: {0}")]
    HttpClient(#[from] reqwest::Error),
    /// The health listener failed while it was serving.
    #[error("plugin-manager's health listener failed: {0}")]
    HealthServe(#[source] io::Error),
}
