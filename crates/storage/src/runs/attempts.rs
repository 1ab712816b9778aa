//! Attempts: claiming them for dispatch, finding those that are due, and what is outstanding.

use super::{AttemptState, Runs};
use crate::{
    db::{in_tx, read, write},
    error::{Error, Result},
    rows,
};
use contract::{ExecutionId, Millis, NodePath, RunId};
use sqlx::{FromRow, QueryBuilder};
use std::{
    collections::{HashMap, HashSet},
    str::FromStr,
    time::Duration,
};
use uuid::Uuid;

/// An outstanding attempt whose deadline has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueAttempt {
    /// The attempt.
    pub execution_id: ExecutionId,
    /// Its run.
    pub run_id: RunId,
    /// How it stands: what the deadline was for.
    pub state: AttemptState,
    /// The deadline that passed.
    pub deadline: Millis,
    /// Who could take it.
    pub lane: AttemptLane,
}

/// Who takes an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptLane {
    /// A control plane, for a plugin.
    Plugin,
    /// An executor.
    Executor,
    /// Nobody: it waits for a moment.
    Timer,
    /// Nobody: it waits for a person.
    Person,
}

impl FromStr for AttemptLane {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "plugin" => Ok(Self::Plugin),
            "executor" => Ok(Self::Executor),
            LANE_TIMER => Ok(Self::Timer),
            LANE_PERSON => Ok(Self::Person),
            _ => Err(format!("{text:?} is no lane of attempts")),
        }
    }
}

/// The lane of attempts that wait for a moment; nobody takes them.
pub const LANE_TIMER: &str = "timer";
/// The lane of attempts that wait for a person; nobody takes them.
pub const LANE_PERSON: &str = "person";

/// An attempt whose report is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutstandingAttempt {
    /// The attempt.
    pub execution_id: ExecutionId,
    /// Its run.
    pub run_id: RunId,
    /// Its node.
    pub node_path: NodePath,
    /// The node's type.
    pub node_type: String,
    /// From 1 per node.
    pub attempt: u32,
    /// The lane that carries its task.
    pub lane: String,
    /// How it stands.
    pub state: AttemptState,
    /// When the sweep looks at it.
    pub deadline: Option<Millis>,
    /// When it was opened.
    pub opened_at: Millis,
    /// When it was claimed.
    pub dispatched_at: Option<Millis>,
    /// When it was acknowledged.
    pub acked_at: Option<Millis>,
    /// When it last gave a sign of life.
    pub heartbeat_at: Option<Millis>,
    /// How far it is, as last reported: a raw JSON number.
    pub progress: Option<contract::Json>,
}

#[derive(FromRow)]
struct Row {
    execution_id: Uuid,
    run_id: Uuid,
    node_path: String,
    node_type: String,
    attempt: i64,
    lane: String,
    state: String,
    deadline: Option<i64>,
    opened_at: i64,
    dispatched_at: Option<i64>,
    acked_at: Option<i64>,
    heartbeat_at: Option<i64>,
    progress: Option<String>,
}

impl TryFrom<Row> for OutstandingAttempt {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self> {
        let what = format!("attempt {}", row.execution_id);
        Ok(Self {
            execution_id: ExecutionId(row.execution_id),
            run_id: RunId(row.run_id),
            node_path: NodePath(row.node_path),
            node_type: row.node_type,
            attempt: u32::try_from(row.attempt).map_err(|error| Error::corrupt(&*what, &error))?,
            lane: row.lane,
            state: rows::named(&row.state, &what)?,
            deadline: rows::optional_time(row.deadline),
            opened_at: Millis(row.opened_at),
            dispatched_at: rows::optional_time(row.dispatched_at),
            acked_at: rows::optional_time(row.acked_at),
            heartbeat_at: rows::optional_time(row.heartbeat_at),
            progress: rows::optional_json(row.progress, &what)?,
        })
    }
}

