//! The accept loop: who gets a connection.

use super::{Context, Handler, Peer, Refusal, connection};
use crate::{acceptor::Acceptor, packet, socket};
use contract::{ErrorCode, RpcError};
use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
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
    if !context.allow.allows(peer.address) {
        let error = RpcError::new(
            ErrorCode::ForbiddenAddress,
            format!("the address {} is not in the allowlist of this service", peer.address),
        );
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
    let serving = connection::serve(
        Arc::clone(context),
        stream,
        peer,
        accept_stop.clone(),
        connections_stop.child_token(),
    );
    context.tasks.spawn(async move {
        serving.await;
        drop(slot);
    });
}

/// Closes at once, with one error frame if the socket takes it without waiting.
fn refuse<H>(context: &Context<H>, stream: &TcpStream, peer: Peer, reason: Refusal, error: &RpcError) {
    // Straight to the socket: the runtime does not know yet that it is ready. Its send buffer is
    // empty; should it not take the frame, closing says enough.
    let _ = socket2::SockRef::from(stream).send(&packet::write_refusal(error));
    log_refusal(context, peer, reason, error);
}

/// Counts a refusal and logs it, at most once a second and reason.
pub(super) fn log_refusal<H>(context: &Context<H>, peer: Peer, reason: Refusal, error: &RpcError) {
    context.stats.refuse(context.name, peer.socket, reason, &error.message);
}
