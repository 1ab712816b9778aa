//! What keeps the engine from starting or running.

/// Why the service does not start or ends early. Faults of single calls are answered to the caller
/// as [`contract::RpcError`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The RPC door could not be opened.
    #[error("the engine's RPC door: {0}")]
    Door(#[from] wire::Error),
    /// The database does not answer.
    #[error("the engine's database: {0}")]
    Storage(#[from] storage::Error),
    /// The notices of catalogue changes cannot be heard.
    #[error("the engine cannot subscribe to notices: {0}")]
    Queue(#[from] queue::Error),
    /// No client for file-service can be made.
    #[error("the engine's way to file-service: {0}")]
    Files(#[from] run_files::Error),
    /// A task of the service ended by a panic: a bug, whose place is in the log.
    #[error("the engine's {task} ended unexpectedly: {source}")]
    Task {
        /// Which one.
        task: &'static str,
        /// How it ended.
        source: tokio::task::JoinError,
    },
}
