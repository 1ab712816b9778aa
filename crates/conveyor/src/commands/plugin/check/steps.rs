//! The rules of tasks and reports, told by what the plugin reports to the check.

use super::{
    door::{self, Delivery, Plugin},
    findings::{self as rule, Findings, Rule},
    stage::{Heard, Stage},
};
use contract::{
    ErrorCode, ExecutionId, Json, RpcError,
    manifest::ExecutorItem,
    pattern,
    report::{ReportBody, ReportKind, StepReport, StepResult, StepStatus, read_report},
    task::ExecutorTask,
};
use indexmap::IndexMap;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use std::{collections::HashSet, time::Duration};
use tokio::time::Instant;
use uuid::Uuid;
use wire::Reply;

/// How long a report that was under way when the plugin was told to stop may still come.
const GRACE: Duration = Duration::from_secs(1);

/// What is heard, and what was wrong with it.
pub(super) struct Script<'a> {
    stage: Stage,
    plugin: &'a Plugin,
    key: Option<SecretString>,
    wait: Duration,
    quiet: Duration,
    /// Attempts whose result was answered for good.
    closed: HashSet<ExecutionId>,
    reports: usize,
    wrong_key: bool,
    malformed: Vec<String>,
    sent_again: usize,
}

/// What one attempt reported.
#[derive(Default)]
struct Heeded {
    acks: usize,
    heartbeat: bool,
    /// The results, in order.
    results: Vec<StepResult>,
}

impl<'a> Script<'a> {
    /// Nothing was heard yet.
    pub(super) fn new(
        stage: Stage,
        plugin: &'a Plugin,
        key: Option<SecretString>,
        wait: Duration,
        quiet: Duration,
    ) -> Self {
        Self {
            stage,
            plugin,
            key,
            wait,
            quiet,
            closed: HashSet::new(),
            reports: 0,
            wrong_key: false,
            malformed: Vec::new(),
            sent_again: 0,
        }
    }

    /// The rules that need a node.
    pub(super) fn skip_steps(findings: &mut Findings, why: &str) {
        let rules: [Rule; 8] = [
            rule::TASK,
            rule::ACK,
            rule::RESULT,
            rule::RESULT_RESEND,
            rule::HEARTBEAT,
            rule::MISSING_INPUTS,
            rule::SUPERSEDED,
            rule::ONCE,
        ];
        rules.into_iter().for_each(|rule| findings.skip(rule, why));
    }

    /// A task that the plugin cannot do is refused, or its failure is reported.
    pub(super) async fn check_unknown_node_type(&mut self, findings: &mut Findings) {
        let task = door::unknown_task();
        if self.plugin.check_unknown_node_type(&task, findings).await {
            let heard = self.follow(task.execution_id, 0).await;
            findings.note(rule::UNKNOWN_NODE_TYPE, failure(&heard.results));
        }
    }

    /// Runs the node as the rules need it.
    pub(super) async fn check_steps(
        &mut self,
        task: &ExecutorTask,
        item: Option<&ExecutorItem>,
        findings: &mut Findings,
    ) {
        match self.plugin.deliver(task).await {
            Delivery::Taken => findings.pass(rule::TASK),
            Delivery::Answered(_) => {
                findings.pass(rule::TASK);
                findings.pass(rule::RESULT);
                let why = "the task is answered with its result";
                for rule in [rule::ACK, rule::RESULT_RESEND, rule::HEARTBEAT, rule::SUPERSEDED, rule::ONCE] {
                    findings.skip(rule, why);
                }
                return self.check_missing_inputs(task, item, findings).await;
            }
            // What it reports is heard all the same.
            Delivery::Late(detail) => findings.fail(rule::TASK, detail),
            Delivery::Refused(detail) | Delivery::Unanswered(detail) => {
                findings.fail(rule::TASK, detail);
                return Self::skip_steps_but_task(findings);
            }
        }
        // The same again, as a control plane does that did not get the answer.
        self.plugin.deliver(task).await;
        let heard = self.follow(task.execution_id, 2).await;
        match heard.acks {
            1.. => findings.pass(rule::ACK),
            0 => findings.skip(rule::ACK, "none came; the answer to the task stands for it"),
        }
        match heard.heartbeat {
            true => findings.pass(rule::HEARTBEAT),
            false => findings.skip(rule::HEARTBEAT, "none came; choose a node and inputs that work for long"),
        }
        self.check_result(&heard, findings);
        self.check_missing_inputs(task, item, findings).await;
        self.check_superseded(task, heard.heartbeat, findings).await;
        let outcome = match (heard.acks, self.sent_again) {
            (0 | 1, 0) => Ok(()),
            (0 | 1, count) => {
                Err(format!("{count} reports came for attempts whose result was answered for good"))
            }
            (count, _) => Err(format!("work on the same executionId began {count} times")),
        };
        findings.note(rule::ONCE, outcome);
    }

