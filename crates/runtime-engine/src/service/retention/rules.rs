//! What is kept of the runs that have ended.

use config::Reader;
use std::time::Duration;

const HOUR: u64 = 60 * 60;

/// Thirty days: longer than anybody looks back at single runs, and a bound for the disk of whoever never
/// thinks of it.
const DEFAULT_HOURS: u64 = 30 * 24;

/// What is kept of the runs that have ended. Running ones are always kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How long a run is kept after its end; `None`: for ever.
    pub max_age: Option<Duration>,
    /// How many runs of a process are kept, the newest; `None`: all.
    pub max_runs: Option<u32>,
    /// How often old runs are looked for.
    pub interval: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            max_age: Some(Duration::from_secs(DEFAULT_HOURS * HOUR)),
            max_runs: None,
            interval: Duration::from_secs(60),
        }
    }
}

impl Retention {
    /// Reads and declares the variables.
    pub(in crate::service) fn read(reader: &mut Reader<'_>) -> Self {
        let hours = reader.number(
            "RUNTIME_ENGINE_RETENTION_HOURS",
            "hours",
            DEFAULT_HOURS,
            "Runs are deleted, with their history, so long after their end; 0: never.",
        );
        let runs = reader.number(
            "RUNTIME_ENGINE_RETENTION_MAX_RUNS",
            "count",
            0,
            "Of each process the newest so many runs are kept, older ones that have ended are deleted; 0: all are kept.",
        );
        Self {
            max_age: (hours > 0).then(|| Duration::from_secs(hours.saturating_mul(HOUR))),
            max_runs: (runs > 0).then(|| u32::try_from(runs).unwrap_or(u32::MAX)),
            ..Self::default()
        }
    }

    /// Is there nothing to delete, ever?
    pub(super) fn keeps_everything(&self) -> bool {
        self.max_age.is_none() && self.max_runs.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Variables;

    fn read<const N: usize>(pairs: [(&str, &str); N]) -> Retention {
        let source = Variables::of(pairs);
        let mut reader = Reader::new(&source);
        let retention = Retention::read(&mut reader);
        assert_eq!(reader.faults(), []);
        retention
    }

    #[test]
    fn runs_are_kept_for_thirty_days_unless_told_otherwise() {
        assert_eq!(read([]), Retention::default());
        assert_eq!(read([]).max_age, Some(Duration::from_secs(2_592_000)));
    }

    #[test]
    fn zero_keeps_everything() {
        assert!(read([("RUNTIME_ENGINE_RETENTION_HOURS", "0")]).keeps_everything());
        let counted =
            read([("RUNTIME_ENGINE_RETENTION_HOURS", "0"), ("RUNTIME_ENGINE_RETENTION_MAX_RUNS", "100")]);
        assert_eq!((counted.max_age, counted.max_runs), (None, Some(100)));
        assert!(!counted.keeps_everything());
    }
}
