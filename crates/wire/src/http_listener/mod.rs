//! The accept loop of every HTTP door: a bounded number of connections, heads and writes within a
//! time, a stop in two steps (protocol section 1, failure matrix row 20).
//!
//! It knows nothing of routes: it serves any [`tower::Service`], such as a router of the service's
//! own HTTP module. What a request may cost beyond its head (body, work) is that service's matter.

mod connection;
mod guarded;
mod refuse;

use crate::{Error, Stats, TlsServer, acceptor::Acceptor, budget::Budget, server::Refusal, socket};
use connection::Door;
use hyper::{
    Request, Response,
    body::{Body, Incoming},
};
use refuse::Farewells;
use std::{
    convert::Infallible,
    error,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service;

/// Bounds of an HTTP server. Every refusal is counted by reason, see [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Open connections; one more is answered 503 and closed.
    pub max_connections: usize,
    /// For the whole head of a request: counted from the connection, later from the end of the
    /// answer before, so that it is also how long a connection may stay idle.
    pub head_timeout: Duration,
    /// Bytes of a head.
    pub max_head_bytes: usize,
    /// How long the peer may take nothing of an answer that waits for it.
    pub write_timeout: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            head_timeout: Duration::from_secs(10),
            max_head_bytes: 32 * 1024,
            write_timeout: Duration::from_secs(30),
        }
    }
}

/// What an HTTP server needs to know.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Its name in logs.
    pub name: &'static str,
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// Speak HTTPS and nothing else; `None` is plain HTTP.
    pub tls: Option<TlsServer>,
    /// Bounds.
    pub limits: HttpLimits,
}

impl HttpConfig {
    /// A server with the default limits, in plain HTTP.
    pub fn new(name: &'static str, address: SocketAddr) -> Self {
        Self { name, address, tls: None, limits: HttpLimits::default() }
    }
}

/// Who is at the other end of the connection: an extension of every request. Whose address is to be
/// judged behind proxies is [`crate::TrustProxy`]'s matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpPeer(pub SocketAddr);

/// A bound listener, not yet serving.
#[derive(Debug)]
pub struct HttpListener {
    listener: TcpListener,
    local_addr: SocketAddr,
    config: HttpConfig,
    stats: Arc<Stats>,
}

impl HttpListener {
    /// Listens. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// [`Error::Bind`] when the address cannot be listened on.
    pub fn bind(config: HttpConfig) -> Result<Self, Error> {
        let refused = |source| Error::Bind { address: config.address, source };
        let listener = socket::listen(config.address).map_err(refused)?;
        let local_addr = listener.local_addr().map_err(refused)?;
        // The answers' bytes are bounded per connection; there is no common budget.
        let stats = Arc::new(Stats::new(Budget::new(0)));
        Ok(Self { listener, local_addr, config, stats })
    }

    /// Where the server listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Its counters, to export: connections, requests and refusals.
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }

    /// Serves until told to stop, in two steps. After `accept_stop` no connection is accepted and
    /// each open one is closed after the request that it has in work. `connections_stop` drops what
    /// is in work. Returns when nothing is left.
    pub async fn run<S, B>(
        self,
        service: S,
        accept_stop: CancellationToken,
        connections_stop: CancellationToken,
    ) where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn error::Error + Send + Sync>>,
    {
        let Self { listener, config: HttpConfig { name, limits, tls, .. }, stats, .. } = self;
        let slots = Arc::new(Semaphore::new(limits.max_connections.min(Semaphore::MAX_PERMITS)));
        let farewells = Farewells::new(limits.max_connections);
        let is_plain = tls.is_none();
        let door = Door { name, limits, tls, stats: Arc::clone(&stats), accept_stop: accept_stop.clone() };
        let connections = TaskTracker::new();
        let mut acceptor = Acceptor::new(listener, name);
        loop {
            let (stream, peer) = tokio::select! {
                biased;
                () = accept_stop.cancelled() => break,
                () = connections_stop.cancelled() => break,
                accepted = acceptor.next() => accepted,
            };
            stats.accepted.fetch_add(1, Ordering::Relaxed);
            let stop = connections_stop.clone();
            let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
                let open = stats.open();
                let message = format!("{open} connections are open, the limit is {}", limits.max_connections);
                stats.refuse(name, peer, Refusal::TooManyConnections, &message);
                // Where TLS is spoken there is no answer: the peer could not read it.
                if let Some(farewell) = is_plain.then(|| farewells.say(stream)).flatten() {
                    connections.spawn(async move { stop.run_until_cancelled(farewell).await });
                }
                continue;
            };
            if let Err(error) = socket::tune(&stream) {
                tracing::debug!(server = name, peer = %peer, error = %error, "connection was gone at once");
                continue;
            }
            let serving = door.clone().serve(stream, peer, service.clone());
            connections.spawn(async move {
                stop.run_until_cancelled(serving).await;
                drop(slot);
            });
        }
        // Closes the listener before the wait: new clients find another replica.
        drop(acceptor);
        connections.close();
        connections.wait().await;
    }
}
