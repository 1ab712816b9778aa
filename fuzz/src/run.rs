//! Running a target: seeds first, then mutations, until a limit or a finding.

use crate::{Mutator, Target, mutate::fingerprint};
use std::{
    any::Any,
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

/// Most inputs that are kept to be mutated, and most kinds of behaviour that are told apart.
const MAX_POOL: usize = 4096;

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Inputs, the seeds not counted.
    pub inputs: u64,
    /// Time of all; `None`: no limit, and no input is too slow, so that a run depends on nothing but
    /// its seed.
    pub time: Option<Duration>,
}

/// An input this slow is a finding.
const TOO_SLOW: Duration = Duration::from_secs(5);

/// What a run without a finding did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Inputs that ran, the seeds among them.
    pub inputs: u64,
    /// Kinds of behaviour that were seen.
    pub behaviours: usize,
}

/// An input that broke a rule.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The input.
    pub input: Vec<u8>,
    /// What it broke.
    pub message: String,
    /// How many inputs ran before it.
    pub number: u64,
}

/// Runs one target. `watch` sees each input before it runs.
///
/// # Errors
/// The first input that breaks a rule.
pub fn run(
    target: &Target,
    seeds: Vec<Vec<u8>>,
    seed: u64,
    limits: Limits,
    mut watch: impl FnMut(&[u8]),
) -> Result<Summary, Box<Finding>> {
    let start = Instant::now();
    let mut mutator = Mutator::new(seed);
    let mut seen = HashSet::new();
    let mut summary = Summary { inputs: 0, behaviours: 0 };
    let mut pool: Vec<Vec<u8>> = Vec::new();
    let mut seeds = seeds.into_iter();
    let mut left = limits.inputs;
    loop {
        let input = match seeds.next() {
            Some(input) => input,
            None if left == 0 || limits.time.is_some_and(|time| start.elapsed() >= time) => break,
            None => {
                left -= 1;
                let empty = Vec::new();
                let input = pool.get(mutator.below(pool.len())).unwrap_or(&empty);
                let other = pool.get(mutator.below(pool.len())).unwrap_or(&empty);
                mutator.mutate(input, other)
            }
        };
        watch(&input);
        let began = Instant::now();
        let outcome = try_one(target, &input);
        let message = match outcome {
            Err(message) => Some(message),
            Ok(_) if limits.time.is_some() && began.elapsed() > TOO_SLOW => {
                Some(format!("took {} ms", began.elapsed().as_millis()))
            }
            Ok(behaviour) => {
                if seen.len() < MAX_POOL && seen.insert(fingerprint(behaviour.as_bytes())) {
                    pool.push(input.clone());
                }
                None
            }
        };
        if let Some(message) = message {
            return Err(Box::new(Finding { input, message, number: summary.inputs }));
        }
        summary.inputs += 1;
    }
    summary.behaviours = seen.len();
    Ok(summary)
}

/// Runs one input: what the target did, or what it broke.
///
/// # Errors
/// The message of the panic.
pub fn try_one(target: &Target, input: &[u8]) -> Result<String, String> {
    // A target has no state that a panic could leave broken.
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    outcome.map(|behaviour| without_numbers(&behaviour)).map_err(|payload| text_of(&*payload))
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "panicked with something that is no text".to_owned())
}

/// Behaviours that differ in a number or in quoted text only are the same.
fn without_numbers(behaviour: &str) -> String {
    let mut is_quoted = false;
    behaviour
        .chars()
        .filter(|c| {
            is_quoted ^= matches!(c, '"' | '`');
            !is_quoted && !c.is_ascii_digit()
        })
        .take(400)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(run: fn(&[u8]) -> String) -> Target {
        Target { name: "test", run }
    }

    const LIMITS: Limits = Limits { inputs: 20_000, time: None };

    #[test]
    fn broken_rule_is_found_by_following_new_behaviour_and_found_again_by_its_seed() {
        let target = target(|input| {
            let digits = input.iter().take_while(|byte| byte.is_ascii_digit()).count();
            assert!(digits < 5, "five digits");
            "x".repeat(digits)
        });
        let find = || run(&target, vec![b"a".to_vec()], 3, LIMITS, |_| {}).unwrap_err();
        let (first, second) = (find(), find());
        assert_eq!(first.message, "five digits");
        assert_eq!((first.number, &first.input), (second.number, &second.input));
        assert_eq!(try_one(&target, &first.input), Err("five digits".to_owned()));
    }

    #[test]
    fn every_seed_runs_even_without_mutations() {
        let target = target(|input| format!("{input:?}"));
        let seeds = vec![b"a".to_vec(), b"b".to_vec()];
        let mut watched = Vec::new();
        let limits = Limits { inputs: 0, time: None };
        let summary = run(&target, seeds.clone(), 1, limits, |input| watched.push(input.to_vec()));
        assert_eq!(summary.unwrap().inputs, 2);
        assert_eq!(watched, seeds);
    }

    #[test]
    fn numbers_and_quoted_texts_make_no_new_behaviour() {
        assert_eq!(without_numbers("fault 12 at \"a\" end"), without_numbers("fault 7 at \"b\" end"));
        assert_ne!(without_numbers("fault"), without_numbers("fine"));
    }
}
