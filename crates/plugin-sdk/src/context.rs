//! What a node's function knows of its step, and what it can tell the platform while it works.

use crate::{
    Failure, input,
    reporter::{Reporter, Told},
};
use contract::{
    ErrorCode, Json, Millis,
    report::{Heartbeat, Partial, ReportBody, StepReport},
    task::ExecutorTask,
    trace::TraceContext,
};
use serde::Serialize;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The step that a node's function works on. Clones share it.
#[derive(Clone, Debug)]
pub struct Context(Arc<Step>);

#[derive(Debug)]
struct Step {
    /// Without inputs: they are the function's own.
    task: ExecutorTask,
    reporter: Reporter,
    cancelled: CancellationToken,
    partials: AtomicU64,
    progress: watch::Sender<Heartbeat>,
}

impl Context {
    pub(crate) fn new(task: ExecutorTask, reporter: Reporter, cancelled: CancellationToken) -> Self {
        let (progress, _) = watch::channel(Heartbeat::default());
        Self(Arc::new(Step { task, reporter, cancelled, partials: AtomicU64::new(0), progress }))
    }

    /// The run; the same over all iterations of all loops of the run.
    pub fn run_id(&self) -> contract::RunId {
        self.0.task.run_id
    }

    /// This attempt of the step.
    pub fn execution_id(&self) -> contract::ExecutionId {
        self.0.task.execution_id
    }

    /// The node's id in the process.
    pub fn node_id(&self) -> &str {
        &self.0.task.node_id
    }

    /// The node's place in the run, with the iterations of the loops around it.
    pub fn node_path(&self) -> &str {
        &self.0.task.node_path.0
    }

    /// Counts from 1.
    pub fn attempt(&self) -> u32 {
        self.0.task.attempt
    }

    /// Workspace of the run.
    pub fn workspace_id(&self) -> &str {
        &self.0.task.workspace_id
    }

    /// User of the run.
    pub fn user_id(&self) -> &str {
        &self.0.task.user_id
    }

    /// Names of the outputs that the process uses. What is returned beyond them reaches no node.
    pub fn outputs(&self) -> &[String] {
        &self.0.task.outputs
    }

    /// When the platform gives the step up, in milliseconds since the Unix epoch; heartbeats move
    /// it.
    pub fn deadline(&self) -> Millis {
        self.0.task.deadline
    }

    /// W3C trace context of the run, to pass on to other services.
    pub fn traceparent(&self) -> Option<&str> {
        self.0.task.traceparent.as_deref()
    }

    /// What tracing systems add to it, to pass on too.
    pub fn tracestate(&self) -> Option<&str> {
        self.0.task.tracestate.as_deref()
    }

    /// Where the bytes of the files are that inputs refer to (`{"$file": {"id", …}}`): the API's
    /// `{files_url}/{id}`, with a token of the API. `None` where no input refers to one.
    pub fn files_url(&self) -> Option<&str> {
        self.0.task.files_url.as_deref()
    }

    fn trace_context(&self) -> Option<TraceContext> {
        TraceContext::read(self.traceparent()?, self.tracestate())
    }

    /// Done when nobody waits for the step any more: the run was canceled or has ended, or a newer
    /// attempt has taken over. Clean up and return soon: some seconds later the function is
    /// dropped.
    pub async fn cancelled(&self) {
        self.0.cancelled.cancelled().await;
    }

    /// Is the step given up? See [`Context::cancelled`].
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.is_cancelled()
    }

    /// Tells how far the work is (from 0 to 1, clamped) and what it does. Costs nothing: the newest
    /// word is sent with a heartbeat soon.
    pub fn progress(&self, part: f64, message: impl Into<String>) {
        let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
        // A finite number always serialises.
        let progress = Json::of(&part).ok();
        self.0.progress.send_replace(Heartbeat { progress, message: Some(message.into()) });
    }

    /// Reports outputs before the end; returns when they are stored.
    ///
    /// # Errors
    /// Outputs that are no object, or a refusal of the platform. When the step has been given up
    /// the failure says so and [`Context::cancelled`] is done.
    pub async fn partial<O: Serialize + ?Sized + Sync>(&self, outputs: &O) -> Result<(), Failure> {
        let outputs = input::write(outputs)?;
        let sequence = self.0.partials.fetch_add(1, Ordering::Relaxed) + 1;
        let told =
            self.0.reporter.deliver(&self.report(ReportBody::Partial(Partial { sequence, outputs }))).await;
        match told {
            Told::Accepted(_) => Ok(()),
            Told::Stale(error) => {
                self.cancel();
                Err(Failure::of(error.code, error.message))
            }
            Told::Refused(error) => Err(Failure::of(error.code, error.message)),
        }
    }

    pub(crate) fn report(&self, body: ReportBody) -> StepReport {
        StepReport { execution_id: self.execution_id(), run_id: Some(self.run_id()), body }
            .within(self.trace_context().as_ref())
    }

    pub(crate) fn reporter(&self) -> &Reporter {
        &self.0.reporter
    }

    pub(crate) fn told_progress(&self) -> watch::Receiver<Heartbeat> {
        self.0.progress.subscribe()
    }

    pub(crate) fn cancel(&self) {
        self.0.cancelled.cancel();
    }

    /// What a step ends with whose function was dropped after it had been given up.
    pub(crate) fn given_up(&self) -> Failure {
        Failure::of(ErrorCode::Superseded, "the step was given up by the platform")
    }
}
