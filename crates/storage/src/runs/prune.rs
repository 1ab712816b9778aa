//! Deleting runs that have ended, for the engine's retention.
//!
//! The row of a run goes first, with its key: from then on there is no such run. Its events follow by
//! bounded transactions from the list of pruned runs, which survives a crash. Attempts know their run
//! but are not found by it (an index for that would cost the hot path a write each); they are looked
//! through in the order of their making, and go when their run is gone. All of it may be done by
//! several engines at once: what one has deleted, the other does not find.

use super::Runs;
use crate::{
    db::{in_tx, read, write},
    error::{Error, Result},
    rows,
};
use contract::{ExecutionId, Millis, ProcessId, RunId};
use sqlx::QueryBuilder;
use uuid::Uuid;

/// Which runs may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prunable {
    /// Runs that ended before.
    pub ended_before: Millis,
    /// Runs with an idempotency key only when they ended before this too: so long their key is
    /// remembered at least.
    pub keyed_before: Millis,
}

/// A look through a table in the order of its ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look<Id, Found> {
    /// What was found.
    pub found: Found,
    /// Where the next look begins; `None`: this was the last.
    pub next: Option<Id>,
}

type Ended = (Uuid, String, Option<i64>, Option<String>);

/// Runs in the order of their ids, which is the order of their making (`UUIDv7`).
const IN_ORDER: &str = "\
    SELECT run_id, status, finished_at, idempotency_key FROM runs \
    WHERE run_id > $1 AND run_id < $2 ORDER BY run_id LIMIT $3";

/// The newest run of a process that is beyond those to be kept.
const BEYOND: &str = "\
    SELECT created_at, run_id FROM runs WHERE process_id = $1 \
    ORDER BY created_at DESC, run_id DESC LIMIT 1 OFFSET $2";
const OLDER: &str = "\
    SELECT run_id, status, finished_at, idempotency_key FROM runs \
    WHERE process_id = $1 AND (created_at, run_id) <= ($2, $3) AND status <> 'running' \
      AND (idempotency_key IS NULL OR finished_at < $4) \
    ORDER BY created_at, run_id LIMIT $5";
const NEXT_PROCESS: &str = "SELECT process_id FROM runs WHERE process_id > $1 ORDER BY process_id LIMIT 1";

const TO_EMPTY: [&str; 2] = [
    "SELECT run_id, events FROM pruned_runs ORDER BY run_id LIMIT $1 FOR UPDATE SKIP LOCKED",
    // SQLite has one writer.
    "SELECT run_id, events FROM pruned_runs ORDER BY run_id LIMIT $1",
];
const SHORTEN: &str = "UPDATE pruned_runs SET events = $2 WHERE run_id = $1";
const CUT_EVENTS: &str = "DELETE FROM run_events WHERE run_id = $1 AND sequence > $2";

/// Attempts in the order of their ids; those whose run is gone.
const ATTEMPTS: &str = "\
    SELECT a.execution_id, r.run_id IS NULL FROM attempts a LEFT JOIN runs r ON r.run_id = a.run_id \
    WHERE a.execution_id > $1 AND a.execution_id < $2 ORDER BY a.execution_id LIMIT $3";

const OLDEST: &str = "SELECT created_at FROM runs WHERE status <> 'running' ORDER BY run_id LIMIT 1";

/// Runs whose events are deleted by one transaction, at most.
const RUNS_AT_ONCE: i64 = 256;

/// The first id that could be made at a moment. Makers whose clocks differ from the database's make
/// the look miss a run a little longer, never find it too early: the end of a run is by that clock.
fn first_id(at: Option<Millis>) -> Uuid {
    let millis = at.and_then(|at| u128::try_from(at.0).ok());
    match (at, millis) {
        (None, _) => Uuid::max(),
        (_, Some(millis)) if millis < 1 << 48 => Uuid::from_u128(millis << 80),
        (Some(_), Some(_)) => Uuid::max(),
        (Some(_), None) => Uuid::nil(),
    }
}

impl Prunable {
    fn admits(&self, (_, status, finished_at, key): &Ended) -> bool {
        let before = |at: Millis| finished_at.is_some_and(|finished_at| finished_at < at.0);
        status != "running" && before(self.ended_before) && (key.is_none() || before(self.keyed_before))
    }
}

