//! Steps that wait for no task: for a person (`user.validation`), for a moment (`system.delay`), and
//! the deadline of the run. Each is an outstanding attempt, so that it survives restarts and any
//! engine serves it (protocol section 7).

use super::{
    decide::Turn,
    decision::{Awaited, Confirmation, Input, Opened, Touched},
    evaluate::Outputs,
    event::{Event, Failure, RunFailed, StepConfirmed, StepElapsed, StepFailed},
    graph::Kind,
    scope::Place,
    state::{Answer, Broken, State},
};
use contract::{
    ErrorCode, ExecutionId, Json, Millis, NodePath, RpcError,
    report::{ReportOutcome, StepError},
    run::{NodeStatus, RunError},
};
use serde::Serialize;
use std::time::Duration;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// The longest delay: ten years.
const LONGEST_DELAY: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// The clock of the row that tells the moment of a delay, and that of the decision, are read apart.
const SLACK: Duration = Duration::from_secs(5);

/// What `confirm` or `reject` carries.
pub(super) fn answered(step: &StepConfirmed, at: Millis) -> Outputs {
    #[derive(Serialize)]
    struct Carried<'s> {
        approved: bool,
        comment: Option<&'s str>,
        by: &'s str,
        at: Millis,
    }
    let carried = Carried { approved: step.approved, comment: step.comment.as_deref(), by: &step.by, at };
    let name = if step.approved { "confirm" } else { "reject" };
    // Texts and numbers always serialise.
    std::iter::once((name.to_owned(), Json::of(&carried).unwrap_or_default())).collect()
}

/// When a delay ends that begins now: `until` (epoch milliseconds or RFC 3339) or `milliseconds`.
///
/// # Errors
/// What is wrong with the inputs, in words.
pub(super) fn delay_end(
    milliseconds: Option<&Json>,
    until: Option<&Json>,
    now: Millis,
) -> Result<Millis, String> {
    let given = |json: Option<&Json>| json.filter(|json| !json.is_null() && json.text() != "\"\"").cloned();
    let end = match (given(until), given(milliseconds)) {
        (Some(until), _) => moment(&until)
            .ok_or_else(|| "\"until\" must be epoch milliseconds or an RFC 3339 text".to_owned())?,
        (None, Some(wait)) => {
            let wait = number(&wait).and_then(|wait| u64::try_from(wait).ok());
            let wait = wait.ok_or_else(|| "\"milliseconds\" must be a whole number from 0 up".to_owned())?;
            now.plus(Duration::from_millis(wait))
        }
        (None, None) => return Err("a delay needs \"milliseconds\" or \"until\"".to_owned()),
    };
    if end > now.plus(LONGEST_DELAY) {
        return Err("a delay lasts at most ten years".to_owned());
    }
    Ok(end)
}

/// A whole number, also as text.
fn number(json: &Json) -> Option<i64> {
    json.read().ok().or_else(|| json.read::<String>().ok()?.trim().parse().ok())
}

fn moment(json: &Json) -> Option<Millis> {
    if let Some(millis) = number(json) {
        return Some(Millis(millis));
    }
    let at = OffsetDateTime::parse(json.read::<String>().ok()?.trim(), &Rfc3339).ok()?;
    i64::try_from(at.unix_timestamp_nanos() / 1_000_000).ok().map(Millis)
}

impl State {
    /// Does the step at this path wait for a person?
    pub fn awaits_person(&self, path: &NodePath) -> bool {
        self.waiting_person(path).is_some()
    }

    fn waiting_person(&self, path: &NodePath) -> Option<(Place, ExecutionId)> {
        let place = self.find(path)?;
        let scope = self.scopes.get(&place.scope)?;
        let is_validation = scope.graph.nodes[place.node].kind == Kind::Validation;
        let attempt =
            scope.nodes[place.node].newest.filter(|id| is_validation && self.is_outstanding(*id))?;
        Some((place, attempt))
    }

    /// Nobody reports about a step that waits for no task: to reporters there is no such attempt.
    pub(super) fn judge_reporter(&self, input: &Input) -> Option<ReportOutcome> {
        let execution_id = input.execution_id().filter(|_| !matches!(input, Input::TimerDue(_)))?;
        let is_wait = self.deadline == Some(execution_id)
            || self.attempts.get(&execution_id).is_some_and(|attempt| !attempt.is_task);
        is_wait.then(|| ReportOutcome::Err(super::unknown_execution(execution_id)))
    }

    /// What a person is told whose answer does not apply.
    fn judge_confirmation(&self, confirmation: &Confirmation) -> ReportOutcome {
        let Confirmation { node_path, approved, .. } = confirmation;
        let refuse = |code, message| ReportOutcome::Err(RpcError::new(code, message));
        match self.answers.get(node_path) {
            Some(Answer { approved: stored, .. }) if stored == approved => ReportOutcome::duplicate(),
            Some(Answer { approved: stored, by }) => {
                let word = if *stored { "confirmed" } else { "refused" };
                refuse(ErrorCode::Conflict, format!("step {node_path} was {word} by {by} already"))
            }
            None if self.find(node_path).is_none() => {
                refuse(ErrorCode::NotFound, format!("run {} has no step {node_path}", self.run_id))
            }
            None => {
                let message =
                    format!("step {node_path} of run {} does not wait for a confirmation", self.run_id);
                refuse(ErrorCode::Conflict, message)
            }
        }
    }
}

