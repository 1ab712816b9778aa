//! The server: accepts connections, hands their requests to a [`Handler`] and writes its replies.
//!
//! Requests of one connection run concurrently and are answered in the order of their completion.
//! Reading never waits for writing: a peer that does not take its replies is closed when its write
//! queue is full. Reading pauses only while as many requests are in work as the connection may
//! have; they never wait for the socket, so this ends.

mod accept;
mod answer;
mod connection;
mod handshake;
mod limits;
mod oversize;
mod proxied;
mod stats;

pub use limits::Limits;
pub use stats::{LogGate, Refusal, Stats};

use crate::{AllowList, Error, SecretJson, TlsServer, TrustProxy, budget::Budget, socket};
use bytes::Bytes;
use contract::{Json, RpcError};
use futures::stream::BoxStream;
use std::{
    fmt,
    future::Future,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// What answers requests. Closures `Fn(Request) -> impl Future<Output = Reply>` are handlers too.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request, or takes one event (whose reply is dropped). A panic is answered with
    /// `internal` and closes nothing.
    fn call(&self, request: Request) -> impl Future<Output = Reply> + Send;

    /// A frame was refused because it is too large; the connection is closed afterwards. `beginning`
    /// is the first part of its text (at most [`crate::codec::BEGINNING_BYTES`]), cut anywhere and not
    /// checked in any way. The answer, if there is one, is what the peer is told instead of the limit.
    fn oversize(&self, beginning: Bytes, peer: Peer) -> impl Future<Output = Option<RpcError>> + Send {
        let _ = (beginning, peer);
        std::future::ready(None)
    }
}

impl<F, R> Handler for F
where
    F: Fn(Request) -> R + Send + Sync + 'static,
    R: Future<Output = Reply> + Send,
{
    fn call(&self, request: Request) -> impl Future<Output = Reply> + Send {
        self(request)
    }
}

/// A request or an event.
#[derive(Debug)]
pub struct Request {
    /// The canonical pattern, see [`crate::packet::canonical_pattern`].
    pub pattern: String,
    /// The payload; `null` when there is none.
    pub data: Json,
    /// Who sent it.
    pub peer: Peer,
    /// No reply is expected.
    pub is_event: bool,
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address to judge; IPv4-mapped addresses as IPv4. It is the socket's, or the one
    /// that a trusted proxy conveys.
    pub address: IpAddr,
    /// The socket's other end.
    pub socket: SocketAddr,
}

/// The answer to a request.
pub enum Reply {
    /// A value.
    Value(Json),
    /// A value with secrets in it: its frame is wiped once it was written.
    Secret(SecretJson),
    /// No value: what `undefined` is to `NestJS`.
    Empty,
    /// An error of ours.
    Error(RpcError),
    /// `err` as it is.
    Exception(Json),
    /// Nobody handles this pattern.
    NoHandler,
    /// Several values; an `Err` ends them with `err` as it is.
    Stream(BoxStream<'static, Result<Json, Json>>),
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => f.debug_tuple("Value").field(value).finish(),
            Self::Secret(value) => f.debug_tuple("Secret").field(value).finish(),
            Self::Empty => f.write_str("Empty"),
            Self::Error(error) => f.debug_tuple("Error").field(error).finish(),
            Self::Exception(err) => f.debug_tuple("Exception").field(err).finish(),
            Self::NoHandler => f.write_str("NoHandler"),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

impl From<Result<Json, RpcError>> for Reply {
    fn from(result: Result<Json, RpcError>) -> Self {
        match result {
            Ok(value) => Self::Value(value),
            Err(error) => Self::Error(error),
        }
    }
}

/// What a server needs to know.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its name in logs.
    pub name: &'static str,
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// Who may connect; judged before a frame is read.
    pub allow: AllowList,
    /// Proxies that begin each connection with a PROXY protocol v2 header: they must, and the
    /// address that they convey is judged. Everybody else's bytes are frames.
    pub proxy_protocol: TrustProxy,
    /// Speak TLS, after the proxy's header where there is one; `None` is plain TCP.
    pub tls: Option<TlsServer>,
    /// Bounds.
    pub limits: Limits,
    /// Requests have secrets in them: what comes in is wiped, and so is each request's data with its
    /// last holder. What the kernel and TLS keep is out of reach.
    pub wipe_requests: bool,
}

impl ServerConfig {
    /// A server that everyone may use, with the default limits.
    pub fn new(name: &'static str, address: SocketAddr) -> Self {
        Self {
            name,
            address,
            allow: AllowList::default(),
            proxy_protocol: TrustProxy::Nobody,
            tls: None,
            limits: Limits::default(),
            wipe_requests: false,
        }
    }
}

/// A bound listener, not yet running.
#[derive(Debug)]
pub struct Server<H> {
    listener: TcpListener,
    local_addr: SocketAddr,
    context: Context<H>,
}

/// What all connections of a server share.
#[derive(Debug)]
struct Context<H> {
    name: &'static str,
    handler: Arc<H>,
    allow: AllowList,
    proxy_protocol: TrustProxy,
    tls: Option<TlsServer>,
    limits: Limits,
    wipe_requests: bool,
    stats: Arc<Stats>,
    budget: Arc<Budget>,
    /// Connections and handlers under way.
    tasks: TaskTracker,
}

impl<H: Handler> Server<H> {
    /// Listens. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// [`Error::Bind`] when the address cannot be listened on.
    pub fn bind(config: ServerConfig, handler: Arc<H>) -> Result<Self, Error> {
        let ServerConfig { name, address, allow, proxy_protocol, tls, limits, wipe_requests } = config;
        let refused = |source| Error::Bind { address, source };
        let listener = socket::listen(address).map_err(refused)?;
        let local_addr = listener.local_addr().map_err(refused)?;
        if let Some(family) = allow.only_family() {
            tracing::info!(
                event = "allowlist_one_family",
                server = name,
                family,
                "only one address family may connect"
            );
        }
        let budget = Budget::new(limits.max_buffered_bytes);
        let stats = Arc::new(Stats::new(Arc::clone(&budget)));
        let context = Context {
            name,
            handler,
            allow,
            proxy_protocol,
            tls,
            limits,
            wipe_requests,
            stats,
            budget,
            tasks: TaskTracker::new(),
        };
        Ok(Self { listener, local_addr, context })
    }

    /// Where the server listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Its counters, to export.
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.context.stats)
    }

    /// Serves until told to stop, in two steps. After `accept_stop` no connection is accepted; each
    /// open one is served until it has no request in work, then it is closed. `connections_stop`
    /// closes all connections and drops what is in work. Returns when nothing is left.
    pub async fn run(self, accept_stop: CancellationToken, connections_stop: CancellationToken) {
        let context = Arc::new(self.context);
        accept::run(self.listener, Arc::clone(&context), accept_stop, connections_stop).await;
        context.tasks.close();
        context.tasks.wait().await;
    }
}
