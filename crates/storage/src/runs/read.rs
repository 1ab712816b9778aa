//! Reading runs.

use super::Runs;
use crate::{
    db::read,
    error::{Error, Result},
    rows,
};
use contract::{Json, Millis, ProcessId, RunId, run::RunStatus};
use sqlx::{FromRow, QueryBuilder};
use std::{fmt, str::FromStr};
use uuid::Uuid;

/// A run without its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// The run.
    pub run_id: RunId,
    /// What is run.
    pub process_id: ProcessId,
    /// The revision of the process that it was started with.
    pub process_revision: i64,
    /// Its workspace.
    pub workspace_id: String,
    /// Its user.
    pub user_id: String,
    /// How it stands.
    pub status: RunStatus,
    /// The number of its last event.
    pub sequence: u64,
    /// When it was started.
    pub created_at: Millis,
    /// When its last event was appended.
    pub updated_at: Millis,
    /// When it ended.
    pub finished_at: Option<Millis>,
    /// Why it failed, raw.
    pub error: Option<Json>,
    /// The key that it was started with.
    pub idempotency_key: Option<String>,
}

/// Which runs a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only runs of this workspace.
    pub workspace_id: String,
    /// Only runs of this process.
    pub process_id: Option<ProcessId>,
    /// Only runs that stand so.
    pub status: Option<RunStatus>,
}

/// The last row of a page: the next page begins after it, whatever was started meanwhile. Its text
/// is what callers carry around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunCursor {
    /// When the run was started.
    pub created_at: Millis,
    /// The run.
    pub run_id: RunId,
}

impl fmt::Display for RunCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.created_at.0, self.run_id.0.simple())
    }
}

impl FromStr for RunCursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text:?} is no cursor of a run list; send nextCursor as it was received");
        let (at, id) = text.split_once('.').ok_or_else(wrong)?;
        Ok(Self {
            created_at: Millis(at.parse().map_err(|_| wrong())?),
            run_id: id.parse().map_err(|_| wrong())?,
        })
    }
}

impl RunRow {
    /// The cursor for the rows after this one.
    pub fn cursor(&self) -> RunCursor {
        RunCursor { created_at: self.created_at, run_id: self.run_id }
    }
}

#[derive(FromRow)]
pub(super) struct Row {
    run_id: Uuid,
    process_id: Uuid,
    process_revision: i64,
    workspace_id: String,
    user_id: String,
    status: String,
    sequence: i64,
    created_at: i64,
    updated_at: i64,
    finished_at: Option<i64>,
    error: Option<String>,
    idempotency_key: Option<String>,
}

impl Row {
    /// The number of the run's last event.
    pub(super) fn sequence(&self) -> i64 {
        self.sequence
    }
}

impl TryFrom<Row> for RunRow {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self> {
        let what = format!("run {}", row.run_id);
        Ok(Self {
            run_id: RunId(row.run_id),
            process_id: ProcessId(row.process_id),
            process_revision: row.process_revision,
            workspace_id: row.workspace_id,
            user_id: row.user_id,
            status: rows::named(&row.status, &what)?,
            sequence: rows::unsigned(row.sequence, &what)?,
            created_at: Millis(row.created_at),
            updated_at: Millis(row.updated_at),
            finished_at: rows::optional_time(row.finished_at),
            error: rows::optional_json(row.error, &what)?,
            idempotency_key: row.idempotency_key,
        })
    }
}

const WITH_KEY: &str = "SELECT run_id FROM runs WHERE process_id = $1 AND idempotency_key = $2";
const RUNNING: &str = "\
    SELECT COUNT(*) FROM process_places p JOIN runs r ON r.run_id = p.run_id \
    WHERE p.process_id = $1 AND r.status = 'running'";
pub(super) const GET: &str = "\
    SELECT run_id, process_id, process_revision, workspace_id, user_id, status, sequence, created_at, \
           updated_at, finished_at, error, idempotency_key FROM runs WHERE run_id = $1";

impl Runs {
    /// A run without its events.
    pub async fn get(&self, run_id: RunId) -> Result<Option<RunRow>> {
        let row: Option<Row> =
            read!(&self.db, |c| Ok(sqlx::query_as(GET).bind(run_id.0).fetch_optional(c).await?))?;
        row.map(RunRow::try_from).transpose()
    }

    /// How many running runs of a process hold a place ([`super::Append::max_running`]): at most as many
    /// as are running. A cheap look ahead; only the append decides.
    pub async fn running_places(&self, process_id: ProcessId) -> Result<u64> {
        let count: i64 =
            read!(&self.db, |c| Ok(sqlx::query_scalar(RUNNING).bind(process_id.0).fetch_one(c).await?))?;
        rows::unsigned(count, "the number of running runs")
    }

    /// The run of a process that was started with a key.
    pub async fn with_key(&self, process_id: ProcessId, key: &str) -> Result<Option<RunId>> {
        let run_id: Option<Uuid> = read!(&self.db, |c| {
            Ok(sqlx::query_scalar(WITH_KEY).bind(process_id.0).bind(key).fetch_optional(c).await?)
        })?;
        Ok(run_id.map(RunId))
    }

    /// A page of runs, newest first. The next page begins at the last row's [`RunRow::cursor`].
    pub async fn list(
        &self,
        filter: &RunFilter,
        after: Option<RunCursor>,
        limit: u32,
    ) -> Result<Vec<RunRow>> {
        let found: Vec<Row> = read!(&self.db, |c| {
            let mut query = QueryBuilder::new(
                "SELECT run_id, process_id, process_revision, workspace_id, user_id, status, sequence, \
                 created_at, updated_at, finished_at, error, idempotency_key FROM runs WHERE workspace_id = ",
            );
            query.push_bind(&filter.workspace_id);
            if let Some(process_id) = filter.process_id {
                query.push(" AND process_id = ").push_bind(process_id.0);
            }
            if let Some(status) = filter.status {
                query.push(" AND status = ").push_bind(status.as_str());
            }
            if let Some(cursor) = after {
                query.push(" AND (created_at, run_id) < (").push_bind(cursor.created_at.0);
                query.push(", ").push_bind(cursor.run_id.0).push(")");
            }
            query.push(" ORDER BY created_at DESC, run_id DESC LIMIT ").push_bind(i64::from(limit));
            Ok(query.build_query_as().fetch_all(c).await?)
        })?;
        found.into_iter().map(RunRow::try_from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_its_text_and_anything_else_is_refused() {
        let cursor = RunCursor { created_at: Millis(1_764_000_000_123), run_id: RunId(Uuid::from_u128(7)) };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", "1", "x.y", "1.", &format!("{cursor}0")] {
            assert!(text.parse::<RunCursor>().unwrap_err().contains("nextCursor"), "{text}");
        }
    }
}
