//! Deleting runs that have ended.

use crate::{attempt, attempts::scheduled, event, id, start, step, suite};
use contract::{ExecutionId, Millis, ProcessId, RunId, run::RunStatus};
use storage::{
    Storage,
    runs::{Append, Appended, Prunable, new_execution_id},
};

suite!(
    a_pruned_run_is_gone_with_its_events_its_attempts_and_its_key,
    running_runs_are_never_pruned,
    runs_that_ended_before_a_moment_are_found_page_by_page,
    a_run_with_a_key_stays_until_its_key_may_be_forgotten,
    of_a_process_the_newest_runs_are_kept,
    a_long_history_goes_by_parts,
    two_pruners_at_once_do_no_harm,
    attempts_are_deleted_only_when_their_run_is_gone,
    what_comes_for_a_pruned_run_finds_no_run,
    processes_with_runs_are_told_one_after_the_other,
);

const EVERYTHING: Prunable = Prunable { ended_before: Millis(i64::MAX), keyed_before: Millis(i64::MAX) };

async fn one(storage: &Storage, append: Append) {
    assert_eq!(storage.runs().append(&[append]).await.unwrap(), [Appended::Done]);
}

struct Made {
    run_id: RunId,
    execution_id: ExecutionId,
}

/// A run with one attempt that ended at a moment (`None`: it still runs).
async fn made(storage: &Storage, process_id: ProcessId, key: Option<&str>, ended: Option<i64>) -> Made {
    let run_id = RunId(id());
    let made = Made { run_id, execution_id: new_execution_id(run_id) };
    let mut first = Append {
        open: vec![attempt(made.execution_id, None)],
        events: vec![scheduled(&[made.execution_id])],
        ..start(run_id)
    };
    if let Some(run) = &mut first.create {
        run.process_id = process_id;
        run.idempotency_key = key.map(str::to_owned);
    }
    one(storage, first).await;
    if let Some(ended) = ended {
        let status = RunStatus::Finished;
        let close = vec![made.execution_id];
        one(storage, Append { status, close, finished_at: Some(Millis(ended)), ..step(made.run_id, 1) })
            .await;
    }
    made
}

/// Drops everything that is left of pruned runs.
async fn drop_all(storage: &Storage) {
    while storage.runs().drop_events(100).await.unwrap() {}
    let mut after = None;
    loop {
        after = storage.runs().drop_attempts(after, None, 2).await.unwrap().next;
        if after.is_none() {
            return;
        }
    }
}

async fn a_pruned_run_is_gone_with_its_events_its_attempts_and_its_key(storage: Storage) {
    let process_id = ProcessId(id());
    let gone = made(&storage, process_id, Some("k"), Some(5)).await;
    let kept = made(&storage, process_id, None, Some(5)).await;
    let runs = storage.runs();
    assert_eq!(runs.prune(&[gone.run_id]).await.unwrap(), 1);
    // At once there is no such run, and its key is free.
    assert!(runs.load(gone.run_id).await.unwrap().is_none());
    assert_eq!(runs.with_key(process_id, "k").await.unwrap(), None);
    drop_all(&storage).await;
    assert!(runs.events(gone.run_id, 0, 10, u32::MAX).await.unwrap().is_empty());
    let attempts = runs.run_of(&[gone.execution_id, kept.execution_id]).await.unwrap();
    assert_eq!(attempts, [None, Some(kept.run_id)]);
    assert_eq!(runs.load(kept.run_id).await.unwrap().unwrap().events.len(), 2);
    let again = made(&storage, process_id, Some("k"), None).await;
    assert_eq!(runs.with_key(process_id, "k").await.unwrap(), Some(again.run_id));
}

async fn running_runs_are_never_pruned(storage: Storage) {
    let running = made(&storage, ProcessId(id()), None, None).await;
    let look = storage.runs().prunable(None, EVERYTHING, 100).await.unwrap();
    assert_eq!((look.found, look.next), (vec![], None));
    assert_eq!(storage.runs().prune(&[running.run_id]).await.unwrap(), 0);
    drop_all(&storage).await;
    assert_eq!(storage.runs().load(running.run_id).await.unwrap().unwrap().events.len(), 1);
    assert_eq!(storage.runs().outstanding(running.run_id).await.unwrap().len(), 1);
    assert_eq!(storage.runs().oldest_ended().await.unwrap(), None);
}

