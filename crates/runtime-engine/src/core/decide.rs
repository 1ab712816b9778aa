//! Decisions: what happened, against the state of the run, gives events and effects.

use super::{
    decision::{Decision, Draw, Input, Touched},
    event::{
        Event, Failure, LateResult, RunCanceled, RunDeadlineSet, RunStarted, StepAcked, StepDelivered,
        StepFailed, StepFinished, StepPartial,
    },
    graph::{Graph, Kind, Node},
    kept::Kept,
    outputs::StepOutputs,
    policy::Policy,
    scope::{Place, ROOT},
    state::{Broken, Phase, State},
    verdict::Verdict,
};
use contract::{
    Digest, ErrorCode, ExecutionId, Millis, NodePath, RunId,
    process::OnError,
    report::{
        Accepted, Ack, Dispatched, Heartbeat, Partial, Receipt, ReportOutcome, StepError, StepResult,
        StepStatus,
    },
};
use std::{sync::Arc, time::Duration};

impl State {
    /// Starts a run. The steps and iterations in `kept` count as finished with those outputs.
    ///
    /// # Errors
    /// [`Broken`] only by a bug of this module.
    pub fn start(
        run_id: RunId,
        graph: Arc<Graph>,
        (started, kept): (RunStarted, Kept),
        now: Millis,
        policy: &Policy,
        draw: &mut dyn Draw,
    ) -> Result<(Self, Decision), Broken> {
        let started = Arc::new(started);
        let timeout = graph.run_timeout_ms.map(Duration::from_millis);
        let mut state = Self::begun(run_id, graph, Arc::clone(&started), now);
        let mut turn = Turn { state: &mut state, now, policy, draw, kept, decision: Decision::new() };
        turn.decision.events.push(Event::RunStarted(started));
        if let Some(timeout) = timeout {
            turn.set_deadline(timeout)?;
        }
        turn.go_on(ROOT)?;
        let decision = turn.decision;
        Ok((state, decision))
    }

    /// Decides about one input and folds what it decides: afterwards the state is the fold of the
    /// history with the decision's events. A caller that cannot store them must drop the state.
    ///
    /// # Errors
    /// [`Broken`] only by a bug of this module.
    pub fn decide(
        &mut self,
        input: Input,
        now: Millis,
        policy: &Policy,
        draw: &mut dyn Draw,
    ) -> Result<Decision, Broken> {
        let kept = Kept::new();
        let mut turn = Turn { state: self, now, policy, draw, kept, decision: Decision::new() };
        if let Some(refusal) = turn.state.judge_reporter(&input) {
            turn.decision.answer = refusal;
            return Ok(turn.decision);
        }
        match input {
            Input::Ack(id, ack) => turn.ack(id, ack)?,
            Input::Heartbeat(id, heartbeat) => turn.heartbeat(id, heartbeat)?,
            Input::Partial(id, partial) => turn.partial(id, partial)?,
            Input::Result(id, result, digest) => turn.result(id, result, digest)?,
            Input::Dispatched(id, dispatched) => turn.dispatched(id, dispatched)?,
            Input::DeliveryOverdue(id) => turn.delivery_overdue(id)?,
            Input::StepOverdue(id) => turn.step_overdue(id)?,
            Input::TimerDue(id) => turn.timer_due(id)?,
            Input::Confirm(confirmation) => turn.confirm(*confirmation)?,
            Input::Cancel => turn.cancel()?,
        }
        Ok(turn.decision)
    }
}

/// The most characters of what a heartbeat says to people.
const MESSAGE_CHARS: usize = 500;

/// As much of a message as is kept.
fn shortened(mut message: String) -> String {
    if let Some((end, _)) = message.char_indices().nth(MESSAGE_CHARS) {
        message.truncate(end);
        message.push('…');
    }
    message
}

/// What a reported failure is known again by, and where its trace goes on.
pub(super) struct Reported {
    digest: Digest,
    trace: Trace,
}

/// `traceparent` and `tracestate`.
type Trace = (Option<String>, Option<String>);

