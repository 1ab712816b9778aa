use std::{io, path::PathBuf};

/// Why secret-manager cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No master key was given.
    #[error(
        "SECRET_MANAGER_MASTER_KEY is not set; set it to 32 random bytes in base64 (`openssl rand -base64 32`), or name a file with SECRET_MANAGER_MASTER_KEY_FILE"
    )]
    NoKey,
    /// A key is not 32 bytes in base64. The text is not shown.
    #[error("the master key is not 32 bytes in base64; make one with `openssl rand -base64 32`")]
    MalformedKey,
    /// The key file cannot be read or written.
    #[error("the key file {path} cannot be used: {source}")]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The key file holds no key.
    #[error(
        "the key file {path} does not hold 32 bytes in base64; put the right file back, a new key cannot open what the old one sealed"
    )]
    MalformedKeyFile {
        /// The file.
        path: PathBuf,
    },
    /// The port cannot be listened on.
    #[error(transparent)]
    Listen(#[from] wire::Error),
}
