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
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use std::collections::HashSet;
use uuid::Uuid;

/// One statement made of the parts that a wave needs: a part without rows costs the server as much
/// as many rows do. Parameters stand as `?` and are numbered when the parts are put together.
///
/// The parts do not see each other's writes, only what they return; so everything hangs on `ok`, the
/// runs that were created or moved. The arrays are sorted and the session's planner settings make the
/// joins walk them in order, so that two appends lock rows in the same order. `IN ... IS TRUE` keeps
/// the planner from turning the look-up in `ok` into a join, which would compare each with each.
mod part {
    pub(super) const CREATED: &str = "\
created AS (
    INSERT INTO runs (run_id, process_id, process_revision, workspace_id, user_id, status, sequence,
                      created_at, updated_at, finished_at, error, idempotency_key)
    SELECT c.run_id, c.process_id, c.process_revision, c.workspace_id, c.user_id, c.status, c.sequence,
           c.at, c.at, c.finished_at, c.error, c.idempotency_key
    FROM unnest(?::uuid[], ?::uuid[], ?::bigint[], ?::text[], ?::text[], ?::text[], ?::bigint[],
                ?::bigint[], ?::bigint[], ?::text[], ?::text[])
         AS c (run_id, process_id, process_revision, workspace_id, user_id, status, sequence, at,
               finished_at, error, idempotency_key)
    ON CONFLICT DO NOTHING
    RETURNING run_id
)";
    pub(super) const MOVED: &str = "\
moved AS (
    UPDATE runs r
    SET sequence = m.sequence, status = m.status, updated_at = m.at,
        finished_at = COALESCE(m.finished_at, r.finished_at), error = COALESCE(m.error, r.error)
    FROM unnest(?::uuid[], ?::bigint[], ?::bigint[], ?::text[], ?::bigint[], ?::bigint[], ?::text[])
         AS m (run_id, expected, sequence, status, at, finished_at, error)
    WHERE r.run_id = m.run_id AND r.sequence = m.expected
    RETURNING r.run_id
)";
    pub(super) const EVENTS: &str = "\
events AS (
    INSERT INTO run_events (run_id, sequence, at, kind, body)
    SELECT e.run_id, e.sequence, e.at, e.kind, e.body
    FROM unnest(?::uuid[], ?::bigint[], ?::bigint[], ?::text[], ?::text[])
         AS e (run_id, sequence, at, kind, body)
    WHERE (e.run_id IN (SELECT run_id FROM ok)) IS TRUE
)";
    pub(super) const OPENED: &str = "\
opened AS (
    INSERT INTO attempts (execution_id, run_id, node_path, node_type, attempt, lane, state, outstanding,
                          deadline, opened_at)
    SELECT o.execution_id, o.run_id, o.node_path, o.node_type, o.attempt, o.lane, o.state, TRUE,
           o.deadline, o.at
    FROM unnest(?::uuid[], ?::uuid[], ?::text[], ?::text[], ?::bigint[], ?::text[], ?::text[],
                ?::bigint[], ?::bigint[])
         AS o (execution_id, run_id, node_path, node_type, attempt, lane, state, deadline, at)
    WHERE (o.run_id IN (SELECT run_id FROM ok)) IS TRUE
)";
    /// Attempts that change.
    pub(super) const CHANGED: &str = "\
changed AS (
    UPDATE attempts a
    SET state = COALESCE(u.state, a.state),
        deadline = CASE WHEN u.sets_deadline THEN u.deadline ELSE a.deadline END,
        acked_at = COALESCE(u.acked_at, a.acked_at),
        heartbeat_at = COALESCE(u.heartbeat_at, a.heartbeat_at),
        progress = COALESCE(u.progress, a.progress),
        message = COALESCE(u.message, a.message)
    FROM unnest(?::uuid[], ?::uuid[], ?::boolean[], ?::text[], ?::boolean[], ?::bigint[], ?::bigint[],
                ?::bigint[], ?::text[], ?::text[])
         AS u (execution_id, run_id, free, state, sets_deadline, deadline, acked_at, heartbeat_at,
               progress, message)
    WHERE a.execution_id = u.execution_id AND a.run_id IS NOT DISTINCT FROM u.run_id AND a.outstanding
      AND (u.free OR (u.run_id IN (SELECT run_id FROM ok)) IS TRUE)
)";
    /// Attempts that end. Their rows go: to keep them, changed, costs three times as much.
    pub(super) const CLOSED: &str = "\
closed AS (
    DELETE FROM attempts a
    USING unnest(?::uuid[], ?::uuid[]) AS u (execution_id, run_id)
    WHERE a.execution_id = u.execution_id AND a.run_id IS NOT DISTINCT FROM u.run_id AND a.outstanding
      AND (u.run_id IN (SELECT run_id FROM ok)) IS TRUE
)";
}

/// What the numbers of all parameters take, generously.
const NUMBERS_BYTES: usize = 128;

/// Which parts a wave needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    creates: bool,
    moves: bool,
    events: bool,
    opens: bool,
    changes: bool,
    closes: bool,
}

impl Shape {
    fn of(wave: &Wave<'_>) -> Self {
        Self {
            creates: !wave.creates.is_empty(),
            moves: !wave.moves.is_empty(),
            events: !wave.events.is_empty(),
            opens: !wave.opens.is_empty(),
            changes: !wave.changes.is_empty(),
            closes: !wave.closes.is_empty(),
        }
    }