    fn skip_steps_but_task(findings: &mut Findings) {
        let rules = [
            rule::ACK,
            rule::RESULT,
            rule::RESULT_RESEND,
            rule::HEARTBEAT,
            rule::MISSING_INPUTS,
            rule::SUPERSEDED,
        ];
        rules.into_iter().for_each(|rule| findings.skip(rule, "the task was not taken"));
    }

    /// The first answer to the result was withheld, the second was that the engine is away.
    fn check_result(&self, heard: &Heeded, findings: &mut Findings) {
        let Some(first) = heard.results.first() else {
            findings.fail(rule::RESULT, format!("none came within {} s", self.wait.as_secs()));
            return findings.skip(rule::RESULT_RESEND, "there is no result");
        };
        let outcome = match first {
            StepResult { status: StepStatus::Error, error: Some(error), .. } => {
                Err(format!("the node failed: {}; are the inputs right?", error.message))
            }
            _ => Ok(()),
        };
        findings.note(rule::RESULT, outcome);
        let outcome = match heard.results.len() {
            3.. if heard.results.iter().any(|result| result.digest() != first.digest()) => {
                Err("another result came than before".to_owned())
            }
            3.. => Ok(()),
            2 => Err("it was not sent again after engine_unavailable".to_owned()),
            _ => Err("it was not sent again when no answer came".to_owned()),
        };
        findings.note(rule::RESULT_RESEND, outcome);
    }

    async fn check_missing_inputs(
        &mut self,
        task: &ExecutorTask,
        item: Option<&ExecutorItem>,
        findings: &mut Findings,
    ) {
        let inputs = item.and_then(|item| item.inputs.as_ref());
        if !inputs.is_some_and(|inputs| inputs.iter().any(|input| input.required && input.default.is_none()))
        {
            return findings.skip(rule::MISSING_INPUTS, "the node requires none");
        }
        let task = ExecutorTask { inputs: IndexMap::new(), ..again(task) };
        let outcome = match self.plugin.deliver(&task).await {
            Delivery::Refused(_) => Ok(()),
            Delivery::Answered(answer) if door::failed(&answer) => Ok(()),
            Delivery::Answered(_) => Err("it was answered with a result".to_owned()),
            Delivery::Unanswered(detail) => Err(detail),
            Delivery::Taken | Delivery::Late(_) => failure(&self.follow(task.execution_id, 0).await.results),
        };
        findings.note(rule::MISSING_INPUTS, outcome);
    }

    /// Tells the plugin at its first heartbeat that nobody waits any more.
    async fn check_superseded(&mut self, task: &ExecutorTask, works_long: bool, findings: &mut Findings) {
        if !works_long {
            return findings.skip(rule::SUPERSEDED, "the node sends no heartbeats that could be answered so");
        }
        let task = again(task);
        if !matches!(self.plugin.deliver(&task).await, Delivery::Taken) {
            return findings.skip(rule::SUPERSEDED, "the task was not taken");
        }
        let end = Instant::now() + self.wait;
        loop {
            let Some((heard, report)) = self.next_report(rest(end)).await else {
                return findings.skip(rule::SUPERSEDED, "no heartbeat came");
            };
            match report {
                Some(report) if report.execution_id == task.execution_id => match report.body {
                    ReportBody::Heartbeat(_) => {
                        heard.answer(superseded());
                        break;
                    }
                    ReportBody::Result(_) => {
                        heard.answer(status("applied"));
                        return findings.skip(rule::SUPERSEDED, "the work ended before a heartbeat came");
                    }
                    _ => heard.answer(status("applied")),
                },
                _ => heard.answer(status("applied")),
            }
        }
        let outcome = self.silent(task.execution_id).await;
        findings.note(rule::SUPERSEDED, outcome);
    }

    /// Nothing comes for the attempt any more.
    async fn silent(&mut self, attempt: ExecutionId) -> Result<(), String> {
        let told = Instant::now();
        let mut outcome = Ok(());
        while let Some((heard, report)) = self.next_report(rest(told + self.quiet)).await {
            let late = told.elapsed() > GRACE;
            if report.is_some_and(|report| report.execution_id == attempt) {
                heard.answer(superseded());
                if late {
                    outcome = Err("it reported on".to_owned());
                }
            } else {
                heard.answer(status("applied"));
            }
        }
        outcome
    }

