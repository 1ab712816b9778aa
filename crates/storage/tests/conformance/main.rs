//! One suite for both databases: every rule runs on SQLite, and on PostgreSQL when
//! `TEST_DATABASE_URL` names a server (with `CI_SERVERS=1` it must).

// A test may panic.
#![allow(clippy::unwrap_used)]

mod attempts;
mod catalogue;
mod clock;
mod failover;
mod limits;
mod others;
mod places;
mod processes;
mod pruning;
mod publications;
mod run_files;
mod run_lists;
mod runs;
mod schema;
mod start;

use contract::{ExecutionId, Json, Millis, NodePath, ProcessId, RunId, run::RunStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use storage::{
    Storage, StorageSettings,
    runs::{Append, AttemptState, NewAttempt, NewEvent, NewRun},
};
use tempfile::TempDir;
use uuid::Uuid;

/// Each named rule as a test of each database.
macro_rules! suite {
    ($($rule:ident),* $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $rule() {
                let (storage, _folder) = crate::sqlite().await;
                super::$rule(storage.clone()).await;
                storage.close().await;
            })*
        }
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $rule() {
                if let Some(storage) = crate::postgres().await {
                    super::$rule(storage.clone()).await;
                    storage.close().await;
                }
            })*
        }
    };
}
use suite;

/// A new SQLite file in a folder that goes with the test.
async fn sqlite() -> (Storage, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let storage = open(&sqlite_url(&folder)).await;
    (storage, folder)
}

fn sqlite_url(folder: &TempDir) -> String {
    format!("sqlite://{}/conveyor.db", folder.path().display())
}

/// A new database on the test server, if there is one.
async fn postgres() -> Option<Storage> {
    Some(open(&postgres_url().await?).await)
}

async fn postgres_url() -> Option<String> {
    let server = testkit::server_url("TEST_DATABASE_URL")?;
    Some(testkit::fresh_database(&server).await.unwrap())
}

async fn open(url: &str) -> Storage {
    Storage::open(&settings(url)).await.unwrap()
}

fn settings(url: &str) -> StorageSettings {
    StorageSettings { url: url.into(), max_connections: 4 }
}

/// A new id, in the order of their making.
fn id() -> Uuid {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Uuid::from_u128(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)) << 64 | 0x7000_8000)
}

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn event(text: &str) -> NewEvent {
    NewEvent { kind: "step_finished".into(), body: json(text) }
}

/// The first append of a run.
fn start(run_id: RunId) -> Append {
    Append {
        create: Some(NewRun {
            process_id: ProcessId(Uuid::from_u128(1)),
            process_revision: 1,
            workspace_id: "default".into(),
            user_id: "local".into(),
            idempotency_key: None,
        }),
        events: vec![NewEvent { kind: "run_started".into(), body: json("{}") }],
        ..Append::new(run_id, 0, RunStatus::Running, Millis(1_000))
    }
}

/// An append of one event.
fn step(run_id: RunId, expected: u64) -> Append {
    Append {
        events: vec![event(r#"{"outputs":{}}"#)],
        ..Append::new(run_id, expected, RunStatus::Running, Millis(2_000))
    }
}

/// An attempt on the plugin lane.
fn attempt(execution_id: ExecutionId, deadline: Option<Millis>) -> NewAttempt {
    NewAttempt {
        execution_id,
        node_path: NodePath("w-loop[3]/b-turn".into()),
        node_type: "plugin.jira.issue.get".into(),
        attempt: 1,
        lane: "plugin".into(),
        state: AttemptState::Queued,
        deadline,
    }
}
