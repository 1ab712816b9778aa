//! Tasks of plugins that may have only so many attempts at once (protocol section 6, *Limits*).
//!
//! The database counts: a claim of such a task needs one of its plugin's places, whichever control
//! plane asks. A task that finds none waits here, out of the window, so that it holds nothing that other
//! plugins need; it stays queued, and the lane and the sweep go on treating it as that. It is tried again
//! when a run that has a place goes on, which the engine's notices tell, and every second, because
//! notices may be lost. While nobody waits nothing is listened to.

mod room;

use super::{Admission, Batcher, CLAIMS, Dispatcher, Window, window::Slot};
use contract::{ExecutionId, RunId, task::Task};
use indexmap::IndexMap;
use parking_lot::Mutex;
use queue::{Notice, Notices, Queue, Topic};
use room::{Bounds, Room};
use std::{collections::HashSet, sync::Arc, time::Duration};
use storage::{
    Storage,
    runs::{PlaceClaim, Runs},
};
use tokio::{
    sync::Notify,
    time::{Interval, MissedTickBehavior, interval},
};

/// How often those who wait are tried again, whatever becomes of notices.
const POLL: Duration = Duration::from_secs(1);

/// How many of a line are tried at once; each that gets a place has as many more tried.
const TRIED: usize = 4;

/// A claim of a task whose plugin has a limit.
#[derive(Debug)]
struct Wish {
    plugin_id: Arc<str>,
    execution_id: ExecutionId,
}

/// What became of it.
#[derive(Clone, Debug)]
enum Answer {
    Granted,
    /// These runs have the places.
    Full(Arc<[RunId]>),
    Gone,
}

/// The claims and the room.
#[derive(Debug)]
pub(super) struct Places {
    claims: Batcher<Wish, Option<Answer>>,
    room: Mutex<Room>,
    /// The first has come to wait.
    came: Notify,
    /// Plugins that have just given a place: there may be more.
    granted: Mutex<HashSet<Arc<str>>>,
    more: Notify,
}

impl Places {
    pub(super) fn new(storage: &Storage, delivery: Duration, limits: &crate::DispatchLimits) -> Self {
        let bounds = Bounds { tasks: limits.backlog_per_endpoint, bytes: limits.backlog_bytes };
        Self {
            claims: claims(storage.runs(), delivery),
            room: Mutex::new(Room::new(bounds)),
            came: Notify::new(),
            granted: Mutex::default(),
            more: Notify::new(),
        }
    }

    /// Takes out all that wait.
    pub(super) fn close(&self) -> Vec<Task> {
        self.room.lock().drain()
    }

    async fn claim(&self, plugin_id: &Arc<str>, execution_id: ExecutionId) -> Option<Answer> {
        let wish = Wish { plugin_id: Arc::clone(plugin_id), execution_id };
        let answer = self.claims.submit(wish, 1).await.flatten();
        if matches!(answer, Some(Answer::Granted)) && self.room.lock().has_line(plugin_id) {
            self.granted.lock().insert(Arc::clone(plugin_id));
            self.more.notify_one();
        }
        answer
    }

    /// Waits for a reason to try again.
    async fn reason(&self, notices: &mut Option<Notices>, ticks: &mut Interval) -> Reason {
        let told = async {
            match notices {
                Some(notices) => notices.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            notice = told => Reason::Heard(match notice {
                Notice::Message(run_id) => {
                    run_id.parse().map(|run_id| self.room.lock().held_by(run_id)).unwrap_or_default()
                }
                Notice::Missed => self.room.lock().lines(),
            }),
            () = self.more.notified() => Reason::Heard(self.granted.lock().drain().collect()),
            _ = ticks.tick() => Reason::Poll(self.room.lock().lines()),
        }
    }
}

/// Why the lines of these plugins are tried again.
enum Reason {
    /// A place may have become free.
    Heard(Vec<Arc<str>>),
    /// It is time.
    Poll(Vec<Arc<str>>),
}

/// Claims in the database, many in one statement per plugin. A failed statement answers nobody.
fn claims(runs: Runs, delivery: Duration) -> Batcher<Wish, Option<Answer>> {
    Batcher::start(CLAIMS, move |wishes: Vec<Wish>| {
        let runs = runs.clone();
        async move {
            let mut answers = vec![None; wishes.len()];
            let mut plugins: IndexMap<Arc<str>, (Vec<usize>, Vec<ExecutionId>)> = IndexMap::new();
            for (place, wish) in wishes.into_iter().enumerate() {
                let (places, ids) = plugins.entry(wish.plugin_id).or_default();
                places.push(place);
                ids.push(wish.execution_id);
            }
            for (plugin_id, (places, ids)) in plugins {
                match runs.claim_places(&plugin_id, &ids, delivery).await {
                    Ok(claims) => {
                        let holders: Arc<[RunId]> = claims.holders.into();
                        for (place, claim) in places.into_iter().zip(claims.answers) {
                            answers[place] = Some(match claim {
                                PlaceClaim::Granted => Answer::Granted,
                                PlaceClaim::Full => Answer::Full(Arc::clone(&holders)),
                                PlaceClaim::Gone => Answer::Gone,
                            });
                        }
                    }
                    Err(error) => tracing::warn!(
                        event = "claim_failed",
                        plugin_id = &*plugin_id,
                        tasks = ids.len(),
                        error = %error,
                        "tasks cannot be claimed now; the engine's sweep publishes them again"
                    ),
                }
            }
            answers
        }
    })
}

impl Dispatcher {
    /// The plugin that would get the task, when it has a limit.
    fn limited_plugin(&self, task: &Task) -> Option<Arc<str>> {
        let snapshot = self.catalogue.current()?;
        let plugin = snapshot.limited_plugin(&task.node_type, task.publication_id)?;
        Some(plugin.plugin_id.as_str().into())
    }

