//! Why the service cannot start.

/// Faults of starting; what callers of the API are told is `contract::RpcError`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The HTTP listener could not be bound.
    #[error("{0}; free the port or set API_HTTP_PORT")]
    Bind(#[from] wire::Error),
    /// File-service cannot be reached as the settings say.
    #[error(transparent)]
    Files(#[from] run_files::Error),
    /// The store refused the token or the local user.
    #[error("the api cannot prepare its users: {0}")]
    Storage(#[from] storage::Error),
}
