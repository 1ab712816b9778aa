//! What must be true at the end, with counts.

use super::{
    deeds::Deed,
    history::History,
    load::Asked,
    worker::{Answer, Execution},
};
use contract::ErrorCode;
use serde_json::Value;
use std::{collections::BTreeMap, fmt};

/// Violations of a kind that are printed; the rest is counted.
const SHOWN: usize = 40;

/// A run at the end, with its history.
#[derive(Debug)]
pub struct Ended {
    /// What was asked for.
    pub asked: Asked,
    /// Its id.
    pub run: String,
    /// The run's detail.
    pub detail: Value,
    /// `publicInputs` of its result; null when there is no result.
    pub public_inputs: Value,
    /// Its history.
    pub history: History,
}

impl Ended {
    /// The run's status.
    pub(super) fn status(&self) -> &str {
        self.detail["run"]["status"].as_str().unwrap_or("unknown")
    }
}

/// The counts and what is wrong.
#[derive(Debug, Default)]
pub struct Verdict {
    counts: BTreeMap<&'static str, usize>,
    /// Every broken promise, in words.
    pub violations: Vec<String>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in &self.counts {
            writeln!(f, "{count:>8}  {what}")?;
        }
        writeln!(f, "{:>8}  violations", self.violations.len())?;
        for violation in self.violations.iter().take(SHOWN) {
            writeln!(f, "  VIOLATION: {violation}")?;
        }
        Ok(())
    }
}

impl Verdict {
    /// Adds to a count.
    pub fn count(&mut self, what: &'static str, count: usize) {
        *self.counts.entry(what).or_default() += count;
    }

    /// A promise that must hold.
    pub fn check(&mut self, holds: bool, violation: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(violation());
        }
    }

    /// Judges a run: its end, its result, its history.
    pub fn judge_run(&mut self, ended: &Ended, executions: &[&Execution]) {
        let Ended { asked, run, detail, public_inputs, history } = ended;
        self.count("runs", 1);
        self.violations.extend(history.faults().into_iter().map(|fault| format!("run {run}: {fault}")));
        let status = ended.status();
        let expected = match asked.deed {
            Deed::Repeated => None,
            _ => asked.shape.result(asked.input, history.decisions().first().copied()),
        };
        match (expected, status) {
            (_, "canceled") if matches!(asked.deed, Deed::Canceled { .. }) => {
                self.count("runs canceled", 1);
            }
            (Some(expected), "finished") => {
                self.count("runs finished", 1);
                self.check(*public_inputs == expected, || {
                    format!("run {run} ({:?}): result {public_inputs}, not {expected}", asked.shape)
                });
            }
            (None, "failed") => {
                self.count("runs failed as they should", 1);
                let path = &detail["run"]["error"]["nodePath"];
                self.check(path == "step", || format!("run {run}: failed by {path}, not by its broken step"));
            }
            (Some(_), "failed") if !asked.shape.repeats() => self.judge_lost(ended, executions),
            _ => self
                .violations
                .push(format!("run {run} ({:?}) is {status}: {}", asked.shape, detail["run"]["error"])),
        }
        self.judge_deed(ended, executions);
        for execution in executions {
            self.judge_execution(execution, asked, history);
        }
    }

    /// A step that may not be repeated fails its run when its work was forgotten after the ack, or
    /// when its result did not reach anybody in time; never when its result was answered.
    fn judge_lost(&mut self, ended: &Ended, executions: &[&Execution]) {
        let failed = ended.history.timed_out();
        self.check(!failed.is_empty(), || {
            format!("run {} failed without a time-out: {}", ended.run, ended.detail["run"]["error"])
        });
        for id in failed {
            let execution = executions.iter().find(|execution| execution.execution_id.to_string() == id);
            match execution {
                Some(execution) if execution.is_lost => {
                    self.count("runs failed, the plugin forgot a step", 1);
                }
                Some(execution) if !execution.result.as_ref().is_some_and(Answer::is_stored) => {
                    self.count("runs failed, a result came too late", 1);
                }
                Some(_) => {
                    self.violations.push(format!("attempt {id} timed out though its result was answered"));
                }
                // What never arrived is delivered again, not waited for.
                None => self.violations.push(format!("attempt {id} timed out, but the plugin never had it")),
            }
        }
    }

    fn judge_execution(&mut self, execution: &Execution, asked: &Asked, history: &History) {
        let id = execution.execution_id.to_string();
        let stored = history.results(&id);
        let node = format!("{}, {}, attempt {id}", execution.run_id, execution.node_path);
        self.count("executions", 1);
        self.check(history.has_scheduled(&id), || format!("{node}: executed, but not in the history"));
        self.check(stored <= 1, || format!("{node}: {stored} results in the history"));
        match &execution.result {
            None if execution.is_lost => self.count("executions forgotten by the killed plugin", 1),
            None => self.violations.push(format!("{node}: the result was never answered")),
            Some(answer @ (Answer::Applied | Answer::Duplicate)) => {
                let is_new = *answer == Answer::Applied;
                self.count(if is_new { "results answered applied" } else { "results answered duplicate" }, 1);
                self.check(stored == 1, || format!("{node}: told {answer:?}, in the history {stored} times"));
            }
            Some(Answer::Stale(code)) => {
                let is_superseded = *code == ErrorCode::Superseded;
                let what = if is_superseded {
                    "results answered superseded"
                } else {
                    "results answered run_terminal"
                };
                self.count(what, 1);
                self.check(stored == 0, || {
                    format!("{node}: told {}, but it is in the history", code.as_str())
                });
            }
            Some(Answer::Refused(error)) => self.violations.push(format!("{node}: refused: {error}")),
        }
        if let Some(again) = &execution.again {
            self.count("results sent again after their answer", 1);
            let was_stored = execution.result.as_ref().is_some_and(Answer::is_stored);
            self.check(!was_stored || *again == Answer::Duplicate, || {
                format!("{node}: a stored result, sent again, was answered {again:?}")
            });
        }
        self.judge_repetition(execution, asked, history, &node);
    }

    fn judge_repetition(&mut self, execution: &Execution, asked: &Asked, history: &History, node: &str) {
        let Some(before) = execution.after_ack_of else { return };
        if before == execution.execution_id {
            self.violations.push(format!("{node}: delivered again after its ack was answered"));
            return;
        }
        self.count("executions repeated after a failure, as their node asks", 1);
        self.check(asked.shape.repeats(), || {
            format!("{node}: executed after the ack of {before} was answered")
        });
        self.check(history.has_failed(&before.to_string()), || {
            format!("{node}: executed although {before}, whose ack was answered, has not failed")
        });
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
