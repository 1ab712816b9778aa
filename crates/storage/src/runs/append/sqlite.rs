//! A wave in SQLite: a few multi-row statements in one transaction. A statement costs a hand-over to
//! the connection's thread, so rows are stored by chunks, of a few fixed sizes, whose prepared
//! statements are found again.

use super::{
    HOLDER,
    wave::{Change, Close, Create, Event, Move, Open, Stored, Wave},
};
use crate::{
    db::{Fail, Repeat, attempt, repeat, transaction},
    error::Result,
};
use sqlx::{AssertSqlSafe, SqliteConnection, SqlitePool};
use uuid::Uuid;

/// The sizes of chunks, descending.
const SIZES: [usize; 4] = [64, 16, 4, 1];

/// A multi-row statement: what stands before and after the rows, and the columns of a row.
struct MultiRow {
    before: &'static str,
    columns: usize,
    after: &'static str,
}

const CREATE: MultiRow = MultiRow {
    before: "INSERT INTO runs (run_id, process_id, process_revision, workspace_id, user_id, status, sequence, \
             created_at, updated_at, finished_at, error, idempotency_key) VALUES ",
    columns: 12,
    after: " ON CONFLICT DO NOTHING RETURNING run_id",
};

const MOVE: MultiRow = MultiRow {
    before: "WITH m (run_id, expected, sequence, status, at, finished_at, error) AS (VALUES ",
    columns: 7,
    after: ") UPDATE runs SET sequence = m.sequence, status = m.status, updated_at = m.at, \
            finished_at = COALESCE(m.finished_at, runs.finished_at), error = COALESCE(m.error, runs.error) \
            FROM m WHERE runs.run_id = m.run_id AND runs.sequence = m.expected RETURNING run_id",
};

const EVENT: MultiRow = MultiRow {
    before: "INSERT INTO run_events (run_id, sequence, at, kind, body) VALUES ",
    columns: 5,
    after: "",
};

const OPEN: MultiRow = MultiRow {
    before: "INSERT INTO attempts (execution_id, run_id, node_path, node_type, attempt, lane, state, \
             outstanding, deadline, opened_at) VALUES ",
    columns: 10,
    after: "",
};

const CHANGE: MultiRow = MultiRow {
    before: "WITH u (execution_id, run_id, state, sets_deadline, deadline, acked_at, heartbeat_at, progress, \
             message) AS (VALUES ",
    columns: 9,
    after: ") UPDATE attempts SET state = COALESCE(u.state, attempts.state), \
            deadline = CASE WHEN u.sets_deadline THEN u.deadline ELSE attempts.deadline END, \
            acked_at = COALESCE(u.acked_at, attempts.acked_at), \
            heartbeat_at = COALESCE(u.heartbeat_at, attempts.heartbeat_at), \
            progress = COALESCE(u.progress, attempts.progress), \
            message = COALESCE(u.message, attempts.message) \
            FROM u WHERE attempts.execution_id = u.execution_id AND attempts.run_id = u.run_id \
            AND attempts.outstanding",
};

const CLOSE: MultiRow = MultiRow {
    before: "DELETE FROM attempts WHERE outstanding AND (execution_id, run_id) IN (VALUES ",
    columns: 2,
    after: ")",
};

impl MultiRow {
    /// The statement for so many rows.
    fn sql(&self, rows: usize) -> AssertSqlSafe<String> {
        let row = format!("({}?)", "?, ".repeat(self.columns - 1));
        let mut list = format!("{row}, ").repeat(rows - 1);
        list.push_str(&row);
        AssertSqlSafe([self.before, &list, self.after].concat())
    }
}

/// Cuts rows into chunks of the fixed sizes.
fn chunks<T>(mut rows: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let size = SIZES.into_iter().find(|size| *size <= rows.len())?;
        let (chunk, rest) = rows.split_at(size);
        rows = rest;
        Some(chunk)
    })
}

