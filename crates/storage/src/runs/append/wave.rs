//! What a batch asks of the tables, as rows. Pure.

use super::{Append, Appended};
use crate::{error::Result, rows::signed};
use contract::RunId;
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
};
use uuid::Uuid;

/// A run to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Create<'a> {
    pub(super) run_id: Uuid,
    pub(super) process_id: Uuid,
    pub(super) process_revision: i64,
    pub(super) workspace_id: &'a str,
    pub(super) user_id: &'a str,
    pub(super) status: &'static str,
    pub(super) sequence: i64,
    pub(super) at: i64,
    pub(super) finished_at: Option<i64>,
    pub(super) error: Option<&'a str>,
    pub(super) idempotency_key: Option<&'a str>,
}

/// A run whose sequence number is compared and swapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Move<'a> {
    pub(super) run_id: Uuid,
    pub(super) expected: i64,
    pub(super) sequence: i64,
    pub(super) status: &'static str,
    pub(super) at: i64,
    pub(super) finished_at: Option<i64>,
    pub(super) error: Option<&'a str>,
}

/// An event to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event<'a> {
    pub(super) run_id: Uuid,
    pub(super) sequence: i64,
    pub(super) at: i64,
    pub(super) kind: &'a str,
    pub(super) body: &'a str,
}

/// An attempt to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Open<'a> {
    pub(super) execution_id: Uuid,
    pub(super) run_id: Uuid,
    pub(super) node_path: Cow<'a, str>,
    pub(super) node_type: Cow<'a, str>,
    pub(super) attempt: i64,
    pub(super) lane: &'a str,
    pub(super) state: &'static str,
    pub(super) deadline: Option<i64>,
    pub(super) at: i64,
}

/// An outstanding attempt to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change<'a> {
    pub(super) execution_id: Uuid,
    pub(super) run_id: Uuid,
    /// Whether the run's row moves or not.
    pub(super) free: bool,
    pub(super) state: Option<&'static str>,
    pub(super) sets_deadline: bool,
    pub(super) deadline: Option<i64>,
    pub(super) acked_at: Option<i64>,
    pub(super) heartbeat_at: Option<i64>,
    pub(super) progress: Option<&'a str>,
    pub(super) message: Option<&'a str>,
}

impl Change<'_> {
    fn new(execution_id: Uuid, run_id: Uuid, free: bool) -> Self {
        Self {
            execution_id,
            run_id,
            free,
            state: None,
            sets_deadline: false,
            deadline: None,
            acked_at: None,
            heartbeat_at: None,
            progress: None,
            message: None,
        }
    }
}

/// An outstanding attempt that ends: its row goes. Its history stays, by which a late report finds its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Close {
    pub(super) execution_id: Uuid,
    pub(super) run_id: Uuid,
}

/// Appends that are stored together. A run is in it with one append that compares, or with any
/// number that do not. Rows are in the order of their ids: all writers lock in the same order.
#[derive(Debug, Default)]
pub(super) struct Wave<'a> {
    pub(super) creates: Vec<Create<'a>>,
    pub(super) moves: Vec<Move<'a>>,
    pub(super) events: Vec<Event<'a>>,
    pub(super) opens: Vec<Open<'a>>,
    pub(super) changes: Vec<Change<'a>>,
    pub(super) closes: Vec<Close>,
    /// Place in the batch, run and kind of each append.
    members: Vec<(usize, Uuid, Kind)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Creates,
    Moves,
    Free,
}

/// What the database made of a wave.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// Runs that were created or moved.
    pub(super) moved: HashSet<Uuid>,
    /// For runs that were not created: the run that is there instead.
    pub(super) holders: HashMap<Uuid, Uuid>,
}

/// Cuts a batch into waves: places in the batch. A wave only begins when the one before is stored.
pub(super) fn cut(batch: &[Append]) -> Vec<Vec<usize>> {
    let mut waves: Vec<Vec<usize>> = Vec::new();
    // Per run: its last wave, and whether only free appends are in it.
    let mut last: HashMap<RunId, (usize, bool)> = HashMap::with_capacity(batch.len());
    for (place, append) in batch.iter().enumerate() {
        let free = !append.compares();
        let wave = match last.get(&append.run_id) {
            None => 0,
            Some((wave, true)) if free => *wave,
            Some((wave, _)) => wave + 1,
        };
        last.insert(append.run_id, (wave, free));
        if waves.len() == wave {
            waves.push(Vec::new());
        }
        waves[wave].push(place);
    }
    waves
}

