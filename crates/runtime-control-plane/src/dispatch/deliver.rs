//! The delivery of one task, and what may come of it (protocol section 3, "Task").

use super::{
    Attempt, Dispatcher,
    endpoints::Peer,
    prepare::{Body, Prepared},
    window::Slot,
};
use crate::{reports::Door, retry};
use contract::{
    ErrorCode, Json,
    manifest::Endpoint,
    pattern,
    report::{
        DispatchOutcome, Dispatched, RawOutputs, ReportBody, ReportKind, ReportOutcome, StepError,
        StepReport, StepResult, check_report, reply_is_result,
    },
    trace,
};
use serde::Deserialize;
use std::{collections::BTreeMap, future::Future, sync::Arc};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep_until, timeout, timeout_at},
};
use wire::{CallError, RemoteError, Sent};

/// The place of a task that is delivered: among the listening ones, or still in the window when too
/// many listen, so that their number stays bounded.
#[derive(Debug)]
struct Listening {
    _place: Place,
    dispatcher: Arc<Dispatcher>,
}

#[derive(Debug)]
enum Place {
    Listening(#[expect(dead_code, reason = "held until dropped")] OwnedSemaphorePermit),
    Window(#[expect(dead_code, reason = "held until dropped")] Slot),
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.dispatcher.metrics.listening.dec();
    }
}

/// When a reply came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reply {
    /// Within the delivery deadline: it is the delivery.
    InTime,
    /// After the delivery was told already.
    Late,
}

impl Dispatcher {
    /// Delivers the task as a request. `until` is the delivery deadline.
    pub(super) async fn deliver(
        self: &Arc<Self>,
        attempt: &Attempt,
        prepared: Prepared,
        until: Instant,
        slot: Slot,
    ) {
        let Prepared { endpoint, body } = prepared;
        let peer = self.endpoints.get(&endpoint);
        if peer.takes_events() {
            return Box::pin(self.deliver_event(attempt, &peer, body, until, slot)).await;
        }
        let left = until.saturating_duration_since(Instant::now());
        let sending = peer.client.send(pattern::EXECUTOR_TASK.name, &body, left);
        let mut sent = match self.unless_stopped(sending).await {
            Some(Ok(sent)) => sent,
            Some(Err(error)) => return self.tell(attempt, undelivered(&endpoint, &error)).await,
            None => return self.give_up(attempt, &endpoint).await,
        };
        match self.unless_stopped(timeout_at(until, sent.reply())).await {
            Some(Ok(Err(CallError::NoHandler))) => {
                peer.set_takes_events(true);
                Box::pin(self.deliver_event(attempt, &peer, body, until, slot)).await;
            }
            Some(Ok(reply)) => self.replied(attempt, &endpoint, reply, Reply::InTime).await,
            Some(Err(_)) => {
                drop(body);
                let place = self.listening(slot);
                self.tell(attempt, Dispatched::Delivered { implicit: true }).await;
                Box::pin(self.listen(attempt, &endpoint, sent)).await;
                drop(place);
            }
            None => self.give_up(attempt, &endpoint).await,
        }
    }

    /// Delivers the task as an event, which nobody answers: it counts as delivered when its
    /// connection still stands at the deadline.
    async fn deliver_event(
        self: &Arc<Self>,
        attempt: &Attempt,
        peer: &Peer,
        body: Body,
        until: Instant,
        slot: Slot,
    ) {
        let left = until.saturating_duration_since(Instant::now());
        let sending = peer.client.send_event(pattern::EXECUTOR_TASK.name, &body, left);
        let link = match self.unless_stopped(sending).await {
            Some(Ok(link)) => link,
            Some(Err(error)) => {
                // Another program may listen there now.
                peer.set_takes_events(false);
                return self.tell(attempt, undelivered(&peer.endpoint, &error)).await;
            }
            None => return self.give_up(attempt, &peer.endpoint).await,
        };
        drop(body);
        // The plugin has it: the next may go.
        let place = self.listening(slot);
        let outcome = tokio::select! {
            () = link.closed() => {
                peer.set_takes_events(false);
                undelivered(&peer.endpoint, &CallError::Closed { written: true })
            }
            () = sleep_until(until) => Dispatched::Delivered { implicit: true },
            // It stands as long as this control plane does.
            () = self.stops.taking.cancelled() => Dispatched::Delivered { implicit: true },
        };
        self.tell(attempt, outcome).await;
        drop(place);
    }

