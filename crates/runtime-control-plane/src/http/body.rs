//! Bodies within bounds of size, of time, and of all bodies together.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use contract::{ErrorCode, RpcError};
use futures::StreamExt;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

/// What is read on after a refusal, so that the client, still sending, sees the answer and no reset.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 64 * 1024 * 1024;

/// The unit in which the budget counts, bytes.
const UNIT: usize = 1024;

/// Bytes that all bodies hold together until they are answered.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    units: Arc<Semaphore>,
    total: usize,
    limit: usize,
    deadline: Duration,
}

impl BodyBudget {
    /// `total` bytes for all bodies, `limit` and `deadline` for each.
    pub(crate) fn new(total: usize, limit: usize, deadline: Duration) -> Self {
        let units = (total / UNIT).clamp(1, Semaphore::MAX_PERMITS);
        Self { units: Arc::new(Semaphore::new(units)), total, limit, deadline }
    }

    /// Most bytes of one body.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }
}

/// A body that was read.
pub(crate) enum Read {
    /// All of it, with its part of the budget.
    Whole(String, Option<OwnedSemaphorePermit>),
    /// More than the limit: what came within the limit.
    TooLarge(Bytes),
}

/// Reads a body. Invalid UTF-8 is replaced, as at the TCP door.
///
/// # Errors
/// `timeout` when it does not come in time, `overloaded` when all bodies together are too large,
/// `invalid_report` when it breaks off.
pub(crate) async fn read_body(body: Body, budget: &BodyBudget) -> Result<Read, RpcError> {
    let until = Instant::now() + budget.deadline;
    let mut chunks = body.into_data_stream();
    let mut read = BytesMut::new();
    let mut held: Option<OwnedSemaphorePermit> = None;
    loop {
        let chunk = match timeout_at(until, chunks.next()).await {
            Ok(None) => break,
            Ok(Some(Ok(chunk))) => chunk,
            Ok(Some(Err(error))) => {
                let text = format!("the body broke off after {} bytes: {error}", read.len());
                return Err(RpcError::new(ErrorCode::InvalidReport, text));
            }
            Err(_) => {
                let (bytes, limit_ms) = (read.len(), budget.deadline.as_millis());
                let text = format!(
                    "{bytes} bytes of the body came within the limit of {limit_ms} ms; send it faster"
                );
                return Err(RpcError::new(ErrorCode::Timeout, text));
            }
        };
        if read.len() + chunk.len() > budget.limit {
            read.extend_from_slice(chunk.get(..budget.limit - read.len()).unwrap_or_default());
            // However it goes on, the answer is the same.
            let _ = tokio::time::timeout(LINGER, discard(chunks)).await;
            return Ok(Read::TooLarge(read.freeze()));
        }
        read.extend_from_slice(&chunk);
        charge(budget, &mut held, read.len())?;
    }
    let text = String::from_utf8(read.into())
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Ok(Read::Whole(text, held))
}

/// Takes as much of the budget as `bytes` need.
fn charge(
    budget: &BodyBudget,
    held: &mut Option<OwnedSemaphorePermit>,
    bytes: usize,
) -> Result<(), RpcError> {
    let has = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
    // Less than a unit is free, as at the TCP door.
    let wants = bytes / UNIT;
    if wants <= has {
        return Ok(());
    }
    let more = u32::try_from(wants - has).unwrap_or(u32::MAX);
    match Arc::clone(&budget.units).try_acquire_many_owned(more) {
        Ok(permit) => {
            match held {
                Some(held) => held.merge(permit),
                None => *held = Some(permit),
            }
            Ok(())
        }
        Err(_) => {
            let text = format!(
                "bodies under way hold the limit of {} bytes together; try again later",
                budget.total
            );
            Err(RpcError::new(ErrorCode::Overloaded, text))
        }
    }
}

async fn discard(mut chunks: axum::body::BodyDataStream) {
    let mut bytes = 0;
    while let Some(Ok(chunk)) = chunks.next().await {
        bytes += chunk.len();
        if bytes > LINGER_BYTES {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(total: usize, limit: usize) -> BodyBudget {
        BodyBudget::new(total, limit, Duration::from_secs(30))
    }

    #[tokio::test]
    async fn body_at_the_limit_passes_and_one_byte_more_does_not() {
        let budget = budget(1 << 20, 4000);
        let read = |bytes: usize| read_body(Body::from(vec![b'x'; bytes]), &budget);
        assert!(matches!(read(4000).await, Ok(Read::Whole(text, _)) if text.len() == 4000));
        assert!(matches!(read(4001).await, Ok(Read::TooLarge(prefix)) if prefix.len() == 4000));
    }

    #[tokio::test]
    async fn bodies_together_are_bounded_and_give_their_part_back() {
        let budget = budget(8 * 1024, 8 * 1024);
        let read = |bytes: usize| read_body(Body::from(vec![b'x'; bytes]), &budget);
        let first = read(8 * 1024).await.ok();
        assert!(matches!(read(2048).await, Err(error) if error.code == ErrorCode::Overloaded));
        assert!(read(100).await.is_ok(), "small bodies pass");
        drop(first);
        assert!(read(2048).await.is_ok());
    }

    #[tokio::test]
    async fn body_that_does_not_come_is_given_up() {
        let body = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let budget = BodyBudget::new(1 << 20, 1000, Duration::from_millis(1));
        let error = read_body(body, &budget).await.err().map(|error| error.code);
        assert_eq!(error, Some(ErrorCode::Timeout));
    }

    #[tokio::test]
    async fn invalid_utf8_is_replaced() {
        let read = read_body(Body::from(vec![b'"', 0xff, b'"']), &budget(1 << 20, 1000)).await;
        assert!(matches!(read, Ok(Read::Whole(text, _)) if text == "\"\u{fffd}\""));
    }
}