impl<'a> Wave<'a> {
    /// The rows of some members of a batch.
    pub(super) fn of(batch: &'a [Append], members: &[usize]) -> Result<Self> {
        let mut members = members.to_vec();
        members.sort_by_key(|place| batch[*place].run_id);
        let mut wave = Self::default();
        let mut changes = BTreeMap::new();
        for place in members {
            wave.add(place, &batch[place], &mut changes)?;
        }
        wave.changes = changes.into_values().collect();
        wave.closes.sort_unstable();
        Ok(wave)
    }

    fn add(
        &mut self,
        place: usize,
        append: &'a Append,
        changes: &mut BTreeMap<Uuid, Change<'a>>,
    ) -> Result<()> {
        let run_id = append.run_id.0;
        let kind = self.add_run(append)?;
        self.members.push((place, run_id, kind));
        for (event, sequence) in append.events.iter().zip(append.expected + 1..) {
            self.events.push(Event {
                run_id,
                sequence: signed(sequence, "sequence")?,
                at: append.at.0,
                kind: &event.kind,
                body: event.body.text(),
            });
        }
        let first_open = self.opens.len();
        let opens = append.open.iter().filter(|opened| !append.close.contains(&opened.execution_id));
        self.opens.extend(opens.map(|attempt| Open {
            execution_id: attempt.execution_id.0,
            run_id,
            node_path: printable(&attempt.node_path.0),
            node_type: printable(&attempt.node_type),
            attempt: i64::from(attempt.attempt),
            lane: &attempt.lane,
            state: attempt.state.as_str(),
            deadline: attempt.deadline.map(|at| at.0),
            at: append.at.0,
        }));
        // What this append closes, it neither opens nor changes.
        let ends = |id: Uuid| append.close.iter().any(|closed| closed.0 == id);
        let mut change = |id: Uuid, apply: &dyn Fn(&mut Change<'a>)| {
            // An attempt that this append opens is opened as it ends up.
            if let Some(open) = self.opens[first_open..].iter_mut().find(|open| open.execution_id == id) {
                let mut change = Change::new(id, run_id, false);
                apply(&mut change);
                open.state = change.state.unwrap_or(open.state);
                open.deadline = if change.sets_deadline { change.deadline } else { open.deadline };
                return;
            }
            apply(changes.entry(id).or_insert_with(|| Change::new(id, run_id, kind == Kind::Free)));
        };
        for update in append.update.iter().filter(|update| !ends(update.execution_id.0)) {
            change(update.execution_id.0, &|row| {
                row.state = update.state.map(|state| state.as_str()).or(row.state);
                if let Some(deadline) = update.deadline {
                    row.sets_deadline = true;
                    row.deadline = deadline.map(|at| at.0);
                }
                row.acked_at = update.acked_at.map(|at| at.0).or(row.acked_at);
                row.heartbeat_at = update.heartbeat_at.map(|at| at.0).or(row.heartbeat_at);
                row.progress = update.progress.as_ref().map(|progress| progress.text()).or(row.progress);
                row.message = update.message.as_deref().or(row.message);
            });
        }
        let is_new = |id: Uuid| append.open.iter().any(|opened| opened.execution_id.0 == id);
        let old = append.close.iter().filter(|closed| !is_new(closed.0));
        self.closes.extend(old.map(|closed| Close { execution_id: closed.0, run_id }));
        Ok(())
    }

    /// The row of the run itself.
    fn add_run(&mut self, append: &'a Append) -> Result<Kind> {
        if !append.compares() {
            return Ok(Kind::Free);
        }
        let run_id = append.run_id.0;
        let expected = signed(append.expected, "sequence")?;
        let sequence = signed(append.expected + append.events.len() as u64, "sequence")?;
        let (status, at) = (append.status.as_str(), append.at.0);
        let finished_at = append.finished_at.map(|at| at.0);
        let error = append.error.as_ref().map(|error| error.text());
        let Some(new) = &append.create else {
            self.moves.push(Move { run_id, expected, sequence, status, at, finished_at, error });
            return Ok(Kind::Moves);
        };
        self.creates.push(Create {
            run_id,
            process_id: new.process_id.0,
            process_revision: new.process_revision,
            workspace_id: &new.workspace_id,
            user_id: &new.user_id,
            status,
            sequence,
            at,
            finished_at,
            error,
            idempotency_key: new.idempotency_key.as_deref(),
        });
        Ok(Kind::Creates)
    }

