//! Binding and running.

use crate::{Error, Settings, app::App, http};
use queue::Queue;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use storage::Storage;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How long open requests may take to end after a stop.
const DRAIN: Duration = Duration::from_secs(30);

/// The API with its listener bound; nothing is served yet.
#[derive(Debug)]
pub struct Service {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
}

impl Service {
    /// Binds the listener and prepares the local user.
    ///
    /// # Errors
    /// [`Error::Bind`] for the address, [`Error::Storage`] when the store does not answer.
    pub async fn bind(settings: Settings, storage: Storage, queue: Queue) -> Result<Self, Error> {
        let wanted = SocketAddr::new(settings.bind, settings.http_port);
        let bound = |source| Error::Bind { address: wanted, source };
        let listener = TcpListener::bind(wanted).await.map_err(bound)?;
        let address = listener.local_addr().map_err(bound)?;
        if settings.insecure && settings.token.is_none() {
            tracing::warn!(
                event = "insecure_start",
                "the api serves everybody without a token because CONVEYOR_INSECURE_DEV is set"
            );
        }
        let app = Arc::new(App::new(&settings, storage, queue).await?);
        Ok(Self { listener, address, app })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        vec![("http", self.address)]
    }

    /// Serves until `stop`; then takes no new connections, ends event streams and waits for open
    /// requests, at most 30 s.
    ///
    /// # Errors
    /// [`Error::Serve`] when the listener fails for good.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        tracing::info!(event = "api_started", address = %self.address, "api listens");
        let serving = http::serve(self.listener, self.app, stop.clone());
        tokio::select! {
            served = serving => served.map_err(Error::Serve),
            () = drain_deadline(&stop) => {
                tracing::warn!(event = "api_drain_timeout", limit_ms = DRAIN.as_millis(), "open requests were dropped at stop");
                Ok(())
            }
        }
    }
}

async fn drain_deadline(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(DRAIN).await;
}
