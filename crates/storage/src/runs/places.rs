//! Claims of plugins that may have only so many attempts at once.
//!
//! A claim counts the attempts that hold a *place* and gives the free ones away in one transaction,
//! under the lock of the plugin's row, so that the limit holds over any number of control planes. A
//! place is held until its attempt is no longer outstanding: the next claim clears it then, so the end
//! of an attempt costs nothing, and a plugin without a limit is never asked about.

use super::Runs;
use crate::{db::in_tx, error::Result};
use contract::{ExecutionId, Millis, RunId};
use sqlx::QueryBuilder;
use std::{collections::HashSet, time::Duration};
use uuid::Uuid;

/// What became of one attempt's claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceClaim {
    /// It is dispatched, and holds a place.
    Granted,
    /// All places are taken; it is still queued.
    Full,
    /// Somebody else has it, it is superseded, or its run has ended.
    Gone,
}

/// What became of some claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceClaims {
    /// One per attempt, in order.
    pub answers: Vec<PlaceClaim>,
    /// When some found all places taken: the runs whose attempts have them. A place becomes free when
    /// one of these runs goes on.
    pub holders: Vec<RunId>,
}

/// The most attempts of one transaction.
const CHUNK: usize = 256;

const LIMIT: [&str; 2] = [
    "SELECT max_attempts FROM plugins WHERE plugin_id = $1 FOR NO KEY UPDATE",
    // SQLite has one writer.
    "SELECT max_attempts FROM plugins WHERE plugin_id = $1",
];
const CLEAR: &str = "\
    DELETE FROM plugin_places WHERE plugin_id = $1 AND NOT EXISTS \
    (SELECT 1 FROM attempts a WHERE a.execution_id = plugin_places.execution_id AND a.outstanding)";
const COUNT: &str = "SELECT COUNT(*) FROM plugin_places WHERE plugin_id = $1";
const HOLDERS: &str = "SELECT DISTINCT run_id FROM plugin_places WHERE plugin_id = $1";

/// Attempts that can be claimed; a list of ids follows.
const CLAIMABLE: &str = "\
    SELECT a.execution_id FROM attempts a JOIN runs r ON r.run_id = a.run_id \
    WHERE a.outstanding AND a.state = 'queued' AND r.status = 'running' AND a.execution_id IN (";

/// `listed!(query, ids)`: the ids, each as a parameter, and the closing parenthesis.
macro_rules! listed {
    ($query:ident, $ids:expr) => {{
        let mut list = $query.separated(", ");
        for id in $ids {
            list.push_bind(id.0);
        }
        $query.push(")");
    }};
}

impl Runs {
    /// Claims attempts of a plugin as [`Runs::claim_dispatch`] does, but only as many as the plugin has
    /// free places; the oldest get them. A plugin without a limit has a place for everybody.
    pub async fn claim_places(
        &self,
        plugin_id: &str,
        attempts: &[ExecutionId],
        delivery: Duration,
    ) -> Result<PlaceClaims> {
        let mut all = PlaceClaims::default();
        for chunk in attempts.chunks(CHUNK) {
            let PlaceClaims { answers, holders } = self.claim_chunk(plugin_id, chunk, delivery).await?;
            all.answers.extend(answers);
            all.holders = holders;
        }
        Ok(all)
    }

    async fn claim_chunk(
        &self,
        plugin_id: &str,
        attempts: &[ExecutionId],
        delivery: Duration,
    ) -> Result<PlaceClaims> {
        let (clock, delivery) = (self.db.clock(), Millis(0).plus(delivery).0);
        let limit = self.db.of_dialect(LIMIT);
        let (granted, waiting, holders) = in_tx!(&self.db, |c| {
            let most: Option<Option<i64>> =
                sqlx::query_scalar(limit).bind(plugin_id).fetch_optional(&mut *c).await?;
            sqlx::query(CLEAR).bind(plugin_id).execute(&mut *c).await?;
            let taken: i64 = sqlx::query_scalar(COUNT).bind(plugin_id).fetch_one(&mut *c).await?;
            let free = most.flatten().map_or(i64::MAX, |most| most.saturating_sub(taken).max(0));
            let mut granted: Vec<(Uuid, Uuid)> = Vec::new();
            if free > 0 {
                let mut query =
                    QueryBuilder::new("UPDATE attempts SET state = 'dispatched', dispatched_at = ");
                query.push(clock).push(", deadline = ").push(clock).push(" + ").push_bind(delivery);
                query.push(" WHERE outstanding AND state = 'queued' AND execution_id IN (").push(CLAIMABLE);
                listed!(query, attempts);
                query.push(" ORDER BY a.execution_id LIMIT ").push_bind(free);
                query.push(") RETURNING execution_id, run_id");
                granted = query.build_query_as().persistent(false).fetch_all(&mut *c).await?;
            }
            if !granted.is_empty() {
                let mut query =
                    QueryBuilder::new("INSERT INTO plugin_places (plugin_id, execution_id, run_id) ");
                query.push_values(&granted, |mut row, (execution_id, run_id)| {
                    row.push_bind(plugin_id).push_bind(*execution_id).push_bind(*run_id);
                });
                query.build().persistent(false).execute(&mut *c).await?;
            }
            let mut waiting: Vec<Uuid> = Vec::new();
            if granted.len() < attempts.len() {
                let mut query = QueryBuilder::new(CLAIMABLE);
                listed!(query, attempts);
                waiting = query.build_query_scalar().persistent(false).fetch_all(&mut *c).await?;
            }
            let mut holders: Vec<Uuid> = Vec::new();
            if !waiting.is_empty() {
                holders = sqlx::query_scalar(HOLDERS).bind(plugin_id).fetch_all(&mut *c).await?;
            }
            Ok((granted, waiting, holders))
        })?;
        let granted = granted.into_iter().map(|(execution_id, _)| execution_id).collect();
        Ok(PlaceClaims {
            answers: answers(attempts, granted, &waiting.into_iter().collect()),
            holders: holders.into_iter().map(RunId).collect(),
        })
    }
}

/// One answer per attempt; of one that is named twice, only the first is granted.
fn answers(attempts: &[ExecutionId], mut granted: HashSet<Uuid>, waiting: &HashSet<Uuid>) -> Vec<PlaceClaim> {
    let answer = |id: &ExecutionId| match granted.remove(&id.0) {
        true => PlaceClaim::Granted,
        false if waiting.contains(&id.0) => PlaceClaim::Full,
        false => PlaceClaim::Gone,
    };
    attempts.iter().map(answer).collect()
}
