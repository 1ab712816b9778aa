//! Attempts that may still be worked on.

use super::Runs;
use crate::{db::read, error::Result};
use contract::ExecutionId;
use sqlx::FromRow;

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

impl Runs {
    /// The attempt, if its report is still waited for and its run still runs.
    pub async fn live(&self, execution_id: ExecutionId) -> Result<Option<LiveAttempt>> {
        read!(&self.db, |c| Ok(sqlx::query_as(LIVE).bind(execution_id.0).fetch_optional(c).await?))
    }
}
