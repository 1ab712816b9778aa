//! One connection: reads frames until it ends, then ends it in good order.

use super::{
    Context, Handler, Limits, Refusal,
    accept::{Arrival, Visit, log_refusal},
    answer::{self, Replies},
    oversize,
};
use crate::{
    budget::{Account, Exceeded, Held},
    codec::{CodecError, Decoder, Refused},
    halves::{Halves, ReadHalf},
    outbox::Outbox,
    packet,
};
use bytes::{Bytes, BytesMut};
use contract::{ErrorCode, RpcError};
use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{
    sync::Semaphore,
    task::{JoinHandle, consume_budget},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

/// Room for one read: it begins small and doubles while reads fill it.
const FIRST_READ: usize = 8 * 1024;
const LARGEST_READ: usize = 256 * 1024;

/// After a refusal the peer's input is discarded for a while: closing a socket with unread input
/// resets it, and the peer would lose the error frame (`NestJS` reads it only after its own output).
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 64 * 1024 * 1024;

/// Why reading ended.
enum End {
    /// The peer sends no more.
    PeerClosed,
    /// The socket is broken, or its write side has failed: nothing can be said any more.
    Lost,
    /// The server drains, and this connection has nothing left to do.
    Drained,
    /// The server stops now.
    Stopped,
    /// The input is no frame: closed without a word, as `NestJS` does.
    Malformed(CodecError),
    /// A limit was exceeded: named to the peer.
    Refused(Refusal, RpcError),
}

impl From<CodecError> for End {
    fn from(error: CodecError) -> Self {
        let reason = match &error {
            CodecError::TooLarge { .. } => Refusal::FrameTooLarge,
            CodecError::HeaderTooLong { .. } => Refusal::HeaderTooLong,
            CodecError::CorruptLength | CodecError::NotJson => return Self::Malformed(error),
        };
        Self::Refused(reason, RpcError::new(ErrorCode::PayloadTooLarge, error.to_string()))
    }
}

impl From<Exceeded> for End {
    fn from(exceeded: Exceeded) -> Self {
        Self::Refused(Refusal::BufferBudget, RpcError::new(ErrorCode::Overloaded, exceeded.to_string()))
    }
}

struct Connection<H> {
    replies: Replies<H>,
    socket: ReadHalf,
    decoder: Decoder,
    account: Arc<Account>,
    /// What the decoder's buffer takes of the budget.
    buffered: Held,
    in_flight: Arc<Semaphore>,
    /// Until when the peer has to begin its first frame, and later to have become known.
    stranger_until: Instant,
    /// The number of the frame being read, and since when.
    frame: Option<(u64, Instant)>,
    next_read: usize,
    accept_stop: CancellationToken,
    stop: CancellationToken,
}

/// Serves one connection to its end.
pub(super) async fn serve<H: Handler>(context: Arc<Context<H>>, arrival: Arrival<Halves>) {
    let Arrival { socket, visit: Visit { peer, connected, accept_stop, stop } } = arrival;
    let account = Account::new(Arc::clone(&context.budget));
    // Nothing is held yet, which every budget allows.
    let Ok(buffered) = account.hold(0) else { return };
    let outbox = Outbox::new(context.limits.write_queue_bytes, Some(Arc::clone(&account)));
    let writer = tokio::spawn(Arc::clone(&outbox).write_to(socket.write));
    let mut connection = Connection {
        socket: socket.read,
        decoder: Decoder::new(context.limits.max_frame_bytes).wiping(context.wipe_requests),
        account,
        buffered,
        in_flight: Arc::new(Semaphore::new(context.limits.max_in_flight.max(1) as usize)),
        stranger_until: connected + context.limits.first_byte_timeout,
        frame: None,
        next_read: FIRST_READ,
        accept_stop,
        stop,
        replies: Replies { context: Arc::clone(&context), peer, outbox, is_known: Arc::default() },
    };
    let end = connection.read_to_end().await;
    connection.finish(end, writer).await;
}

impl<H: Handler> Connection<H> {
    fn limits(&self) -> &Limits {
        &self.replies.context.limits
    }

    async fn read_to_end(&mut self) -> End {
        loop {
            // A peer that never pauses never lets the waits below say so.
            if self.stop.is_cancelled() {
                return End::Stopped;
            }
            if self.replies.outbox.is_failed() {
                return End::Lost;
            }
            if let Err(end) = self.dispatch_buffered().await {
                return end;
            }
            if let Err(end) = self.fill().await {
                return end;
            }
            // Nor may it keep a thread of the runtime to itself.
            consume_budget().await;
        }
    }

    /// Hands out every complete frame in the buffer.
    async fn dispatch_buffered(&mut self) -> Result<(), End> {
        while let Some(frame) = self.decoder.next_frame()? {
            self.dispatch(frame).await?;
        }
        Ok(self.buffered.resize(self.decoder.buffered())?)
    }

    /// Starts the work on one packet; waits while too many are in work.
    async fn dispatch(&mut self, frame: Bytes) -> Result<(), End> {
        let packet = packet::parse_packet(&frame, self.replies.context.wipe_requests)?;
        let held = self.account.hold(packet.data.text().len())?;
        drop(frame);
        let slot = tokio::select! {
            biased;
            slot = Arc::clone(&self.in_flight).acquire_owned() => slot.map_err(|_| End::Lost)?,
            () = self.stop.cancelled() => return Err(End::Stopped),
            () = self.replies.outbox.failed() => return Err(End::Lost),
        };
        let answering = answer::answer(self.replies.clone(), packet, held, self.stop.clone());
        self.replies.context.tasks.spawn(async move {
            answering.await;
            drop(slot);
        });
        Ok(())
    }

    /// Reads what the socket has, waiting for it if need be.
    async fn fill(&mut self) -> Result<(), End> {
        loop {
            if self.decoder.has_started() {
                self.buffered.resize(self.decoder.buffered() + self.next_read)?;
            }
            match self.socket.try_read_buf(self.decoder.room(self.next_read)) {
                Ok(0) => return Err(End::PeerClosed),
                Ok(count) => {
                    if count >= self.next_read {
                        self.next_read = (self.next_read * 2).min(LARGEST_READ);
                    }
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.decoder.has_started() {
                        self.next_read = FIRST_READ;
                    }
                    self.decoder.release_memory();
                    self.wait().await?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(End::Lost),
            }
        }
    }

    /// Waits for input, or for what ends the connection.
    async fn wait(&mut self) -> Result<(), End> {
        let deadline = self.deadline();
        let slots = self.limits().max_in_flight.max(1);
        let drained = async {
            self.accept_stop.cancelled().await;
            // All slots are free: nothing is in work.
            let _ = self.in_flight.acquire_many(slots).await;
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(End::Stopped),
            () = self.replies.outbox.failed() => Err(End::Lost),
            () = reach(deadline) => self.too_late(),
            ready = self.socket.readable() => ready.map_err(|_| End::Lost),
            () = drained, if !self.decoder.has_started() => Err(End::Drained),
        }
    }

    /// Until when the next byte or the rest of the frame has to come. Idle connections of peers that
    /// are known have no deadline.
    fn deadline(&mut self) -> Option<Instant> {
        let current = self.decoder.frames();
        if self.decoder.has_started() {
            let since = match self.frame {
                Some((number, since)) if number == current => since,
                _ => Instant::now(),
            };
            self.frame = Some((current, since));
            Some(since + self.limits().frame_timeout)
        } else {
            (!self.is_known()).then_some(self.stranger_until)
        }
    }

    fn is_known(&self) -> bool {
        self.replies.is_known.load(Ordering::Relaxed)
    }

    /// A deadline has passed. A peer that became known meanwhile goes on, and one whose request is still
    /// in work has time again.
    fn too_late(&mut self) -> Result<(), End> {
        let limits = self.limits();
        let (first_byte, first_byte_ms) = (limits.first_byte_timeout, limits.first_byte_timeout.as_millis());
        let (reason, message) = if self.decoder.has_started() {
            (
                Refusal::FrameTimeout,
                format!(
                    "a frame was begun and not completed within {} ms, {} bytes of it came; its length may not \
                     be counted in UTF-16 code units",
                    limits.frame_timeout.as_millis(),
                    self.decoder.buffered(),
                ),
            )
        } else if self.decoder.frames() == 0 {
            let message = format!("no frame was begun within {first_byte_ms} ms of connecting");
            (Refusal::FirstByteTimeout, message)
        } else if self.is_known() {
            return Ok(());
        } else if self.in_flight.available_permits() < limits.max_in_flight.max(1) as usize {
            self.stranger_until = Instant::now() + first_byte;
            return Ok(());
        } else {
            let message = format!(
                "no request with the right credential came within {first_byte_ms} ms of connecting; idle \
                 connections are kept for peers that have shown it"
            );
            (Refusal::IdleStranger, message)
        };
        Err(End::Refused(reason, RpcError::new(ErrorCode::Timeout, message)))
    }

    /// Ends the connection: what was accepted is answered and written first, if that is possible.
    async fn finish(mut self, end: End, mut writer: JoinHandle<()>) {
        // The input is over: its memory and its part of the budget are given back first.
        let frame = self.decoder.take_refused();
        self.decoder = Decoder::new(0);
        let _ = self.buffered.resize(0);
        let (stop, outbox) = (self.stop.clone(), Arc::clone(&self.replies.outbox));
        let orderly = !matches!(end, End::Lost | End::Stopped);
        if orderly {
            tokio::select! {
                () = self.settle(end, frame, &mut writer) => {}
                () = stop.cancelled() => {}
                () = outbox.failed() => {}
            }
        }
        outbox.fail();
    }

    async fn settle(&mut self, end: End, frame: Option<Refused>, writer: &mut JoinHandle<()>) {
        let limits = self.limits().clone();
        // Both waits are bounded: a handler may take longer, its reply is then dropped.
        let _ = timeout(limits.flush_timeout, self.in_flight.acquire_many(limits.max_in_flight.max(1))).await;
        let context = Arc::clone(&self.replies.context);
        let refused = match end {
            End::Refused(reason, error) => {
                log_refusal(&context, self.replies.peer, reason, &error);
                let answer = match frame {
                    Some(frame) => {
                        oversize::answer(&context, self.replies.peer, &mut self.socket, frame, error).await
                    }
                    None => packet::write_refusal(&error),
                };
                self.replies.queue(answer);
                true
            }
            End::Malformed(error) => {
                let error = RpcError::new(ErrorCode::InvalidRequest, error.to_string());
                log_refusal(&context, self.replies.peer, Refusal::Malformed, &error);
                true
            }
            End::PeerClosed | End::Drained | End::Lost | End::Stopped => false,
        };
        self.replies.outbox.close();
        let _ = timeout(limits.flush_timeout, writer).await;
        if refused {
            let _ = timeout(LINGER, discard_input(&mut self.socket)).await;
        }
    }
}

/// Reads and forgets until the peer closes or has sent more than it may.
async fn discard_input(socket: &mut ReadHalf) {
    let mut scratch = BytesMut::with_capacity(64 * 1024);
    let mut total = 0;
    while total < LINGER_BYTES && socket.readable().await.is_ok() {
        scratch.clear();
        match socket.try_read_buf(&mut scratch) {
            Ok(0) => return,
            Ok(count) => total += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// Waits for a moment, or for ever.
async fn reach(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
