//! A wave in one statement of PostgreSQL: arrays in, the ids of created and moved runs out. One round
//! trip, no transaction around it when it is the only wave.

use super::{
    HOLDER,
    wave::{Stored, Wave},
};
use crate::{
    db::{Fail, Repeat, attempt, repeat, transaction},
    error::Result,
};
use sqlx::{PgConnection, PgPool};
use std::collections::HashSet;
use uuid::Uuid;

/// The parts do not see each other's writes, only what they return; so everything hangs on `ok`, the
/// runs that were created or moved. The arrays are sorted and the session's planner settings make the
/// joins walk them in order, so that two appends lock rows in the same order. `IN ... IS TRUE` keeps
/// the planner from turning the look-up in `ok` into a join, which would compare each with each.
pub(super) const APPEND: &str = "\
WITH created AS (
    INSERT INTO runs (run_id, process_id, process_revision, workspace_id, user_id, status, sequence,
                      created_at, updated_at, finished_at, error, idempotency_key)
    SELECT c.run_id, c.process_id, c.process_revision, c.workspace_id, c.user_id, c.status, c.sequence,
           c.at, c.at, c.finished_at, c.error, c.idempotency_key
    FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::bigint[],
                $8::bigint[], $9::bigint[], $10::text[], $11::text[])
         AS c (run_id, process_id, process_revision, workspace_id, user_id, status, sequence, at,
               finished_at, error, idempotency_key)
    ON CONFLICT DO NOTHING
    RETURNING run_id
), moved AS (
    UPDATE runs r
    SET sequence = m.sequence, status = m.status, updated_at = m.at,
        finished_at = COALESCE(m.finished_at, r.finished_at), error = COALESCE(m.error, r.error)
    FROM unnest($12::uuid[], $13::bigint[], $14::bigint[], $15::text[], $16::bigint[], $17::bigint[],
                $18::text[])
         AS m (run_id, expected, sequence, status, at, finished_at, error)
    WHERE r.run_id = m.run_id AND r.sequence = m.expected
    RETURNING r.run_id
), ok AS MATERIALIZED (
    SELECT run_id FROM created UNION ALL SELECT run_id FROM moved
), events AS (
    INSERT INTO run_events (run_id, sequence, at, kind, body)
    SELECT e.run_id, e.sequence, e.at, e.kind, e.body
    FROM unnest($19::uuid[], $20::bigint[], $21::bigint[], $22::text[], $23::text[])
         AS e (run_id, sequence, at, kind, body)
    WHERE (e.run_id IN (SELECT run_id FROM ok)) IS TRUE
), opened AS (
    INSERT INTO attempts (execution_id, run_id, node_path, node_type, attempt, lane, state, outstanding,
                          deadline, opened_at)
    SELECT o.execution_id, o.run_id, o.node_path, o.node_type, o.attempt, o.lane, o.state, o.outstanding,
           o.deadline, o.at
    FROM unnest($24::uuid[], $25::uuid[], $26::text[], $27::text[], $28::bigint[], $29::text[],
                $30::text[], $31::boolean[], $32::bigint[], $33::bigint[])
         AS o (execution_id, run_id, node_path, node_type, attempt, lane, state, outstanding, deadline, at)
    WHERE (o.run_id IN (SELECT run_id FROM ok)) IS TRUE
), changed AS (
    UPDATE attempts a
    SET state = COALESCE(u.state, a.state),
        deadline = CASE WHEN u.sets_deadline THEN u.deadline ELSE a.deadline END,
        acked_at = COALESCE(u.acked_at, a.acked_at),
        heartbeat_at = COALESCE(u.heartbeat_at, a.heartbeat_at),
        progress = COALESCE(u.progress, a.progress),
        message = COALESCE(u.message, a.message),
        outstanding = NOT u.closes
    FROM unnest($34::uuid[], $35::uuid[], $36::boolean[], $37::text[], $38::boolean[], $39::bigint[],
                $40::bigint[], $41::bigint[], $42::text[], $43::text[], $44::boolean[])
         AS u (execution_id, run_id, free, state, sets_deadline, deadline, acked_at, heartbeat_at,
               progress, message, closes)
    WHERE a.execution_id = u.execution_id AND a.run_id IS NOT DISTINCT FROM u.run_id AND a.outstanding
      AND (u.free OR (u.run_id IN (SELECT run_id FROM ok)) IS TRUE)
)
SELECT run_id FROM ok";

