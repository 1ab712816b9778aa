//! What a reporter is told (the table of protocol section 4), in the table's order: known
//! execution, `duplicate`, `conflicting_result`, `superseded`, `run_terminal`, `applied`. Access,
//! size and form were checked before.
//!
//! Three rules make the table complete:
//! - What a reporter says about an attempt whose result is already stored is contained in that
//!   result: an ack, heartbeat or partial of the newest attempt is then a `duplicate`.
//! - A late result is kept once; each resend is told `run_terminal` again, as the lost answer was.
//! - An attempt that was withdrawn because another node failed is `superseded` while the run still
//!   waits for others, `run_terminal` after that.

use super::{
    event::Failure,
    state::{Attempt, Phase, State},
};
use contract::{
    Digest, ErrorCode, ExecutionId, RpcError,
    report::{Accepted, Receipt, ReportOutcome},
    run::RunStatus,
};
use serde_json::json;

/// How a report stands against the state.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It changes the run.
    Applies,
    /// It does not; this is the answer.
    Answer(ReportOutcome),
}

impl State {
    pub(super) fn judge_ack(&self, execution_id: ExecutionId) -> Verdict {
        let Some(attempt) = self.attempts.get(&execution_id) else { return unknown(execution_id) };
        if attempt.is_acked || is_contained(attempt) {
            let worker_id = attempt.worker_id.clone();
            return Verdict::Answer(ReportOutcome::Ok(Receipt { status: Accepted::Duplicate, worker_id }));
        }
        self.judge_open(execution_id, attempt)
    }

    pub(super) fn judge_heartbeat(&self, execution_id: ExecutionId) -> Verdict {
        let Some(attempt) = self.attempts.get(&execution_id) else { return unknown(execution_id) };
        if is_contained(attempt) {
            return duplicate();
        }
        self.judge_open(execution_id, attempt)
    }

    pub(super) fn judge_partial(&self, execution_id: ExecutionId, sequence: u64) -> Verdict {
        let Some(attempt) = self.attempts.get(&execution_id) else { return unknown(execution_id) };
        if attempt.partials.contains(sequence) || is_contained(attempt) {
            return duplicate();
        }
        self.judge_open(execution_id, attempt)
    }

    pub(super) fn judge_result(&self, execution_id: ExecutionId, digest: Digest) -> Verdict {
        let Some(attempt) = self.attempts.get(&execution_id) else { return unknown(execution_id) };
        match attempt.digest {
            Some(stored) if stored == digest => duplicate(),
            Some(_) => {
                let message = format!(
                    "attempt {execution_id} has another result already; the first one counts, repeat it unchanged"
                );
                Verdict::Answer(ReportOutcome::Err(RpcError::new(ErrorCode::ConflictingResult, message)))
            }
            None => self.judge_open(execution_id, attempt),
        }
    }

    /// The outcome of a dispatch applies while nobody has been heard of.
    pub(super) fn judge_dispatch(&self, execution_id: ExecutionId) -> Verdict {
        let Some(attempt) = self.attempts.get(&execution_id) else { return unknown(execution_id) };
        if attempt.phase == Phase::Running || is_contained(attempt) {
            return duplicate();
        }
        self.judge_open(execution_id, attempt)
    }

    /// What the second canceler of an ended run is told.
    pub(super) fn judge_cancel(&self) -> ReportOutcome {
        if self.status == RunStatus::Canceled {
            return ReportOutcome::duplicate();
        }
        let message =
            format!("run {} is {} already; it cannot be canceled", self.run_id, self.status.as_str());
        ReportOutcome::Err(RpcError::new(ErrorCode::Conflict, message))
    }

    /// Is there such an attempt?
    pub fn knows(&self, execution_id: ExecutionId) -> bool {
        self.attempts.contains_key(&execution_id) || self.deadline == Some(execution_id)
    }

    /// Is the attempt's end waited for?
    pub fn is_outstanding(&self, execution_id: ExecutionId) -> bool {
        self.phase(execution_id).is_some_and(Phase::is_outstanding)
    }

    /// Would the attempt's result be kept as a late one?
    pub(super) fn keeps_late_result(&self, execution_id: ExecutionId) -> bool {
        self.status.is_terminal()
            && self
                .attempts
                .get(&execution_id)
                .is_some_and(|attempt| attempt.phase == Phase::Canceled && !attempt.has_late_result)
    }

    pub(super) fn phase(&self, execution_id: ExecutionId) -> Option<Phase> {
        self.attempts.get(&execution_id).map(|attempt| attempt.phase)
    }

    /// The outstanding attempts, by scope and in document order. Only a node's newest one can be.
    pub(super) fn outstanding_ids(&self) -> Vec<ExecutionId> {
        let newest = self.scopes.values().flat_map(|scope| &scope.nodes).filter_map(|node| node.newest);
        newest.filter(|id| self.is_outstanding(*id)).collect()
    }

    fn judge_open(&self, execution_id: ExecutionId, attempt: &Attempt) -> Verdict {
        let previous_state = match attempt.phase {
            Phase::Queued | Phase::Running => return Verdict::Applies,
            Phase::Canceled if self.status.is_terminal() => {
                let message = format!(
                    "run {} is {} already; stop working on attempt {execution_id}",
                    self.run_id,
                    self.status.as_str()
                );
                return Verdict::Answer(ReportOutcome::Err(RpcError::new(ErrorCode::RunTerminal, message)));
            }
            Phase::Canceled => "canceled",
            Phase::Finished => "finished",
            Phase::Failed(Failure::Reported | Failure::Evaluation | Failure::Rejected) => "failed",
            Phase::Failed(Failure::TimedOut) => "timed_out",
            Phase::Failed(Failure::Undelivered) => "delivery_failed",
            Phase::Failed(Failure::Refused) => "refused",
        };
        let newest = attempt.newest;
        let message = format!(
            "attempt {execution_id} (number {}, newest {newest}) does not count any more ({previous_state}); \
             stop working on it",
            attempt.number
        );
        let details =
            json!({ "previousState": previous_state, "attempt": attempt.number, "newestAttempt": newest });
        Verdict::Answer(ReportOutcome::Err(
            RpcError::new(ErrorCode::Superseded, message).with_details(details),
        ))
    }
}

/// Is the attempt its node's newest, with its result stored?
fn is_contained(attempt: &Attempt) -> bool {
    attempt.digest.is_some() && attempt.number == attempt.newest
}

fn duplicate() -> Verdict {
    Verdict::Answer(ReportOutcome::duplicate())
}

fn unknown(execution_id: ExecutionId) -> Verdict {
    Verdict::Answer(ReportOutcome::Err(unknown_execution(execution_id)))
}

/// No such attempt.
pub(crate) fn unknown_execution(execution_id: ExecutionId) -> RpcError {
    let message = format!("no attempt {execution_id} exists; report with the executionId of the task");
    RpcError::new(ErrorCode::UnknownExecution, message)
}
