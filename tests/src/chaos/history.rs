//! A run's history, read as a stranger reads it: the events alone tell whether there was ever more
//! than one outstanding attempt.

use serde_json::Value;
use std::collections::BTreeMap;

/// The events of a run, as the API gives them.
#[derive(Clone, Debug)]
pub struct History(Vec<Value>);

impl History {
    /// Of these events, oldest first.
    pub fn new(events: Vec<Value>) -> Self {
        Self(events)
    }

    /// What no history may show: gaps, two outstanding attempts of a node, an end of what was not
    /// outstanding, work after the end, two results of a node.
    pub fn faults(&self) -> Vec<String> {
        let mut outstanding: BTreeMap<&str, &str> = BTreeMap::new();
        let mut finished: BTreeMap<&str, usize> = BTreeMap::new();
        let mut faults = Vec::new();
        let mut has_ended = false;
        for (number, event) in (1u64..).zip(&self.0) {
            let (kind, node, id) = (kind(event), text(event, "nodePath"), text(event, "executionId"));
            if event["sequence"] != number {
                faults.push(format!("event {number} has the sequence {}", event["sequence"]));
            }
            if has_ended && kind != "late_result" {
                faults.push(format!("{kind} of {node} after the end of the run"));
            }
            match kind {
                "step_scheduled" => {
                    if let Some(other) = outstanding.insert(node, id) {
                        faults.push(format!("{node}: {id} was scheduled while {other} was outstanding"));
                    }
                    if finished.contains_key(node) {
                        faults.push(format!("{node}: {id} was scheduled after its result"));
                    }
                }
                "step_finished" | "step_elapsed" | "step_confirmed" | "step_failed" | "step_canceled"
                    if !id.is_empty() =>
                {
                    if outstanding.remove(node) != Some(id) {
                        faults.push(format!("{node}: {kind} of {id}, which was not outstanding"));
                    }
                    if matches!(kind, "step_finished" | "step_elapsed" | "step_confirmed") {
                        *finished.entry(node).or_default() += 1;
                    }
                }
                "run_finished" | "run_failed" => {
                    has_ended = true;
                    faults
                        .extend(outstanding.keys().map(|node| format!("{node} was outstanding at the end")));
                }
                "run_canceled" => has_ended = true,
                _ => {}
            }
        }
        let twice = finished.iter().filter(|(_, count)| **count > 1);
        faults.extend(twice.map(|(node, count)| format!("{node} finished {count} times")));
        faults
    }

    /// How often the result that this attempt reported is there.
    pub fn results(&self, execution_id: &str) -> usize {
        let is_result = |event: &&Value| match kind(event) {
            "step_finished" => true,
            "step_failed" => text(event, "failure") == "reported",
            _ => false,
        };
        self.0.iter().filter(is_result).filter(|event| text(event, "executionId") == execution_id).count()
    }

    /// What persons said, in order.
    pub fn decisions(&self) -> Vec<bool> {
        let answers = self.0.iter().filter(|event| kind(event) == "step_confirmed");
        answers.filter_map(|event| event["event"]["approved"].as_bool()).collect()
    }

    /// Were the outputs of this step kept from the run that this one repeats?
    pub fn has_kept(&self, node: &str) -> bool {
        self.0.iter().any(|event| kind(event) == "step_kept" && text(event, "nodePath") == node)
    }

    /// Was there such an attempt?
    pub fn has_scheduled(&self, execution_id: &str) -> bool {
        self.has("step_scheduled", execution_id)
    }

    /// Did the attempt fail?
    pub fn has_failed(&self, execution_id: &str) -> bool {
        self.has("step_failed", execution_id)
    }

    /// The attempts that exceeded their time.
    pub fn timed_out(&self) -> Vec<String> {
        let timed_out = |event: &&Value| text(event, "failure") == "timed_out";
        self.0.iter().filter(timed_out).map(|event| text(event, "executionId").to_owned()).collect()
    }

    fn has(&self, wanted: &str, execution_id: &str) -> bool {
        self.0.iter().any(|event| kind(event) == wanted && text(event, "executionId") == execution_id)
    }
}

fn kind(event: &Value) -> &str {
    event["kind"].as_str().unwrap_or_default()
}

/// A text of the event's body.
fn text<'e>(event: &'e Value, name: &str) -> &'e str {
    event["event"][name].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(events: &[(&str, &str)]) -> Vec<String> {
        let event = |(number, (kind, id)): (usize, &(&str, &str))| {
            json!({"sequence": number + 1, "kind": kind,
                "event": {"nodePath": "node", "executionId": id}})
        };
        History::new(events.iter().enumerate().map(event).collect()).faults()
    }

    #[test]
    fn attempts_one_after_another_are_no_fault() {
        let events = [
            ("step_scheduled", "1"),
            ("step_failed", "1"),
            ("step_scheduled", "2"),
            ("step_finished", "2"),
            ("run_finished", ""),
            ("late_result", "1"),
        ];
        assert_eq!(faults(&events), [""; 0]);
    }

    #[test]
    fn two_outstanding_attempts_and_two_results_are_seen() {
        assert_eq!(faults(&[("step_scheduled", "1"), ("step_scheduled", "2")]).len(), 1);
        assert_eq!(
            faults(&[("step_scheduled", "1"), ("step_finished", "1"), ("step_finished", "1")]).len(),
            2
        );
        assert_eq!(faults(&[("step_scheduled", "1"), ("run_finished", "")]).len(), 1);
        assert_eq!(faults(&[("run_finished", ""), ("step_scheduled", "1")]).len(), 1);
    }
}
