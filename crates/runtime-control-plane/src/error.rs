//! What keeps the service from starting or running.

use std::{io, net::SocketAddr};

/// What keeps the service from starting or running.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The HTTP listener could not be bound.
    #[error("cannot listen on {address} for HTTP: {source}")]
    BindHttp {
        /// The address that was asked for.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The TCP listener could not be bound.
    #[error(transparent)]
    BindTcp(#[from] wire::Error),
    /// The key is missing and `CONVEYOR_INSECURE_DEV` is not set.
    #[error(
        "PLUGIN_CONTROL_PLANE_KEY is not set; set it to a long random text, the same on plugins and executors"
    )]
    KeyMissing,
    /// The queue cannot be listened to.
    #[error("cannot subscribe to catalogue notices: {0}")]
    Queue(#[from] queue::Error),
}
