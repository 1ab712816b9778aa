//! How a connection over the cap is turned away: it is told to come back, within bounds.

use bytes::{Bytes, BytesMut};
use contract::{ErrorCode, RpcError};
use serde::Serialize;
use std::{future::Future, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
    time::timeout,
};

/// Connections that are being turned away at once; those beyond are closed without a word.
const AT_ONCE: usize = 64;

/// How long the peer's input is discarded: closing a socket with unread input resets it, and the
/// peer would lose the answer.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 1024 * 1024;

/// The answer to connections over the cap.
#[derive(Debug)]
pub(super) struct Farewells {
    answer: Bytes,
    slots: Arc<Semaphore>,
}

impl Farewells {
    pub(super) fn new(max_connections: usize) -> Self {
        Self { answer: answer(max_connections).into(), slots: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// The work of saying it; `None` when too many are being turned away already.
    pub(super) fn say(&self, mut stream: TcpStream) -> Option<impl Future<Output = ()> + Send + 'static> {
        let slot = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        let answer = self.answer.clone();
        Some(async move {
            // However it goes, the connection is closed: the peer may be gone already.
            let _ = timeout(LINGER, async {
                stream.write_all(&answer).await?;
                stream.shutdown().await?;
                let mut scratch = BytesMut::with_capacity(16 * 1024);
                let mut total = 0;
                while total < LINGER_BYTES {
                    scratch.clear();
                    match stream.read_buf(&mut scratch).await? {
                        0 => break,
                        count => total += count,
                    }
                }
                std::io::Result::Ok(())
            })
            .await;
            drop(slot);
        })
    }
}

fn answer(max_connections: usize) -> String {
    #[derive(Serialize)]
    struct Wrapped {
        error: RpcError,
    }
    let message = format!("the limit of {max_connections} connections is reached; try again later");
    let error = Wrapped { error: RpcError::new(ErrorCode::Overloaded, message) };
    // An error of ours always serialises: it is texts and a flag.
    let body = serde_json::to_string(&error).unwrap_or_default();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Retry-After: 1\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
