//! What keeps the service from starting or running.

/// What keeps the service from starting or running.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A door could not be opened.
    #[error(transparent)]
    Bind(#[from] wire::Error),
    /// The key is missing and `CONVEYOR_INSECURE_DEV` is not set.
    #[error(
        "PLUGIN_CONTROL_PLANE_KEY is not set; set it to a long random text, the same on plugins and executors"
    )]
    KeyMissing,
    /// No client for file-service can be made.
    #[error("the way to file-service: {0}")]
    Files(#[from] run_files::Error),
    /// The queue cannot be listened to.
    #[error("cannot subscribe to catalogue notices: {0}")]
    Queue(#[from] queue::Error),
}
