//! A frame that is too large: its beginning goes to the handler, which may know whose it was.

use super::{Context, Handler, Peer};
use crate::{codec::BEGINNING_BYTES, halves::ReadHalf};
use bytes::BytesMut;
use contract::RpcError;
use futures::FutureExt;
use std::{io, panic::AssertUnwindSafe, sync::atomic::Ordering, time::Duration};
use tokio::time::timeout;

/// How long the beginning may take to come.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// What the handler wants the peer to be told, from the beginning as far as it came already.
pub(super) async fn judge<H: Handler>(
    context: &Context<H>,
    peer: Peer,
    socket: &mut ReadHalf,
    mut beginning: BytesMut,
) -> Option<RpcError> {
    // What did not come in time is not waited for.
    let _ = timeout(READ_TIMEOUT, fill(socket, &mut beginning)).await;
    let call = async { context.handler.oversize(beginning.freeze(), peer).await };
    let judged = timeout(context.limits.flush_timeout, AssertUnwindSafe(call).catch_unwind()).await;
    match judged {
        Ok(Ok(error)) => error,
        Ok(Err(_)) => {
            context.stats.panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!(
                event = "handler_panicked",
                server = context.name,
                "a handler panicked at a frame that is too large"
            );
            None
        }
        Err(_) => None,
    }
}

/// Reads until the beginning is complete or the peer sends no more.
async fn fill(socket: &mut ReadHalf, beginning: &mut BytesMut) {
    while beginning.len() < BEGINNING_BYTES && socket.readable().await.is_ok() {
        beginning.reserve(BEGINNING_BYTES - beginning.len());
        match socket.try_read_buf(beginning) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
    beginning.truncate(BEGINNING_BYTES);
}
