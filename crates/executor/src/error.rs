/// Why the executor cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The HTTP client of `system.http.request` cannot be made.
    #[error("the HTTP client cannot be made: {0}")]
    HttpClient(#[source] reqwest::Error),
    /// No client for file-service can be made.
    #[error("the way to file-service: {0}")]
    Files(#[from] run_files::Error),
    /// The queue cannot be subscribed to.
    #[error(transparent)]
    Queue(#[from] queue::Error),
}
