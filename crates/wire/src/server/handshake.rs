//! The TLS handshake of a new connection. It takes part in the time for the first byte.

use super::{
    Context, Refusal,
    accept::{Arrival, log_refusal},
};
use crate::{TlsServer, halves::Halves};
use contract::{ErrorCode, RpcError};
use std::io;
use tokio::{net::TcpStream, time::timeout_at};
use tokio_rustls::TlsStream;

/// The connection inside TLS; `None` when it was refused, is gone or the server stops. A refused peer is told by
/// TLS alone: there is nobody yet who reads frames.
pub(super) async fn shake_hands<H>(
    context: &Context<H>,
    tls: &TlsServer,
    arrival: Arrival<TcpStream>,
) -> Option<Arrival<Halves>> {
    let (stream, visit) = (arrival.socket, arrival.visit);
    let until = visit.connected + context.limits.first_byte_timeout;
    let handshake = tokio::select! {
        biased;
        () = visit.stop.cancelled() => return None,
        () = visit.accept_stop.cancelled() => return None,
        handshake = timeout_at(until, accept(tls, stream)) => handshake,
    };
    let (code, message) = match handshake {
        Ok(Ok(stream)) => return Some(Arrival { socket: Halves::from(stream?), visit }),
        Ok(Err(error)) => (
            ErrorCode::InvalidRequest,
            format!(
                "the TLS handshake failed: {error}; this door speaks TLS only, and clients must trust its certificate"
            ),
        ),
        Err(_) => {
            let limit_ms = context.limits.first_byte_timeout.as_millis();
            (ErrorCode::Timeout, format!("no TLS handshake was completed within {limit_ms} ms of connecting"))
        }
    };
    log_refusal(context, visit.peer, Refusal::TlsHandshake, &RpcError::new(code, message));
    None
}

/// `None` when the peer goes without a word, as probes of a port do.
async fn accept(tls: &TlsServer, stream: TcpStream) -> io::Result<Option<TlsStream<TcpStream>>> {
    if stream.peek(&mut [0]).await.unwrap_or(0) == 0 {
        return Ok(None);
    }
    Ok(Some(tls.acceptor().await.accept(stream).await?.into()))
}
