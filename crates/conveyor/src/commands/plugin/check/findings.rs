//! Rules of the wire, and what was found about each.

use crate::document::printable;
use serde::Serialize;

/// A rule of `docs/plugin-protocol.md`.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Rule {
    /// Stable name.
    #[serde(rename = "rule")]
    id: &'static str,
    /// What a plugin does that keeps it.
    says: &'static str,
    /// What to change when it is broken.
    #[serde(skip)]
    remedy: &'static str,
}

macro_rules! rules {
    ($($name:ident = $id:literal, $says:literal, $remedy:literal;)*) => {
        $(pub(super) const $name: Rule = Rule { id: $id, says: $says, remedy: $remedy };)*

        /// All of them.
        #[cfg(test)]
        pub(super) const ALL: &[Rule] = &[$($name),*];
    };
}

rules! {
    PUBLICATION_TOKEN = "publication_token", "the publication carries the ingress token",
        "send PLUGIN_MANAGER_INGRESS_TOKEN as data.token of manifest_request_v2";
    MANIFEST = "manifest", "the manifest is well formed",
        "correct the named fields; docs/plugin-protocol.md, section Publication, lists them all";
    PUBLICATION_RETRY = "publication_retry", "a publication that is refused with retryable: true is tried again",
        "try again with growing pauses while the answer is missing or has retryable: true";
    PULL = "batch_pull", "executor_batch_pull is answered with {items}",
        "serve the pattern executor_batch_pull as a request; compare data.token with your ingress token";
    PULL_TOKEN = "batch_pull_token", "a wrong token is refused as unauthorized",
        "compare data.token with your token in constant time and answer {code: \"unauthorized\"} when it differs";
    PULL_ITEMS = "batch_pull_items", "every item and param is well formed, and every declared node type has one",
        "correct the named fields; docs/plugin-protocol.md, section Batch pull, lists them all";
    PULL_NODE_TYPES = "batch_pull_node_types", "a pull of one node type brings this one",
        "answer one item for each of data.nodeTypes; none or an empty list means all";
    UNKNOWN_PATTERN = "unknown_pattern", "a pattern that nobody serves is answered, with no matching message handler",
        "answer {id, status: \"error\", err: \"There is no matching message handler defined in the remote service.\"}";
    FRAMES = "frames", "lengths are counted in UTF-16 code units",
        "count an emoji as 2, any other character of the basic plane as 1; neither bytes nor characters";
    CONCURRENCY = "concurrency", "many requests on one connection are each answered by their id",
        "answer every request with its own id; do not wait for one answer before you read on";
    UNKNOWN_NODE_TYPE = "unknown_node_type", "a task of an unknown node type is refused, or fails",
        "answer the task with {code: \"node_type_unknown\"}, or report a result with status error";
    MALFORMED_TASK = "malformed_task", "a malformed task is answered and breaks nothing",
        "answer with {code: \"invalid_request\"} and keep the connection";
    TASK = "task", "a task is answered at once",
        "answer executor.task before the work is done, without status and outputs; or serve it as an event";
    ACK = "ack", "an acknowledgement says that work has begun",
        "send plugin.executor.step_ack, or answer executor.task at once";
    REPORT_KEY = "report_key", "every report carries the control plane's key",
        "send PLUGIN_CONTROL_PLANE_KEY as data.key of every report";
    REPORT_FORM = "report_form", "every report is well formed and names its attempt",
        "correct the named fields; executionId is that of the task";
    RESULT = "result", "the result is reported",
        "send plugin.executor.step_result with status and outputs, or with an error";
    RESULT_RESEND = "result_resend", "a result is sent again, the same, until it is answered for good",
        "keep the result until it is answered without retryable: true; send it again after a missing answer";
    ONCE = "once", "a task that is delivered twice is done once, and an answered result is not sent again",
        "remember the executionIds that you took; forget a result when it is answered";
    MISSING_INPUTS = "missing_inputs", "a task without its required inputs fails",
        "report status error with code invalid_node_input and the names of the inputs";
    HEARTBEAT = "heartbeat", "long work sends heartbeats",
        "send plugin.executor.step_heartbeat every 10 seconds or so";
    SUPERSEDED = "superseded", "a plugin that is told superseded stops and sends nothing more",
        "stop the work and drop its reports when a report is answered with superseded or run_terminal";
}

/// What became of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Passed,
    Failed,
    Skipped,
}

#[derive(Debug, Serialize)]
struct Finding {
    #[serde(flatten)]
    rule: Rule,
    verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'static str>,
}

/// All that was found, told as it is found or as one line of JSON at the end.
#[derive(Debug)]
pub(super) struct Findings {
    found: Vec<Finding>,
    json: bool,
}

impl Findings {
    /// Nothing yet.
    pub(super) fn new(json: bool) -> Self {
        Self { found: Vec::new(), json }
    }

    /// The rule is kept.
    pub(super) fn pass(&mut self, rule: Rule) {
        self.add(Finding { rule, verdict: Verdict::Passed, detail: None, remedy: None });
    }

    /// The rule is broken.
    pub(super) fn fail(&mut self, rule: Rule, detail: impl Into<String>) {
        let detail = Some(detail.into());
        self.add(Finding { rule, verdict: Verdict::Failed, detail, remedy: Some(rule.remedy) });
    }

    /// The rule could not be tried.
    pub(super) fn skip(&mut self, rule: Rule, why: impl Into<String>) {
        self.add(Finding { rule, verdict: Verdict::Skipped, detail: Some(why.into()), remedy: None });
    }

    /// Kept if `outcome` is.
    pub(super) fn note(&mut self, rule: Rule, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.pass(rule),
            Err(detail) => self.fail(rule, detail),
        }
    }

    /// Tells the end; is nothing broken?
    pub(super) fn finish(&self) -> bool {
        let count = |verdict| self.found.iter().filter(|finding| finding.verdict == verdict).count();
        let [passed, failed, skipped] = [Verdict::Passed, Verdict::Failed, Verdict::Skipped].map(count);
        if self.json {
            let all = serde_json::json!({
                "ok": failed == 0, "passed": passed, "failed": failed, "skipped": skipped, "rules": self.found,
            });
            println!("{all}");
        } else {
            println!("{passed} passed, {failed} failed, {skipped} skipped");
        }
        failed == 0
    }

    fn add(&mut self, finding: Finding) {
        if !self.json {
            let Rule { id, says, .. } = finding.rule;
            let detail = finding.detail.as_deref().map(printable).unwrap_or_default();
            match finding.verdict {
                Verdict::Passed => println!("✓ {id:<22} {says}"),
                Verdict::Failed => println!("✗ {id:<22} {says}\n    {detail}\n    → {}", finding.rule.remedy),
                Verdict::Skipped => println!("- {id:<22} not tried: {detail}"),
            }
        }
        self.found.push(finding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_name_of_its_own_and_a_remedy() {
        let mut names: Vec<_> = ALL.iter().map(|rule| rule.id).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.iter().all(|rule| !rule.remedy.is_empty()));
    }

    #[test]
    fn one_broken_rule_is_enough_and_a_skipped_one_is_none() {
        let mut findings = Findings::new(true);
        findings.pass(PULL);
        findings.skip(TASK, "no --node");
        assert!(findings.finish());
        findings.note(FRAMES, Err("no answer".to_owned()));
        assert!(!findings.finish());
    }
}
