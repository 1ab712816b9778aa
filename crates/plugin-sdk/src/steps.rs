//! The steps of a plugin: which tasks are taken, and that all of them are finished before it stops.

use crate::{node::RunnableNode, reporter::Reporter, settings::StepSettings, worker::perform};
use contract::{ErrorCode, ExecutionId, Json, RpcError, task::ExecutorTask};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Semaphore, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How many attempts are remembered, so that a task delivered twice is not done twice.
const REMEMBERED: usize = 4096;

/// The steps of one plugin.
#[derive(Debug)]
pub(crate) struct Steps {
    nodes: HashMap<String, RunnableNode>,
    reporter: Reporter,
    settings: StepSettings,
    room: Arc<Semaphore>,
    seen: Mutex<Seen>,
    tasks: TaskTracker,
    draining: CancellationToken,
    abandoned: CancellationToken,
}

impl Steps {
    pub(crate) fn new(
        nodes: impl IntoIterator<Item = RunnableNode>,
        reporter: Reporter,
        settings: StepSettings,
    ) -> Self {
        let room = Arc::new(Semaphore::new(settings.max_in_flight.clamp(1, Semaphore::MAX_PERMITS)));
        Self {
            nodes: nodes.into_iter().map(|node| (node.item.node_type.clone(), node)).collect(),
            reporter,
            settings,
            room,
            seen: Mutex::default(),
            tasks: TaskTracker::new(),
            draining: CancellationToken::new(),
            abandoned: CancellationToken::new(),
        }
    }

    /// Takes a task and starts its work; `Ok` means delivered. A task that was delivered before is
    /// delivered again and starts nothing.
    pub(crate) fn take(&self, task: ExecutorTask) -> Result<(), RpcError> {
        let Some(node) = self.nodes.get(&task.node_type) else {
            let message =
                format!("this plugin has no node type {:?}; publish its present version", task.node_type);
            return Err(RpcError::new(ErrorCode::NodeTypeUnknown, message));
        };
        let mut seen = self.seen();
        if seen.contains(task.execution_id) {
            return Ok(());
        }
        if self.draining.is_cancelled() {
            return Err(RpcError::new(
                ErrorCode::Unavailable,
                "the plugin is stopping; deliver the task again",
            ));
        }
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            let limit = self.settings.max_in_flight;
            let message = format!(
                "{limit} steps are under way, which is the limit (PLUGIN_MAX_IN_FLIGHT); deliver the task again later"
            );
            return Err(RpcError::new(ErrorCode::Overloaded, message));
        };
        seen.insert(task.execution_id);
        drop(seen);
        let step = perform(task, node.clone(), self.reporter.clone(), self.settings.clone());
        let abandoned = self.abandoned.clone();
        self.tasks.spawn(async move {
            if abandoned.run_until_cancelled(step).await.is_none() {
                tracing::error!(
                    event = "step_abandoned",
                    "a step was not finished and reported within the time to stop"
                );
            }
            drop(room);
        });
        Ok(())
    }

    /// Are no more tasks taken?
    pub(crate) fn is_closed(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Steps that are not finished and reported.
    pub(crate) fn in_flight(&self) -> usize {
        self.tasks.len()
    }

    /// Takes no more tasks.
    pub(crate) fn close(&self) {
        self.draining.cancel();
        self.tasks.close();
    }

    /// Waits until what is under way is finished and reported, at most for `limit`.
    pub(crate) async fn drained(&self, limit: Duration) {
        self.close();
        if timeout(limit, self.tasks.wait()).await.is_err() {
            self.abandoned.cancel();
            self.tasks.wait().await;
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // A set that only grows and forgets is whole whatever its holder was doing.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The attempts that were taken lately.
#[derive(Debug, Default)]
struct Seen {
    order: VecDeque<ExecutionId>,
    set: std::collections::HashSet<ExecutionId>,
}

impl Seen {
    fn contains(&self, id: ExecutionId) -> bool {
        self.set.contains(&id)
    }

    fn insert(&mut self, id: ExecutionId) {
        if self.set.insert(id) {
            self.order.push_back(id);
        }
        while self.order.len() > REMEMBERED {
            if let Some(oldest) = self.order.pop_front() {
                self.set.remove(&oldest);
            }
        }
    }
}

/// The reply to a delivered task. It must carry neither `status` nor `outputs`: those would make it
/// the result.
pub(crate) fn delivered() -> Json {
    Json::from(serde_json::json!({ "delivered": true }))
}