/// One decision in the making.
pub(super) struct Turn<'t> {
    pub(super) state: &'t mut State,
    pub(super) now: Millis,
    pub(super) policy: &'t Policy,
    pub(super) draw: &'t mut dyn Draw,
    pub(super) kept: Kept,
    pub(super) decision: Decision,
}

impl Turn<'_> {
    pub(super) fn emit(&mut self, event: Event) -> Result<(), Broken> {
        self.state.apply(self.now, &event)?;
        self.decision.events.push(event);
        Ok(())
    }

    /// The answer of the table, when the report does not apply; `None`: it applies.
    fn refused(&mut self, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Applies => false,
            Verdict::Answer(outcome) => {
                self.decision.answer = outcome;
                true
            }
        }
    }

    pub(super) fn path_of(&self, execution_id: ExecutionId) -> Result<NodePath, Broken> {
        let forgotten =
            self.state.attempts.get(&execution_id).and_then(|attempt| attempt.forgotten_path.clone());
        match forgotten {
            Some(path) => Ok(path),
            None => self.state.path(self.place_of(execution_id)?),
        }
    }

    pub(super) fn place_of(&self, execution_id: ExecutionId) -> Result<Place, Broken> {
        let unknown = Broken::UnknownAttempt { kind: "decision", execution_id };
        self.state.attempts.get(&execution_id).map(|attempt| attempt.place).ok_or(unknown)
    }

    fn node_of(&self, execution_id: ExecutionId) -> Result<&Node, Broken> {
        let place = self.place_of(execution_id)?;
        self.state.widget(place).ok_or(Broken::NoScope(place.scope))
    }

    /// A reporter's trace context, where it is another than the run's.
    fn foreign_trace(&self, traceparent: Option<String>, tracestate: Option<String>) -> Trace {
        let own = self.state.started.traceparent.as_ref();
        match traceparent.filter(|named| own != Some(named)) {
            Some(named) => (Some(named), tracestate),
            None => (None, None),
        }
    }

    fn ack(&mut self, execution_id: ExecutionId, ack: Ack) -> Result<(), Broken> {
        let verdict = self.state.judge_ack(execution_id);
        if self.refused(verdict) {
            return Ok(());
        }
        self.decision.answer =
            ReportOutcome::Ok(Receipt { status: Accepted::Applied, worker_id: ack.worker_id.clone() });
        let node_path = self.path_of(execution_id)?;
        let (traceparent, tracestate) = self.foreign_trace(ack.traceparent, ack.tracestate);
        let worker_id = ack.worker_id;
        self.emit(Event::StepAcked(StepAcked {
            node_path,
            execution_id,
            worker_id,
            traceparent,
            tracestate,
        }))?;
        self.is_running(execution_id)
    }

    /// Sets the step deadline of an attempt that has just reached somebody.
    fn is_running(&mut self, execution_id: ExecutionId) -> Result<(), Broken> {
        let deadline = self.now.plus(self.step_timeout(execution_id)?);
        let touched = Touched { is_running: true, deadline: Some(deadline), ..Touched::default() };
        self.decision.touched.push((execution_id, touched));
        Ok(())
    }

    fn step_timeout(&self, execution_id: ExecutionId) -> Result<Duration, Broken> {
        Ok(self.policy.step_timeout(self.node_of(execution_id)?))
    }

    fn heartbeat(&mut self, execution_id: ExecutionId, heartbeat: Heartbeat) -> Result<(), Broken> {
        let verdict = self.state.judge_heartbeat(execution_id);
        if self.refused(verdict) {
            return Ok(());
        }
        self.reached(execution_id)?;
        let touched = Touched {
            is_running: true,
            deadline: Some(self.extended(execution_id)?),
            heartbeat_at: Some(self.now),
            progress: heartbeat.progress,
            message: heartbeat.message.map(shortened),
        };
        self.decision.touched.push((execution_id, touched));
        Ok(())
    }

    /// A sign of life of an attempt that nobody acknowledged tells that it was delivered.
    fn reached(&mut self, execution_id: ExecutionId) -> Result<(), Broken> {
        if self.state.phase(execution_id) != Some(Phase::Queued) {
            return Ok(());
        }
        let node_path = self.path_of(execution_id)?;
        self.emit(Event::StepDelivered(StepDelivered { node_path, execution_id, implicit: true }))
    }

    /// The step deadline after a heartbeat: the whole timeout again, up to the node's maximum.
    fn extended(&self, execution_id: ExecutionId) -> Result<Millis, Broken> {
        let node = self.node_of(execution_id)?;
        let since = self.state.attempts.get(&execution_id).and_then(|attempt| attempt.running_since);
        let latest = since.unwrap_or(self.now).plus(self.policy.longest_step(node));
        Ok(self.now.plus(self.policy.step_timeout(node)).min(latest))
    }

    fn partial(&mut self, execution_id: ExecutionId, partial: Partial<StepOutputs>) -> Result<(), Broken> {
        let verdict = self.state.judge_partial(execution_id, partial.sequence);
        if self.refused(verdict) {
            return Ok(());
        }
        let was_queued = self.state.phase(execution_id) == Some(Phase::Queued);
        let node_path = self.path_of(execution_id)?;
        let Partial { sequence, outputs } = partial;
        self.emit(Event::StepPartial(StepPartial { node_path, execution_id, sequence, outputs }))?;
        if was_queued { self.is_running(execution_id) } else { Ok(()) }
    }

    fn result(
        &mut self,
        execution_id: ExecutionId,
        result: StepResult<Arc<StepOutputs>>,
        digest: Digest,
    ) -> Result<(), Broken> {
        let verdict = self.state.judge_result(execution_id, digest);
        if self.refused(verdict) {
            if self.state.keeps_late_result(execution_id) {
                let node_path = self.path_of(execution_id)?;
                let StepResult { status, outputs, error, traceparent, tracestate } = result;
                let (traceparent, tracestate) = self.foreign_trace(traceparent, tracestate);
                self.emit(Event::LateResult(LateResult {
                    node_path,
                    execution_id,
                    status,
                    outputs: Arc::unwrap_or_clone(outputs),
                    error,
                    traceparent,
                    tracestate,
                }))?;
            }
            return Ok(());
        }
        let trace = self.foreign_trace(result.traceparent, result.tracestate);
        match result.status {
            StepStatus::Ok => {
                let (place, node_path) = (self.place_of(execution_id)?, self.path_of(execution_id)?);
                let outputs = result.outputs;
                let (traceparent, tracestate) = trace;
                self.emit(Event::StepFinished(StepFinished {
                    node_path,
                    execution_id,
                    digest,
                    outputs,
                    traceparent,
                    tracestate,
                }))?;
                self.decision.closed.push(execution_id);
                self.go_on(place.scope)
            }
            StepStatus::Error => {
                let error = result.error.unwrap_or_default();
                let reported = Reported { digest, trace };
                self.fail_attempt(execution_id, Failure::Reported, error, Some(reported))
            }
        }
    }

    fn dispatched(&mut self, execution_id: ExecutionId, dispatched: Dispatched) -> Result<(), Broken> {
        let verdict = self.state.judge_dispatch(execution_id);
        if self.refused(verdict) {
            return Ok(());
        }
        match dispatched {
            Dispatched::Delivered { implicit } => {
                let node_path = self.path_of(execution_id)?;
                self.emit(Event::StepDelivered(StepDelivered { node_path, execution_id, implicit }))?;
                self.is_running(execution_id)
            }
            Dispatched::Failed(error) => self.fail_attempt(execution_id, Failure::Undelivered, error, None),
            Dispatched::Refused(error) => self.fail_attempt(execution_id, Failure::Refused, error, None),
        }
    }

    fn delivery_overdue(&mut self, execution_id: ExecutionId) -> Result<(), Broken> {
        if self.state.phase(execution_id) != Some(Phase::Queued) {
            return Ok(());
        }
        let waited_ms = self.policy.delivery_timeout.as_millis();
        let message = format!("neither an ack nor a reply came within {waited_ms} ms after dispatch");
        let error = StepError::of(ErrorCode::DeliveryFailed, message);
        self.fail_attempt(execution_id, Failure::Undelivered, error, None)
    }

    fn step_overdue(&mut self, execution_id: ExecutionId) -> Result<(), Broken> {
        if self.state.phase(execution_id) != Some(Phase::Running) {
            return Ok(());
        }
        let timeout_ms = self.step_timeout(execution_id)?.as_millis();
        let message = format!(
            "no result within the step's deadline ({timeout_ms} ms after the ack or the last heartbeat); \
             raise execution.timeoutMs or send heartbeats"
        );
        let error = StepError::of(ErrorCode::StepTimeout, message);
        self.decision.withdrawn.push(execution_id);
        self.fail_attempt(execution_id, Failure::TimedOut, error, None)
    }

    fn cancel(&mut self) -> Result<(), Broken> {
        if self.state.status.is_terminal() {
            self.decision.answer = self.state.judge_cancel();
            return Ok(());
        }
        self.withdraw_all();
        self.close_deadline();
        self.emit(Event::RunCanceled(RunCanceled {}))
    }

    /// An attempt failed: another follows, or the node has failed.
    pub(super) fn fail_attempt(
        &mut self,
        execution_id: ExecutionId,
        failure: Failure,
        error: StepError,
        reported: Option<Reported>,
    ) -> Result<(), Broken> {
        let place = self.place_of(execution_id)?;
        let wait = self.wait_before_next(place, failure, &error)?;
        let error = match (failure, wait) {
            (Failure::Undelivered, None) => {
                let undelivered = self.state.scope(place.scope)?.nodes[place.node].undelivered;
                self.policy.undeliverable(undelivered + 1, &error)
            }
            _ => error,
        };
        let node_path = self.state.path(place)?;
        let (digest, trace) = reported.map(|found| (found.digest, found.trace)).unzip();
        let (traceparent, tracestate) = trace.unwrap_or_default();
        self.decision.closed.push(execution_id);
        self.emit(Event::StepFailed(StepFailed {
            node_path,
            execution_id: Some(execution_id),
            failure,
            error,
            will_retry: wait.is_some(),
            error_output: wait.is_none() && self.goes_on_after(place)?,
            digest,
            traceparent,
            tracestate,
        }))?;
        match wait {
            Some(wait) => self.schedule(place, Some(self.now.plus(wait))),
            None => self.go_on(place.scope),
        }
    }

    /// Does what is around a node go on when it fails? Then the node produces `error`.
    pub(super) fn goes_on_after(&self, place: Place) -> Result<bool, Broken> {
        Ok(self.state.scope(place.scope)?.graph.nodes[place.node].on_error == OnError::Continue)
    }

    /// How long to wait before the next attempt; `None`: there is none.
    fn wait_before_next(
        &mut self,
        place: Place,
        failure: Failure,
        error: &StepError,
    ) -> Result<Option<Duration>, Broken> {
        if self.state.is_halted(place.scope)? {
            return Ok(None);
        }
        let scope = self.state.scope(place.scope)?;
        let (node, state) = (&scope.graph.nodes[place.node], &scope.nodes[place.node]);
        if !matches!(node.kind, Kind::Task(_)) {
            return Ok(None);
        }
        Ok(match failure {
            Failure::Undelivered => self.policy.redelivery_wait(state.undelivered + 1, self.draw.chance()),
            Failure::Reported if error.retryable == Some(false) => None,
            Failure::Reported | Failure::TimedOut => {
                node.retry.as_ref().and_then(|retry| self.policy.retry_wait(retry, state.failed_tries + 1))
            }
            Failure::Refused | Failure::Evaluation | Failure::Rejected => None,
        })
    }

    /// The run fails when it still runs after this time.
    fn set_deadline(&mut self, timeout: Duration) -> Result<(), Broken> {
        let (execution_id, at) = (self.draw.execution_id(), self.now.plus(timeout));
        self.watch_run(execution_id, at);
        self.emit(Event::RunDeadlineSet(RunDeadlineSet { execution_id, at }))
    }

    /// All that is outstanding is closed, and whoever works on it may stop.
    pub(super) fn withdraw_all(&mut self) {
        let mut outstanding = self.state.outstanding_ids();
        self.decision.closed.append(&mut outstanding.clone());
        self.decision.withdrawn.append(&mut outstanding);
    }
}