impl Turn<'_> {
    /// A step waits for a person, for at most its `execution.timeoutMs`.
    pub(super) fn ask_person(&mut self, place: Place) -> Result<(), Broken> {
        let timeout = self.state.scope(place.scope)?.graph.nodes[place.node].timeout_ms;
        let until = timeout.map(|timeout| self.now.plus(Duration::from_millis(timeout)));
        self.open(place, Awaited::Person { until }, None)
    }

    /// A step waits for a moment; one that has passed is waited for no more.
    pub(super) fn wait_for_time(&mut self, place: Place) -> Result<(), Broken> {
        let scope = self.state.scope(place.scope)?;
        let input = |name: &str| scope.input(place.node, name);
        match delay_end(input("milliseconds"), input("until"), self.now) {
            Ok(at) if at <= self.now => {
                let value = input("value").cloned().unwrap_or_default();
                let outputs = std::iter::once(("value".to_owned(), value)).collect();
                self.evaluated(self.state.path(place)?, outputs)
            }
            Ok(at) => self.open(place, Awaited::Time { at }, Some(at)),
            Err(message) => {
                self.evaluation_failed(place, StepError::of(ErrorCode::InvalidNodeInput, message))
            }
        }
    }

    /// The run's deadline is watched by a row of its own.
    pub(super) fn watch_run(&mut self, execution_id: ExecutionId, at: Millis) {
        self.decision.opened.push(Opened {
            execution_id,
            node_path: NodePath(String::new()),
            node_type: "run".to_owned(),
            attempt: 1,
            awaited: Awaited::Time { at },
        });
    }

    /// The run has ended: its deadline is watched no more.
    pub(super) fn close_deadline(&mut self) {
        if let Some(execution_id) = self.state.deadline {
            let before = self.decision.opened.len();
            self.decision.opened.retain(|opened| opened.execution_id != execution_id);
            if self.decision.opened.len() == before {
                self.decision.closed.push(execution_id);
            }
        }
    }

    pub(super) fn timer_due(&mut self, execution_id: ExecutionId) -> Result<(), Broken> {
        if self.state.deadline == Some(execution_id) {
            return self.run_overdue(execution_id);
        }
        if !self.state.is_outstanding(execution_id) {
            self.decision.closed.push(execution_id);
            return Ok(());
        }
        let place = self.place_of(execution_id)?;
        let kind = &self.state.scope(place.scope)?.graph.nodes[place.node].kind;
        match kind {
            Kind::Delay => {
                let until = self.state.scope(place.scope)?.input(place.node, "until").and_then(moment);
                if let Some(at) = until.filter(|at| *at > self.now.plus(SLACK)) {
                    // The clock has gone back: the moment that was named lies ahead again.
                    let touched = Touched { deadline: Some(at), ..Touched::default() };
                    self.decision.touched.push((execution_id, touched));
                    return Ok(());
                }
                let node_path = self.state.path(place)?;
                self.emit(Event::StepElapsed(StepElapsed { node_path, execution_id }))?;
                self.decision.closed.push(execution_id);
                self.go_on(place.scope)
            }
            Kind::Validation => {
                let message = "nobody answered within the step's execution.timeoutMs";
                let error = StepError::of(ErrorCode::StepTimeout, message);
                self.fail_attempt(execution_id, Failure::TimedOut, error, None)
            }
            _ => Ok(()),
        }
    }

    fn run_overdue(&mut self, execution_id: ExecutionId) -> Result<(), Broken> {
        if self.state.status.is_terminal() {
            self.decision.closed.push(execution_id);
            return Ok(());
        }
        let limit_ms = self.now.since(self.state.started_at).as_millis();
        let message =
            format!("the run did not end within its settings.timeoutMs; it was stopped after {limit_ms} ms");
        let error = StepError::of(ErrorCode::RunTimeout, message);
        self.withdraw_all();
        self.close_deadline();
        self.emit(Event::RunFailed(RunFailed { error: RunError { node_path: None, label: None, error } }))
    }

    pub(super) fn confirm(&mut self, confirmation: Confirmation) -> Result<(), Broken> {
        let Some((place, execution_id)) = self.state.waiting_person(&confirmation.node_path) else {
            self.decision.answer = self.state.judge_confirmation(&confirmation);
            return Ok(());
        };
        let Confirmation { node_path, approved, comment, by } = confirmation;
        let refusal = comment
            .as_ref()
            .map_or_else(|| format!("{by} refused"), |comment| format!("{by} refused: {comment}"));
        let event = StepConfirmed { node_path: node_path.clone(), execution_id, approved, comment, by };
        self.emit(Event::StepConfirmed(event))?;
        self.decision.closed.push(execution_id);
        // A refusal that leads nowhere left the step without outputs.
        if self.state.scope(place.scope)?.nodes[place.node].status != NodeStatus::Finished {
            self.emit(Event::StepFailed(StepFailed {
                node_path,
                execution_id: Some(execution_id),
                failure: Failure::Rejected,
                error: StepError::of(ErrorCode::Rejected, refusal),
                will_retry: false,
                error_output: self.goes_on_after(place)?,
                digest: None,
                traceparent: None,
                tracestate: None,
            }))?;
        }
        self.go_on(place.scope)
    }
}