    /// Hears an attempt to its end. The first `resends` results are not answered for good: the first
    /// not at all, the others with `engine_unavailable`.
    async fn follow(&mut self, attempt: ExecutionId, resends: usize) -> Heeded {
        let mut heeded = Heeded::default();
        // Kept as long as the plugin may wait for its answer.
        let mut withheld = Vec::new();
        // Heartbeats alone do not go on for ever.
        let mut end = Instant::now() + self.wait;
        while let Some((heard, report)) = self.next_report(rest(end)).await {
            let Some(report) = report.filter(|report| report.execution_id == attempt) else {
                heard.answer(status("applied"));
                continue;
            };
            match report.body {
                ReportBody::Ack(_) => heeded.acks += 1,
                ReportBody::Heartbeat(_) => heeded.heartbeat = true,
                ReportBody::Partial(_) => {}
                ReportBody::Result(result) => {
                    heeded.results.push(result);
                    end = Instant::now() + self.wait;
                    match heeded.results.len() {
                        count if count > resends => {
                            self.closed.insert(attempt);
                            heard.answer(status("applied"));
                            break;
                        }
                        1 => withheld.push(heard),
                        _ => heard.answer(Reply::Error(RpcError::new(
                            ErrorCode::EngineUnavailable,
                            "the check wants the report again",
                        ))),
                    }
                    continue;
                }
            }
            heard.answer(status("applied"));
        }
        heeded
    }

    /// The next report with what it says; what is no valid report is noted and refused.
    async fn next_report(&mut self, limit: Duration) -> Option<(Heard, Option<StepReport>)> {
        loop {
            let heard = self.stage.next(limit).await?;
            let Some(kind) = kind_of(&heard) else {
                heard.answer(Reply::Error(RpcError::new(ErrorCode::UnknownPattern, "no report")));
                continue;
            };
            self.reports += 1;
            self.check_key(&heard.data);
            match read_report(kind, &heard.data) {
                Ok(report) => {
                    if self.closed.contains(&report.execution_id) {
                        self.sent_again += 1;
                    }
                    return Some((heard, Some(report)));
                }
                Err(error) => {
                    self.malformed.push(format!("{}: {}", heard.pattern.name, error.message));
                    heard.answer(Reply::Error(error));
                }
            }
        }
    }

    fn check_key(&mut self, data: &Json) {
        let Some(key) = &self.key else { return };
        let found = wire::credential_in(data, &["key", "controlPlaneKey", "token"], "auth", &["key"]);
        if found.is_none_or(|found| found.expose_secret() != key.expose_secret()) {
            self.wrong_key = true;
        }
    }

    /// The rules about all reports together.
    pub(super) fn finish(self, findings: &mut Findings) {
        if self.reports == 0 {
            findings.skip(rule::REPORT_FORM, "there was no report");
            return findings.skip(rule::REPORT_KEY, "there was no report");
        }
        match self.malformed.first() {
            None => findings.pass(rule::REPORT_FORM),
            Some(first) => {
                let count = self.malformed.len();
                findings.fail(rule::REPORT_FORM, format!("{count} reports; the first is {first}"));
            }
        }
        match (&self.key, self.wrong_key) {
            (None, _) => findings.skip(rule::REPORT_KEY, "name the key with --key"),
            (Some(_), false) => findings.pass(rule::REPORT_KEY),
            (Some(_), true) => {
                findings.fail(rule::REPORT_KEY, "a report came with another key, or with none");
            }
        }
    }
}

/// What is left until then.
fn rest(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

fn kind_of(heard: &Heard) -> Option<ReportKind> {
    Some(match heard.pattern {
        pattern::STEP_ACK => ReportKind::Ack,
        pattern::STEP_HEARTBEAT => ReportKind::Heartbeat,
        pattern::STEP_PARTIAL => ReportKind::Partial,
        pattern::STEP_RESULT => ReportKind::Result,
        _ => return None,
    })
}

/// The same work as a new attempt of a new run.
fn again(task: &ExecutorTask) -> ExecutorTask {
    ExecutorTask {
        run_id: contract::RunId(Uuid::now_v7()),
        execution_id: ExecutionId(Uuid::now_v7()),
        ..task.clone()
    }
}

fn failure(results: &[StepResult]) -> Result<(), String> {
    match results.last() {
        Some(StepResult { status: StepStatus::Error, .. }) => Ok(()),
        Some(_) => Err("it was reported as done".to_owned()),
        None => Err("nothing was reported".to_owned()),
    }
}

fn status(status: &str) -> Reply {
    Reply::Value(Json::from(json!({ "status": status })))
}

fn superseded() -> Reply {
    let error = RpcError::new(ErrorCode::Superseded, "a newer attempt of the step exists");
    Reply::Error(error.with_details(json!({ "previousState": "timed_out" })))
}
