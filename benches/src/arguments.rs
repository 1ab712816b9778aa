//! What the command line asks for.

use std::{collections::BTreeSet, env};

const USAGE: &str =
    "usage: benches [--only door|chains|siege]... [--in-flight N]... [--rounds N] [--skip-rival]";

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Results through the whole door, beside the rival.
    Door,
    /// Whole runs, step after step.
    Chains,
    /// A healthy client under attack.
    Siege,
}

const PARTS: [(&str, Part); 3] = [("door", Part::Door), ("chains", Part::Chains), ("siege", Part::Siege)];

/// What is to be measured.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    only: BTreeSet<Part>,
    in_flight: Vec<usize>,
    rounds: Option<usize>,
    /// Measure nobody but us.
    pub(crate) skip_rival: bool,
}

impl Arguments {
    /// Those of this process.
    ///
    /// # Errors
    /// What is wrong, with the usage.
    pub(crate) fn read() -> Result<Self, String> {
        let mut arguments = Self::default();
        let mut words = env::args().skip(1);
        while let Some(name) = words.next() {
            if name == "--skip-rival" {
                arguments.skip_rival = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{name} needs a value\n{USAGE}"))?;
            let number = || {
                let number = value.parse().ok().filter(|number| *number > 0);
                number.ok_or_else(|| format!("{name}: `{value}` is no number from 1 up\n{USAGE}"))
            };
            match name.as_str() {
                "--only" => {
                    let part = PARTS.iter().find(|(name, _)| *name == value);
                    let (_, part) = part.ok_or_else(|| format!("`{value}` is no part\n{USAGE}"))?;
                    arguments.only.insert(*part);
                }
                "--in-flight" => arguments.in_flight.push(number()?),
                "--rounds" => arguments.rounds = Some(number()?),
                _ => return Err(format!("{name} is unknown\n{USAGE}")),
            }
        }
        Ok(arguments)
    }

    /// Is this part wanted?
    pub(crate) fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// Are these the levels that are wanted, of those that there are by default?
    pub(crate) fn levels(&self, default: &[usize]) -> Vec<usize> {
        if self.in_flight.is_empty() { default.to_vec() } else { self.in_flight.clone() }
    }

    /// How many rounds are wanted.
    pub(crate) fn rounds(&self, default: usize) -> usize {
        self.rounds.unwrap_or(default)
    }

    /// Is everything measured, so that the figures may be kept?
    pub(crate) fn is_whole(&self) -> bool {
        self.only.is_empty() && self.in_flight.is_empty() && !self.skip_rival
    }
}
