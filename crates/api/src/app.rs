//! What every request handler works with.

use crate::{Error, Settings, auth::Doorkeeper, catalogue::Catalogue, rpc::Neighbour};
use contract::ErrorCode;
use queue::Queue;
use run_files::FileService;
use std::sync::Arc;
use storage::Storage;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Room that a neighbour's frame needs beyond the payload it carries.
const ENVELOPE_BYTES: usize = 64 * 1024;

/// Shared by all requests.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) storage: Storage,
    pub(crate) queue: Queue,
    pub(crate) doorkeeper: Doorkeeper,
    pub(crate) engine: Neighbour,
    pub(crate) plugins: Neighbour,
    pub(crate) catalogue: Catalogue,
    pub(crate) secrets: Neighbour,
    pub(crate) files: FileService,
    pub(crate) payload_limit_bytes: usize,
    /// One permit per open event stream.
    pub(crate) event_streams: Arc<Semaphore>,
    /// Ends event streams at a stop of the service.
    pub(crate) stop: CancellationToken,
}

impl App {
    pub(crate) async fn new(settings: &Settings, storage: Storage, queue: Queue) -> Result<Self, Error> {
        let frame_bytes = settings.payload_limit_bytes.saturating_add(ENVELOPE_BYTES).max(16 * 1024 * 1024);
        let neighbour = |name, endpoint, token: &Option<_>, away, tls: &Option<_>| {
            Neighbour::new(name, endpoint, token.clone(), away, frame_bytes, tls.clone())
        };
        let plugins = neighbour(
            "plugin-manager",
            &settings.plugin_manager,
            &settings.plugin_manager_token,
            ErrorCode::Unavailable,
            &settings.plugin_manager_tls,
        );
        Ok(Self {
            doorkeeper: Doorkeeper::new(storage.clone(), settings.token.as_ref(), settings.insecure).await?,
            engine: neighbour(
                "the engine",
                &settings.engine,
                &settings.engine_token,
                ErrorCode::EngineUnavailable,
                &settings.engine_tls,
            ),
            catalogue: Catalogue::new(plugins.clone()),
            plugins,
            secrets: neighbour(
                "secret-manager",
                &settings.secret_manager,
                &settings.secret_manager_token,
                ErrorCode::Unavailable,
                &settings.secret_manager_tls,
            ),
            files: FileService::new(&settings.files)?,
            payload_limit_bytes: settings.payload_limit_bytes,
            event_streams: Arc::new(Semaphore::new(settings.max_event_streams.min(Semaphore::MAX_PERMITS))),
            stop: CancellationToken::new(),
            storage,
            queue,
        })
    }
}