async fn runs_that_ended_before_a_moment_are_found_page_by_page(storage: Storage) {
    let process_id = ProcessId(id());
    let mut ids = Vec::new();
    for ended in [Some(10), None, Some(30), Some(20), Some(19)] {
        ids.push(made(&storage, process_id, None, ended).await.run_id);
    }
    let rule = Prunable { ended_before: Millis(20_000_000_000_000), keyed_before: Millis(0) };
    let first = storage.runs().prunable(None, rule, 2).await.unwrap();
    assert_eq!((&first.found, first.next), (&vec![ids[0]], Some(ids[1])));
    let second = storage.runs().prunable(first.next, rule, 2).await.unwrap();
    assert_eq!((&second.found, second.next), (&vec![ids[2], ids[3]], Some(ids[3])));
    let third = storage.runs().prunable(second.next, rule, 2).await.unwrap();
    assert_eq!((&third.found, third.next), (&vec![ids[4]], None));
    assert_eq!(storage.runs().oldest_ended().await.unwrap(), Some(Millis(1_000)));
}

async fn a_run_with_a_key_stays_until_its_key_may_be_forgotten(storage: Storage) {
    let process_id = ProcessId(id());
    let keyed = made(&storage, process_id, Some("k"), Some(100)).await.run_id;
    let other = made(&storage, process_id, None, Some(100)).await.run_id;
    let newest = made(&storage, process_id, None, Some(100)).await.run_id;
    let runs = storage.runs();
    let found = async |keyed_before| {
        let rule = Prunable { ended_before: Millis(i64::MAX), keyed_before: Millis(keyed_before) };
        runs.prunable(None, rule, 10).await.unwrap().found
    };
    assert_eq!(found(100).await, [other, newest]);
    assert_eq!(found(101).await, [keyed, other, newest]);
    assert_eq!(runs.beyond_newest(process_id, 1, Millis(100), 10).await.unwrap(), [other]);
    assert_eq!(runs.beyond_newest(process_id, 1, Millis(101), 10).await.unwrap(), [keyed, other]);
}

async fn of_a_process_the_newest_runs_are_kept(storage: Storage) {
    let (process_id, other) = (ProcessId(id()), ProcessId(id()));
    let mut ids = Vec::new();
    for ended in [Some(5), None, Some(5), Some(5), Some(5)] {
        ids.push(made(&storage, process_id, None, ended).await.run_id);
        made(&storage, other, None, Some(5)).await;
    }
    let runs = storage.runs();
    let beyond = async |keep, limit| runs.beyond_newest(process_id, keep, Millis(0), limit).await.unwrap();
    // The running one has its place among the newest, but does not go.
    assert_eq!(beyond(2, 10).await, [ids[0], ids[2]]);
    assert_eq!(beyond(2, 1).await, [ids[0]]);
    assert!(beyond(5, 10).await.is_empty());
}

async fn a_long_history_goes_by_parts(storage: Storage) {
    let long = made(&storage, ProcessId(id()), None, None).await.run_id;
    let events = (0..250).map(|_| event("1")).collect();
    one(
        &storage,
        Append { events, status: RunStatus::Failed, finished_at: Some(Millis(5)), ..step(long, 1) },
    )
    .await;
    let short = made(&storage, ProcessId(id()), None, Some(5)).await.run_id;
    let runs = storage.runs();
    assert_eq!(runs.prune(&[long, short]).await.unwrap(), 2);
    let left = async |run_id| runs.events(run_id, 0, 1000, u32::MAX).await.unwrap().len();
    assert_eq!((left(long).await, left(short).await), (251, 2));
    assert!(runs.drop_events(100).await.unwrap());
    assert_eq!((left(long).await, left(short).await), (151, 2));
    assert!(runs.drop_events(100).await.unwrap());
    assert!(runs.drop_events(100).await.unwrap());
    assert_eq!((left(long).await, left(short).await), (0, 0));
    assert!(!runs.drop_events(100).await.unwrap());
}

