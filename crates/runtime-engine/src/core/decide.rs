//! Decisions: what happened, against the state of the run, gives events and effects.

use super::{
    decision::{Decision, Draw, Input, Opened, Touched},
    evaluate::{self, Outputs},
    event::{
        Event, Failure, LateResult, RunCanceled, RunFailed, RunFinished, RunStarted, StepAcked, StepCanceled,
        StepDelivered, StepEvaluated, StepFailed, StepFinished, StepPartial, StepScheduled, StepSkipped,
    },
    flow::Readiness,
    graph::{Graph, Kind, NodeIndex},
    policy::Policy,
    state::{Broken, Phase, State},
    verdict::Verdict,
};
use contract::{
    Digest, ErrorCode, ExecutionId, Millis, NodePath, RunId,
    report::{
        Accepted, Ack, Dispatched, Heartbeat, Partial, Receipt, ReportOutcome, StepError, StepResult,
        StepStatus,
    },
};
use std::{sync::Arc, time::Duration};

impl State {
    /// Starts a run.
    ///
    /// # Errors
    /// [`Broken`] only by a bug of this module.
    pub fn start(
        run_id: RunId,
        graph: Arc<Graph>,
        started: RunStarted,
        now: Millis,
        policy: &Policy,
        draw: &mut dyn Draw,
    ) -> Result<(Self, Decision), Broken> {
        let started = Arc::new(started);
        let mut state = Self::begun(run_id, graph, Arc::clone(&started), now);
        let mut turn = Turn { state: &mut state, now, policy, draw, decision: Decision::new() };
        turn.decision.events.push(Event::RunStarted(started));
        turn.go_on()?;
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
        let mut turn = Turn { state: self, now, policy, draw, decision: Decision::new() };
        match input {
            Input::Ack(id, ack) => turn.ack(id, ack)?,
            Input::Heartbeat(id, heartbeat) => turn.heartbeat(id, heartbeat)?,
            Input::Partial(id, partial) => turn.partial(id, partial)?,
            Input::Result(id, result, digest) => turn.result(id, result, digest)?,
            Input::Dispatched(id, dispatched) => turn.dispatched(id, dispatched)?,
            Input::DeliveryOverdue(id) => turn.delivery_overdue(id)?,
            Input::StepOverdue(id) => turn.step_overdue(id)?,
            Input::Cancel => turn.cancel()?,
        }
        Ok(turn.decision)
    }
}

/// One decision in the making.
struct Turn<'t> {
    state: &'t mut State,
    now: Millis,
    policy: &'t Policy,
    draw: &'t mut dyn Draw,
    decision: Decision,
}

