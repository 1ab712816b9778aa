//! File-service as its neighbours see it: its client, and on top of it the values of runs that are
//! too large for the history (`docs/protocol.md`, section 3, *Large outputs*).
//!
//! The engine puts values away, control planes and executors put them back into the inputs of tasks.
//! A file is addressed by its content and belongs to its run: the same value put twice is one file,
//! and only tasks of that run get it back. Uploads of users and assets of plugins belong to no run.

mod client;
mod resolve;
mod service;
mod settings;

pub use client::RunFiles;
pub use service::{FileService, NewFile, StoredFile};
pub use settings::RunFilesSettings;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system offers no usable TLS.
    #[error("the HTTP client for file-service cannot be made: {0}")]
    Client(#[from] reqwest::Error),
    /// The address is no URL.
    #[error("the address of file-service is no URL; write it like http://host:3000 (FILE_SERVICE_BASE_URL)")]
    Address,
    /// Authorities are named, but the address is without TLS.
    #[error(
        "FILE_SERVICE_TLS_CA is set, but the address of file-service is not https://; write it so, or leave \
         the variable unset"
    )]
    NotHttps,
}
