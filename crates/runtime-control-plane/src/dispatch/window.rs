//! The dispatcher's window: how many tasks are under way in all and per endpoint, so that one slow
//! plugin never delays the tasks of others.
//!
//! A task whose endpoint has no room is parked in a bounded backlog of that endpoint. What does not
//! fit there is dropped: it is only a hint, and the engine's sweep publishes it again.

use crate::{
    DispatchLimits,
    metrics::{Metrics, WindowLoad},
};
use contract::{ExecutionId, manifest::Endpoint, task::Task};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};
use tokio::sync::{Notify, mpsc};

/// Whose window a task needs; `None`: nobody is known to take it.
pub(super) type Target = Option<Endpoint>;

/// A task that may be dispatched now.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) task: Task,
    pub(super) slot: Slot,
}

/// What became of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It may be dispatched now.
    Started,
    /// It waits for its endpoint.
    Parked,
    /// It is here already (the sweep has published it again), or nothing is taken any more.
    Known,
    /// Its endpoint has no room and its backlog is full.
    Full,
}

/// The window.
#[derive(Debug)]
pub(super) struct Window {
    limits: DispatchLimits,
    state: Mutex<State>,
    started: mpsc::UnboundedSender<Admitted>,
    freed: Notify,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct State {
    targets: HashMap<Target, Lane>,
    known: HashSet<ExecutionId>,
    in_flight: usize,
    in_flight_bytes: usize,
    parked_bytes: usize,
    closed: bool,
}

#[derive(Debug, Default)]
struct Lane {
    in_flight: usize,
    parked: VecDeque<(Task, usize)>,
    parked_bytes: usize,
}

impl Window {
    /// A window; what it admits comes out of the receiver. That is bounded by the window itself.
    pub(super) fn new(
        limits: DispatchLimits,
        metrics: Arc<Metrics>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Admitted>) {
        let (started, admitted) = mpsc::unbounded_channel();
        let window = Self { limits, state: Mutex::default(), started, freed: Notify::new(), metrics };
        (Arc::new(window), admitted)
    }

    /// Waits until the window has room in all, by number and by bytes; for how many tasks. Their
    /// bytes are not known before they are taken: the bound may be exceeded by them once.
    pub(super) async fn room(&self) -> usize {
        loop {
            let room = {
                let state = self.state.lock();
                match state.in_flight_bytes < self.limits.in_flight_bytes {
                    true => self.limits.in_flight.saturating_sub(state.in_flight),
                    false => 0,
                }
            };
            if room > 0 {
                return room;
            }
            // A notification between the look and the wait is kept.
            self.freed.notified().await;
        }
    }

    /// How much is under way and waits, by endpoint, for operators.
    pub(super) fn loads(&self) -> Vec<WindowLoad> {
        let state = self.state.lock();
        let named =
            |target: &Target| target.as_ref().map_or_else(|| "unknown".to_owned(), Endpoint::to_string);
        let lanes = state.targets.iter();
        lanes
            .map(|(target, lane)| WindowLoad {
                endpoint: named(target),
                in_flight: lane.in_flight,
                parked: lane.parked.len(),
            })
            .collect()
    }

    /// Waits until nothing is in the window. Nobody may wait for [`Self::room`] meanwhile.
    pub(super) async fn empty(&self) {
        while self.state.lock().in_flight > 0 {
            self.freed.notified().await;
        }
    }

    /// Starts the task, parks it, or leaves it to the sweep. `bytes` is its size.
    pub(super) fn admit(self: &Arc<Self>, target: Target, task: Task, bytes: usize) -> Admission {
        let state = &mut *self.state.lock();
        let execution_id = task.execution_id;
        if state.closed || state.known.contains(&execution_id) {
            return Admission::Known;
        }
        let lane = state.targets.entry(target.clone()).or_default();
        if lane.in_flight >= self.limits.in_flight_per_endpoint {
            let of_lane = lane.parked_bytes.saturating_add(bytes);
            let of_all = state.parked_bytes.saturating_add(bytes);
            if lane.parked.len() >= self.limits.backlog_per_endpoint
                || of_lane > self.limits.backlog_bytes / 2
                || of_all > self.limits.backlog_bytes
            {
                return Admission::Full;
            }
            lane.parked.push_back((task, bytes));
            lane.parked_bytes = of_lane;
            state.parked_bytes = of_all;
            state.known.insert(execution_id);
            self.metrics.parked.inc();
            return Admission::Parked;
        }
        lane.in_flight += 1;
        state.in_flight += 1;
        state.in_flight_bytes = state.in_flight_bytes.saturating_add(bytes);
        state.known.insert(execution_id);
        self.start(target, task, bytes);
        Admission::Started
    }

