//! Creating runs of processes that allow only so many running ones.
//!
//! A start counts the running runs and creates its own in one transaction, under the lock of its
//! process's *book*, so that of any number of simultaneous starts no more than allowed succeed. The
//! count is by the *places* that such runs hold, not by the process's whole history; places of runs
//! that have ended are cleared here, so the end of a run costs nothing.

use super::{
    Append, Appended, postgres, sqlite,
    wave::{Stored, Wave},
};
use crate::{
    db::{Db, Fail, in_tx},
    error::Result,
};
use contract::{ProcessId, RunId};
use sqlx::{PgConnection, QueryBuilder, SqliteConnection};
use std::collections::{BTreeMap, HashMap, HashSet};
use uuid::Uuid;

const BOOK: [&str; 2] = [
    "SELECT revision FROM process_books WHERE process_id = $1 FOR UPDATE",
    // SQLite has one writer.
    "SELECT revision FROM process_books WHERE process_id = $1",
];
const OPEN_BOOK: &str =
    "INSERT INTO process_books (process_id, revision) VALUES ($1, -1) ON CONFLICT DO NOTHING";
const SET_REVISION: &str = "UPDATE process_books SET revision = $2 WHERE process_id = $1";
const ENTER_RUNNING: &str = "\
    INSERT INTO process_places (process_id, run_id) \
    SELECT process_id, run_id FROM runs WHERE process_id = $1 AND status = 'running' \
    ON CONFLICT DO NOTHING";
const CLEAR: &str = "\
    DELETE FROM process_places WHERE process_id = $1 AND NOT EXISTS \
    (SELECT 1 FROM runs r WHERE r.run_id = process_places.run_id AND r.status = 'running')";
const COUNT: &str = "SELECT COUNT(*) FROM process_places WHERE process_id = $1";