/// The most ids in one statement: a power of two (see [`padded`]).
pub(super) const CHUNK: usize = 512;
/// The most attempts that one sweep takes.
const MAX_DUE: u32 = 512;

const OUTSTANDING: &str = "\
    SELECT execution_id, run_id, node_path, node_type, attempt, lane, state, deadline, opened_at, \
           dispatched_at, acked_at, heartbeat_at, progress \
    FROM attempts WHERE outstanding AND run_id = $1 ORDER BY execution_id";
const ALL_OUTSTANDING: &str = "\
    SELECT execution_id, run_id, node_path, node_type, attempt, lane, state, deadline, opened_at, \
           dispatched_at, acked_at, heartbeat_at, progress \
    FROM attempts WHERE outstanding ORDER BY run_id, execution_id LIMIT $1";

/// Milliseconds of a duration as a `BIGINT`, saturating.
fn millis(duration: Duration) -> i64 {
    Millis(0).plus(duration).0
}

impl Runs {
    /// Claims attempts for dispatch: `queued` becomes `dispatched` with a delivery deadline from now
    /// by the database's clock. One answer per attempt, in order; false: somebody else has it, it is
    /// superseded, or its run has ended (failure matrix row 1). Of any number of claimers one gets
    /// true.
    pub async fn claim_dispatch(&self, attempts: &[ExecutionId], delivery: Duration) -> Result<Vec<bool>> {
        let clock = self.db.clock();
        let mut claimed: HashSet<Uuid> = HashSet::with_capacity(attempts.len());
        for chunk in attempts.chunks(CHUNK) {
            let rows: Vec<Uuid> = write!(&self.db, |c| {
                let mut query =
                    QueryBuilder::new("UPDATE attempts SET state = 'dispatched', dispatched_at = ");
                query.push(clock).push(", deadline = ").push(clock).push(" + ").push_bind(millis(delivery));
                query.push(
                    " WHERE outstanding AND state = 'queued' AND EXISTS (SELECT 1 FROM runs r \
                     WHERE r.run_id = attempts.run_id AND r.status = 'running') AND execution_id IN (",
                );
                let mut list = query.separated(", ");
                for id in padded(chunk) {
                    list.push_bind(id.0);
                }
                query.push(") RETURNING execution_id");
                Ok(query.build_query_scalar().fetch_all(c).await?)
            })?;
            claimed.extend(rows);
        }
        Ok(attempts.iter().map(|id| claimed.remove(&id.0)).collect())
    }

    /// Takes at most `limit` (512) outstanding attempts whose deadline has passed by the database's clock,
    /// the oldest first, and moves their deadlines by `hold` from now, so that another engine does
    /// not take them meanwhile. What becomes of them the taker appends; if it dies, they are due
    /// again after `hold`. With `spares_claimed` attempts that somebody had claimed are left: after a
    /// restart nobody is declared lost before one full delivery deadline has passed (protocol section 5).
    /// Deadlines after `latest` are left too: the clock may have stepped since the caller looked at it.
    pub async fn take_due(
        &self,
        limit: u32,
        hold: Duration,
        spares_claimed: bool,
        latest: Millis,
    ) -> Result<Vec<DueAttempt>> {
        let (clock, skip_locked) = (self.db.clock(), self.db.skip_locked());
        let limit = limit.min(MAX_DUE);
        let due: Vec<(Uuid, Uuid, String, i64, String)> = in_tx!(&self.db, |c| {
            let mut query = QueryBuilder::new(
                "SELECT execution_id, run_id, state, deadline, lane FROM attempts WHERE outstanding AND deadline <= ",
            );
            query.push(clock).push(" AND deadline <= ").push_bind(latest.0);
            query.push(if spares_claimed { " AND state = 'queued'" } else { "" });
            query.push(" ORDER BY deadline LIMIT ").push_bind(i64::from(limit));
            query.push(skip_locked);
            let due: Vec<(Uuid, Uuid, String, i64, String)> =
                query.build_query_as().fetch_all(&mut *c).await?;
            if due.is_empty() {
                return Ok(due);
            }
            let mut query = QueryBuilder::new("UPDATE attempts SET deadline = ");
            query.push(clock).push(" + ").push_bind(millis(hold)).push(" WHERE execution_id IN (");
            let ids: Vec<Uuid> = due.iter().map(|(id, ..)| *id).collect();
            let mut list = query.separated(", ");
            for id in padded(&ids) {
                list.push_bind(*id);
            }
            query.push(")");
            query.build().execute(&mut *c).await?;
            Ok(due)
        })?;
        due.into_iter()
            .map(|(execution_id, run_id, state, deadline, lane)| {
                Ok(DueAttempt {
                    execution_id: ExecutionId(execution_id),
                    run_id: RunId(run_id),
                    state: rows::named(&state, format_args!("attempt {execution_id}"))?,
                    deadline: Millis(deadline),
                    lane: rows::named(&lane, format_args!("attempt {execution_id}"))?,
                })
            })
            .collect()
    }