impl Turn<'_> {
    fn emit(&mut self, event: Event) -> Result<(), Broken> {
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

    fn path_of(&self, execution_id: ExecutionId) -> Result<NodePath, Broken> {
        let node = self.node_of(execution_id)?;
        Ok(self.state.graph.nodes[node].path.clone())
    }

    fn node_of(&self, execution_id: ExecutionId) -> Result<NodeIndex, Broken> {
        let unknown = Broken::UnknownAttempt { kind: "decision", execution_id };
        self.state.attempts.get(&execution_id).map(|attempt| attempt.node).ok_or(unknown)
    }

    fn ack(&mut self, execution_id: ExecutionId, ack: Ack) -> Result<(), Broken> {
        let verdict = self.state.judge_ack(execution_id);
        if self.refused(verdict) {
            return Ok(());
        }
        self.decision.answer =
            ReportOutcome::Ok(Receipt { status: Accepted::Applied, worker_id: ack.worker_id.clone() });
        let node_path = self.path_of(execution_id)?;
        self.emit(Event::StepAcked(StepAcked { node_path, execution_id, worker_id: ack.worker_id }))?;
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
        let node = self.node_of(execution_id)?;
        Ok(self.policy.step_timeout(&self.state.graph.nodes[node]))
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
        let node = &self.state.graph.nodes[self.node_of(execution_id)?];
        let since = self.state.attempts.get(&execution_id).and_then(|attempt| attempt.running_since);
        let latest = since.unwrap_or(self.now).plus(self.policy.longest_step(node));
        Ok(self.now.plus(self.policy.step_timeout(node)).min(latest))
    }

    fn partial(&mut self, execution_id: ExecutionId, partial: Partial) -> Result<(), Broken> {
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
        result: StepResult,
        digest: Digest,
    ) -> Result<(), Broken> {
        let verdict = self.state.judge_result(execution_id, digest);
        if self.refused(verdict) {
            if self.state.keeps_late_result(execution_id) {
                let node_path = self.path_of(execution_id)?;
                let StepResult { status, outputs, error } = result;
                self.emit(Event::LateResult(LateResult { node_path, execution_id, status, outputs, error }))?;
            }
            return Ok(());
        }
        match result.status {
            StepStatus::Ok => {
                let node_path = self.path_of(execution_id)?;
                let outputs = Arc::new(result.outputs);
                self.emit(Event::StepFinished(StepFinished { node_path, execution_id, digest, outputs }))?;
                self.decision.closed.push(execution_id);
                self.go_on()
            }
            StepStatus::Error => {
                let error = result.error.unwrap_or_default();
                self.fail_attempt(execution_id, Failure::Reported, error, Some(digest))
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
        let mut outstanding = self.state.outstanding_ids();
        self.decision.closed.append(&mut outstanding.clone());
        self.decision.withdrawn.append(&mut outstanding);
        self.emit(Event::RunCanceled(RunCanceled {}))
    }

    /// An attempt failed: another follows, or the node has failed.
    fn fail_attempt(
        &mut self,
        execution_id: ExecutionId,
        failure: Failure,
        error: StepError,
        digest: Option<Digest>,
    ) -> Result<(), Broken> {
        let index = self.node_of(execution_id)?;
        let wait = self.wait_before_next(index, failure, &error);
        let error = match (failure, wait) {
            (Failure::Undelivered, None) => {
                self.policy.undeliverable(self.state.nodes[index].undelivered + 1, &error)
            }
            _ => error,
        };
        let node_path = self.state.graph.nodes[index].path.clone();
        self.decision.closed.push(execution_id);
        self.emit(Event::StepFailed(StepFailed {
            node_path,
            execution_id: Some(execution_id),
            failure,
            error,
            will_retry: wait.is_some(),
            digest,
        }))?;
        match wait {
            Some(wait) => self.schedule(index, Some(self.now.plus(wait))),
            None => self.go_on(),
        }
    }

    /// How long to wait before the next attempt; `None`: there is none.
    fn wait_before_next(
        &mut self,
        index: NodeIndex,
        failure: Failure,
        error: &StepError,
    ) -> Option<Duration> {
        if self.state.failure.is_some() {
            return None;
        }
        let node = &self.state.nodes[index];
        match failure {
            Failure::Undelivered => self.policy.redelivery_wait(node.undelivered + 1, self.draw.chance()),
            Failure::Reported if error.retryable == Some(false) => None,
            Failure::Reported | Failure::TimedOut => {
                self.policy.retry_wait(self.state.graph.nodes[index].retry.as_ref()?, node.failed_tries + 1)
            }
            Failure::Refused | Failure::Evaluation => None,
        }
    }

    fn schedule(&mut self, index: NodeIndex, not_before: Option<Millis>) -> Result<(), Broken> {
        let graph = Arc::clone(&self.state.graph);
        let node = &graph.nodes[index];
        let Kind::Task(lane) = node.kind else { return Ok(()) };
        let execution_id = self.draw.execution_id();
        let attempt = self.state.nodes[index].attempts + 1;
        let node_path = node.path.clone();
        self.decision.opened.push(Opened {
            execution_id,
            node_path: node_path.clone(),
            node_type: node.node_type.clone(),
            attempt,
            lane,
            publish_at: not_before.unwrap_or_else(|| self.now.plus(self.policy.republish_after)),
            is_due: not_before.is_none(),
        });
        self.emit(Event::StepScheduled(StepScheduled { node_path, execution_id, attempt, not_before }))
    }

    /// Decides about every settled node, and about the end of the run.
    fn go_on(&mut self) -> Result<(), Broken> {
        while self.state.failure.is_none()
            && let Some(node) = self.state.flow.next_settled()
        {
            self.settled(node)?;
        }
        if self.state.failure.is_some() {
            self.withdraw_queued()?;
        }
        if self.state.outstanding > 0 || self.state.status.is_terminal() {
            return Ok(());
        }
        match self.state.failure.clone() {
            Some(error) => self.emit(Event::RunFailed(RunFailed { error })),
            None => self.emit(Event::RunFinished(RunFinished {})),
        }
    }

    fn settled(&mut self, index: NodeIndex) -> Result<(), Broken> {
        let graph = Arc::clone(&self.state.graph);
        let node = &graph.nodes[index];
        let node_path = node.path.clone();
        match (self.state.flow.readiness(&graph, index), &node.kind) {
            (Readiness::AllAlive, _) | (Readiness::SomeDead, Kind::Output) => {}
            _ => return self.emit(Event::StepSkipped(StepSkipped { node_path })),
        }
        match &node.kind {
            Kind::Task(_) => self.schedule(index, None),
            Kind::Trigger | Kind::Output => {
                self.emit(Event::StepEvaluated(StepEvaluated { node_path, outputs: None }))
            }
            Kind::Switch => {
                let outputs = evaluate::switch(graph.arms(index), self.state.input(index, "value"));
                self.evaluated(node_path, outputs)
            }
            Kind::Extract(extract) => match extract.evaluate(self.state.input(index, "source")) {
                Ok(outputs) => self.evaluated(node_path, outputs),
                Err(message) => self.emit(Event::StepFailed(StepFailed {
                    node_path,
                    execution_id: None,
                    failure: Failure::Evaluation,
                    error: StepError::of(ErrorCode::InvalidNodeInput, message),
                    will_retry: false,
                    digest: None,
                })),
            },
        }
    }

    fn evaluated(&mut self, node_path: NodePath, outputs: Outputs) -> Result<(), Broken> {
        self.emit(Event::StepEvaluated(StepEvaluated { node_path, outputs: Some(Arc::new(outputs)) }))
    }

    /// The run fails: what nobody works on yet is withdrawn, what runs is waited for.
    fn withdraw_queued(&mut self) -> Result<(), Broken> {
        for execution_id in self.state.outstanding_ids() {
            if self.state.phase(execution_id) == Some(Phase::Queued) {
                let node_path = self.path_of(execution_id)?;
                self.withdraw(execution_id);
                self.emit(Event::StepCanceled(StepCanceled { node_path, execution_id }))?;
            }
        }
        Ok(())
    }

    /// Closes an attempt; one that this very decision opened never comes into being outside.
    fn withdraw(&mut self, execution_id: ExecutionId) {
        let before = self.decision.opened.len();
        self.decision.opened.retain(|opened| opened.execution_id != execution_id);
        if self.decision.opened.len() == before {
            self.decision.closed.push(execution_id);
            self.decision.withdrawn.push(execution_id);
        }
    }
}
