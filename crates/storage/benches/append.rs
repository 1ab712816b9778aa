//! How many durable step transitions a second `Runs::append` makes: each stores one event of 1 KiB,
//! closes an attempt and opens the next. `cargo bench -p storage`; PostgreSQL with
//! `TEST_DATABASE_URL`. Prints, asserts nothing.

#![allow(clippy::unwrap_used, missing_docs)]

use contract::{ExecutionId, Json, Millis, NodePath, ProcessId, RunId, run::RunStatus};
use std::time::{Duration, Instant};
use storage::{
    Storage, StorageSettings,
    runs::{Append, Appended, AttemptState, NewAttempt, NewEvent, NewRun, Runs},
};
use uuid::Uuid;

const WINDOW: Duration = Duration::from_secs(3);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let sqlite = format!("sqlite://{}/bench.db", folder.path().display());
        measure("sqlite", &sqlite, &[(1, 1), (1, 16), (1, 64), (1, 256)]).await;
        if let Some(server) = testkit::server_url("TEST_DATABASE_URL") {
            let url = testkit::fresh_database(&server).await.unwrap();
            let cases = [(1, 1), (1, 16), (1, 64), (2, 64), (3, 64), (1, 256), (2, 256), (3, 256)];
            measure("postgres", &url, &cases).await;
        }
    });
}

/// Measures (committers, appends per batch).
async fn measure(name: &str, url: &str, cases: &[(usize, usize)]) {
    let storage = Storage::open(&StorageSettings { url: url.into(), max_connections: 8 }).await.unwrap();
    for (committers, batch) in cases {
        let begin = Instant::now();
        let tasks: Vec<_> =
            (0..*committers).map(|_| tokio::spawn(committer(storage.runs(), *batch))).collect();
        let mut commits = Vec::new();
        for task in tasks {
            commits.extend(task.await.unwrap());
        }
        let rate = (commits.len() * batch) as f64 / begin.elapsed().as_secs_f64();
        commits.sort_unstable();
        let at = |part: usize| commits[(commits.len() - 1) * part / 100];
        println!(
            "{name}: {committers} committers, batches of {batch}: {rate:.0} transitions/s, p50 {:?}, p99 {:?}",
            at(50),
            at(99)
        );
    }
    storage.close().await;
}

/// Commits batches for a while and returns how long each took.
async fn committer(runs: Runs, batch: usize) -> Vec<Duration> {
    let body = Json::parse(format!("\"{}\"", "x".repeat(1022))).unwrap();
    let mut heads: Vec<(RunId, u64, ExecutionId)> =
        (0..batch).map(|_| (RunId(Uuid::now_v7()), 0, ExecutionId(Uuid::now_v7()))).collect();
    let mut took = Vec::new();
    let end = Instant::now() + WINDOW;
    while Instant::now() < end {
        let appends: Vec<Append> = heads.iter_mut().map(|head| transition(head, &body)).collect();
        let begin = Instant::now();
        let answers = runs.append(&appends).await.unwrap();
        took.push(begin.elapsed());
        assert!(answers.iter().all(|answer| *answer == Appended::Done));
    }
    took
}

/// The next append of a run; every eleventh begins a new run, as with runs of ten steps.
fn transition(head: &mut (RunId, u64, ExecutionId), body: &Json) -> Append {
    if head.1 == 11 {
        *head = (RunId(Uuid::now_v7()), 0, head.2);
    }
    let (run_id, expected, open) = *head;
    let next = ExecutionId(Uuid::now_v7());
    *head = (run_id, expected + 1, next);
    let create = (expected == 0).then(|| NewRun {
        process_id: ProcessId(Uuid::nil()),
        process_revision: 1,
        workspace_id: "default".into(),
        user_id: "local".into(),
        idempotency_key: None,
    });
    Append {
        close: if create.is_none() { vec![open] } else { Vec::new() },
        create,
        events: vec![NewEvent { kind: "step_finished".into(), body: body.clone() }],
        open: vec![NewAttempt {
            execution_id: next,
            node_path: NodePath("w-1".into()),
            node_type: "plugin.text.upper".into(),
            attempt: 1,
            lane: "plugin".into(),
            state: AttemptState::Queued,
            deadline: Some(Millis(i64::MAX)),
        }],
        ..Append::new(run_id, expected, RunStatus::Running, Millis(1))
    }
}