impl Runs {
    /// Looks at the next `limit` runs and tells those that may go.
    pub async fn prunable(
        &self,
        after: Option<RunId>,
        rule: Prunable,
        limit: u32,
    ) -> Result<Look<RunId, Vec<RunId>>> {
        let from = after.map_or(Uuid::nil(), |run_id| run_id.0);
        let until = first_id(Some(rule.ended_before));
        let rows: Vec<Ended> = read!(&self.db, |c| {
            let query = sqlx::query_as(IN_ORDER).bind(from).bind(until).bind(i64::from(limit));
            Ok(query.fetch_all(c).await?)
        })?;
        let next = next(&rows, limit, |row| RunId(row.0));
        let found = rows.iter().filter(|row| rule.admits(row)).map(|row| RunId(row.0)).collect();
        Ok(Look { found, next })
    }

    /// At most `limit` runs of a process that may go because `keep` newer ones exist, the oldest first.
    /// Runs with an idempotency key that ended after `keyed_before` stay.
    pub async fn beyond_newest(
        &self,
        process_id: ProcessId,
        keep: u32,
        keyed_before: Millis,
        limit: u32,
    ) -> Result<Vec<RunId>> {
        let boundary: Option<(i64, Uuid)> = read!(&self.db, |c| {
            let query = sqlx::query_as(BEYOND).bind(process_id.0).bind(i64::from(keep));
            Ok(query.fetch_optional(c).await?)
        })?;
        let Some((created_at, run_id)) = boundary else { return Ok(Vec::new()) };
        let rows: Vec<Ended> = read!(&self.db, |c| {
            let query = sqlx::query_as(OLDER).bind(process_id.0).bind(created_at).bind(run_id);
            Ok(query.bind(keyed_before.0).bind(i64::from(limit)).fetch_all(c).await?)
        })?;
        Ok(rows.into_iter().map(|row| RunId(row.0)).collect())
    }

    /// The next process that has runs, in the order of ids; `None`: there is none after this one.
    pub async fn next_process(&self, after: Option<ProcessId>) -> Result<Option<ProcessId>> {
        let from = after.map_or(Uuid::nil(), |process_id| process_id.0);
        let found: Option<Uuid> =
            read!(&self.db, |c| Ok(sqlx::query_scalar(NEXT_PROCESS).bind(from).fetch_optional(c).await?))?;
        Ok(found.map(ProcessId))
    }

    /// Deletes these runs, as far as they have ended; how many. Their events are left to
    /// [`Runs::drop_events`], their attempts to [`Runs::drop_attempts`].
    pub async fn prune(&self, runs: &[RunId]) -> Result<u64> {
        if runs.is_empty() {
            return Ok(0);
        }
        let pruned = in_tx!(&self.db, |c| {
            let mut query = QueryBuilder::new("DELETE FROM runs WHERE status <> 'running' AND run_id IN (");
            let mut list = query.separated(", ");
            for run_id in runs {
                list.push_bind(run_id.0);
            }
            query.push(") RETURNING run_id, sequence");
            let pruned: Vec<(Uuid, i64)> =
                query.build_query_as().persistent(false).fetch_all(&mut *c).await?;
            if !pruned.is_empty() {
                let mut query = QueryBuilder::new("INSERT INTO pruned_runs (run_id, events) ");
                query.push_values(&pruned, |mut row, (run_id, events)| {
                    row.push_bind(*run_id).push_bind(*events);
                });
                query.build().persistent(false).execute(&mut *c).await?;
            }
            Ok(pruned.len())
        })?;
        u64::try_from(pruned).map_err(|error| Error::corrupt("a count of runs", &error))
    }

