//! The backend over Redis.
//!
//! A lane is a list: `push` appends and publishes a wake-up in one script, `take` pops without
//! blocking and waits for wake-ups in between, with a slow poll in case one got lost. So any number
//! of takers wait on one listening connection, and no connection is ever blocked.

mod connection;
mod hub;
mod keys;
mod lease;
mod listener;
mod take;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Client, RedisError, RedisResult, Script};
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep, timeout};

pub use connection::RedisSettings;

use connection::{Connection, OPERATION_TIMEOUT, classify};
use hub::Hub;
use keys::{Channel, Keys};
use listener::Listener;

use crate::backoff::Backoff;
use crate::notices::Notice;
use crate::{Error, Lane, MAX_LANE_ITEMS, Topic};

/// How many items, and about how many bytes, one command carries.
const CHUNK_ITEMS: usize = 1000;
const CHUNK_BYTES: usize = 8 * 1024 * 1024;

/// How long a start waits for a Redis that is not there.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// `KEYS[1]` the lane; `ARGV`: command to add with, limit of items, channel of wake-ups, items.
/// Answers 0 if the items would not fit.
const ADD: &str = r"
if redis.call('LLEN', KEYS[1]) + #ARGV - 3 > tonumber(ARGV[2]) then
  return 0
end
redis.call(ARGV[1], KEYS[1], unpack(ARGV, 4))
redis.call('PUBLISH', ARGV[3], '')
return 1";

/// At which end of a lane items are added.
#[derive(Clone, Copy)]
enum End {
    Tail,
    Head,
}

/// A connection to Redis with everything that hangs on it.
pub(crate) struct Shared {
    connection: Connection,
    keys: Keys,
    hub: Arc<Hub>,
    add: Script,
    lease: lease::Scripts,
    _listener: Listener,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("connection", &self.connection)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) async fn connect(settings: &RedisSettings) -> Result<Self, Error> {
        let keys = Keys::new(&settings.prefix)?;
        let clients = settings.clients()?;
        let connection = open_patiently(&clients, settings.cluster).await?;
        let hub = Arc::new(Hub::new());
        let shared = Self {
            connection,
            keys: keys.clone(),
            hub: Arc::clone(&hub),
            add: Script::new(ADD),
            lease: lease::Scripts::new(),
            _listener: Listener::start(hub, keys, clients),
        };
        shared.depth(Lane::Plugin).await?;
        Ok(shared)
    }

    /// Runs an operation within the time limit. If the connection broke it is tried once more:
    /// everything here may happen twice.
    async fn call<T, F, R>(&self, name: &'static str, operation: F) -> Result<T, Error>
    where
        F: Fn(Connection) -> R,
        R: Future<Output = RedisResult<T>>,
    {
        bounded(name, async {
            match operation(self.connection.clone()).await {
                Err(error) if error.is_unrecoverable_error() => operation(self.connection.clone()).await,
                outcome => outcome,
            }
        })
        .await
    }

    pub(crate) async fn push(&self, lane: Lane, items: Vec<String>) -> Result<(), Error> {
        let mut rest = items.as_slice();
        while !rest.is_empty() {
            let (chunk, tail) = rest.split_at(chunk_len(rest));
            self.add("push", lane, End::Tail, chunk.iter()).await?;
            rest = tail;
        }
        Ok(())
    }

    async fn add(
        &self,
        name: &'static str,
        lane: Lane,
        end: End,
        items: impl Iterator<Item = &String>,
    ) -> Result<(), Error> {
        let mut invocation = self.add.prepare_invoke();
        invocation
            .key(self.keys.lane(lane))
            .arg(match end {
                End::Tail => "RPUSH",
                End::Head => "LPUSH",
            })
            .arg(MAX_LANE_ITEMS)
            .arg(self.keys.channel(Channel::Wake(lane)));
        for item in items {
            invocation.arg(item);
        }
        let invocation = &invocation;
        let added: bool = self
            .call(name, |mut connection| async move { invocation.invoke_async(&mut connection).await })
            .await?;
        if added { Ok(()) } else { Err(Error::Full { lane, limit: MAX_LANE_ITEMS, unit: "items" }) }
    }

    pub(crate) async fn depth(&self, lane: Lane) -> Result<u64, Error> {
        let command = redis::cmd("LLEN").arg(self.keys.lane(lane)).to_owned();
        let command = &command;
        self.call("depth", |mut connection| async move { command.query_async(&mut connection).await }).await
    }

    pub(crate) async fn notify(&self, topic: Topic, message: &str) -> Result<(), Error> {
        let channel = self.keys.channel(Channel::Notice(topic));
        let command = redis::cmd("PUBLISH").arg(channel).arg(message).to_owned();
        let command = &command;
        let _reached: i64 = self
            .call("notify", |mut connection| async move { command.query_async(&mut connection).await })
            .await?;
        Ok(())
    }

    pub(crate) async fn subscribe(&self, topic: Topic) -> broadcast::Receiver<Notice> {
        self.hub.subscribe(topic, OPERATION_TIMEOUT).await
    }
}

/// Opens the first connection. Services and Redis often start together, so an absent Redis gets
/// some seconds to appear.
async fn open_patiently(clients: &[Client], cluster: bool) -> Result<Connection, Error> {
    let start = Instant::now();
    let mut backoff = Backoff::new();
    loop {
        match bounded("connect", Connection::open(clients, cluster)).await {
            Err(error) if error.is_retryable() && start.elapsed() < START_PATIENCE => {
                tracing::info!(event = "queue.waiting_for_redis", %error, "redis is not there yet");
                sleep(backoff.next_pause()).await;
            }
            outcome => return outcome,
        }
    }
}

/// Runs a future of Redis within the time limit of an operation.
async fn bounded<T>(
    operation: &'static str,
    future: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, Error> {
    match timeout(OPERATION_TIMEOUT, future).await {
        Ok(outcome) => outcome.map_err(|error| classify(operation, error)),
        Err(elapsed) => Err(Error::Unavailable { operation, source: Box::new(elapsed) }),
    }
}

/// How many of the first items fit into one command; at least one.
fn chunk_len(items: &[String]) -> usize {
    let mut bytes = 0;
    let fitting = items
        .iter()
        .take(CHUNK_ITEMS)
        .take_while(|item| {
            bytes += item.len();
            bytes <= CHUNK_BYTES
        })
        .count();
    fitting.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_carries_a_bounded_number_of_items_and_bytes_but_at_least_one_item() {
        let half = "x".repeat(CHUNK_BYTES / 2);
        let cases = [
            (vec![String::new(); CHUNK_ITEMS + 1], CHUNK_ITEMS),
            (vec![half.clone(), half.clone(), "y".into()], 2),
            (vec![half.repeat(3), "y".into()], 1),
        ];
        for (items, expected) in cases {
            assert_eq!(chunk_len(&items), expected);
        }
    }
}
