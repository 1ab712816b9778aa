//! How probes change a plugin's health: thresholds keep one bad answer from flipping the state
//! (failure matrix row 33). Pure.

use crate::settings::Thresholds;
use contract::{
    Millis,
    catalogue::{Health, HealthState},
};

/// What a probe found; the text says why it failed.
pub(crate) type Outcome = Result<(), String>;

/// The health after one more probe at `now`.
///
/// `online` and `unknown` become `offline` after `failures` failed probes in a row, `offline`
/// becomes `online` after `successes` successful ones. `unknown` becomes `online` with the first
/// success: nothing speaks against it. `since` moves only when the state does.
pub(crate) fn step(health: &Health, outcome: &Outcome, now: Millis, thresholds: Thresholds) -> Health {
    let (failures, successes) = match outcome {
        Ok(()) => (0, health.successes.saturating_add(1)),
        Err(_) => (health.failures.saturating_add(1), 0),
    };
    let state = match (health.state, outcome) {
        (HealthState::Unknown, Ok(())) => HealthState::Online,
        (HealthState::Offline, Ok(())) if successes >= thresholds.successes => HealthState::Online,
        (_, Err(_)) if failures >= thresholds.failures => HealthState::Offline,
        (state, _) => state,
    };
    let last_error = match outcome {
        Ok(()) if state == HealthState::Online => None,
        Ok(()) => health.last_error.clone(),
        Err(reason) => Some(reason.clone()),
    };
    let since = if state == health.state { health.since.or(Some(now)) } else { Some(now) };
    Health { state, since, checked_at: Some(now), last_error, failures, successes }
}

/// The health of a plugin that has just shown, by publishing or by its answer to a pull, that it
/// lives.
pub(crate) fn alive(before: &Health, now: Millis) -> Health {
    let since = if before.state == HealthState::Online { before.since.or(Some(now)) } else { Some(now) };
    Health {
        state: HealthState::Online,
        since,
        checked_at: Some(now),
        last_error: None,
        failures: 0,
        successes: 1,
    }
}

/// The health of a plugin that did not answer its pull at start: whatever was known of it before
/// holds no longer, but one failure proves no death (failure matrix row 31).
pub(crate) fn unanswered(before: &Health, reason: String, now: Millis) -> Health {
    let state = match before.state {
        HealthState::Offline => HealthState::Offline,
        HealthState::Online | HealthState::Unknown => HealthState::Unknown,
    };
    let since = if state == before.state { before.since.or(Some(now)) } else { Some(now) };
    Health {
        state,
        since,
        checked_at: Some(now),
        last_error: Some(reason),
        failures: before.failures.saturating_add(1),
        successes: 0,
    }
}

/// The health to step from: what the prober counted, unless the catalogue tells of a newer story (a
/// publication, another prober). Counts alone do not change the catalogue's revision.
pub(crate) fn current<'h>(counted: Option<&'h Health>, stored: &'h Health) -> &'h Health {
    match counted {
        Some(counted) if counted.state == stored.state && counted.since == stored.since => counted,
        _ => stored,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLDS: Thresholds = Thresholds { failures: 3, successes: 2 };

    fn at(state: HealthState) -> Health {
        Health { state, since: Some(Millis(0)), ..Health::default() }
    }

    fn letter(state: HealthState) -> char {
        match state {
            HealthState::Unknown => '?',
            HealthState::Online => '+',
            HealthState::Offline => '-',
        }
    }

    /// Plays probes (`.` succeeds, `x` fails) and writes the state after each.
    fn play(start: HealthState, probes: &str, thresholds: Thresholds) -> String {
        let mut health = at(start);
        let mut now = Millis(0);
        probes
            .chars()
            .map(|probe| {
                now.0 += 1;
                let outcome = if probe == '.' { Ok(()) } else { Err("refused".to_owned()) };
                health = step(&health, &outcome, now, thresholds);
                letter(health.state)
            })
            .collect()
    }

    #[test]
    fn three_failures_in_a_row_are_down_and_two_successes_up() {
        for (start, probes, states) in [
            (HealthState::Online, "x", "+"),
            (HealthState::Online, "xx.xx.", "++++++"),
            (HealthState::Online, "xxx", "++-"),
            (HealthState::Online, "xxxx.x..", "++-----+"),
            (HealthState::Online, "xxx.x.x.x", "++-------"),
            (HealthState::Offline, ".", "-"),
            (HealthState::Offline, "..", "-+"),
            (HealthState::Offline, "..xx.xxx", "-++++++-"),
            (HealthState::Unknown, ".", "+"),
            (HealthState::Unknown, "xx.", "??+"),
            (HealthState::Unknown, "xxx..", "??--+"),
        ] {
            assert_eq!(play(start, probes, THRESHOLDS), states, "{start:?} {probes}");
        }
    }

    #[test]
    fn thresholds_are_configurable() {
        assert_eq!(play(HealthState::Online, "x.", Thresholds { failures: 1, successes: 1 }), "-+");
        assert_eq!(
            play(HealthState::Online, "xxxxx....", Thresholds { failures: 5, successes: 4 }),
            "++++----+"
        );
    }

    #[test]
    fn since_moves_only_with_the_state() {
        let mut health = at(HealthState::Online);
        for now in 1..=2 {
            health = step(&health, &Err("refused".into()), Millis(now), THRESHOLDS);
            assert_eq!(health.since, Some(Millis(0)));
            assert_eq!(health.checked_at, Some(Millis(now)));
        }
        health = step(&health, &Err("refused".into()), Millis(3), THRESHOLDS);
        assert_eq!((health.state, health.since), (HealthState::Offline, Some(Millis(3))));
        assert_eq!(health.last_error.as_deref(), Some("refused"));
    }

    #[test]
    fn the_last_error_stays_until_the_plugin_is_online_again() {
        let down = Health { last_error: Some("refused".into()), failures: 3, ..at(HealthState::Offline) };
        let first = step(&down, &Ok(()), Millis(1), THRESHOLDS);
        assert_eq!(first.last_error.as_deref(), Some("refused"));
        assert_eq!(step(&first, &Ok(()), Millis(2), THRESHOLDS).last_error, None);
    }

    #[test]
    fn a_publication_counts_as_online() {
        let health = alive(&Health { failures: 5, ..at(HealthState::Offline) }, Millis(7));
        assert_eq!((health.state, health.since, health.failures), (HealthState::Online, Some(Millis(7)), 0));
        assert_eq!(alive(&at(HealthState::Online), Millis(7)).since, Some(Millis(0)));
    }

    #[test]
    fn silence_at_start_makes_unknown_and_never_online() {
        let after = |state| unanswered(&at(state), "refused".into(), Millis(7)).state;
        assert_eq!(after(HealthState::Online), HealthState::Unknown);
        assert_eq!(after(HealthState::Unknown), HealthState::Unknown);
        assert_eq!(after(HealthState::Offline), HealthState::Offline);
    }

    #[test]
    fn a_newer_story_in_the_catalogue_beats_the_counts() {
        let counted = Health { failures: 2, ..at(HealthState::Online) };
        assert_eq!(current(Some(&counted), &at(HealthState::Online)).failures, 2);
        let published = Health { since: Some(Millis(9)), ..at(HealthState::Online) };
        assert_eq!(current(Some(&counted), &published).failures, 0);
        assert_eq!(current(None, &published), &published);
    }
}
