//! When a schedule fires: a cron expression in a time zone.

use chrono::DateTime;
use chrono_tz::Tz;
use contract::{Millis, process::Trigger};
use croner::Cron;
use serde_json::Value;
use std::str::FromStr;

/// One schedule trigger, compiled.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    cron: Cron,
    zone: Tz,
}

impl Schedule {
    /// Reads `{"type": "schedule", "cron": "0 9 * * MON-FRI", "timeZone": "Europe/Riga"}`; the zone
    /// is UTC when there is none. `None`: the trigger is of another type.
    pub(super) fn read(trigger: &Trigger) -> Option<Result<Self, String>> {
        (trigger.kind == "schedule").then(|| {
            let text = |name: &str| trigger.extra.get(name).and_then(Value::as_str);
            let cron = text("cron").ok_or_else(|| "\"cron\" is missing".to_owned())?;
            let zone = text("timeZone").unwrap_or("UTC");
            Ok(Self {
                cron: Cron::from_str(cron)
                    .map_err(|error| format!("{cron:?} is no cron expression: {error}"))?,
                zone: zone
                    .parse()
                    .map_err(|_| format!("{zone:?} is no time zone; use one such as Europe/Riga"))?,
            })
        })
    }

    /// The last firing after `since` up to and with `now`; those before it are not made up for.
    pub(super) fn due(&self, since: Millis, now: Millis) -> Option<Millis> {
        let now = DateTime::from_timestamp_millis(now.0)?.with_timezone(&self.zone);
        let fired = self.cron.find_previous_occurrence(&now, true).ok()?;
        Some(Millis(fired.timestamp_millis())).filter(|fired| *fired > since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MINUTE: i64 = 60_000;
    const DAY: i64 = 24 * 60 * MINUTE;

    fn read(trigger: &Value) -> Option<Result<Schedule, String>> {
        Schedule::read(&contract::Json::from(trigger).read().unwrap())
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
    fn other_triggers_are_no_schedules_and_malformed_ones_say_why() {
        assert!(read(&json!({"type": "webhook"})).is_none());
        for (trigger, word) in [
            (json!({"type": "schedule"}), "cron"),
            (json!({"type": "schedule", "cron": "now and then"}), "now and then"),
            (json!({"type": "schedule", "cron": "* * * * *", "timeZone": "Mars"}), "Mars"),
        ] {
            assert!(read(&trigger).unwrap().unwrap_err().contains(word), "{trigger}");
        }
    }
}
