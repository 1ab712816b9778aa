//! Binding and running.

use crate::{Error, Settings, app::App, http};
use queue::Queue;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use storage::Storage;
use tokio_util::sync::CancellationToken;
use wire::{HttpConfig, HttpLimits, HttpListener};

/// How long open requests may take to end after a stop.
const DRAIN: Duration = Duration::from_secs(30);

/// The API with its listener bound; nothing is served yet.
#[derive(Debug)]
pub struct Service {
    listener: HttpListener,
    app: Arc<App>,
}

impl Service {
    /// Binds the listener and prepares the local user.
    ///
    /// # Errors
    /// [`Error::Bind`] for the address, [`Error::Storage`] when the store does not answer.
    pub async fn bind(settings: Settings, storage: Storage, queue: Queue) -> Result<Self, Error> {
        let address = SocketAddr::new(settings.bind, settings.http_port);
        let listener = HttpListener::bind(HttpConfig {
            name: "api",
            address,
            tls: settings.tls.clone(),
            limits: HttpLimits { max_connections: settings.max_connections, ..HttpLimits::default() },
        })?;
        if settings.insecure && settings.token.is_none() {
            tracing::warn!(
                event = "insecure_start",
                "the api serves everybody without a token because CONVEYOR_INSECURE_DEV is set"
            );
        }
        let app = Arc::new(App::new(&settings, storage, queue).await?);
        Ok(Self { listener, app })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        vec![("http", self.listener.local_addr())]
    }

    /// Serves until `stop`; then takes no new connections, ends event streams and waits for open
    /// requests, at most 30 s.
    ///
    /// # Errors
    /// None today: a listener that fails is tried again.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        tracing::info!(event = "api_started", address = %self.listener.local_addr(), "api listens");
        let streams = self.app.stop.clone();
        let cut = CancellationToken::new();
        let serving = self.listener.run(http::router(self.app), stop.clone(), cut.clone());
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => return Ok(()),
            () = stop.cancelled() => streams.cancel(),
        }
        if tokio::time::timeout(DRAIN, &mut serving).await.is_err() {
            tracing::warn!(
                event = "api_drain_timeout",
                limit_ms = DRAIN.as_millis(),
                "open requests were dropped at stop"
            );
            cut.cancel();
            serving.await;
        }
        Ok(())
    }
}
