//! Calls whose delivery matters apart from their reply: the peer has the request, its reply may come
//! much later or never (protocol section 3, "Task").

use super::{
    CallError, Client,
    connection::{Call, Connection},
    pattern_json,
};
use crate::{packet, secret::Payload};
use contract::Json;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout_at},
};

/// A request that was handed whole to the socket. Dropping it forgets the call.
#[derive(Debug)]
pub struct Sent {
    call: Call,
    _permit: OwnedSemaphorePermit,
}

impl Sent {
    /// Waits for the reply, without a deadline of its own. Cancel-safe; must not be called again
    /// after it has answered.
    ///
    /// # Errors
    /// [`CallError::Closed`] when the connection ended first, and what the other side replied.
    pub async fn reply(&mut self) -> Result<Json, CallError> {
        self.call.outcome().await.unwrap_or(Err(CallError::Closed { written: true }))
    }
}

/// The connection that an event was written to.
#[derive(Debug)]
pub struct Link(Arc<Connection>);

impl Link {
    /// Waits until the connection has ended.
    pub async fn closed(&self) {
        self.0.outbox().failed().await;
    }
}

impl Client {
    /// Sends a request; done when it was handed whole to the socket. The reply is waited for by
    /// [`Sent::reply`], and the call counts as in flight until [`Sent`] is dropped.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn send(
        &self,
        pattern: &str,
        data: impl Into<Payload<'_>>,
        deadline: Duration,
    ) -> Result<Sent, CallError> {
        let data = data.into();
        let until = Instant::now() + deadline;
        let permit = match timeout_at(until, Arc::clone(&self.0.in_flight).acquire_owned()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) | Err(_) => return Err(CallError::Overloaded),
        };
        let connection = self.connection(until, data.text.len()).await?;
        let call = connection.begin().ok_or(CallError::Closed { written: false })?;
        let frame = self.sized(packet::write_request(&pattern_json(pattern), data, call.id()))?;
        let end = self.push(&connection, frame)?;
        written(&connection, end, until).await?;
        Ok(Sent { call, _permit: permit })
    }

    /// [`Self::emit`] that also hands out the connection, so that its end can be noticed.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn send_event(
        &self,
        pattern: &str,
        data: impl Into<Payload<'_>>,
        deadline: Duration,
    ) -> Result<Link, CallError> {
        let data = data.into();
        let until = Instant::now() + deadline;
        let (connection, _permit) = self.ready(until, data.text.len()).await?;
        let frame = self.sized(packet::write_event(&pattern_json(pattern), data))?;
        let end = self.push(&connection, frame)?;
        written(&connection, end, until).await?;
        Ok(Link(connection))
    }
}

async fn written(connection: &Connection, end: u64, until: Instant) -> Result<(), CallError> {
    match timeout_at(until, connection.outbox().flushed(end)).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(CallError::Closed { written: false }),
        Err(_) => Err(CallError::Timeout { written: false, alive: connection.is_open() }),
    }
}
