//! Steps under way: from a task to its answered result.

use crate::{
    Context, Failure, Values,
    node::{RunnableNode, Work},
    reporter::{Reporter, Told},
    settings::StepSettings,
};
use contract::{
    ErrorCode, ExecutionId, Json, RpcError,
    report::{Ack, Heartbeat, ReportBody, StepResult},
    task::ExecutorTask,
};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long a given-up step may take to return before its function is dropped.
const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// The shortest time between two heartbeats that carry progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
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
        let run = Arc::clone(&node.run);
        let step = perform(task, run, self.reporter.clone(), self.settings.clone());
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

/// Does the work of a step, tells about it meanwhile, and reports its result until it is answered.
async fn perform(mut task: ExecutorTask, run: Work, reporter: Reporter, settings: StepSettings) {
    let inputs = std::mem::take(&mut task.inputs);
    let (execution_id, run_id) = (task.execution_id, task.run_id);
    let started = Instant::now();
    tracing::info!(event = "step_started", %execution_id, %run_id, node_type = task.node_type, attempt = task.attempt, "step started");
    let context = Context::new(task, reporter.clone(), CancellationToken::new());
    let outcome = tokio::select! {
        outcome = work(run, inputs, context.clone()) => outcome,
        never = tell(&context, &settings) => match never {},
    };
    let result = match outcome {
        Ok(outputs) => StepResult::ok(outputs),
        Err(failure) => StepResult::failed(failure.into_step_error()),
    };
    let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let code = result.error.as_ref().and_then(|error| error.code.clone());
    tracing::info!(event = "step_done", %execution_id, %run_id, status = ?result.status, code, duration_ms, "step done");
    reporter.deliver_result(execution_id, run_id, result).await;
}

/// Runs the function in a task of its own, so that neither a panic nor long computation holds up
/// the heartbeats.
async fn work(run: Work, inputs: Values, context: Context) -> Result<Values, Failure> {
    let given_up = context.clone();
    let work = tokio::spawn(async move { run(inputs, context).await });
    let abort = AbortOnDrop(work.abort_handle());
    let outcome = tokio::select! {
        outcome = work => outcome,
        () = async { given_up.cancelled().await; tokio::time::sleep(CANCEL_GRACE).await } => return Err(given_up.given_up()),
    };
    drop(abort);
    match outcome {
        Ok(outcome) => outcome,
        Err(error) if error.is_panic() => Err(panicked(&*error.into_panic())),
        Err(_) => Err(given_up.given_up()),
    }
}

/// The function must not outlive its step.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn panicked(payload: &(dyn std::any::Any + Send)) -> Failure {
    let said = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let message = format!("the node panicked: {}", said.unwrap_or("it did not say why"));
    Failure::of(ErrorCode::StepFailed, message).retryable(false)
}

/// Acknowledges the step, then sends heartbeats for as long as it is polled. An answer that the
/// step is stale cancels it.
async fn tell(context: &Context, settings: &StepSettings) -> std::convert::Infallible {
    if settings.ack {
        let told = context.reporter().deliver(&context.report(ReportBody::Ack(Ack::default()))).await;
        heed(context, told, "ack");
    }
    let mut progress = context.told_progress();
    loop {
        let heartbeat = next_heartbeat(&mut progress, settings.heartbeat).await;
        match context.reporter().send(&context.report(ReportBody::Heartbeat(heartbeat))).await {
            Ok(told) => heed(context, told, "heartbeat"),
            Err(error) => {
                tracing::debug!(event = "heartbeat_unanswered", execution_id = %context.execution_id(), %error, "heartbeat unanswered");
            }
        }
    }
}

/// The newest progress when there is news (not before a short interval is over), else the word
/// before at the regular interval.
async fn next_heartbeat(progress: &mut watch::Receiver<Heartbeat>, interval: Option<Duration>) -> Heartbeat {
    let now = Instant::now();
    let regular = async {
        match interval {
            Some(interval) => sleep_until(now + interval).await,
            None => std::future::pending().await,
        }
    };
    let news = async {
        let changed = progress.changed().await;
        sleep_until(now + PROGRESS_INTERVAL).await;
        changed
    };
    tokio::select! {
        () = regular => {}
        _ = news => {}
    }
    progress.borrow_and_update().clone()
}

fn heed(context: &Context, told: Told, kind: &str) {
    match told {
        Told::Accepted(_) => {}
        Told::Stale(error) => {
            tracing::info!(
                event = "step_given_up",
                execution_id = %context.execution_id(),
                code = error.code.as_str(),
                "nobody waits for the step any more; it is cancelled"
            );
            context.cancel();
        }
        Told::Refused(error) => tracing::warn!(
            event = "step_report_refused",
            execution_id = %context.execution_id(),
            kind,
            code = error.code.as_str(),
            reason = error.message,
            "the control plane refused a report"
        ),
    }
}

/// The reply to a delivered task. It must carry neither `status` nor `outputs`: those would make it
/// the result.
pub(crate) fn delivered() -> Json {
    Json::from(serde_json::json!({ "delivered": true }))
}
