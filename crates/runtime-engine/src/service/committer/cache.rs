//! The runs that a committer holds ready, the least recently used forgotten first.

use crate::core::State;
use contract::RunId;
use std::collections::{BTreeMap, HashMap};

/// A run's state and the sequence number of the last event in it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) state: State,
    pub(crate) sequence: u64,
}

/// The part of the bytes that runs may take that have ended: of them only late reports are expected.
const ENDED_SHARE: usize = 8;

/// Bounded by the estimated bytes of the states.
#[derive(Debug)]
pub(super) struct Cache {
    capacity_bytes: usize,
    clock: u64,
    runs: HashMap<RunId, Place>,
    running: Shelf,
    ended: Shelf,
}

#[derive(Debug)]
struct Place {
    held: Held,
    size: usize,
    used: u64,
    has_ended: bool,
}

/// Runs of one kind by their last use.
#[derive(Debug, Default)]
struct Shelf {
    bytes: usize,
    by_use: BTreeMap<u64, RunId>,
}

impl Cache {
    pub(super) fn new(capacity_bytes: usize) -> Self {
        Self {
            capacity_bytes,
            clock: 0,
            runs: HashMap::new(),
            running: Shelf::default(),
            ended: Shelf::default(),
        }
    }

    fn shelf(&mut self, has_ended: bool) -> &mut Shelf {
        if has_ended { &mut self.ended } else { &mut self.running }
    }

    /// Takes a run out; it is the caller's until it is put back.
    pub(super) fn take(&mut self, run_id: RunId) -> Option<Held> {
        let Place { held, size, used, has_ended } = self.runs.remove(&run_id)?;
        let shelf = self.shelf(has_ended);
        shelf.by_use.remove(&used);
        shelf.bytes -= size;
        Some(held)
    }

    /// Holds a run, as the most recently used of its kind.
    pub(super) fn put(&mut self, run_id: RunId, held: Held) {
        self.take(run_id);
        self.clock += 1;
        let (size, used) = (held.state.size(), self.clock);
        let has_ended = held.state.status().is_terminal();
        let shelf = self.shelf(has_ended);
        shelf.bytes += size;
        shelf.by_use.insert(used, run_id);
        self.runs.insert(run_id, Place { held, size, used, has_ended });
        while self.ended.bytes > self.capacity_bytes / ENDED_SHARE {
            self.forget(true);
        }
        while self.running.bytes + self.ended.bytes > self.capacity_bytes {
            self.forget(!self.ended.by_use.is_empty());
        }
    }

    fn forget(&mut self, has_ended: bool) {
        let oldest = self.shelf(has_ended).by_use.first_key_value().map(|(_, run_id)| *run_id);
        oldest.map(|run_id| self.take(run_id));
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Fresh, *};
    use crate::core::{Graph, Input, Policy, RunStarted};
    use contract::{ProcessId, process::Process, run::TriggerKind};
    use serde_json::json;
    use std::sync::Arc;
    use uuid::Uuid;

    fn held(payload_bytes: usize) -> Held {
        // It waits for its one node.
        let process = json!({"widgets": [{"id": "p", "source": {"nodeType": "plugin.test"}}]});
        let process: Process = serde_json::from_value(process).unwrap();
        let graph = Arc::new(Graph::compile(&process).unwrap());
        let text = contract::Json::of(&"x".repeat(payload_bytes)).unwrap();
        let started = RunStarted {
            process_id: ProcessId(Uuid::nil()),
            process_revision: 1,
            workspace_id: "w".into(),
            user_id: "u".into(),
            trigger: TriggerKind::Manual,
            payload: [("p".to_owned(), text)].into_iter().collect(),
            pins: Default::default(),
            traceparent: None,
            tracestate: None,
            retry_of: None,
        };
        let now = contract::Millis(0);
        let (state, _) = State::start(
            RunId(Uuid::nil()),
            graph,
            (started, Default::default()),
            now,
            &Policy::default(),
            &mut Fresh(RunId(Uuid::nil())),
        )
        .unwrap();
        Held { state, sequence: 1 }
    }

    fn ended(payload_bytes: usize) -> Held {
        let mut held = held(payload_bytes);
        let (now, policy) = (contract::Millis(1), Policy::default());
        held.state.decide(Input::Cancel, now, &policy, &mut Fresh(held.state.run_id())).unwrap();
        held
    }

    fn run(number: u128) -> RunId {
        RunId(Uuid::from_u128(number))
    }

    #[test]
    fn the_least_recently_used_run_is_forgotten_first() {
        let mut cache = Cache::new(held(1_000).state.size() * 5 / 2);
        cache.put(run(1), held(1_000));
        cache.put(run(2), held(1_000));
        let first = cache.take(run(1)).unwrap();
        cache.put(run(1), first);
        cache.put(run(3), held(1_000));
        assert!(cache.take(run(2)).is_none());
        assert!(cache.take(run(1)).is_some() && cache.take(run(3)).is_some());
        assert_eq!((cache.running.bytes, cache.ended.bytes), (0, 0));
    }

    #[test]
    fn ended_runs_take_an_eighth_of_the_cache_and_go_before_running_ones() {
        let size = ended(1_000).state.size().max(held(1_000).state.size());
        let mut cache = Cache::new(size * ENDED_SHARE + size / 2);
        cache.put(run(1), held(1_000));
        cache.put(run(2), ended(1_000));
        assert!(cache.runs.contains_key(&run(2)));
        cache.put(run(3), ended(1_000));
        assert!(!cache.runs.contains_key(&run(2)), "two are more than an eighth");
        for number in 4..11 {
            cache.put(run(number), held(1_000));
        }
        assert!(!cache.runs.contains_key(&run(3)), "its room is wanted");
        assert!(cache.runs.contains_key(&run(1)));
    }

    #[test]
    fn a_run_larger_than_the_cache_is_not_held() {
        let mut cache = Cache::new(10);
        cache.put(RunId(Uuid::nil()), held(1_000));
        assert!(cache.take(RunId(Uuid::nil())).is_none());
    }
}
