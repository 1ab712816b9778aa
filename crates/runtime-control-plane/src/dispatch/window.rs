//! The dispatcher's window: how many tasks are under way in all and per endpoint, so that one slow
//! plugin never delays the tasks of others.
//!
//! A task whose endpoint has no room is parked in a bounded backlog of that endpoint. What does not
//! fit there is dropped: it is only a hint, and the engine's sweep publishes it again.

use crate::{DispatchLimits, metrics::Metrics};
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
    /// It is here already: the sweep has published it twice.
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
    parked_bytes: usize,
    closed: bool,
}

#[derive(Debug, Default)]
struct Lane {
    in_flight: usize,
    parked: VecDeque<(Task, usize)>,
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

    /// Waits until the window has room in all; for how many tasks.
    pub(super) async fn room(&self) -> usize {
        loop {
            let freed = self.freed.notified();
            let room = self.limits.in_flight.saturating_sub(self.state.lock().in_flight);
            if room > 0 {
                return room;
            }
            freed.await;
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
            let parked_bytes = state.parked_bytes.saturating_add(bytes);
            if lane.parked.len() >= self.limits.backlog_per_endpoint
                || parked_bytes > self.limits.backlog_bytes
            {
                return Admission::Full;
            }
            lane.parked.push_back((task, bytes));
            state.parked_bytes = parked_bytes;
            state.known.insert(execution_id);
            self.metrics.parked.inc();
            return Admission::Parked;
        }
        lane.in_flight += 1;
        state.in_flight += 1;
        state.known.insert(execution_id);
        self.start(target, task);
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

    fn start(self: &Arc<Self>, target: Target, task: Task) {
        self.metrics.in_flight.inc();
        let slot = Slot { window: Arc::clone(self), target, execution_id: task.execution_id };
        if let Err(mpsc::error::SendError(admitted)) = self.started.send(Admitted { task, slot }) {
            // The dispatcher has ended: nobody counts any more, and the lock is held here.
            std::mem::forget(admitted.slot);
        }
    }

    fn release(self: &Arc<Self>, target: &Target, execution_id: ExecutionId) {
        let state = &mut *self.state.lock();
        self.metrics.in_flight.dec();
        state.known.remove(&execution_id);
        let Some(lane) = state.targets.get_mut(target) else { return };
        if let Some((task, bytes)) = lane.parked.pop_front() {
            // The place goes to the next of the same endpoint; the counts stay.
            state.parked_bytes -= bytes;
            self.metrics.parked.dec();
            self.start(target.clone(), task);
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
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.window.release(&self.target, self.execution_id);
    }
}