    /// Starts nothing any more; the tasks that waited, to be given to others.
    pub(super) fn close(&self) -> Vec<Task> {
        let state = &mut *self.state.lock();
        state.closed = true;
        state.parked_bytes = 0;
        let parked: Vec<_> = state.targets.values_mut().flat_map(|lane| lane.parked.drain(..)).collect();
        self.metrics.parked.dec_by(i64::try_from(parked.len()).unwrap_or(i64::MAX));
        parked.into_iter().map(|(task, _)| task).collect()
    }

    fn start(self: &Arc<Self>, target: Target, task: Task, bytes: usize) {
        self.metrics.in_flight.inc();
        let slot = Slot { window: Arc::clone(self), target, execution_id: task.execution_id, bytes };
        if let Err(mpsc::error::SendError(admitted)) = self.started.send(Admitted { task, slot }) {
            // The dispatcher has ended: nobody counts any more, and the lock is held here.
            std::mem::forget(admitted.slot);
        }
    }

    fn release(self: &Arc<Self>, target: &Target, execution_id: ExecutionId, bytes: usize) {
        let state = &mut *self.state.lock();
        self.metrics.in_flight.dec();
        state.known.remove(&execution_id);
        state.in_flight_bytes = state.in_flight_bytes.saturating_sub(bytes);
        let Some(lane) = state.targets.get_mut(target) else { return };
        if let Some((task, bytes)) = lane.parked.pop_front() {
            // The place goes to the next of the same endpoint; the counts stay.
            lane.parked_bytes -= bytes;
            state.parked_bytes -= bytes;
            state.in_flight_bytes = state.in_flight_bytes.saturating_add(bytes);
            self.metrics.parked.dec();
            self.start(target.clone(), task, bytes);
            self.freed.notify_one();
            return;
        }
        lane.in_flight -= 1;
        if lane.in_flight == 0 {
            state.targets.remove(target);
        }
        state.in_flight -= 1;
        self.freed.notify_one();
    }
}

/// A task's place in the window; given back on drop.
#[derive(Debug)]
pub(super) struct Slot {
    window: Arc<Window>,
    target: Target,
    execution_id: ExecutionId,
    bytes: usize,
}

impl Slot {
    /// The size of its task.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.window.release(&self.target, self.execution_id, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{NodePath, ProcessId, RunId};

    const LIMITS: DispatchLimits = DispatchLimits {
        in_flight: 3,
        in_flight_bytes: 50,
        in_flight_per_endpoint: 2,
        backlog_per_endpoint: 2,
        backlog_bytes: 100,
        listening: 1,
    };

    type Started = mpsc::UnboundedReceiver<Admitted>;

    fn window(limits: DispatchLimits) -> (Arc<Window>, Started) {
        Window::new(limits, Arc::new(Metrics::new()))
    }

    fn target(port: u16) -> Target {
        Some(Endpoint { host: "plugin".into(), port })
    }

    fn task(number: u128) -> Task {
        let uuid = uuid::Uuid::from_u128(number);
        Task {
            run_id: RunId(uuid),
            execution_id: ExecutionId(uuid),
            node_id: "w".into(),
            node_path: NodePath("w".into()),
            node_type: "x".into(),
            attempt: 1,
            inputs: Default::default(),
            secrets: Vec::new(),
            outputs: Vec::new(),
            workspace_id: "default".into(),
            user_id: "local".into(),
            diagram_id: ProcessId(uuid),
            publication_id: None,
            timeout_ms: 1,
            traceparent: None,
            tracestate: None,
        }
    }

    fn number(admitted: &Admitted) -> u128 {
        admitted.task.execution_id.0.as_u128()
    }

    #[test]
    fn full_endpoint_parks_then_drops_and_leaves_others_alone() {
        let (window, mut started) = window(LIMITS);
        let admissions: Vec<_> = (1..=5).map(|n| window.admit(target(1), task(n), 1)).collect();
        use Admission::{Full, Parked, Started};
        assert_eq!(admissions, [Started, Started, Parked, Parked, Full]);
        assert_eq!(window.admit(target(2), task(6), 1), Started);
        let order: Vec<_> = std::iter::from_fn(|| started.try_recv().ok()).map(|a| (number(&a), a)).collect();
        assert_eq!(order.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 2, 6]);
    }

