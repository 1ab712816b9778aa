//! One request: from its packet to its reply in the outbox.

use super::{Context, Handler, Peer, Refusal, Reply, Request, accept::log_refusal};
use crate::{
    budget::Held,
    codec::{self, Frame},
    outbox::{Outbox, PushError},
    packet::{self, Packet},
};
use contract::{ErrorCode, Json, RpcError};
use futures::{FutureExt, StreamExt, stream::BoxStream};
use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio_util::sync::CancellationToken;

/// Where a connection's replies go.
pub(super) struct Replies<H> {
    pub(super) context: Arc<Context<H>>,
    pub(super) peer: Peer,
    pub(super) outbox: Arc<Outbox>,
    /// Has a handler ever accepted a request of this peer?
    pub(super) is_known: Arc<AtomicBool>,
}

impl<H> Clone for Replies<H> {
    fn clone(&self) -> Self {
        Self {
            context: Arc::clone(&self.context),
            peer: self.peer,
            outbox: Arc::clone(&self.outbox),
            is_known: Arc::clone(&self.is_known),
        }
    }
}

/// Runs the handler and sends its reply, unless `stop` comes first. `held` is what the payload takes
/// of the budget.
pub(super) async fn answer<H: Handler>(
    replies: Replies<H>,
    packet: Packet,
    held: Held,
    stop: CancellationToken,
) {
    let Packet { pattern, data, id } = packet;
    let stats = &replies.context.stats;
    match &id {
        Some(_) => stats.requests.fetch_add(1, Ordering::Relaxed),
        None => stats.events.fetch_add(1, Ordering::Relaxed),
    };
    let work = async {
        let reply = match pattern {
            Some(pattern) => {
                let request = Request { pattern, data, peer: replies.peer, is_event: id.is_none() };
                replies.call(request).await
            }
            None => Reply::NoHandler,
        };
        drop(held);
        if is_accepted(&reply) {
            replies.is_known.store(true, Ordering::Relaxed);
        }
        match &id {
            Some(id) => replies.send(id, reply).await,
            None => tracing::debug!(server = replies.context.name, reply = ?reply, "event handled"),
        }
    };
    // Stopped: the connection is being closed, nobody is told.
    let _ = stop.run_until_cancelled(work).await;
}

/// Does the reply show that the peer knows whom it talks to, and its credential?
fn is_accepted(reply: &Reply) -> bool {
    match reply {
        Reply::NoHandler => false,
        Reply::Error(error) => error.code != ErrorCode::Unauthorized,
        Reply::Value(_) | Reply::Secret(_) | Reply::Empty | Reply::Exception(_) | Reply::Stream(_) => true,
    }
}

impl<H: Handler> Replies<H> {
    /// The handler's reply; `internal` when it panics.
    async fn call(&self, request: Request) -> Reply {
        let pattern = request.pattern.clone();
        // Boxed: the task around it is moved as a whole, several times, before it first runs.
        let call = Box::pin(async { self.context.handler.call(request).await });
        match AssertUnwindSafe(call).catch_unwind().await {
            Ok(reply) => reply,
            Err(_) => {
                self.context.stats.panics.fetch_add(1, Ordering::Relaxed);
                tracing::error!(
                    event = "handler_panicked",
                    server = self.context.name,
                    pattern,
                    "a handler panicked; the request is answered with an error"
                );
                Reply::Error(RpcError::new(
                    ErrorCode::Internal,
                    format!("`{pattern}` failed inside the service; its log has the details"),
                ))
            }
        }
    }
}

impl<H> Replies<H> {
    async fn send(&self, id: &Json, reply: Reply) {
        let frame = match reply {
            Reply::Value(value) => packet::write_value(id, &value, true),
            Reply::Secret(value) => {
                self.push(id, packet::write_secret(id, &value));
                return;
            }
            Reply::Empty => packet::write_empty(id),
            Reply::Error(error) => packet::write_error(id, &Json::of(&error).unwrap_or_default()),
            Reply::Exception(err) => packet::write_error(id, &err),
            Reply::NoHandler => packet::write_no_handler(id),
            Reply::Stream(values) => return Box::pin(self.send_stream(id, values)).await,
        };
        self.push(id, frame);
    }

    /// Sends each value as it comes. The end is merged into the last value when it is known at
    /// once, as `NestJS` does. A fast producer waits for a slow peer.
    async fn send_stream(&self, id: &Json, mut values: BoxStream<'static, Result<Json, Json>>) {
        let mut next = values.next().await;
        loop {
            let frame = match next {
                None => packet::write_empty(id),
                Some(Err(err)) => packet::write_error(id, &err),
                Some(Ok(value)) => match values.next().now_or_never() {
                    Some(None) => packet::write_value(id, &value, true),
                    ready => {
                        let frame = packet::write_value(id, &value, false);
                        if !(self.push(id, frame) && self.outbox.room().await) {
                            return;
                        }
                        next = match ready {
                            Some(item) => item,
                            None => values.next().await,
                        };
                        continue;
                    }
                },
            };
            self.push(id, frame);
            return;
        }
    }

    /// Queues a frame; `false` ends the reply. One that is larger than peers accept becomes an
    /// error. A full queue closes the connection: the peer does not read.
    fn push(&self, id: &Json, frame: impl Into<Frame>) -> bool {
        let frame = frame.into();
        let (limit, actual) = (self.context.limits.max_frame_bytes, codec::body_bytes(&frame.bytes));
        if actual > limit {
            let error = RpcError::new(
                ErrorCode::PayloadTooLarge,
                format!("the reply has {actual} bytes, the limit of a frame is {limit}; ask for less"),
            );
            let frame = packet::write_error(id, &Json::of(&error).unwrap_or_default());
            self.queue(frame);
            return false;
        }
        self.queue(frame)
    }

    pub(super) fn queue(&self, frame: impl Into<Frame>) -> bool {
        let (reason, message) = match self.outbox.push(frame) {
            Ok(_) => return true,
            Err(PushError::Closed) => return false,
            Err(PushError::Full { limit, actual }) => (
                Refusal::WriteQueue,
                format!("{actual} bytes of replies wait to be taken, the limit is {limit}"),
            ),
            Err(PushError::OverBudget(exceeded)) => (Refusal::BufferBudget, exceeded.to_string()),
        };
        let error = RpcError::new(ErrorCode::Overloaded, message);
        log_refusal(&self.context, self.peer, reason, &error);
        self.outbox.fail();
        false
    }
}
