//! When a schedule trigger fires: a cron expression in a time zone (protocol section 5).

use crate::{Millis, process::Trigger};
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use croner::Cron;
use serde_json::{Map, Value};
use std::str::FromStr;

/// The `type` of schedule triggers.
pub const KIND: &str = "schedule";

/// One schedule trigger, compiled.
#[derive(Clone, Debug)]
pub struct Schedule {
    cron: Cron,
    zone: Tz,
}

/// What is wrong with one field of a schedule trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The field.
    pub field: &'static str,
    /// Stable short code of the kind of fault, `snake_case`.
    pub code: &'static str,
    /// What is wrong and what to do.
    pub message: String,
}

impl Malformed {
    fn new(field: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        Self { field, code, message: message.into() }
    }
}

impl Schedule {
    /// Reads `{"type": "schedule", "cron": "0 9 * * MON-FRI", "timeZone": "Europe/Riga"}`; the zone
    /// is UTC when there is none. `None`: the trigger is of another type.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn read(trigger: &Trigger) -> Option<Result<Self, Vec<Malformed>>> {
        (trigger.kind == KIND).then(|| Self::of(&trigger.extra))
    }

    /// Reads the settings of a schedule trigger.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub fn of(settings: &Map<String, Value>) -> Result<Self, Vec<Malformed>> {
        match (cron(settings.get("cron")), zone(settings.get("timeZone"))) {
            (Ok(cron), Ok(zone)) => Ok(Self { cron, zone }),
            (cron, zone) => Err(cron.err().into_iter().chain(zone.err()).collect()),
        }
    }

    /// Does it ever fire? A 30 February never comes. The answer "no" takes a search of some milliseconds.
    pub fn fires(&self) -> bool {
        self.cron.find_next_occurrence(&DateTime::<Utc>::UNIX_EPOCH, true).is_ok()
    }

    /// The last firing after `since` up to and with `now`; those before it are not made up for.
    pub fn due(&self, since: Millis, now: Millis) -> Option<Millis> {
        let now = DateTime::from_timestamp_millis(now.0)?.with_timezone(&self.zone);
        let fired = self.cron.find_previous_occurrence(&now, true).ok()?;
        Some(Millis(fired.timestamp_millis())).filter(|fired| *fired > since)
    }
}

fn cron(value: Option<&Value>) -> Result<Cron, Malformed> {
    let malformed = |code, message: String| Malformed::new("cron", code, message);
    let text = match value {
        None | Some(Value::Null) => return Err(malformed("missing", "is required".to_owned())),
        Some(Value::String(text)) => text,
        Some(_) => return Err(malformed("wrong_type", "must be a string".to_owned())),
    };
    Cron::from_str(text).map_err(|error| {
        let text =
            format!("{text:?} is no cron expression ({error}); use five fields such as \"0 9 * * MON-FRI\"");
        malformed("invalid_cron", text)
    })
}

fn zone(value: Option<&Value>) -> Result<Tz, Malformed> {
    let text = match value {
        None | Some(Value::Null) => return Ok(Tz::UTC),
        Some(Value::String(text)) => text,
        Some(_) => return Err(Malformed::new("timeZone", "wrong_type", "must be a string")),
    };
    text.parse().map_err(|_| {
        let message = format!("{text:?} is no time zone; use a name such as Europe/Riga");
        Malformed::new("timeZone", "unknown_time_zone", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MINUTE: i64 = 60_000;
    const DAY: i64 = 24 * 60 * MINUTE;

    fn read(trigger: &Value) -> Option<Result<Schedule, Vec<Malformed>>> {
        Schedule::read(&crate::Json::from(trigger).read().unwrap())
    }

    fn schedule(cron: &str, zone: Option<&str>) -> Schedule {
        let mut trigger = json!({"type": "schedule", "cron": cron});
        if let Some(zone) = zone {
            trigger["timeZone"] = json!(zone);
        }
        read(&trigger).unwrap().unwrap()
    }

    #[test]
    fn a_schedule_fires_once_at_its_moment() {
        let every_minute = schedule("* * * * *", None);
        let at = |since: i64, now: i64| every_minute.due(Millis(since), Millis(now)).map(|at| at.0);
        assert_eq!(at(MINUTE, 2 * MINUTE - 1), None);
        assert_eq!(at(MINUTE, 2 * MINUTE), Some(2 * MINUTE));
        assert_eq!(at(2 * MINUTE, 2 * MINUTE + 500), None, "it has fired");
    }

    #[test]
    fn of_several_missed_firings_only_the_last_is_made_up_for() {
        assert_eq!(
            schedule("* * * * *", None).due(Millis(0), Millis(10 * MINUTE + 7)),
            Some(Millis(10 * MINUTE))
        );
    }

    #[test]
    fn a_schedule_follows_the_clocks_of_its_zone() {
        // 9 o'clock in Riga is 7 in UTC in winter (2026-01-02) and 6 in summer (2026-07-01).
        let nine = schedule("0 9 * * *", Some("Europe/Riga"));
        let winter = nine.due(Millis(1_767_312_000_000), Millis(1_767_312_000_000 + DAY)).unwrap();
        let summer = nine.due(Millis(1_782_864_000_000), Millis(1_782_864_000_000 + DAY)).unwrap();
        assert_eq!((winter.0 % DAY / (60 * MINUTE), summer.0 % DAY / (60 * MINUTE)), (7, 6));
    }

    #[test]
    fn a_day_that_never_comes_is_told_from_one_that_is_rare() {
        assert!(schedule("0 0 29 2 *", None).fires());
        assert!(!schedule("0 0 30 2 *", None).fires());
    }

    #[test]
    fn other_triggers_are_no_schedules_and_malformed_ones_say_all_that_is_wrong() {
        assert!(read(&json!({"type": "webhook"})).is_none());
        for (trigger, expected) in [
            (json!({"type": "schedule"}), vec![("cron", "missing")]),
            (json!({"type": "schedule", "cron": 5}), vec![("cron", "wrong_type")]),
            (json!({"type": "schedule", "cron": "now and then"}), vec![("cron", "invalid_cron")]),
            (json!({"type": "schedule", "cron": "61 * * * *"}), vec![("cron", "invalid_cron")]),
            (
                json!({"type": "schedule", "cron": "", "timeZone": "Mars"}),
                vec![("cron", "invalid_cron"), ("timeZone", "unknown_time_zone")],
            ),
        ] {
            let found = read(&trigger).unwrap().unwrap_err();
            let found: Vec<_> = found.iter().map(|fault| (fault.field, fault.code)).collect();
            assert_eq!(found, expected, "{trigger}");
        }
    }
}
