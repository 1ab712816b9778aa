//! Values of runs that are too large for the history: put into file-service and brought back
//! (`docs/protocol.md`, section 3, *Large outputs*).
//!
//! The engine puts values away, control planes and executors put them back into the inputs of tasks.
//! A file is addressed by its content and belongs to its run: the same value put twice is one file,
//! and only tasks of that run get it back.

mod client;
mod resolve;
mod settings;

pub use client::RunFiles;
pub use settings::RunFilesSettings;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system offers no usable TLS.
    #[error("the HTTP client for file-service cannot be made: {0}")]
    Client(#[from] reqwest::Error),
}