    #[test]
    fn place_goes_to_the_next_of_the_same_endpoint() {
        let (window, mut started) = window(LIMITS);
        (1..=4).for_each(|n| {
            window.admit(target(1), task(n), 1);
        });
        let first = started.try_recv().unwrap();
        let second = started.try_recv().unwrap();
        assert!(started.try_recv().is_err());
        drop(first);
        assert_eq!(number(&started.try_recv().unwrap()), 3);
        // The third was dropped at once, so the fourth follows.
        assert_eq!(number(&started.try_recv().unwrap()), 4);
        drop(second);
        assert!(window.state.lock().targets.is_empty() && window.state.lock().known.is_empty());
        assert_eq!(window.state.lock().in_flight, 0);
    }

    #[test]
    fn task_that_is_here_already_is_not_taken_twice() {
        let (window, mut started) = window(LIMITS);
        for (n, expected) in [(1, Admission::Started), (2, Admission::Started), (3, Admission::Parked)] {
            assert_eq!(window.admit(target(1), task(n), 1), expected);
            assert_eq!(window.admit(target(1), task(n), 1), Admission::Known);
        }
        while started.try_recv().is_ok() {}
        assert_eq!(
            window.admit(target(1), task(1), 1),
            Admission::Started,
            "it is gone, so it may come again"
        );
    }

    #[test]
    fn backlog_is_bounded_in_bytes_over_all_endpoints() {
        let (window, _started) = window(DispatchLimits { in_flight_per_endpoint: 1, ..LIMITS });
        window.admit(target(1), task(1), 1);
        window.admit(target(2), task(2), 1);
        window.admit(target(3), task(3), 1);
        assert_eq!(window.admit(target(1), task(4), 50), Admission::Parked);
        assert_eq!(window.admit(target(2), task(5), 40), Admission::Parked);
        assert_eq!(window.admit(target(3), task(6), 20), Admission::Full);
        assert_eq!(window.admit(target(3), task(7), 10), Admission::Parked);
    }

    #[test]
    fn one_endpoint_takes_half_of_the_backlog_at_most() {
        let (window, mut started) = window(DispatchLimits { in_flight_per_endpoint: 1, ..LIMITS });
        let first = (window.admit(target(1), task(1), 1), started.try_recv().unwrap());
        assert_eq!(window.admit(target(1), task(2), 51), Admission::Full);
        assert_eq!(window.admit(target(1), task(3), 50), Admission::Parked);
        assert_eq!(window.admit(target(1), task(4), 1), Admission::Full);
        drop(first);
        assert_eq!(window.admit(target(1), task(4), 50), Admission::Parked, "what left makes room");
    }

    #[tokio::test]
    async fn room_comes_back_with_the_places() {
        let (window, mut started) = window(LIMITS);
        assert_eq!(window.room().await, 3);
        window.admit(target(1), task(1), 1);
        window.admit(target(1), task(2), 1);
        window.admit(target(2), task(3), 1);
        let waiting = tokio::spawn({
            let window = Arc::clone(&window);
            async move { window.room().await }
        });
        drop(started.try_recv().unwrap());
        assert_eq!(waiting.await.unwrap(), 1);
    }

    #[tokio::test]
    async fn large_tasks_fill_the_window_by_their_bytes() {
        let (window, mut started) = window(LIMITS);
        window.admit(target(1), task(1), 50);
        assert!(tokio::time::timeout(std::time::Duration::ZERO, window.room()).await.is_err());
        drop(started.try_recv().unwrap());
        assert_eq!(window.room().await, 3);
    }

    #[tokio::test]
    async fn closed_window_gives_its_parked_tasks_back_and_empties() {
        let (window, mut started) = window(DispatchLimits { in_flight_per_endpoint: 1, ..LIMITS });
        window.admit(target(1), task(1), 1);
        window.admit(target(1), task(2), 1);
        let parked = window.close();
        assert_eq!(parked.iter().map(|task| task.execution_id.0.as_u128()).collect::<Vec<_>>(), [2]);
        assert_eq!(window.admit(target(2), task(3), 1), Admission::Known);
        let emptied = tokio::spawn({
            let window = Arc::clone(&window);
            async move { window.empty().await }
        });
        drop(started.try_recv().unwrap());
        emptied.await.unwrap();
        assert!(started.try_recv().is_err());
    }
}
