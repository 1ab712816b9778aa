//! Validation of the triggers of a diagram.

use super::validate::Validation;
use crate::schedule::{self, Malformed, Schedule};
use serde_json::Value;

impl Validation<'_> {
    /// A schedule that could never fire is refused here, not found out by whoever waits for it.
    pub(super) fn schedules(&mut self, triggers: Option<&Value>, path: &str) {
        let triggers = triggers.and_then(Value::as_array).into_iter().flatten().enumerate();
        let mut never_fires = false;
        for (index, trigger) in triggers {
            let Some(trigger) = trigger.as_object() else { continue };
            if trigger.get("type").and_then(Value::as_str) != Some(schedule::KIND) {
                continue;
            }
            match Schedule::of(trigger) {
                Ok(schedule) => {
                    // The search is long where it finds nothing: one such schedule is enough to refuse.
                    if !never_fires && !schedule.fires() {
                        never_fires = true;
                        let message = "names no moment that ever comes";
                        self.check.fault(format!("{path}[{index}].cron"), "never_fires", message);
                    }
                }
                Err(faults) => {
                    for Malformed { field, code, message } in faults {
                        self.check.fault(format!("{path}[{index}].{field}"), code, message);
                    }
                }
            }
        }
    }
}
