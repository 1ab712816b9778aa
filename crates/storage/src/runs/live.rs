//! Attempts that may still be worked on.

use super::Runs;
use crate::{db::read, error::Result, rows};
use contract::{ExecutionId, Json, Millis, NodePath, ProcessId, RunId, run::RunStatus};
use sqlx::FromRow;
use uuid::Uuid;

/// An outstanding attempt of a running run.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct LiveAttempt {
    /// The lane that carried its task.
    pub lane: String,
    /// The workspace of its run.
    pub workspace_id: String,
}

const LIVE: &str = "\
    SELECT a.lane, r.workspace_id FROM attempts a JOIN runs r ON r.run_id = a.run_id \
    WHERE a.execution_id = $1 AND a.outstanding AND r.status = 'running'";

/// Where an attempt stands, whether or not anybody waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptPlace {
    /// Its run.
    pub run_id: RunId,
    /// Its node.
    pub node_path: NodePath,
    /// Is its report still waited for?
    pub is_outstanding: bool,
    /// How its run stands.
    pub status: RunStatus,
    /// The workspace of its run.
    pub workspace_id: String,
    /// What is run.
    pub process_id: ProcessId,
    /// The revision of the process.
    pub process_revision: i64,
}

/// What a running step last said of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepWord {
    /// The attempt.
    pub execution_id: ExecutionId,
    /// Its node.
    pub node_path: NodePath,
    /// When it last gave a sign of life.
    pub heartbeat_at: Option<Millis>,
    /// How far it is: a raw JSON number.
    pub progress: Option<Json>,
    /// For people.
    pub message: Option<String>,
}

const PLACE: &str = "\
    SELECT a.run_id, a.node_path, a.outstanding, r.status, r.workspace_id, r.process_id, r.process_revision \
    FROM attempts a JOIN runs r ON r.run_id = a.run_id WHERE a.execution_id = $1";

// The condition is that of the index attempts_told.
const WORDS: &str = "\
    SELECT execution_id, node_path, heartbeat_at, progress, message FROM attempts \
    WHERE run_id = $1 AND outstanding AND (progress IS NOT NULL OR message IS NOT NULL) \
    ORDER BY execution_id LIMIT $2";

impl Runs {
    /// Where an attempt stands; `None`: there is no such attempt, or its run is gone.
    pub async fn place_of(&self, execution_id: ExecutionId) -> Result<Option<AttemptPlace>> {
        type Found = (Uuid, String, bool, String, String, Uuid, i64);
        let row: Option<Found> =
            read!(&self.db, |c| Ok(sqlx::query_as(PLACE).bind(execution_id.0).fetch_optional(c).await?))?;
        let Some((run_id, node_path, is_outstanding, status, workspace_id, process_id, process_revision)) =
            row
        else {
            return self.ended_place(execution_id).await;
        };
        Ok(Some(AttemptPlace {
            run_id: RunId(run_id),
            node_path: NodePath(node_path),
            is_outstanding,
            status: rows::named(&status, format_args!("run {run_id}"))?,
            workspace_id,
            process_id: ProcessId(process_id),
            process_revision,
        }))
    }

    async fn ended_place(&self, execution_id: ExecutionId) -> Result<Option<AttemptPlace>> {
        let Some((run_id, node_path)) = self.scheduled(execution_id).await? else { return Ok(None) };
        Ok(self.get(run_id).await?.map(|run| AttemptPlace {
            run_id,
            node_path,
            is_outstanding: false,
            status: run.status,
            workspace_id: run.workspace_id,
            process_id: run.process_id,
            process_revision: run.process_revision,
        }))
    }

    /// What the running steps of a run last said of themselves, at most `limit` of them.
    pub async fn words(&self, run_id: RunId, limit: u32) -> Result<Vec<StepWord>> {
        type Found = (Uuid, String, Option<i64>, Option<String>, Option<String>);
        let found: Vec<Found> = read!(&self.db, |c| {
            Ok(sqlx::query_as(WORDS).bind(run_id.0).bind(i64::from(limit)).fetch_all(c).await?)
        })?;
        let word = |(execution_id, node_path, heartbeat_at, progress, message): Found| {
            Ok(StepWord {
                execution_id: ExecutionId(execution_id),
                node_path: NodePath(node_path),
                heartbeat_at: rows::optional_time(heartbeat_at),
                progress: rows::optional_json(progress, format_args!("attempt {execution_id}"))?,
                message,
            })
        };
        found.into_iter().map(word).collect()
    }

    /// The attempt, if its report is still waited for and its run still runs.
    pub async fn live(&self, execution_id: ExecutionId) -> Result<Option<LiveAttempt>> {
        read!(&self.db, |c| Ok(sqlx::query_as(LIVE).bind(execution_id.0).fetch_optional(c).await?))
    }
}
