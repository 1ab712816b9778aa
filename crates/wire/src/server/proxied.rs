//! Connections of trusted proxies: for whom they come.

use super::{
    Context, Handler, Peer, Refusal,
    accept::{Arrival, judge, log_refusal, refuse},
};
use crate::gate::{FIXED_BYTES, Fixed};
use contract::{ErrorCode, RpcError};
use std::net::SocketAddr;
use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout_at};

/// Reads the proxy's header and judges the address that it conveys, or the proxy's own when it
/// speaks for itself; `None` when the connection is refused or gone. The header takes part in the
/// time for the first byte.
pub(super) async fn identify<H: Handler>(
    context: &Context<H>,
    mut arrival: Arrival<TcpStream>,
) -> Option<Arrival<TcpStream>> {
    let until = arrival.visit.connected + context.limits.first_byte_timeout;
    let reading = tokio::select! {
        biased;
        () = arrival.visit.stop.cancelled() => return None,
        () = arrival.visit.accept_stop.cancelled() => return None,
        reading = timeout_at(until, read_header(&mut arrival.socket)) => reading,
    };
    let client = match reading {
        Ok(Ok(client)) => client,
        Ok(Err(message)) => {
            return drop_silently(context, arrival.visit.peer, ErrorCode::InvalidRequest, message?);
        }
        Err(_) => {
            let limit_ms = context.limits.first_byte_timeout.as_millis();
            let message = format!("no PROXY protocol header came within {limit_ms} ms of connecting");
            return drop_silently(context, arrival.visit.peer, ErrorCode::Timeout, message);
        }
    };
    let address = client.unwrap_or(arrival.visit.peer.socket).ip().to_canonical();
    arrival.visit.peer = Peer { address, ..arrival.visit.peer };
    match judge(context, arrival.visit.peer) {
        Ok(()) => Some(arrival),
        Err(error) => {
            refuse(context, &arrival.socket, arrival.visit.peer, Refusal::AddressNotAllowed, &error);
            None
        }
    }
}

/// Reads exactly the header: what follows is the client's. The error is what to log, if anything.
async fn read_header(stream: &mut TcpStream) -> Result<Option<SocketAddr>, Option<String>> {
    let mut fixed = [0; FIXED_BYTES];
    stream.read_exact(&mut fixed).await.map_err(|_| None)?;
    let fixed = Fixed::parse(&fixed).map_err(|error| Some(error.to_string()))?;
    // Bounded by the header's own limit.
    let mut rest = vec![0; fixed.rest_bytes];
    stream.read_exact(&mut rest).await.map_err(|_| None)?;
    fixed.client(&rest).map_err(|error| Some(error.to_string()))
}

/// Closes without a frame: whoever is at the other end does not speak for a client yet.
fn drop_silently<H>(
    context: &Context<H>,
    peer: Peer,
    code: ErrorCode,
    message: String,
) -> Option<Arrival<TcpStream>> {
    log_refusal(context, peer, Refusal::ProxyHeader, &RpcError::new(code, message));
    None
}