/// Storing a wave on a connection of either kind.
trait Store {
    async fn store(&mut self, wave: &Wave<'_>) -> Result<Stored, Fail>;
}

impl Store for PgConnection {
    async fn store(&mut self, wave: &Wave<'_>) -> Result<Stored, Fail> {
        postgres::store(self, wave).await
    }
}

impl Store for SqliteConnection {
    async fn store(&mut self, wave: &Wave<'_>) -> Result<Stored, Fail> {
        sqlite::store(self, wave).await
    }
}

/// Does it create a run of which there may be only so many?
pub(super) fn is_limited(append: &Append) -> bool {
    append.create.is_some() && append.max_running.is_some()
}

/// Runs that stand in the way of new ones: by their ids, and by their keys.
#[derive(Debug, Default)]
struct Holders {
    ids: HashSet<RunId>,
    keys: HashMap<String, RunId>,
}

impl Holders {
    fn of(found: Vec<(Uuid, Option<String>)>) -> Self {
        let mut holders = Self::default();
        for (run_id, key) in found {
            holders.ids.insert(RunId(run_id));
            holders.keys.extend(key.map(|key| (key, RunId(run_id))));
        }
        holders
    }
}

/// `running!(c, book, process_id, revision)`: locks the process's book, and counts the places that
/// running runs hold.
macro_rules! running {
    ($c:ident, $book:expr, $process_id:expr, $revision:expr) => {{
        let mut known: Option<i64> =
            sqlx::query_scalar($book).bind($process_id).fetch_optional(&mut *$c).await?;
        if known.is_none() {
            sqlx::query(OPEN_BOOK).bind($process_id).execute(&mut *$c).await?;
            known = sqlx::query_scalar($book).bind($process_id).fetch_optional(&mut *$c).await?;
        }
        if known.is_none_or(|known| known < $revision) {
            sqlx::query(ENTER_RUNNING).bind($process_id).execute(&mut *$c).await?;
            sqlx::query(SET_REVISION).bind($process_id).bind($revision).execute(&mut *$c).await?;
        }
        sqlx::query(CLEAR).bind($process_id).execute(&mut *$c).await?;
        let running: i64 = sqlx::query_scalar(COUNT).bind($process_id).fetch_one(&mut *$c).await?;
        running
    }};
}

/// `holders!(c, process_id, members)`: the runs that stand in the way of these appends.
macro_rules! holders {
    ($c:ident, $process_id:expr, $members:expr) => {{
        let mut query = QueryBuilder::new("SELECT run_id, idempotency_key FROM runs WHERE run_id IN (");
        let mut list = query.separated(", ");
        for append in $members {
            list.push_bind(append.run_id.0);
        }
        query.push(") OR (process_id = ").push_bind($process_id).push(" AND idempotency_key IN (");
        let mut list = query.separated(", ");
        for append in $members {
            list.push_bind(key(append));
        }
        query.push("))");
        let found: Vec<(Uuid, Option<String>)> =
            query.build_query_as().persistent(false).fetch_all(&mut *$c).await?;
        Holders::of(found)
    }};
}

/// `enter!(c, process_id, fresh)`: places for new runs.
macro_rules! enter {
    ($c:ident, $process_id:expr, $fresh:expr) => {{
        let mut query = QueryBuilder::new("INSERT INTO process_places (process_id, run_id) ");
        query.push_values($fresh, |mut row, append: &&Append| {
            row.push_bind($process_id).push_bind(append.run_id.0);
        });
        query.build().persistent(false).execute(&mut *$c).await?;
    }};
}

/// Creates the limited runs of a batch and writes the answers to their places.
pub(super) async fn create(db: &Db, batch: &[Append], answers: &mut [Appended]) -> Result<()> {
    let by_process = by_process(batch);
    let book = db.of_dialect(BOOK);
    let told: Vec<(usize, Appended)> = in_tx!(db, |c| {
        let mut told = Vec::new();
        // In the order of the processes: everybody locks in the same order.
        for (process_id, members) in &by_process {
            let appends: Vec<&Append> = members.iter().map(|place| &batch[*place]).collect();
            let revision = appends.iter().filter_map(|append| revision(append)).max().unwrap_or(0);
            let running = running!(c, book, process_id.0, revision);
            let judged = judge(&appends, running, holders!(c, process_id.0, &appends));
            let fresh: Vec<&Append> = done(appends.iter().copied().zip(judged.iter().copied()));
            if !fresh.is_empty() {
                enter!(c, process_id.0, &fresh);
            }
            told.extend(members.iter().copied().zip(judged));
        }
        let accepted = done(told.iter().copied());
        if accepted.is_empty() {
            return Ok(told);
        }
        let wave = Wave::of(batch, &accepted)?;
        let stored = Store::store(&mut *c, &wave).await?;
        // An older version that keeps no book may have taken the key: whoever lost to it asks again.
        for (place, answer) in &mut told {
            if *answer == Appended::Done && !stored.moved.contains(&batch[*place].run_id.0) {
                *answer = Appended::Conflict;
            }
        }
        Ok(told)
    })?;
    for (place, answer) in told {
        answers[place] = answer;
    }
    Ok(())
}

/// What succeeds.
fn done<T>(judged: impl Iterator<Item = (T, Appended)>) -> Vec<T> {
    judged.filter(|(_, answer)| *answer == Appended::Done).map(|(member, _)| member).collect()
}

fn by_process(batch: &[Append]) -> BTreeMap<ProcessId, Vec<usize>> {
    let mut by_process: BTreeMap<ProcessId, Vec<usize>> = BTreeMap::new();
    for (place, append) in batch.iter().enumerate().filter(|(_, append)| is_limited(append)) {
        if let Some(run) = &append.create {
            by_process.entry(run.process_id).or_default().push(place);
        }
    }
    by_process
}

fn revision(append: &Append) -> Option<i64> {
    append.create.as_ref().map(|run| run.process_revision)
}

fn key(append: &Append) -> Option<&str> {
    append.create.as_ref()?.idempotency_key.as_deref()
}

/// Who of the starts of one process succeeds while so many of its runs are running. Pure.
fn judge(appends: &[&Append], running: i64, holders: Holders) -> Vec<Appended> {
    let Holders { mut ids, mut keys } = holders;
    let mut running = running;
    let mut judged = Vec::with_capacity(appends.len());
    for append in appends {
        let held = key(append).and_then(|key| keys.get(key).copied());
        let held = held.or_else(|| ids.get(&append.run_id).copied());
        let answer = match held {
            Some(holder) => Appended::Exists(holder),
            None if running >= append.max_running.map_or(i64::MAX, i64::from) => Appended::Full,
            None => Appended::Done,
        };
        if answer == Appended::Done {
            running += 1;
            ids.insert(append.run_id);
            keys.extend(key(append).map(|key| (key.to_owned(), append.run_id)));
        }
        judged.push(answer);
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::NewRun;
    use contract::{Millis, run::RunStatus};

    fn start(run: u128, most: u32, key: Option<&str>) -> Append {
        Append {
            max_running: Some(most),
            create: Some(NewRun {
                process_id: ProcessId(Uuid::nil()),
                process_revision: 1,
                workspace_id: "w".into(),
                user_id: "u".into(),
                idempotency_key: key.map(str::to_owned),
            }),
            ..Append::new(RunId(Uuid::from_u128(run)), 0, RunStatus::Running, Millis(0))
        }
    }

    fn judged(batch: &[Append], running: i64, holders: Holders) -> Vec<Appended> {
        judge(&batch.iter().collect::<Vec<_>>(), running, holders)
    }

    #[test]
    fn starts_succeed_in_their_order_until_all_places_are_taken() {
        let batch = [start(1, 3, None), start(2, 3, None), start(3, 3, None), start(4, 9, None)];
        let answers = judged(&batch, 1, Holders::default());
        assert_eq!(answers, [Appended::Done, Appended::Done, Appended::Full, Appended::Done]);
    }

    #[test]
    fn a_repeated_start_takes_no_place_and_is_answered_also_when_all_are_taken() {
        let run = |number| RunId(Uuid::from_u128(number));
        let holders =
            || Holders { ids: HashSet::from([run(9)]), keys: HashMap::from([("old".into(), run(8))]) };
        let batch = [
            start(1, 1, Some("new")),
            start(2, 1, Some("new")),
            start(3, 1, Some("old")),
            start(9, 1, None),
            start(5, 1, Some("other")),
            start(6, 1, Some("other")),
        ];
        assert_eq!(
            judged(&batch, 0, holders()),
            [
                Appended::Done,
                Appended::Exists(run(1)),
                Appended::Exists(run(8)),
                Appended::Exists(run(9)),
                Appended::Full,
                Appended::Full,
            ]
        );
    }
}
