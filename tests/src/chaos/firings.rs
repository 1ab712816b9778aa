//! A process that a fast schedule starts, and what must be true of its firings (protocol section 5):
//! none comes twice, missed ones come at most once for every time that something was away, and after the
//! faults the schedule goes on.

use super::{
    Shape, Verdict,
    deeds::Deed,
    load::{Asked, Load},
};
use crate::Platform;
use reqwest::Method;
use serde_json::json;
use std::{collections::BTreeSet, time::Duration};

/// Between two firings.
pub const PERIOD: Duration = Duration::from_secs(2);

/// A changed schedule counts within 5 s (protocol section 5); a second for a busy machine.
pub const SEEN: Duration = Duration::from_secs(6);

/// The process with the schedule.
#[derive(Debug)]
pub struct Firings {
    process: String,
}

/// A run that the schedule started: its id and its key.
pub type Fired = (String, String);

impl Firings {
    /// Imports the process: from now on it fires.
    pub async fn begin(platform: &Platform) -> Self {
        Self { process: platform.import(&Shape::Schedule.document()).await }
    }

    /// The query for what has fired, a line per run: id and key.
    pub fn query(&self) -> String {
        format!("select run_id, idempotency_key from runs where process_id = '{}'", self.process)
    }

    /// The lines of [`Self::query`].
    pub fn read(lines: &str) -> Vec<Fired> {
        let pairs = lines.lines().filter_map(|line| line.split_once('|'));
        pairs.map(|(run, key)| (run.to_owned(), key.to_owned())).collect()
    }

    /// The schedule fires no more once engines have seen it.
    pub async fn end(&self, load: &Load) {
        let mut document = Shape::Schedule.document();
        document["settings"]["isActive"] = json!(false);
        let path = format!("/flow/{}", self.process);
        let (status, answer) = load.insist(Method::PUT, &path, None, Some(&document)).await;
        assert!(status.is_success(), "the schedule cannot be stopped: {status} {answer}");
    }

    /// The runs, to be judged like those that were asked for.
    pub fn asked(&self, fired: &[Fired]) -> Vec<Asked> {
        let asked = |(run, _): &Fired| Asked {
            shape: Shape::Schedule,
            process: self.process.clone(),
            input: 0,
            runs: BTreeSet::from([run.clone()]),
            deed: Deed::Nothing,
        };
        fired.iter().map(asked).collect()
    }
}

impl Verdict {
    /// Judges the firings of a schedule that was active so long, while so much happened.
    pub fn judge_firings(&mut self, fired: &[Fired], active: Duration, faults: usize) {
        self.count("firings of the schedule", fired.len());
        let period_ms = PERIOD.as_millis() as i64;
        let moments: Vec<Option<i64>> = fired.iter().map(|(_, key)| moment(key)).collect();
        let strange: Vec<_> =
            fired.iter().zip(&moments).filter(|(_, at)| !on_time(**at, period_ms)).collect();
        self.check(strange.is_empty(), || {
            format!("firings at moments that the schedule does not name: {strange:?}")
        });
        let once: BTreeSet<_> = moments.iter().collect();
        self.check(once.len() == moments.len(), || "a firing started two runs".to_owned());
        // Of missed firings only the last is made up for: each fault adds one at most.
        let most = active.as_millis() as usize / PERIOD.as_millis() as usize + 2 + 2 * faults;
        self.check(fired.len() <= most, || format!("{} firings, at most {most} were due", fired.len()));
    }
}

/// `schedule:<place of the trigger>:<epoch ms>`.
fn moment(key: &str) -> Option<i64> {
    key.strip_prefix("schedule:0:")?.parse().ok()
}

fn on_time(at: Option<i64>, period_ms: i64) -> bool {
    at.is_some_and(|at| at % period_ms == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(keys: &[&str], active: Duration) -> usize {
        let fired: Vec<Fired> = keys.iter().map(|key| ("run".to_owned(), (*key).to_owned())).collect();
        let mut verdict = Verdict::default();
        verdict.judge_firings(&fired, active, 0);
        verdict.violations.len()
    }

    #[test]
    fn firings_that_come_twice_too_often_or_at_a_wrong_moment_are_seen() {
        assert_eq!(violations(&["schedule:0:2000", "schedule:0:4000"], 2 * PERIOD), 0);
        assert_eq!(violations(&["schedule:0:2000", "schedule:0:2000"], 2 * PERIOD), 1, "twice");
        assert_eq!(violations(&["schedule:0:2001"], 2 * PERIOD), 1, "not by the cron expression");
        assert_eq!(violations(&["key-1"], 2 * PERIOD), 1, "not of the schedule");
        let all: Vec<String> = (1..=9).map(|n| format!("schedule:0:{}", n * 2000)).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(violations(&all, 3 * PERIOD), 1, "all of the missed ones");
    }
}
