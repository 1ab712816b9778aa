//! Attempts that have ended. They have no rows: an attempt's id ends as the id of its run does, which
//! gives the few runs that it can belong to, and the run's history says whether it does.

use super::Runs;
use crate::{
    db::{Db, read},
    error::Result,
};
use contract::{ExecutionId, Json, NodePath, RunId};
use serde::Deserialize;
use uuid::Uuid;

/// Where the common end of the ids begins: their last four bytes, which are random in both.
const TAIL: usize = 12;

/// A new attempt's id, a `UUIDv7`.
pub fn new_execution_id(run_id: RunId) -> ExecutionId {
    let mut bytes = Uuid::now_v7().into_bytes();
    bytes[TAIL..].copy_from_slice(&run_id.0.as_bytes()[TAIL..]);
    ExecutionId(Uuid::from_bytes(bytes))
}

// The conditions are those of the index runs_by_tail. An attempt becomes known by the event that
// schedules it.
const SCHEDULED: [&str; 2] = [
    "SELECT e.run_id, e.body FROM runs r JOIN run_events e ON e.run_id = r.run_id \
     WHERE right(r.run_id::text, 8) = $1 AND e.kind = 'step_scheduled' AND e.body LIKE $2 LIMIT 1",
    "SELECT e.run_id, e.body FROM runs r JOIN run_events e ON e.run_id = r.run_id \
     WHERE lower(hex(substr(r.run_id, 13))) = $1 AND e.kind = 'step_scheduled' AND e.body LIKE $2 LIMIT 1",
];

impl Runs {
    /// The run and the node of an attempt, from the history.
    pub(super) async fn scheduled(&self, execution_id: ExecutionId) -> Result<Option<(RunId, NodePath)>> {
        #[derive(Deserialize)]
        struct Body {
            data: Data,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Data {
            node_path: NodePath,
        }
        let sql = match &self.db {
            Db::Pg(_) => SCHEDULED[0],
            Db::Lite { .. } => SCHEDULED[1],
        };
        let tail: String =
            execution_id.0.as_bytes()[TAIL..].iter().map(|byte| format!("{byte:02x}")).collect();
        let names_it = format!("%\"executionId\":\"{execution_id}\"%");
        let found: Option<(Uuid, String)> = read!(&self.db, |c| {
            Ok(sqlx::query_as(sql).bind(&tail).bind(&names_it).fetch_optional(c).await?)
        })?;
        let node = |body: String| Json::parse(body).ok()?.read::<Body>().ok().map(|body| body.data.node_path);
        Ok(found.and_then(|(run_id, body)| Some((RunId(run_id), node(body)?))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_of_attempts_end_as_their_run_does_and_differ() {
        let run_id = RunId(Uuid::now_v7());
        let ids: HashSet<_> = (0..10_000).map(|_| new_execution_id(run_id)).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| id.0.as_bytes()[TAIL..] == run_id.0.as_bytes()[TAIL..]));
        assert!(ids.iter().all(|id| id.0.get_version_num() == 7));
    }
}