    /// Deletes about `most` events of pruned runs; false: none are left.
    pub async fn drop_events(&self, most: u32) -> Result<bool> {
        let to_empty = self.db.of_dialect(TO_EMPTY);
        in_tx!(&self.db, |c| {
            let listed: Vec<(Uuid, i64)> =
                sqlx::query_as(to_empty).bind(RUNS_AT_ONCE).fetch_all(&mut *c).await?;
            let Some((first, events)) = listed.first().copied() else { return Ok(false) };
            let most = i64::from(most);
            if events > most {
                let left = events.saturating_sub(most);
                sqlx::query(CUT_EVENTS).bind(first).bind(left).execute(&mut *c).await?;
                sqlx::query(SHORTEN).bind(first).bind(left).execute(&mut *c).await?;
                return Ok(true);
            }
            let whole = fitting(&listed, most);
            for text in
                ["DELETE FROM run_events WHERE run_id IN (", "DELETE FROM pruned_runs WHERE run_id IN ("]
            {
                let mut query = QueryBuilder::new(text);
                let mut list = query.separated(", ");
                for run_id in &whole {
                    list.push_bind(*run_id);
                }
                query.push(")");
                query.build().persistent(false).execute(&mut *c).await?;
            }
            Ok(true)
        })
    }

    /// Looks at the next `limit` attempts that were made before a moment (`None`: all) and deletes
    /// those whose run is gone; how many.
    pub async fn drop_attempts(
        &self,
        after: Option<ExecutionId>,
        made_before: Option<Millis>,
        limit: u32,
    ) -> Result<Look<ExecutionId, u64>> {
        let from = after.map_or(Uuid::nil(), |execution_id| execution_id.0);
        let until = first_id(made_before);
        let rows: Vec<(Uuid, bool)> = read!(&self.db, |c| {
            let query = sqlx::query_as(ATTEMPTS).bind(from).bind(until).bind(i64::from(limit));
            Ok(query.fetch_all(c).await?)
        })?;
        let next = next(&rows, limit, |row| ExecutionId(row.0));
        let orphans: Vec<Uuid> = rows.iter().filter(|row| row.1).map(|row| row.0).collect();
        if orphans.is_empty() {
            return Ok(Look { found: 0, next });
        }
        // A run is made before its attempts and never comes back: what is an orphan stays one.
        let found = write!(&self.db, |c| {
            let mut query = QueryBuilder::new("DELETE FROM attempts WHERE execution_id IN (");
            let mut list = query.separated(", ");
            for id in &orphans {
                list.push_bind(*id);
            }
            query.push(")");
            Ok(query.build().persistent(false).execute(c).await?.rows_affected())
        })?;
        Ok(Look { found, next })
    }

    /// When the oldest run that has ended was started.
    pub async fn oldest_ended(&self) -> Result<Option<Millis>> {
        let found: Option<i64> =
            read!(&self.db, |c| Ok(sqlx::query_scalar(OLDEST).fetch_optional(c).await?))?;
        Ok(rows::optional_time(found))
    }
}

/// Where a look goes on after these rows.
fn next<Row, Id>(rows: &[Row], limit: u32, id: impl Fn(&Row) -> Id) -> Option<Id> {
    let is_full = u32::try_from(rows.len()).is_ok_and(|count| count >= limit);
    rows.last().filter(|_| is_full).map(id)
}

/// As many of the first runs as have no more events together.
fn fitting(listed: &[(Uuid, i64)], most: i64) -> Vec<Uuid> {
    let mut total = 0i64;
    let fits = listed.iter().take_while(|(_, events)| {
        total = total.saturating_add(*events);
        total <= most
    });
    fits.map(|(run_id, _)| *run_id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_id_of_a_moment_is_no_later_than_any_made_then() {
        let moment = Millis(1_764_000_000_123);
        let made = |millis: u64| {
            let stamp = uuid::Timestamp::from_unix(
                uuid::NoContext,
                millis / 1000,
                u32::try_from(millis % 1000).unwrap() * 1_000_000,
            );
            Uuid::new_v7(stamp)
        };
        assert!(first_id(Some(moment)) <= made(1_764_000_000_123));
        assert!(first_id(Some(moment)) > made(1_764_000_000_122));
        assert_eq!((first_id(None), first_id(Some(Millis(-1)))), (Uuid::max(), Uuid::nil()));
    }

    #[test]
    fn as_many_runs_are_emptied_at_once_as_the_bound_allows() {
        let id = Uuid::from_u128;
        let listed = [(id(1), 4), (id(2), 5), (id(3), 2)];
        assert_eq!(fitting(&listed, 10), [id(1), id(2)]);
        assert_eq!(fitting(&listed, 4), [id(1)]);
    }
}