    /// Lets a task wait behind others of its plugin; gives it back when none wait.
    pub(super) fn behind_others(&self, task: Task, bytes: usize) -> Option<Task> {
        match self.limited_plugin(&task) {
            Some(plugin_id) if self.places.room.lock().has_line(&plugin_id) => {
                self.wait(&plugin_id, task, bytes);
                None
            }
            _ => Some(task),
        }
    }

    fn wait(&self, plugin_id: &Arc<str>, task: Task, bytes: usize) {
        let execution_id = task.execution_id;
        let has_room = {
            let mut room = self.places.room.lock();
            let has_room = room.put(plugin_id, task, bytes);
            self.metrics.waiting(room.waiting());
            has_room
        };
        if has_room {
            self.places.came.notify_one();
            return;
        }
        self.metrics.dispatch("backlog_full", "");
        tracing::debug!(
            event = "backlog_full",
            execution_id = %execution_id,
            plugin_id = &**plugin_id,
            "too many tasks wait for the plugin's places; the engine's sweep publishes it again"
        );
    }

    /// Claims a task in the database; `None`: it is not to be dispatched here and now.
    pub(super) async fn claimed(&self, task: Task, slot: Slot) -> Option<(Task, Slot)> {
        let granted = match self.limited_plugin(&task) {
            None => self.claims.submit(task.execution_id, 1).await,
            Some(plugin_id) => match Box::pin(self.places.claim(&plugin_id, task.execution_id)).await {
                Some(Answer::Full(holders)) => {
                    self.metrics.dispatch("limit_reached", "");
                    let bytes = slot.bytes();
                    drop(slot);
                    self.wait(&plugin_id, task, bytes);
                    self.places.room.lock().learn(&plugin_id, &holders);
                    return None;
                }
                answer => answer.map(|answer| matches!(answer, Answer::Granted)),
            },
        };
        if granted == Some(true) {
            return Some((task, slot));
        }
        self.metrics.dispatch(if granted.is_some() { "not_granted" } else { "claim_failed" }, "");
        None
    }

    /// Tries again those who wait for a place, until no task is taken any more.
    pub(super) async fn serve_waiting(self: Arc<Self>, queue: Queue, window: Arc<Window>) {
        let stop = self.stops.taking.clone();
        stop.run_until_cancelled(async {
            loop {
                self.places.came.notified().await;
                self.serve_lines(&queue, &window).await;
            }
        })
        .await;
    }

    /// Until nobody has waited for a poll's time: those who are tried are out of the room for a moment,
    /// and come back when they find no place.
    async fn serve_lines(&self, queue: &Queue, window: &Arc<Window>) {
        // Without notices the poll goes on.
        let mut notices = queue.subscribe(Topic::Runs).await.ok();
        let mut ticks = interval(POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is at once: a place may have become free before the subscription.
        let mut is_first = true;
        loop {
            let lines = match self.places.reason(&mut notices, &mut ticks).await {
                Reason::Poll(lines) if lines.is_empty() && !is_first => return,
                Reason::Poll(lines) => {
                    is_first = false;
                    lines
                }
                Reason::Heard(lines) => lines,
            };
            for plugin_id in lines {
                self.try_again(&plugin_id, window);
            }
        }
    }

    fn try_again(&self, plugin_id: &str, window: &Arc<Window>) {
        let is_limited = self.catalogue.current().is_none_or(|catalogue| catalogue.is_limited(plugin_id));
        let tried = {
            let mut room = self.places.room.lock();
            let tried = room.take(plugin_id, if is_limited { TRIED } else { usize::MAX });
            self.metrics.waiting(room.waiting());
            tried
        };
        for (task, bytes) in tried {
            if window.admit(self.target(&task), task, bytes) == Admission::Full {
                self.metrics.dispatch("backlog_full", "");
            }
        }
    }
}