    /// The statement; its text is the same whenever the shape is, so that it is prepared once.
    fn statement(self) -> String {
        let ok = match (self.creates, self.moves) {
            (true, true) => "SELECT run_id FROM created UNION ALL SELECT run_id FROM moved",
            (true, false) => "SELECT run_id FROM created",
            (false, true) => "SELECT run_id FROM moved",
            (false, false) => "SELECT NULL::uuid AS run_id WHERE FALSE",
        };
        let ok = format!("ok AS MATERIALIZED ({ok})");
        let parts = [
            (self.creates, part::CREATED),
            (self.moves, part::MOVED),
            (true, &ok),
            (self.events, part::EVENTS),
            (self.opens, part::OPENED),
            (self.changes, part::CHANGED),
            (self.closes, part::CLOSED),
        ];
        let needed: Vec<&str> =
            parts.into_iter().filter(|(needed, _)| *needed).map(|(_, part)| part).collect();
        let text = format!("WITH {} SELECT run_id FROM ok", needed.join(", "));
        let mut numbered = String::with_capacity(text.len() + NUMBERS_BYTES);
        for (number, piece) in text.split('?').enumerate() {
            if number > 0 {
                numbered.push('$');
                numbered.push_str(&number.to_string());
            }
            numbered.push_str(piece);
        }
        numbered
    }
}

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
    let shape = Shape::of(wave);
    let mut query = sqlx::query_scalar(AssertSqlSafe(shape.statement()));
    if shape.creates {
        query = query
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
            .bind(column!(creates, idempotency_key));
    }
    if shape.moves {
        query = query
            .bind(column!(moves, run_id))
            .bind(column!(moves, expected))
            .bind(column!(moves, sequence))
            .bind(column!(moves, status))
            .bind(column!(moves, at))
            .bind(column!(moves, finished_at))
            .bind(column!(moves, error));
    }
    if shape.events {
        query = query
            .bind(column!(events, run_id))
            .bind(column!(events, sequence))
            .bind(column!(events, at))
            .bind(column!(events, kind))
            .bind(column!(events, body));
    }
    if shape.opens {
        query = query
            .bind(column!(opens, execution_id))
            .bind(column!(opens, run_id))
            .bind(wave.opens.iter().map(|row| &*row.node_path).collect::<Vec<_>>())
            .bind(wave.opens.iter().map(|row| &*row.node_type).collect::<Vec<_>>())
            .bind(column!(opens, attempt))
            .bind(column!(opens, lane))
            .bind(column!(opens, state))
            .bind(column!(opens, deadline))
            .bind(column!(opens, at));
    }
    if shape.changes {
        query = query
            .bind(column!(changes, execution_id))
            .bind(column!(changes, run_id))
            .bind(column!(changes, free))
            .bind(column!(changes, state))
            .bind(column!(changes, sets_deadline))
            .bind(column!(changes, deadline))
            .bind(column!(changes, acked_at))
            .bind(column!(changes, heartbeat_at))
            .bind(column!(changes, progress))
            .bind(column!(changes, message));
    }
    if shape.closes {
        query = query.bind(column!(closes, execution_id)).bind(column!(closes, run_id));
    }
    let ids: Vec<Uuid> = query.fetch_all(connection).await?;
    Ok(Stored { moved: HashSet::from_iter(ids), ..Stored::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{db::Db, open};
    use sqlx::Executor;

    #[tokio::test]
    async fn rows_are_found_by_their_key_also_by_a_plan_made_for_empty_tables() {
        let Some(server) = testkit::server_url("TEST_DATABASE_URL") else { return };
        let url = testkit::fresh_database(&server).await.unwrap();
        let Db::Pg(pool) = open::open(&url, 1).await.unwrap() else { panic!("not PostgreSQL") };
        let mut connection = pool.acquire().await.unwrap();
        // Nothing at all is no wave.
        for bits in 1..64_u8 {
            let has = |bit: u8| bits & (1 << bit) != 0;
            let shape = Shape {
                creates: has(0),
                moves: has(1),
                events: has(2),
                opens: has(3),
                changes: has(4),
                closes: has(5),
            };
            let text = shape.statement();
            let parameters = vec!["'{}'"; text.matches('$').count()].join(", ");
            connection.execute(AssertSqlSafe(format!("PREPARE append{bits} AS {text}"))).await.unwrap();
            let explain = AssertSqlSafe(format!("EXPLAIN EXECUTE append{bits} ({parameters})"));
            let lines: Vec<String> = sqlx::query_scalar(explain).fetch_all(&mut *connection).await.unwrap();
            let plan = lines.join("\n");
            let touches = shape.changes || shape.closes;
            assert_eq!(plan.contains("Index Scan using attempts_pkey"), touches, "{shape:?}: {plan}");
            assert_eq!(plan.contains("Index Scan using runs_pkey"), shape.moves, "{shape:?}: {plan}");
            for slow in ["Seq Scan", "Hash Join", "Merge Join"] {
                assert!(!plan.contains(slow), "{shape:?}: {plan}");
            }
        }
        drop(connection);
        pool.close().await;
    }
}
