use crate::{Error, Settings, door::Door, seal::Keys};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use storage::Storage;
use tokio_util::sync::CancellationToken;
use wire::{Credentials, Server, ServerConfig};

/// How long requests in work may take after the stop.
const DRAIN: Duration = Duration::from_secs(30);

/// Secret-manager, bound and not yet running.
#[derive(Debug)]
pub struct Service {
    server: Server<Door>,
}

impl Service {
    /// Listens.
    ///
    /// # Errors
    /// [`Error::NoKey`] without a master key, [`Error::Listen`] when the address is taken.
    pub async fn bind(settings: Settings, storage: Storage) -> Result<Self, Error> {
        let key = settings.master_key.ok_or(Error::NoKey)?;
        if settings.token.is_none() {
            tracing::warn!(
                event = "insecure_dev",
                variable = "SECRET_MANAGER_TOKEN",
                "secrets are resolved for everybody who can connect"
            );
        }
        let door = Door {
            storage,
            keys: Keys::new(&key, settings.previous_key.as_ref()),
            token: settings.token.map(|token| Credentials::new(token, None)),
        };
        let config = ServerConfig {
            allow: settings.allow,
            tls: settings.tls,
            wipe_requests: true,
            ..ServerConfig::new("secret-manager", settings.address)
        };
        Ok(Self { server: Server::bind(config, Arc::new(door))? })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        vec![("tcp", self.server.local_addr())]
    }

    /// Serves until `stop`, then answers what is in work, at most for 30 seconds.
    ///
    /// # Errors
    /// None today.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let closed = CancellationToken::new();
        let serving = self.server.run(stop.clone(), closed.clone());
        let limit = async {
            stop.cancelled().await;
            tokio::time::sleep(DRAIN).await;
        };
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => {}
            () = limit => {
                closed.cancel();
                serving.await;
            }
        }
        Ok(())
    }
}
