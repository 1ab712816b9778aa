//! One connection of a client: the calls in flight on it, and the task that reads their replies.

use super::{CallError, ClientConfig};
use crate::{
    codec::{CodecError, Decoder},
    halves::{Halves, ReadHalf},
    outbox::Outbox,
    packet::{self, Answer, RemoteError, ReplyPacket},
};
use contract::Json;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{sync::oneshot, task::consume_budget};

/// Room for one read.
const READ_BYTES: usize = 64 * 1024;

/// Bytes that may wait to be sent: callers wait for room at half of it.
const QUEUE_BYTES: usize = 32 * 1024 * 1024;

type CallResult = Result<Json, CallError>;

/// A call that waits for its reply.
#[derive(Debug)]
struct Pending {
    sender: oneshot::Sender<CallResult>,
    /// The last value of a reply of several.
    value: Option<Json>,
}

#[derive(Debug)]
pub(super) struct Connection {
    outbox: Arc<Outbox>,
    /// Calls by id; `None` once the connection has ended.
    pending: Mutex<Option<HashMap<u64, Pending>>>,
    next_id: AtomicU64,
    address: String,
    /// Do replies have secrets in them?
    wipes: bool,
}

impl Connection {
    /// Takes a connected socket and starts its reader and writer.
    pub(super) fn open(socket: Halves, address: &str, config: &ClientConfig) -> Arc<Self> {
        let outbox = Outbox::new(QUEUE_BYTES, None);
        tokio::spawn(Arc::clone(&outbox).write_to(socket.write));
        let connection = Arc::new(Self {
            outbox,
            pending: Mutex::new(Some(HashMap::new())),
            next_id: AtomicU64::new(1),
            address: address.to_owned(),
            wipes: config.wipe_replies,
        });
        let decoder = Decoder::new(config.max_frame_bytes).wiping(config.wipe_replies);
        tokio::spawn(Arc::clone(&connection).read(socket.read, decoder));
        connection
    }

    pub(super) fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    pub(super) fn is_open(&self) -> bool {
        !self.outbox.is_failed()
    }

    /// Ends the connection now.
    pub(super) fn close(&self) {
        self.outbox.fail();
    }

    /// Registers a call; `None` when the connection has ended.
    pub(super) fn begin(self: &Arc<Self>) -> Option<Call> {
        let (sender, receiver) = oneshot::channel();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.pending.lock().as_mut()?.insert(id, Pending { sender, value: None });
        Some(Call { connection: Arc::clone(self), id, receiver })
    }

    async fn read(self: Arc<Self>, mut socket: ReadHalf, mut decoder: Decoder) {
        let end = tokio::select! {
            end = self.read_to_end(&mut socket, &mut decoder) => end,
            () = self.outbox.failed() => Ok(()),
        };
        // First the mark, then the calls: a call that sees the end must not find the connection open.
        self.outbox.fail();
        let pending = self.pending.lock().take().unwrap_or_default();
        if let Err(error) = end {
            tracing::warn!(
                event = "peer_unreadable",
                address = self.address,
                error = %error,
                calls = pending.len(),
                "connection closed: the server's replies cannot be read"
            );
            // When one call is in flight the reply is its own; else nobody knows whose it was.
            if let (CodecError::TooLarge { limit, actual }, 1) = (error, pending.len()) {
                for (_, call) in pending {
                    let _ = call.sender.send(Err(CallError::TooLarge { what: "reply", limit, actual }));
                }
            }
        }
    }

    async fn read_to_end(&self, socket: &mut ReadHalf, decoder: &mut Decoder) -> Result<(), CodecError> {
        loop {
            match socket.try_read_buf(decoder.room(READ_BYTES)) {
                Ok(0) => return Ok(()),
                Ok(_) => {
                    while let Some(frame) = decoder.next_frame()? {
                        self.take(packet::parse_reply(&frame, self.wipes)?);
                    }
                    // A server that never pauses must neither keep a thread of the runtime to itself
                    // nor hide that the connection has ended.
                    consume_budget().await;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    decoder.release_memory();
                    if let Err(error) = socket.readable().await {
                        self.lost(&error);
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.lost(&error);
                    return Ok(());
                }
            }
        }
    }

    /// A connection that breaks says nothing of interest, except in TLS: a certificate of ours that the
    /// server does not accept is refused only after our side of the handshake.
    fn lost(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::InvalidData {
            tracing::warn!(
                event = "peer_ended_tls",
                address = self.address,
                error = %error,
                "the connection is of no more use; if the server asks for a certificate, check ours"
            );
        }
    }

    /// Hands a reply to its call. Replies to forgotten calls are ignored.
    fn take(&self, ReplyPacket { id, answer }: ReplyPacket) {
        let mut pending = self.pending.lock();
        let Some(calls) = pending.as_mut() else { return };
        let Some(id) = id else {
            if let Answer::Error(error) = answer {
                self.refused(calls, &error);
            }
            return;
        };
        let Some(id) = id.text().trim_matches('"').parse().ok() else { return };
        let result = match answer {
            Answer::Value { response, last: false } => {
                if let Some(call) = calls.get_mut(&id) {
                    call.value = response.or(call.value.take());
                }
                return;
            }
            Answer::Value { response, last: true } => Ok(response),
            Answer::Error(error) => Err(CallError::Remote(error)),
            Answer::NoHandler => Err(CallError::NoHandler),
        };
        if let Some(call) = calls.remove(&id) {
            let _ = call.sender.send(result.map(|response| response.or(call.value).unwrap_or_default()));
        }
    }

    /// The server refuses the connection and will close it. When one call is in flight, the refusal
    /// is its answer.
    fn refused(&self, calls: &mut HashMap<u64, Pending>, error: &RemoteError) {
        tracing::warn!(
            event = "peer_refused_connection",
            address = self.address,
            code = error.code.as_deref(),
            calls = calls.len(),
            "the server refuses the connection: {}",
            error.message
        );
        if calls.len() == 1 {
            for (_, call) in calls.drain() {
                let _ = call.sender.send(Err(CallError::Remote(error.clone())));
            }
        }
    }
}

/// A call in flight; forgotten when dropped.
#[derive(Debug)]
pub(super) struct Call {
    connection: Arc<Connection>,
    id: u64,
    receiver: oneshot::Receiver<CallResult>,
}

impl Call {
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// The reply; `None` when the connection ended before it.
    pub(super) async fn outcome(&mut self) -> Option<CallResult> {
        (&mut self.receiver).await.ok()
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(calls) = self.connection.pending.lock().as_mut() {
            calls.remove(&self.id);
        }
    }
}
