//! The backend within the process.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;

use crate::notices::{BACKLOG, Notice};
use crate::{Error, Lane, MAX_LANE_BYTES, MAX_LANE_ITEMS, Topic};

/// Lanes, topics and leases of one process.
#[derive(Debug)]
pub(crate) struct Memory {
    plugin: LaneBuffer,
    executor: LaneBuffer,
    topics: [broadcast::Sender<Notice>; Topic::ALL.len()],
    leases: Mutex<HashMap<String, Lease>>,
}

#[derive(Debug)]
struct Lease {
    holder: String,
    ends: Instant,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            plugin: LaneBuffer::default(),
            executor: LaneBuffer::default(),
            topics: std::array::from_fn(|_| broadcast::channel(BACKLOG).0),
            leases: Mutex::default(),
        }
    }
}

impl Memory {
    fn lane(&self, lane: Lane) -> &LaneBuffer {
        match lane {
            Lane::Plugin => &self.plugin,
            Lane::Executor => &self.executor,
        }
    }

    pub(crate) fn push(&self, lane: Lane, items: Vec<String>) -> Result<(), Error> {
        self.lane(lane).push(lane, items)
    }

    pub(crate) async fn take(&self, lane: Lane, max: usize, wait: Duration) -> Vec<String> {
        // An elapsed wait is the empty answer.
        tokio::time::timeout(wait, self.lane(lane).take(max)).await.unwrap_or_default()
    }

    pub(crate) fn depth(&self, lane: Lane) -> u64 {
        self.lane(lane).content.lock().items.len() as u64
    }

    pub(crate) fn notify(&self, topic: Topic, message: &str) {
        // An error only says that nobody listens.
        let _ = self.topics[topic as usize].send(Notice::Message(message.to_owned()));
    }

    pub(crate) fn subscribe(&self, topic: Topic) -> broadcast::Receiver<Notice> {
        self.topics[topic as usize].subscribe()
    }

    pub(crate) fn lease(&self, name: &str, holder: &str, ttl: Duration) -> bool {
        let now = Instant::now();
        let mut leases = self.leases.lock();
        leases.retain(|_, lease| lease.ends > now);
        if leases.get(name).is_some_and(|lease| lease.holder != holder) {
            return false;
        }
        let ends = now + ttl;
        leases.insert(name.to_owned(), Lease { holder: holder.to_owned(), ends });
        true
    }

    pub(crate) fn release(&self, name: &str, holder: &str) {
        let mut leases = self.leases.lock();
        if leases.get(name).is_some_and(|lease| lease.holder == holder) {
            leases.remove(name);
        }
    }
}

/// One bounded lane.
#[derive(Debug, Default)]
struct LaneBuffer {
    content: Mutex<Content>,
    /// Holds one permit when there may be items that no taker was woken for.
    wake: Notify,
}

#[derive(Debug, Default)]
struct Content {
    items: VecDeque<String>,
    bytes: usize,
}

impl LaneBuffer {
    /// All of `items` or none.
    fn push(&self, lane: Lane, items: Vec<String>) -> Result<(), Error> {
        if items.is_empty() {
            return Ok(());
        }
        let added: usize = items.iter().map(String::len).sum();
        {
            let mut content = self.content.lock();
            if content.items.len() + items.len() > MAX_LANE_ITEMS {
                return Err(Error::Full { lane, limit: MAX_LANE_ITEMS, unit: "items" });
            }
            if content.bytes + added > MAX_LANE_BYTES {
                return Err(Error::Full { lane, limit: MAX_LANE_BYTES, unit: "bytes" });
            }
            content.bytes += added;
            content.items.extend(items);
        }
        self.wake.notify_one();
        Ok(())
    }

    async fn take(&self, max: usize) -> Vec<String> {
        loop {
            // No await between taking and returning: a dropped call has taken nothing.
            let items = self.pop(max);
            if !items.is_empty() || max == 0 {
                return items;
            }
            self.wake.notified().await;
        }
    }

    fn pop(&self, max: usize) -> Vec<String> {
        let (items, more) = {
            let mut content = self.content.lock();
            let count = max.min(content.items.len());
            let items: Vec<String> = content.items.drain(..count).collect();
            content.bytes -= items.iter().map(String::len).sum::<usize>();
            (items, !content.items.is_empty())
        };
        // Pushes that came together left one permit: each taker passes it on while there is more.
        if more && !items.is_empty() {
            self.wake.notify_one();
        }
        items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_lane_refuses_the_whole_push_and_names_the_limit() {
        let memory = Memory::default();
        memory.push(Lane::Plugin, vec![String::new(); MAX_LANE_ITEMS - 1]).unwrap();

        let error = memory.push(Lane::Plugin, vec!["a".into(), "b".into()]).unwrap_err();

        assert!(matches!(error, Error::Full { limit: MAX_LANE_ITEMS, unit: "items", .. }));
        assert!(error.is_retryable());
        assert!(error.to_string().contains("lane plugin is full at its limit of 100000 items"));
        assert_eq!(memory.depth(Lane::Plugin), (MAX_LANE_ITEMS - 1) as u64);
        memory.push(Lane::Plugin, vec!["fits".into()]).unwrap();
        memory.push(Lane::Executor, vec!["another lane".into()]).unwrap();
    }

    #[test]
    fn the_bytes_of_a_lane_are_bounded_and_free_again_when_taken() {
        let memory = Memory::default();
        let quarter = || "x".repeat(MAX_LANE_BYTES / 4);
        memory.push(Lane::Plugin, vec![quarter(), quarter(), quarter(), quarter()]).unwrap();

        let error = memory.push(Lane::Plugin, vec!["y".into()]).unwrap_err();
        assert!(matches!(error, Error::Full { unit: "bytes", .. }));

        memory.lane(Lane::Plugin).pop(1);
        memory.push(Lane::Plugin, vec!["y".into()]).unwrap();
    }

    #[test]
    fn ended_leases_do_not_pile_up() {
        let memory = Memory::default();
        for n in 0..10 {
            memory.lease(&format!("lease-{n}"), "a", Duration::from_secs(60));
        }
        for lease in memory.leases.lock().values_mut() {
            lease.ends = Instant::now();
        }
        assert!(memory.lease("lease-3", "b", Duration::from_secs(60)));
        assert_eq!(memory.leases.lock().len(), 1);
    }
}
