use crate::{Error, Settings, SweepSettings, disk::Disk, http, sweep};
use std::net::SocketAddr;
use storage::Storage;
use tokio_util::sync::CancellationToken;
use wire::{Credentials, HttpConfig, HttpListener};

/// File-service, bound and not yet running.
#[derive(Debug)]
pub struct Service {
    listener: HttpListener,
    files: http::Files,
    sweep: (Storage, Disk, SweepSettings),
}

impl Service {
    /// Opens the folder and listens.
    ///
    /// # Errors
    /// [`Error::Folder`] when the folder cannot be used, [`Error::Listen`] when the address is
    /// taken.
    pub async fn bind(settings: Settings, storage: Storage) -> Result<Self, Error> {
        let Settings { address, tls, dir, max_file_bytes, token, sweep } = settings;
        let disk = Disk::open(&dir).await.map_err(|source| Error::Folder { path: dir, source })?;
        let listener = HttpListener::bind(HttpConfig { tls, ..HttpConfig::new("file-service", address) })?;
        if token.is_none() {
            tracing::warn!(
                event = "insecure_dev",
                variable = "FILE_SERVICE_TOKEN",
                "files are open to everybody who can connect"
            );
        }
        let token = token.map(|token| Credentials::new(token, None));
        let sweep = (storage.clone(), disk.clone(), sweep);
        Ok(Self { listener, files: http::Files::new(disk, storage, max_file_bytes, token), sweep })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        vec![("http", self.listener.local_addr())]
    }

    /// Serves until `stop`, then lets transfers end, at most for 30 seconds.
    ///
    /// # Errors
    /// None today: a listener that fails is tried again.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let (storage, disk, settings) = self.sweep;
        tokio::join!(
            http::serve(self.listener, self.files, stop.clone()),
            sweep::run(storage, disk, settings, stop)
        );
        Ok(())
    }
}
