//! One step: from its task to its answered result. Plugins and the platform's own executor work in
//! the same way.

use crate::{
    Context, Failure, RunnableNode, StepSettings, Values,
    node::Work,
    reporter::{Reporter, Told},
};
use contract::{
    ErrorCode,
    report::{Ack, Heartbeat, ReportBody, StepResult},
    task::ExecutorTask,
};
use std::time::Duration;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// How long a given-up step may take to return before its function is dropped.
const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// The shortest time between two heartbeats that carry progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Does the work of a step, tells about it meanwhile (see [`StepSettings`]), and reports its result
/// until it is answered. A step that nobody waits for any more is cancelled.
///
/// Dropping the future drops the node's function too.
pub async fn perform(task: ExecutorTask, node: RunnableNode, reporter: Reporter, settings: StepSettings) {
    perform_until(task, node, reporter, settings, CancellationToken::new()).await;
}

/// [`perform`], and the step is also cancelled when `given_up` is: for those who hear of it sooner
/// than by the answer to a heartbeat.
pub async fn perform_until(
    mut task: ExecutorTask,
    node: RunnableNode,
    reporter: Reporter,
    settings: StepSettings,
    given_up: CancellationToken,
) {
    let inputs = std::mem::take(&mut task.inputs);
    let (execution_id, run_id) = (task.execution_id, task.run_id);
    let started = Instant::now();
    tracing::info!(event = "step_started", %execution_id, %run_id, node_type = task.node_type, attempt = task.attempt, "step started");
    let context = Context::new(task, reporter.clone(), given_up);
    let outcome = tokio::select! {
        outcome = work(node.run, inputs, context.clone()) => outcome,
        never = tell(&context, &settings) => match never {},
    };
    let mut result = match outcome {
        Ok(outputs) => StepResult::ok(outputs),
        Err(failure) => StepResult::failed(failure.into_step_error()),
    };
    result.traceparent = context.traceparent().map(str::to_owned);
    result.tracestate = context.tracestate().map(str::to_owned);
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