/// Stores waves, each in its order, in one transaction.
pub(super) async fn append(pool: &SqlitePool, waves: &[Wave<'_>]) -> Result<Vec<Stored>> {
    repeat!(
        Repeat::Unsafe,
        attempt!(pool, |connection| transaction!(connection, "BEGIN IMMEDIATE", |c| {
            let mut stored = Vec::with_capacity(waves.len());
            for wave in waves {
                stored.push(store(&mut *c, wave).await?);
            }
            Ok(stored)
        }))
    )
}

pub(super) async fn store(c: &mut SqliteConnection, wave: &Wave<'_>) -> Result<Stored, Fail> {
    let mut stored = Stored::default();
    for chunk in chunks(&wave.creates) {
        stored.moved.extend(create(c, chunk).await?);
    }
    for chunk in chunks(&wave.moves) {
        stored.moved.extend(swap(c, chunk).await?);
    }
    let moved = |run_id: &Uuid| stored.moved.contains(run_id);
    let events: Vec<&Event<'_>> = wave.events.iter().filter(|row| moved(&row.run_id)).collect();
    for chunk in chunks(&events) {
        insert_events(c, chunk).await?;
    }
    let opens: Vec<&Open<'_>> = wave.opens.iter().filter(|row| moved(&row.run_id)).collect();
    for chunk in chunks(&opens) {
        open(c, chunk).await?;
    }
    let changes: Vec<&Change<'_>> =
        wave.changes.iter().filter(|row| row.free || moved(&row.run_id)).collect();
    for chunk in chunks(&changes) {
        change(c, chunk).await?;
    }
    let closes: Vec<&Close> = wave.closes.iter().filter(|row| moved(&row.run_id)).collect();
    for chunk in chunks(&closes) {
        close(c, chunk).await?;
    }
    let mut holders = Vec::new();
    for create in wave.not_created(&stored.moved) {
        let holder: Option<Uuid> = sqlx::query_scalar(HOLDER)
            .bind(create.process_id)
            .bind(create.idempotency_key)
            .bind(create.run_id)
            .fetch_optional(&mut *c)
            .await?;
        holders.extend(holder.map(|holder| (create.run_id, holder)));
    }
    stored.holders.extend(holders);
    Ok(stored)
}

async fn create(c: &mut SqliteConnection, rows: &[Create<'_>]) -> Result<Vec<Uuid>, sqlx::Error> {
    let mut query = sqlx::query_scalar(CREATE.sql(rows.len()));
    for row in rows {
        query = query
            .bind(row.run_id)
            .bind(row.process_id)
            .bind(row.process_revision)
            .bind(row.workspace_id)
            .bind(row.user_id)
            .bind(row.status)
            .bind(row.sequence)
            .bind(row.at)
            .bind(row.at)
            .bind(row.finished_at)
            .bind(row.error)
            .bind(row.idempotency_key);
    }
    query.fetch_all(c).await
}

async fn swap(c: &mut SqliteConnection, rows: &[Move<'_>]) -> Result<Vec<Uuid>, sqlx::Error> {
    let mut query = sqlx::query_scalar(MOVE.sql(rows.len()));
    for row in rows {
        query = query
            .bind(row.run_id)
            .bind(row.expected)
            .bind(row.sequence)
            .bind(row.status)
            .bind(row.at)
            .bind(row.finished_at)
            .bind(row.error);
    }
    query.fetch_all(c).await
}

async fn insert_events(c: &mut SqliteConnection, rows: &[&Event<'_>]) -> Result<(), sqlx::Error> {
    let mut query = sqlx::query(EVENT.sql(rows.len()));
    for row in rows {
        query = query.bind(row.run_id).bind(row.sequence).bind(row.at).bind(row.kind).bind(row.body);
    }
    query.execute(c).await.map(drop)
}

async fn open(c: &mut SqliteConnection, rows: &[&Open<'_>]) -> Result<(), sqlx::Error> {
    let mut query = sqlx::query(OPEN.sql(rows.len()));
    for row in rows {
        query = query
            .bind(row.execution_id)
            .bind(row.run_id)
            .bind(&*row.node_path)
            .bind(&*row.node_type)
            .bind(row.attempt)
            .bind(row.lane)
            .bind(row.state)
            .bind(true)
            .bind(row.deadline)
            .bind(row.at);
    }
    query.execute(c).await.map(drop)
}

async fn change(c: &mut SqliteConnection, rows: &[&Change<'_>]) -> Result<(), sqlx::Error> {
    let mut query = sqlx::query(CHANGE.sql(rows.len()));
    for row in rows {
        query = query
            .bind(row.execution_id)
            .bind(row.run_id)
            .bind(row.state)
            .bind(row.sets_deadline)
            .bind(row.deadline)
            .bind(row.acked_at)
            .bind(row.heartbeat_at)
            .bind(row.progress)
            .bind(row.message);
    }
    query.execute(c).await.map(drop)
}

async fn close(c: &mut SqliteConnection, rows: &[&Close]) -> Result<(), sqlx::Error> {
    let mut query = sqlx::query(CLOSE.sql(rows.len()));
    for row in rows {
        query = query.bind(row.execution_id).bind(row.run_id);
    }
    query.execute(c).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{db::Db, open};

    #[test]
    fn rows_are_cut_into_few_chunks_of_fixed_sizes() {
        let sizes = |len: usize| chunks(&vec![0; len]).map(<[i32]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(150), [64, 64, 16, 4, 1, 1]);
        assert!(sizes(0).is_empty());
    }

    #[test]
    fn a_statement_has_a_place_for_every_value() {
        let AssertSqlSafe(sql) = EVENT.sql(3);
        assert_eq!(sql.matches('?').count(), 15);
    }

    #[tokio::test]
    async fn rows_are_found_by_their_key() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/a.db", folder.path().display());
        let Db::Lite { write, .. } = open::open(&url, 1).await.unwrap() else { panic!("not SQLite") };
        for statement in [MOVE, CHANGE, CLOSE] {
            let AssertSqlSafe(sql) = statement.sql(4);
            let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
            let lines: Vec<(i64, i64, i64, String)> =
                sqlx::query_as(explain).fetch_all(&write).await.unwrap();
            let plan: Vec<&str> = lines.iter().map(|(.., detail)| detail.as_str()).collect();
            assert!(plan.iter().any(|line| line.contains("USING PRIMARY KEY")), "{plan:?}");
        }
        write.close().await;
    }
}
