//! What the system tells the process.

#[cfg(unix)]
use anyhow::Context;

/// Listens to Ctrl-C and SIGTERM from the moment it is made: what comes before somebody waits is not
/// lost, and no longer ends the process at once.
#[derive(Debug)]
pub(crate) struct Termination {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Termination {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the system refuses it.
    #[cfg(unix)]
    pub(crate) fn listen() -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let heard = |kind| signal(kind).context("signals cannot be listened to");
        Ok(Self { terminate: heard(SignalKind::terminate())?, interrupt: heard(SignalKind::interrupt())? })
    }

    /// Begins to listen.
    #[cfg(not(unix))]
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Ok(Self {})
    }

    /// Waits until the process is told to end. Cancel-safe.
    #[cfg(unix)]
    pub(crate) async fn told(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits until the process is told to end.
    #[cfg(not(unix))]
    pub(crate) async fn told(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
