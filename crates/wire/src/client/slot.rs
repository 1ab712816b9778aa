//! One place in the pool: a connection, or the attempt to open one that all callers share.

use super::{CallError, ClientConfig, connection::Connection};
use crate::{TlsClient, halves::Halves, socket};
use futures::{FutureExt, future::Shared};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use std::{io, sync::Arc, time::Duration};
use tokio::{
    net::TcpStream,
    sync::oneshot,
    time::{Instant, sleep_until, timeout, timeout_at},
};

type Outcome = Result<Arc<Connection>, Arc<io::Error>>;
type Attempt = Shared<oneshot::Receiver<Outcome>>;

#[derive(Debug)]
pub(super) struct Slot {
    target: Target,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Debug)]
struct Target {
    host: String,
    port: u16,
    address: String,
    config: ClientConfig,
}

#[derive(Debug, Default)]
struct State {
    connection: Option<Owned>,
    attempt: Option<Attempt>,
    failures: u32,
    /// No attempt is made before.
    not_before: Option<Instant>,
    last_error: Option<Arc<io::Error>>,
}

impl Slot {
    pub(super) fn new(host: &str, port: u16, address: &str, config: &ClientConfig) -> Self {
        let target =
            Target { host: host.to_owned(), port, address: address.to_owned(), config: config.clone() };
        Self { target, state: Arc::default() }
    }

    /// The open connection; if there is none, that of the attempt under way or of a new one. A call
    /// is judged by an attempt that ended after it came, as far as its deadline allows.
    pub(super) async fn connection(&self, until: Instant) -> Result<Arc<Connection>, CallError> {
        let attempt = {
            let mut state = self.state.lock();
            match &state.connection {
                Some(Owned(connection)) if connection.is_open() => return Ok(Arc::clone(connection)),
                _ => state.connection = None,
            }
            let not_before = state.not_before;
            state.attempt.get_or_insert_with(|| self.start(not_before)).clone()
        };
        let source = match timeout_at(until, attempt).await {
            Ok(Ok(Ok(connection))) => return Ok(connection),
            Ok(Ok(Err(error))) => error,
            Ok(Err(_)) => {
                // Its runtime has ended; the next call starts another.
                self.state.lock().attempt = None;
                Arc::new(io::Error::other("the attempt to connect was dropped"))
            }
            Err(_) => {
                let last = self.state.lock().last_error.clone();
                last.unwrap_or_else(|| Arc::new(io::ErrorKind::TimedOut.into()))
            }
        };
        Err(CallError::Connect { address: self.target.address.clone(), source })
    }

    /// Starts an attempt of its own task, so that it goes on when its callers give up.
    fn start(&self, not_before: Option<Instant>) -> Attempt {
        let (sender, receiver) = oneshot::channel();
        let (target, state) = (self.target.clone(), Arc::downgrade(&self.state));
        tokio::spawn(async move {
            if let Some(moment) = not_before {
                sleep_until(moment).await;
            }
            let outcome = target.connect().await.map_err(Arc::new);
            match (state.upgrade(), &outcome) {
                (Some(state), outcome) => state.lock().settle(&target, outcome),
                // The client is gone: so is the connection.
                (None, Ok(connection)) => connection.close(),
                (None, Err(_)) => {}
            }
            let _ = sender.send(outcome);
        });
        receiver.shared()
    }
}

impl State {
    fn settle(&mut self, target: &Target, outcome: &Outcome) {
        self.attempt = None;
        match outcome {
            Ok(connection) => {
                if self.failures > 0 {
                    tracing::info!(
                        event = "peer_reconnected",
                        address = target.address,
                        failures = self.failures,
                        "connected again"
                    );
                }
                *self = Self { connection: Some(Owned(Arc::clone(connection))), ..Self::default() };
            }
            Err(error) => {
                let pause = backoff(&target.config, self.failures, rand::random());
                self.failures = self.failures.saturating_add(1);
                self.not_before = Some(Instant::now() + pause);
                self.last_error = Some(Arc::clone(error));
                if self.failures == 1 {
                    tracing::warn!(event = "peer_unreachable", address = target.address, error = %error, "cannot connect; the next calls try again");
                }
            }
        }
    }
}

/// The pool's hold of a connection, which ends with it.
#[derive(Debug)]
struct Owned(Arc<Connection>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Target {
    async fn connect(&self) -> io::Result<Arc<Connection>> {
        let socket = timeout(self.config.connect_timeout, self.open()).await.map_err(|_| {
            io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no connection within {} ms", self.config.connect_timeout.as_millis()),
            )
        })??;
        Ok(Connection::open(socket, &self.address, &self.config))
    }

    async fn open(&self) -> io::Result<Halves> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        socket::tune(&stream)?;
        match &self.config.tls {
            None => Ok(stream.into()),
            Some(tls) => self.shake_hands(tls, stream).await,
        }
    }

    /// The error of a certificate that is not trusted, or names another host, says so.
    async fn shake_hands(&self, tls: &TlsClient, stream: TcpStream) -> io::Result<Halves> {
        let name = tls.name_of(&self.host);
        let named = |error| io::Error::new(io::ErrorKind::InvalidInput, format!("{name}: {error}"));
        let name = ServerName::try_from(name.to_owned()).map_err(named)?;
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("TLS handshake: {error}"));
        let stream = tls.connector().await.connect(name, stream).await.map_err(failed)?;
        Ok(tokio_rustls::TlsStream::from(stream).into())
    }
}

/// The pause after `failures` earlier failures: exponential, with full jitter (`random` is uniform
/// over its type).
fn backoff(config: &ClientConfig, failures: u32, random: u32) -> Duration {
    let longest = config.backoff_base.saturating_mul(2u32.saturating_pow(failures)).min(config.backoff_max);
    longest.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_grows_to_its_bound_and_is_random_below_it() {
        let config = ClientConfig {
            backoff_base: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            ..ClientConfig::default()
        };
        assert_eq!(backoff(&config, 0, u32::MAX), Duration::from_millis(50));
        assert_eq!(backoff(&config, 2, u32::MAX), Duration::from_millis(200));
        assert_eq!(backoff(&config, 40, u32::MAX), Duration::from_secs(2));
        assert_eq!(backoff(&config, 40, 0), Duration::ZERO);
    }
}