    /// Waits for the late reply of a plugin that answers when it is done.
    async fn listen(&self, attempt: &Attempt, endpoint: &Endpoint, mut sent: Sent) {
        match self.unless_stopped(timeout(attempt.timeout, sent.reply())).await {
            Some(Ok(reply)) => self.replied(attempt, endpoint, reply, Reply::Late).await,
            // The step's own deadline decides.
            Some(Err(_)) => {}
            None => self.give_up(attempt, endpoint).await,
        }
    }

    /// The result of `work`; `None` when deliveries have to be given up first.
    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.stops.deliveries.run_until_cancelled(work).await
    }

    /// This control plane leaves, and with it the connection on which the plugin would have answered:
    /// as if it were lost. The engine takes no notice when the attempt was acknowledged.
    async fn give_up(&self, attempt: &Attempt, endpoint: &Endpoint) {
        let text = format!("the control plane stopped before the plugin at {endpoint} answered");
        self.tell(attempt, Dispatched::Failed(StepError::of(ErrorCode::Unavailable, text))).await;
    }

    /// The plugin has answered, or its connection has ended.
    async fn replied(
        &self,
        attempt: &Attempt,
        endpoint: &Endpoint,
        reply: Result<Json, CallError>,
        when: Reply,
    ) {
        match reply {
            Ok(value) => {
                if when == Reply::InTime {
                    self.tell(attempt, Dispatched::Delivered { implicit: false }).await;
                }
                if let Some(report) = result_in(attempt, &value) {
                    Box::pin(self.reports.insist(Door::Reply, &report)).await;
                }
            }
            Err(CallError::Remote(error)) if error.retryable => {
                self.tell(attempt, Dispatched::Failed(step_error(&error))).await;
            }
            Err(CallError::Remote(error)) => self.fail(attempt, step_error(&error)).await,
            Err(error @ CallError::TooLarge { .. }) => {
                self.fail(attempt, StepError::of(ErrorCode::PayloadTooLarge, error.to_string())).await;
            }
            Err(error) => self.tell(attempt, undelivered(endpoint, &error)).await,
        }
    }

    /// The plugin refused the task: that is the step's result.
    async fn fail(&self, attempt: &Attempt, error: StepError) {
        self.metrics.dispatch("plugin_error", code_label(&error));
        let report = StepReport {
            execution_id: attempt.execution_id,
            run_id: Some(attempt.run_id),
            body: ReportBody::Result(StepResult::failed(error)),
        };
        Box::pin(self.reports.insist(Door::Reply, &report)).await;
    }

    /// Tells the engine how the dispatch ended, until it has answered.
    pub(super) async fn tell(&self, attempt: &Attempt, outcome: Dispatched) {
        let (name, code) = match &outcome {
            Dispatched::Delivered { implicit: false } => ("delivered", ""),
            Dispatched::Delivered { implicit: true } => ("delivered_implicitly", ""),
            Dispatched::Failed(error) => ("failed", code_label(error)),
            Dispatched::Refused(error) => ("refused", code_label(error)),
        };
        self.metrics.dispatch(name, code);
        tracing::debug!(
            event = "dispatch_ended",
            run_id = %attempt.run_id,
            execution_id = %attempt.execution_id,
            node_type = attempt.node_type,
            trace_id = attempt.traceparent.as_deref().and_then(trace::trace_id),
            outcome = name,
            code,
            "dispatch ended"
        );
        let outcome = DispatchOutcome { execution_id: attempt.execution_id, run_id: attempt.run_id, outcome };
        let mut tries = 0;
        // No answer at all: the batcher has ended, and with it the dispatcher.
        while let Some(ReportOutcome::Err(error)) = self.hand_over(outcome.clone()).await {
            // Superseded or ended: it needs not know any more.
            if !error.retryable || !retry::pause(tries, &self.stops.cut).await {
                tracing::debug!(
                    event = "dispatch_outcome_unheard",
                    execution_id = %attempt.execution_id,
                    error = %error,
                    "the engine does not take the outcome of a dispatch"
                );
                return;
            }
            tries = tries.saturating_add(1);
        }
    }

    async fn hand_over(&self, outcome: DispatchOutcome) -> Option<ReportOutcome> {
        match self.engine.near() {
            Some(engine) => Some(engine.dispatch_outcome(outcome).await),
            None => {
                let bytes = outcome.expected_bytes();
                self.outcomes.submit(outcome, bytes).await
            }
        }
    }

    /// Moves a delivered task out of the window.
    fn listening(self: &Arc<Self>, slot: Slot) -> Listening {
        self.metrics.listening.inc();
        let place = match Arc::clone(&self.listeners).try_acquire_owned() {
            Ok(permit) => {
                drop(slot);
                Place::Listening(permit)
            }
            Err(_) => Place::Window(slot),
        };
        Listening { _place: place, dispatcher: Arc::clone(self) }
    }
}