    /// The runs of attempts, in order; `None`: no such attempt. Ended attempts are known too.
    pub async fn run_of(&self, attempts: &[ExecutionId]) -> Result<Vec<Option<RunId>>> {
        let mut found: HashMap<Uuid, Uuid> = HashMap::with_capacity(attempts.len());
        for chunk in attempts.chunks(CHUNK) {
            let rows: Vec<(Uuid, Uuid)> = read!(&self.db, |c| {
                let mut query =
                    QueryBuilder::new("SELECT execution_id, run_id FROM attempts WHERE execution_id IN (");
                let mut list = query.separated(", ");
                for id in padded(chunk) {
                    list.push_bind(id.0);
                }
                query.push(")");
                Ok(query.build_query_as().fetch_all(c).await?)
            })?;
            found.extend(rows);
        }
        // Of those that have ended reports come only when a reporter did not hear the answer to its last.
        let ended: Vec<ExecutionId> =
            attempts.iter().filter(|id| !found.contains_key(&id.0)).copied().collect();
        found.extend(self.scheduled_all(&ended).await?.into_iter().map(|(id, run_id)| (id.0, run_id.0)));
        Ok(attempts.iter().map(|id| found.get(&id.0).copied().map(RunId)).collect())
    }

    /// What a run waits for, for an operator's eyes and for tests: it looks through all outstanding
    /// attempts.
    pub async fn outstanding(&self, run_id: RunId) -> Result<Vec<OutstandingAttempt>> {
        let rows: Vec<Row> =
            read!(&self.db, |c| Ok(sqlx::query_as(OUTSTANDING).bind(run_id.0).fetch_all(c).await?))?;
        rows.into_iter().map(OutstandingAttempt::try_from).collect()
    }

    /// How many attempts are outstanding in all runs.
    pub async fn outstanding_count(&self) -> Result<u64> {
        let count: i64 = read!(&self.db, |c| {
            Ok(sqlx::query_scalar("SELECT COUNT(*) FROM attempts WHERE outstanding").fetch_one(c).await?)
        })?;
        rows::unsigned(count, "the number of attempts")
    }

    /// At most `limit` outstanding attempts of all runs, for an operator's eyes.
    pub async fn list_outstanding(&self, limit: u32) -> Result<Vec<OutstandingAttempt>> {
        let rows: Vec<Row> = read!(&self.db, |c| {
            Ok(sqlx::query_as(ALL_OUTSTANDING).bind(i64::from(limit)).fetch_all(c).await?)
        })?;
        rows.into_iter().map(OutstandingAttempt::try_from).collect()
    }
}

/// The ids, filled up to a power of two by repeating the last: a handful of statement texts serve
/// all lengths, so that their prepared statements are found again.
pub(super) fn padded<T>(ids: &[T]) -> impl Iterator<Item = &T> {
    let fill = ids.len().next_power_of_two() - ids.len();
    ids.iter().chain(ids.last().into_iter().cycle().take(fill))
}