    /// The runs that were to be created and were not.
    pub(super) fn not_created<'w>(
        &'w self,
        moved: &'w HashSet<Uuid>,
    ) -> impl Iterator<Item = &'w Create<'a>> {
        self.creates.iter().filter(|create| !moved.contains(&create.run_id))
    }

    /// Answers the members of this wave, at their places in the batch.
    pub(super) fn answer(&self, stored: &Stored, answers: &mut [Appended]) {
        for (place, run_id, kind) in &self.members {
            answers[*place] = if *kind == Kind::Free || stored.moved.contains(run_id) {
                Appended::Done
            } else {
                stored.holders.get(run_id).map_or(Appended::Conflict, |id| Appended::Exists(RunId(*id)))
            };
        }
    }
}

/// Names of nodes come out of documents and can hold what a text column cannot: a NUL. The truth is
/// in the events, which are JSON and escape it; these columns are for people.
fn printable(name: &str) -> Cow<'_, str> {
    match name.contains('\0') {
        true => Cow::Owned(name.replace('\0', "\u{fffd}")),
        false => Cow::Borrowed(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::{AttemptState, AttemptUpdate, NewAttempt, NewEvent};
    use contract::{ExecutionId, Json, Millis, NodePath, run::RunStatus};

    fn run(n: u128) -> RunId {
        RunId(Uuid::from_u128(n))
    }

    fn execution(n: u128) -> ExecutionId {
        ExecutionId(Uuid::from_u128(n))
    }

    fn step(n: u128, expected: u64) -> Append {
        let event = NewEvent { kind: "x".into(), body: Json::null() };
        Append { events: vec![event], ..Append::new(run(n), expected, RunStatus::Running, Millis(1)) }
    }

    fn heartbeat(n: u128, id: u128, at: i64) -> Append {
        let update = AttemptUpdate { heartbeat_at: Some(Millis(at)), ..AttemptUpdate::new(execution(id)) };
        Append { update: vec![update], ..Append::new(run(n), 9, RunStatus::Running, Millis(at)) }
    }

    #[test]
    fn appends_of_different_runs_are_one_wave_in_the_order_of_the_runs() {
        let batch = [step(3, 1), step(1, 1), heartbeat(2, 7, 5)];
        let waves = cut(&batch);
        assert_eq!(waves, [[0, 1, 2]]);
        let wave = Wave::of(&batch, &waves[0]).unwrap();
        let moved: Vec<Uuid> = wave.moves.iter().map(|row| row.run_id).collect();
        assert_eq!(moved, [run(1).0, run(3).0]);
    }

    #[test]
    fn appends_of_one_run_follow_each_other_and_its_heartbeats_merge() {
        let batch =
            [heartbeat(1, 7, 5), heartbeat(1, 7, 6), step(1, 1), step(1, 2), step(2, 1), heartbeat(1, 7, 9)];
        assert_eq!(cut(&batch), [vec![0, 1, 4], vec![2], vec![3], vec![5]]);
        let wave = Wave::of(&batch, &[0, 1, 4]).unwrap();
        assert_eq!(wave.changes.len(), 1);
        assert_eq!(wave.changes[0].heartbeat_at, Some(6));
    }

    #[test]
    fn an_attempt_that_is_updated_and_closed_is_only_closed() {
        let mut append = step(1, 1);
        append.update.push(AttemptUpdate {
            state: Some(AttemptState::Running),
            deadline: Some(None),
            ..AttemptUpdate::new(execution(7))
        });
        append.close.push(execution(7));
        let batch = [append];
        let wave = Wave::of(&batch, &[0]).unwrap();
        assert!(wave.changes.is_empty());
        assert_eq!(wave.closes, [Close { execution_id: execution(7).0, run_id: run(1).0 }]);
    }

    #[test]
    fn an_attempt_opened_and_closed_at_once_is_never_stored() {
        let mut append = step(1, 1);
        append.open.push(NewAttempt {
            execution_id: execution(7),
            node_path: NodePath("a\0b".into()),
            node_type: "t".into(),
            attempt: 1,
            lane: "plugin".into(),
            state: AttemptState::Queued,
            deadline: Some(Millis(5)),
        });
        append.close.push(execution(7));
        let batch = [append];
        let wave = Wave::of(&batch, &[0]).unwrap();
        assert!(wave.opens.is_empty() && wave.changes.is_empty() && wave.closes.is_empty());
    }

    #[test]
    fn answers_go_to_their_places() {
        let batch = [step(3, 1), step(1, 1), heartbeat(2, 7, 5)];
        let wave = Wave::of(&batch, &[0, 1, 2]).unwrap();
        let stored = Stored { moved: HashSet::from([run(1).0]), holders: HashMap::new() };
        let mut answers = [Appended::Conflict; 3];
        wave.answer(&stored, &mut answers);
        assert_eq!(answers, [Appended::Conflict, Appended::Done, Appended::Done]);
    }
}
