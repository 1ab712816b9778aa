//! The one task that listens: an own pub/sub connection, renewed for as long as the queue lives.
//!
//! In a Cluster a message published on any node reaches all, so one node serves; after a failure
//! the next of the configured addresses is tried.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use redis::aio::PubSubSink;
use redis::{Client, ErrorKind, Msg, RedisError, Value};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::connection::CONNECT_TIMEOUT;
use super::hub::Hub;
use super::keys::{Channel, Keys};
use crate::Notice;
use crate::backoff::Backoff;

/// How often the connection is checked: a peer that died without a word is found by it.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// How long Redis may take to answer on this connection.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The running listener; ends when this is dropped.
#[derive(Debug)]
pub(super) struct Listener(JoinHandle<()>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Listener {
    pub(super) fn start(hub: Arc<Hub>, keys: Keys, clients: Vec<Client>) -> Self {
        Self(tokio::spawn(run(hub, keys, clients)))
    }
}

async fn run(hub: Arc<Hub>, keys: Keys, clients: Vec<Client>) {
    // No connection as long as nobody in this process waits for anything.
    hub.wanted_more.notified().await;
    let mut backoff = Backoff::new();
    for client in clients.iter().cycle() {
        let error = session(&hub, &keys, client, &mut backoff).await;
        hub.disconnected();
        let pause = backoff.next_pause();
        tracing::warn!(
            event = "queue.listener_lost",
            error = %error,
            retry_in_ms = pause.as_millis() as u64,
            "not listening to redis; takers poll and subscribers read again until it is back"
        );
        tokio::time::sleep(pause).await;
    }
}

/// Listens on one connection until it fails.
async fn session(hub: &Hub, keys: &Keys, client: &Client, backoff: &mut Backoff) -> RedisError {
    let (sink, stream) = match timeout(CONNECT_TIMEOUT, client.get_async_pubsub()).await {
        Ok(Ok(connection)) => connection.split(),
        Ok(Err(error)) => return error,
        Err(_) => return too_slow(),
    };
    tokio::select! {
        error = control(hub, keys, sink, backoff) => error,
        () = deliver(hub, keys, stream) => closed(),
    }
}

/// Subscribes to what is wanted, and checks that Redis is still there.
async fn control(hub: &Hub, keys: &Keys, mut sink: PubSubSink, backoff: &mut Backoff) -> RedisError {
    loop {
        let missing = hub.unconfirmed();
        let answer = if missing == 0 {
            timeout(ANSWER_TIMEOUT, sink.ping::<Value>()).await.map(|pong| pong.map(drop))
        } else {
            let names: Vec<String> = Channel::of_bits(missing).map(|channel| keys.channel(channel)).collect();
            timeout(ANSWER_TIMEOUT, sink.subscribe(names)).await
        };
        match answer {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error,
            Err(_) => return too_slow(),
        }
        if missing != 0 {
            tracing::info!(event = "queue.listening", channels = missing.count_ones(), "listening to redis");
            hub.confirm(missing);
        }
        backoff.reset();
        // Elapsed is the usual case: time for the next check.
        let _ = timeout(PING_INTERVAL, hub.wanted_more.notified()).await;
    }
}

/// Passes messages on until the connection ends.
async fn deliver(hub: &Hub, keys: &Keys, stream: impl Stream<Item = Msg>) {
    let mut stream = std::pin::pin!(stream);
    while let Some(message) = stream.next().await {
        match keys.channel_named(message.get_channel_name()) {
            Some(Channel::Wake(lane)) => hub.wake(lane).notify_one(),
            Some(Channel::Notice(topic)) => hub.publish(topic, notice(&message)),
            None => {}
        }
    }
}

/// What cannot be read as text was not sent by us; subscribers look for themselves.
fn notice(message: &Msg) -> Notice {
    match std::str::from_utf8(message.get_payload_bytes()) {
        Ok(text) => Notice::Message(text.to_owned()),
        Err(_) => Notice::Missed,
    }
}

fn too_slow() -> RedisError {
    (ErrorKind::Io, "redis did not answer in time").into()
}

fn closed() -> RedisError {
    (ErrorKind::Io, "the connection was closed").into()
}
