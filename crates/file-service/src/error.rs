use std::{io, net::SocketAddr, path::PathBuf};

/// Why file-service cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder cannot be used.
    #[error(
        "the folder {path} cannot be used for files: {source}; set FILE_SERVICE_DIR to one that can be written"
    )]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The port cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// Serving ended with a fault of the system.
    #[error("serving HTTP failed: {0}")]
    Serve(#[source] io::Error),
}