/// Why a task is not delivered, and whether another attempt may help.
fn undelivered(endpoint: &Endpoint, error: &CallError) -> Dispatched {
    let text = format!("the task could not be delivered to the plugin at {endpoint}: {error}");
    match error {
        CallError::TooLarge { .. } => Dispatched::Refused(StepError::of(ErrorCode::PayloadTooLarge, text)),
        _ => Dispatched::Failed(StepError::of(ErrorCode::Unavailable, text)),
    }
}

/// The result that a reply carries, if it carries one. A reply is about its own task: another
/// `executionId` in it counts for nothing.
fn result_in(attempt: &Attempt, reply: &Json) -> Option<StepReport<RawOutputs>> {
    if !reply_is_result(reply) {
        return None;
    }
    let mut fields: BTreeMap<String, Json> = reply.read().ok()?;
    fields.insert("executionId".to_owned(), Json::of(&attempt.execution_id).ok()?);
    fields.insert("runId".to_owned(), Json::of(&attempt.run_id).ok()?);
    match check_report(ReportKind::Result, &Json::of(&fields).ok()?) {
        Ok(report) => Some(report),
        Err(error) => {
            // `{"status": "accepted"}` is no result: the task is delivered, its result will come.
            tracing::debug!(
                event = "reply_is_no_result",
                execution_id = %attempt.execution_id,
                "the reply to a task is taken as its delivery only: {}",
                error.message
            );
            None
        }
    }
}

/// The plugin's error in its own words. Whether it may be repeated is said only if the plugin said it.
fn step_error(error: &RemoteError) -> StepError {
    #[derive(Deserialize)]
    struct Raw {
        retryable: Option<bool>,
        details: Option<Json>,
    }
    let raw = error.raw.read::<Raw>().ok();
    StepError {
        code: Some(error.code.clone().unwrap_or_else(|| ErrorCode::StepFailed.as_str().to_owned())),
        message: error.message.clone(),
        retryable: raw.as_ref().and_then(|raw| raw.retryable),
        details: raw.and_then(|raw| raw.details),
    }
}

/// The code as a label: plugins may invent codes, labels must stay few.
fn code_label(error: &StepError) -> &'static str {
    let code = error.code.as_deref().unwrap_or_default();
    ErrorCode::ALL.iter().map(|known| known.as_str()).find(|known| *known == code).unwrap_or("other")
}
