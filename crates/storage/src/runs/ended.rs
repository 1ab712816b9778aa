//! Attempts that have ended. They have no rows: an attempt's id ends as the id of its run does, which
//! gives the few runs that it can belong to, and the run's history says whether it does.

use super::{
    Runs,
    attempts::{CHUNK, padded},
};
use crate::{db::read, error::Result};
use contract::{ExecutionId, NodePath, RunId};
use serde::Deserialize;
use sqlx::QueryBuilder;
use std::collections::HashSet;
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

/// The common ends that some run has, of those asked for.
const TAILS: [&str; 2] = [
    "SELECT right(run_id::text, 8) FROM runs WHERE right(run_id::text, 8) IN (",
    "SELECT lower(hex(substr(run_id, 13))) FROM runs WHERE lower(hex(substr(run_id, 13))) IN (",
];

/// The end of an id that it has in common with others.
fn tail(id: Uuid) -> String {
    id.simple().to_string().split_off(2 * TAIL)
}

impl Runs {
    /// The runs of attempts, from the history. Ids that no run can have cost one query together.
    pub(super) async fn scheduled_all(&self, attempts: &[ExecutionId]) -> Result<Vec<(ExecutionId, RunId)>> {
        let sql = self.db.of_dialect(TAILS);
        let mut found = Vec::new();
        for chunk in attempts.chunks(CHUNK) {
            let known: Vec<String> = read!(&self.db, |c| {
                let mut query = QueryBuilder::new(sql);
                let mut list = query.separated(", ");
                for id in padded(chunk) {
                    list.push_bind(tail(id.0));
                }
                query.push(")");
                Ok(query.build_query_scalar().fetch_all(c).await?)
            })?;
            let known: HashSet<String> = known.into_iter().collect();
            for id in chunk.iter().filter(|id| known.contains(&tail(id.0))) {
                found.extend(self.scheduled(*id).await?.map(|(run_id, _)| (*id, run_id)));
            }
        }
        Ok(found)
    }

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
        let sql = self.db.of_dialect(SCHEDULED);
        let tail = tail(execution_id.0);
        let names_it = format!("%\"executionId\":\"{execution_id}\"%");
        let found: Option<(Uuid, String)> = read!(&self.db, |c| {
            Ok(sqlx::query_as(sql).bind(&tail).bind(&names_it).fetch_optional(c).await?)
        })?;
        let node = |body: &str| serde_json::from_str::<Body>(body).ok().map(|body| body.data.node_path);
        Ok(found.and_then(|(run_id, body)| Some((RunId(run_id), node(&body)?))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{db::Db, open};
    use sqlx::AssertSqlSafe;

    #[test]
    fn ids_of_attempts_end_as_their_run_does_and_differ() {
        let run_id = RunId(Uuid::now_v7());
        let ids: HashSet<_> = (0..10_000).map(|_| new_execution_id(run_id)).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| id.0.as_bytes()[TAIL..] == run_id.0.as_bytes()[TAIL..]));
        assert!(ids.iter().all(|id| id.0.get_version_num() == 7));
    }

    #[tokio::test]
    async fn runs_are_found_by_the_index_over_the_ends_of_their_ids() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/a.db", folder.path().display());
        let Db::Lite { write, .. } = open::open(&url, 1).await.unwrap() else { panic!("not SQLite") };
        for sql in [SCHEDULED[1].to_owned(), format!("{}'00000000', '00000001')", TAILS[1])] {
            let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
            let lines: Vec<(i64, i64, i64, String)> =
                sqlx::query_as(explain).fetch_all(&write).await.unwrap();
            assert!(lines.iter().any(|(.., line)| line.contains("runs_by_tail")), "{lines:?}");
        }
        write.close().await;
        let Some(server) = testkit::server_url("TEST_DATABASE_URL") else { return };
        let url = testkit::fresh_database(&server).await.unwrap();
        let Db::Pg(pool) = open::open(&url, 1).await.unwrap() else { panic!("not PostgreSQL") };
        let scheduled = SCHEDULED[0].replace("$1", "'00000000'").replace("$2", "'%x%'");
        for sql in [scheduled, format!("{}'00000000', '00000001')", TAILS[0])] {
            let explain = AssertSqlSafe(format!("EXPLAIN {sql}"));
            let lines: Vec<String> = sqlx::query_scalar(explain).fetch_all(&pool).await.unwrap();
            assert!(lines.iter().any(|line| line.contains("runs_by_tail")), "{lines:?}");
        }
        pool.close().await;
    }
}
