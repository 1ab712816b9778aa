//! What keeps plugin-manager from starting or running.

/// Why the service does not start or ends early. Faults of single calls are answered to the caller
/// as [`contract::RpcError`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The TCP door could not be opened.
    #[error("plugin-manager's TCP door: {0}")]
    Door(#[from] wire::Error),
    /// The health port could not be opened.
    #[error("plugin-manager's health port: {0}")]
    Health(#[source] wire::Error),
    /// The catalogue could not be read.
    #[error("plugin-manager cannot read the catalogue: {0}")]
    Storage(#[from] storage::Error),
    /// The notices of catalogue changes cannot be heard.
    #[error("plugin-manager cannot subscribe to notices: {0}")]
    Queue(#[from] queue::Error),
    /// File-service cannot be reached as the settings say.
    #[error("plugin-manager's files: {0}")]
    Files(#[from] run_files::Error),
    /// The client for assets could not be made.
    #[error("plugin-manager's HTTP client: {0}")]
    HttpClient(#[from] reqwest::Error),
    /// The listeners ended while they should serve.
    #[error("plugin-manager's listeners failed: {0}")]
    Serve(#[source] tokio::task::JoinError),
}
