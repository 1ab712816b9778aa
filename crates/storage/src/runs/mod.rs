//! Runs: their rows, their events and their attempts (protocol sections 2, 4 and 5).
//!
//! The engine keeps runs in memory and appends without reading first. An append compares the last
//! sequence number that its maker saw with the stored one and swaps it for the new one: whoever loses
//! reloads and decides again. So any number of engines can serve any run.
//!
//! An attempt is a row from the moment it is opened until for ever; `outstanding` says whether its
//! report is still waited for. A terminal answer ends that in the same transaction as the event
//! (failure matrix row 7).

mod append;
mod attempts;
mod ended;
mod history;
mod live;
mod places;
mod prune;
mod read;

pub use append::{Append, Appended, AttemptUpdate, NewAttempt, NewEvent, NewRun};
pub use attempts::{AttemptLane, DueAttempt, LANE_PERSON, LANE_TIMER, OutstandingAttempt};
pub use ended::new_execution_id;
pub use history::{History, Page, StoredEvent, StoredRun};
pub use live::{AttemptPlace, LiveAttempt, StepWord};
pub use places::{PlaceClaim, PlaceClaims};
pub use prune::{Look, Prunable};
pub use read::{RunCursor, RunFilter, RunRow};

use crate::db::Db;
use std::{fmt, str::FromStr};

/// Runs with their events and attempts.
#[derive(Clone, Debug)]
pub struct Runs {
    pub(crate) db: Db,
}

/// How an outstanding attempt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptState {
    /// On a lane; nobody has claimed it.
    Queued,
    /// A control plane or executor has claimed it; neither ack nor reply is there yet.
    Dispatched,
    /// Acknowledged or delivered.
    Running,
}

impl AttemptState {
    /// The name in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Dispatched => "dispatched",
            Self::Running => "running",
        }
    }
}

impl fmt::Display for AttemptState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for AttemptState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Queued, Self::Dispatched, Self::Running]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no attempt state"))
    }
}