async fn two_pruners_at_once_do_no_harm(storage: Storage) {
    let process_id = ProcessId(id());
    let mut ids = Vec::new();
    for _ in 0..30 {
        ids.push(made(&storage, process_id, None, Some(5)).await.run_id);
    }
    let kept = made(&storage, process_id, None, None).await;
    let pruner = || {
        let (storage, ids) = (storage.clone(), ids.clone());
        tokio::spawn(async move {
            let mut pruned = 0;
            for part in ids.chunks(7) {
                pruned += storage.runs().prune(part).await.unwrap();
                storage.runs().drop_events(3).await.unwrap();
            }
            drop_all(&storage).await;
            pruned
        })
    };
    let (one, two) = (pruner(), pruner());
    assert_eq!(one.await.unwrap() + two.await.unwrap(), 30);
    drop_all(&storage).await;
    for run_id in ids {
        assert!(storage.runs().events(run_id, 0, 10, u32::MAX).await.unwrap().is_empty());
    }
    assert_eq!(storage.runs().outstanding(kept.run_id).await.unwrap().len(), 1);
}

async fn attempts_are_deleted_only_when_their_run_is_gone(storage: Storage) {
    let process_id = ProcessId(id());
    let (kept, gone) =
        (made(&storage, process_id, None, None).await, made(&storage, process_id, None, None).await);
    // Rows of ended attempts were left by versions that kept them, and are left by runs that end so.
    for run_id in [kept.run_id, gone.run_id] {
        let end = Append { status: RunStatus::Finished, finished_at: Some(Millis(5)), ..step(run_id, 1) };
        one(&storage, end).await;
    }
    let runs = storage.runs();
    runs.prune(&[gone.run_id]).await.unwrap();
    let before = runs.drop_attempts(None, Some(Millis(0)), 10).await.unwrap();
    assert_eq!((before.found, before.next), (0, None), "none were made before");
    let first = runs.drop_attempts(None, None, 1).await.unwrap();
    assert_eq!((first.found, first.next), (0, Some(kept.execution_id)));
    let second = runs.drop_attempts(first.next, None, 1).await.unwrap();
    assert_eq!((second.found, second.next), (1, Some(gone.execution_id)));
    assert_eq!(runs.run_of(&[kept.execution_id]).await.unwrap(), [Some(kept.run_id)]);
}

async fn what_comes_for_a_pruned_run_finds_no_run(storage: Storage) {
    let gone = made(&storage, ProcessId(id()), None, Some(5)).await;
    storage.runs().prune(&[gone.run_id]).await.unwrap();
    let late = Append { status: RunStatus::Finished, ..step(gone.run_id, 2) };
    assert_eq!(storage.runs().append(&[late]).await.unwrap(), [Appended::Conflict]);
    assert!(storage.runs().load(gone.run_id).await.unwrap().is_none());
    assert_eq!(storage.runs().live(gone.execution_id).await.unwrap(), None);
}

async fn processes_with_runs_are_told_one_after_the_other(storage: Storage) {
    let mut processes = [ProcessId(id()), ProcessId(id())];
    processes.sort();
    for process_id in processes.iter().chain(&processes) {
        made(&storage, *process_id, None, None).await;
    }
    let runs = storage.runs();
    assert_eq!(runs.next_process(None).await.unwrap(), Some(processes[0]));
    assert_eq!(runs.next_process(Some(processes[0])).await.unwrap(), Some(processes[1]));
    assert_eq!(runs.next_process(Some(processes[1])).await.unwrap(), None);
}

#[tokio::test]
async fn an_sqlite_file_reuses_the_space_of_pruned_runs() {
    let (storage, folder) = crate::sqlite().await;
    let pages = async || -> i64 {
        let pool = sqlx::SqlitePool::connect(&crate::sqlite_url(&folder)).await.unwrap();
        let pages = sqlx::query_scalar("PRAGMA page_count").fetch_one(&pool).await.unwrap();
        pool.close().await;
        pages
    };
    let body = format!("\"{}\"", "x".repeat(4_000));
    let fill = async || {
        let mut ids = Vec::new();
        for _ in 0..50 {
            let run_id = RunId(id());
            one(&storage, start(run_id)).await;
            let events = (0..10).map(|_| event(&body)).collect();
            let status = RunStatus::Finished;
            one(&storage, Append { events, status, finished_at: Some(Millis(5)), ..step(run_id, 1) }).await;
            ids.push(run_id);
        }
        ids
    };
    let mut ids = fill().await;
    let full = pages().await;
    for _ in 0..3 {
        assert_eq!(storage.runs().prune(&ids).await.unwrap(), 50);
        drop_all(&storage).await;
        ids = fill().await;
    }
    let grown = pages().await;
    assert!(grown <= full + full / 10, "{full} pages became {grown}");
    storage.close().await;
}
