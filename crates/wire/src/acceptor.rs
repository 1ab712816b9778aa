//! Accepting that survives a lack of file descriptors.

use std::{io, net::SocketAddr, time::Duration};
use tokio::net::{TcpListener, TcpStream};

/// Pause after the first failed accept (no file descriptors, no memory), doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A listener that goes on whatever happens.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    server: &'static str,
    pause: Duration,
}

impl Acceptor {
    /// `server` is the name in the log.
    pub(crate) fn new(listener: TcpListener, server: &'static str) -> Self {
        Self { listener, server, pause: FIRST_PAUSE }
    }

    /// The next connection. May be dropped while it waits; nothing is lost.
    pub(crate) async fn next(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok(accepted) => {
                    self.pause = FIRST_PAUSE;
                    return accepted;
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::error!(
                        event = "accept_failed",
                        server = self.server,
                        error = %error,
                        pause_ms = self.pause.as_millis(),
                        "cannot accept connections; raise the limit of open files if it persists"
                    );
                    // The kernel does not say when descriptors are free again.
                    tokio::time::sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }
}

/// Errors of the connection that was to be accepted, not of accepting.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}
