//! The accept loop: who gets a connection.

use super::{Context, Handler, Peer, Refusal, connection, handshake, proxied};
use crate::{acceptor::Acceptor, halves::Halves, packet, socket};
use contract::{ErrorCode, RpcError};
use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// Accepts until either token says stop. The listener is closed on return.
pub(super) async fn run<H: Handler>(
    listener: TcpListener,
    context: Arc<Context<H>>,
    accept_stop: CancellationToken,
    connections_stop: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(context.limits.max_connections.min(Semaphore::MAX_PERMITS)));
    let mut acceptor = Acceptor::new(listener, context.name);
    loop {
        let (stream, socket) = tokio::select! {
            biased;
            () = accept_stop.cancelled() => return,
            () = connections_stop.cancelled() => return,
            accepted = acceptor.next() => accepted,
        };
        context.stats.accepted.fetch_add(1, Ordering::Relaxed);
        admit(&context, &slots, stream, socket, &accept_stop, &connections_stop);
    }
}

/// Judges a new connection: its address first, then the number of open ones.
fn admit<H: Handler>(
    context: &Arc<Context<H>>,
    slots: &Arc<Semaphore>,
    stream: TcpStream,
    socket: SocketAddr,
    accept_stop: &CancellationToken,
    connections_stop: &CancellationToken,
) {
    let peer = Peer { address: socket.ip().to_canonical(), socket };
    let is_proxy = context.proxy_protocol.trusts(peer.address);
    // Behind a proxy it is the conveyed address that is judged, when it is known.
    if !is_proxy && let Err(error) = judge(context, peer) {
        return refuse(context, &stream, peer, Refusal::AddressNotAllowed, &error);
    }
    let Ok(slot) = Arc::clone(slots).try_acquire_owned() else {
        let limit = context.limits.max_connections;
        let error = RpcError::new(
            ErrorCode::Overloaded,
            format!("{} connections are open, the limit is {limit}; try again later", context.stats.open()),
        );
        return refuse(context, &stream, peer, Refusal::TooManyConnections, &error);
    };
    if let Err(error) = socket::tune(&stream) {
        tracing::debug!(server = context.name, peer = %peer.socket, error = %error, "connection was gone at once");
        return;
    }
    let visit = Visit {
        peer,
        connected: Instant::now(),
        accept_stop: accept_stop.clone(),
        stop: connections_stop.child_token(),
    };
    let arrival = Arrival { socket: stream, visit };
    let context = Arc::clone(context);
    let tasks = context.tasks.clone();
    tasks.spawn(async move {
        let _open = context.stats.open_connection();
        if let Some(arrival) = prepare(&context, arrival, is_proxy).await {
            connection::serve(Arc::clone(&context), arrival).await;
        }
        drop(slot);
    });
}

/// What comes before the first frame: the proxy's header, then TLS, each where it is asked for.
async fn prepare<H: Handler>(
    context: &Context<H>,
    arrival: Arrival<TcpStream>,
    is_proxy: bool,
) -> Option<Arrival<Halves>> {
    let arrival = match is_proxy {
        true => proxied::identify(context, arrival).await?,
        false => arrival,
    };
    match &context.tls {
        Some(tls) => handshake::shake_hands(context, tls, arrival).await,
        None => Some(Arrival { socket: arrival.socket.into(), visit: arrival.visit }),
    }
}

/// A connection that was let in.
pub(super) struct Arrival<S> {
    pub(super) socket: S,
    pub(super) visit: Visit,
}

/// Whose connection it is, since when and until when.
pub(super) struct Visit {
    pub(super) peer: Peer,
    pub(super) connected: Instant,
    pub(super) accept_stop: CancellationToken,
    pub(super) stop: CancellationToken,
}

/// May this address connect?
pub(super) fn judge<H>(context: &Context<H>, peer: Peer) -> Result<(), RpcError> {
    if context.allow.allows(peer.address) {
        return Ok(());
    }
    Err(RpcError::new(
        ErrorCode::ForbiddenAddress,
        format!("the address {} is not in the allowlist of this service", peer.address),
    ))
}

/// Closes at once, with one error frame if the socket takes it without waiting. Where TLS is spoken
/// there is no frame: the peer could not read it.
pub(super) fn refuse<H>(
    context: &Context<H>,
    stream: &TcpStream,
    peer: Peer,
    reason: Refusal,
    error: &RpcError,
) {
    // Straight to the socket: the runtime does not know yet that it is ready. Its send buffer is
    // empty; should it not take the frame, closing says enough.
    if context.tls.is_none() {
        let _ = socket2::SockRef::from(stream).send(&packet::write_refusal(error));
    }
    log_refusal(context, peer, reason, error);
}

/// Counts a refusal and logs it, at most once a second and reason.
pub(super) fn log_refusal<H>(context: &Context<H>, peer: Peer, reason: Refusal, error: &RpcError) {
    context.stats.refuse(context.name, peer.socket, reason, &error.message);
}