/// Stores waves, each in its order, in one transaction.
pub(super) async fn append(pool: &PgPool, waves: &[Wave<'_>]) -> Result<Vec<Stored>> {
    let mut stored = match waves {
        [wave] => {
            let only = repeat!(Repeat::Unsafe, attempt!(pool, |c| store(c, wave).await))?;
            vec![only]
        }
        _ => repeat!(
            Repeat::Unsafe,
            attempt!(pool, |connection| transaction!(connection, "BEGIN", |c| {
                let mut stored = Vec::with_capacity(waves.len());
                for wave in waves {
                    stored.push(store(&mut *c, wave).await?);
                }
                Ok(stored)
            }))
        )?,
    };
    for (wave, stored) in waves.iter().zip(&mut stored) {
        for create in wave.not_created(&stored.moved) {
            let holder: Option<Uuid> = repeat!(
                Repeat::Safe,
                attempt!(pool, |c| Ok(sqlx::query_scalar(HOLDER)
                    .bind(create.process_id)
                    .bind(create.idempotency_key)
                    .bind(create.run_id)
                    .fetch_optional(c)
                    .await?))
            )?;
            stored.holders.extend(holder.map(|holder| (create.run_id, holder)));
        }
    }
    Ok(stored)
}

pub(super) async fn store(connection: &mut PgConnection, wave: &Wave<'_>) -> Result<Stored, Fail> {
    /// One column of some rows, as an array.
    macro_rules! column {
        ($rows:ident, $field:ident) => {
            wave.$rows.iter().map(|row| row.$field).collect::<Vec<_>>()
        };
    }
    let node_paths: Vec<&str> = wave.opens.iter().map(|row| &*row.node_path).collect();
    let node_types: Vec<&str> = wave.opens.iter().map(|row| &*row.node_type).collect();
    let ids: Vec<Uuid> = sqlx::query_scalar(APPEND)
        .bind(column!(creates, run_id))
        .bind(column!(creates, process_id))
        .bind(column!(creates, process_revision))
        .bind(column!(creates, workspace_id))
        .bind(column!(creates, user_id))
        .bind(column!(creates, status))
        .bind(column!(creates, sequence))
        .bind(column!(creates, at))
        .bind(column!(creates, finished_at))
        .bind(column!(creates, error))
        .bind(column!(creates, idempotency_key))
        .bind(column!(moves, run_id))
        .bind(column!(moves, expected))
        .bind(column!(moves, sequence))
        .bind(column!(moves, status))
        .bind(column!(moves, at))
        .bind(column!(moves, finished_at))
        .bind(column!(moves, error))
        .bind(column!(events, run_id))
        .bind(column!(events, sequence))
        .bind(column!(events, at))
        .bind(column!(events, kind))
        .bind(column!(events, body))
        .bind(column!(opens, execution_id))
        .bind(column!(opens, run_id))
        .bind(node_paths)
        .bind(node_types)
        .bind(column!(opens, attempt))
        .bind(column!(opens, lane))
        .bind(column!(opens, state))
        .bind(column!(opens, outstanding))
        .bind(column!(opens, deadline))
        .bind(column!(opens, at))
        .bind(column!(changes, execution_id))
        .bind(column!(changes, run_id))
        .bind(column!(changes, free))
        .bind(column!(changes, state))
        .bind(column!(changes, sets_deadline))
        .bind(column!(changes, deadline))
        .bind(column!(changes, acked_at))
        .bind(column!(changes, heartbeat_at))
        .bind(column!(changes, progress))
        .bind(column!(changes, message))
        .bind(column!(changes, closes))
        .fetch_all(connection)
        .await?;
    Ok(Stored { moved: HashSet::from_iter(ids), ..Stored::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{db::Db, open};
    use sqlx::{AssertSqlSafe, Executor};

    #[tokio::test]
    async fn rows_are_found_by_their_key_also_by_a_plan_made_for_empty_tables() {
        let Some(server) = testkit::server_url("TEST_DATABASE_URL") else { return };
        let url = testkit::fresh_database(&server).await.unwrap();
        let Db::Pg(pool) = open::open(&url, 1).await.unwrap() else { panic!("not PostgreSQL") };
        let mut connection = pool.acquire().await.unwrap();
        connection.execute(AssertSqlSafe(format!("PREPARE append AS {APPEND}"))).await.unwrap();
        let parameters = ["'{}'"; 44].join(", ");
        let explain = AssertSqlSafe(format!("EXPLAIN EXECUTE append ({parameters})"));
        let lines: Vec<String> = sqlx::query_scalar(explain).fetch_all(&mut *connection).await.unwrap();
        let plan = lines.join("\n");
        for key in ["runs_pkey", "attempts_pkey"] {
            assert!(plan.contains(&format!("Index Scan using {key}")), "{plan}");
        }
        for slow in ["Seq Scan", "Hash Join", "Merge Join"] {
            assert!(!plan.contains(slow), "{plan}");
        }
        drop(connection);
        pool.close().await;
    }
}
