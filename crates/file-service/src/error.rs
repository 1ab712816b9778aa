use std::{io, path::PathBuf};

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
    #[error(transparent)]
    Listen(#[from] wire::Error),
}
