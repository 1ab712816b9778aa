//! A frame that is too large: its beginning goes to the handler, which may know whose it was, and its
//! sender is answered under its id, if that can be found.

use super::{Context, Handler, Peer};
use crate::{
    codec::{BEGINNING_BYTES, Refused},
    halves::ReadHalf,
    packet,
};
use bytes::{Bytes, BytesMut};
use contract::{Json, RpcError};
use futures::FutureExt;
use std::{io, panic::AssertUnwindSafe, sync::atomic::Ordering, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};

/// How long the frame may take to come.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// The most that is read for the sake of an id at the end of the frame, bytes.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// Room for one read.
const READ_BYTES: usize = 64 * 1024;

/// The frame that tells the peer: what the handler wants it to be told, else `error`. It carries the
/// request's id where that stands at the beginning of the frame, or at its end and the end comes soon;
/// else no id.
pub(super) async fn answer<H: Handler>(
    context: &Context<H>,
    peer: Peer,
    socket: &mut ReadHalf,
    mut frame: Refused,
    error: RpcError,
) -> Bytes {
    let until = Instant::now() + READ_TIMEOUT;
    // What does not come in time is not waited for.
    let begun = |frame: &Refused| frame.beginning().len() >= BEGINNING_BYTES;
    let _ = timeout_at(until, read_on(socket, &mut frame, begun)).await;
    let error = judge(context, peer, Bytes::copy_from_slice(frame.beginning())).await.unwrap_or(error);
    if frame.missing() <= MOST_BYTES {
        let _ = timeout_at(until, read_on(socket, &mut frame, |_| false)).await;
    }
    match packet::id_in_parts(frame.beginning(), frame.end()) {
        Some(id) => packet::write_error(&id, &Json::of(&error).unwrap_or_default()),
        None => packet::write_refusal(&error),
    }
}

/// What the handler makes of the beginning.
async fn judge<H: Handler>(context: &Context<H>, peer: Peer, beginning: Bytes) -> Option<RpcError> {
    let call = async { context.handler.oversize(beginning, peer).await };
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

/// Reads until the frame has ended, the peer sends no more, or it is `enough`.
async fn read_on(socket: &mut ReadHalf, frame: &mut Refused, enough: impl Fn(&Refused) -> bool) {
    let mut scratch = BytesMut::with_capacity(READ_BYTES);
    while frame.is_open() && !enough(frame) && socket.readable().await.is_ok() {
        scratch.clear();
        match socket.try_read_buf(&mut scratch) {
            Ok(0) => return,
            Ok(_) => frame.push(&scratch),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}
