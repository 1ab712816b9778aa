//! Appending: compare and swap, batches, payloads.

use crate::{event, id, json, start, step, suite};
use contract::{Millis, ProcessId, RunId, run::RunStatus};
use futures::future::join_all;
use storage::{
    Error, Storage,
    runs::{Append, Appended, AttemptUpdate, History, NewEvent, Page, RunRow},
};

suite!(
    a_run_is_what_was_appended,
    an_append_that_saw_an_older_sequence_conflicts_and_stores_nothing,
    an_append_to_an_unknown_run_conflicts,
    of_eight_appenders_exactly_one_wins_each_sequence_number,
    a_batch_with_a_conflicting_run_stores_the_others,
    appends_of_one_run_in_a_batch_take_effect_in_order,
    large_batches_are_stored_whole,
    crossing_batches_of_two_engines_do_not_hinder_each_other,
    an_idempotency_key_starts_one_run_per_process,
    of_eight_starts_with_one_key_one_creates_the_run,
    the_same_start_again_names_its_run,
    a_late_result_keeps_the_end_of_the_run,
    payloads_come_back_byte_by_byte,
    a_body_of_a_mebibyte_is_stored,
    events_are_paged_by_sequence,
    a_page_of_events_is_bounded_by_their_bytes_but_has_one_in_any_case,
    a_history_is_read_by_pages_bounded_in_events_and_bytes_however_long_it_is,
    a_history_ends_where_its_run_stood_when_the_reading_began,
    the_history_of_a_run_that_is_deleted_meanwhile_is_gone,
);

async fn one(storage: &Storage, append: Append) -> Appended {
    storage.runs().append(&[append]).await.unwrap()[0]
}

async fn started(storage: &Storage) -> RunId {
    let run_id = RunId(id());
    assert_eq!(one(storage, start(run_id)).await, Appended::Done);
    run_id
}

async fn a_run_is_what_was_appended(storage: Storage) {
    let run_id = RunId(id());
    let mut first = start(run_id);
    first.create.as_mut().unwrap().idempotency_key = Some("key".into());
    assert_eq!(one(&storage, first).await, Appended::Done);
    let last = Append {
        status: RunStatus::Failed,
        finished_at: Some(Millis(3_000)),
        error: Some(json(r#"{"code":"step_failed"}"#)),
        events: vec![event("1"), event("2")],
        at: Millis(3_000),
        ..step(run_id, 1)
    };
    assert_eq!(one(&storage, last).await, Appended::Done);

    let stored = storage.runs().load(run_id).await.unwrap().unwrap();
    let expected = RunRow {
        run_id,
        process_id: ProcessId(uuid::Uuid::from_u128(1)),
        process_revision: 1,
        workspace_id: "default".into(),
        user_id: "local".into(),
        status: RunStatus::Failed,
        sequence: 3,
        created_at: Millis(1_000),
        updated_at: Millis(3_000),
        finished_at: Some(Millis(3_000)),
        error: Some(json(r#"{"code":"step_failed"}"#)),
        idempotency_key: Some("key".into()),
    };
    assert_eq!(stored.run, expected);
    assert_eq!(storage.runs().get(run_id).await.unwrap().unwrap(), expected);
    let events: Vec<_> = stored.events.iter().map(|event| (event.sequence, event.body.text())).collect();
    assert_eq!(events, [(1, "{}"), (2, "1"), (3, "2")]);
    assert_eq!((stored.events[0].kind.as_str(), stored.events[1].at), ("run_started", Millis(3_000)));
    assert!(storage.runs().load(RunId(id())).await.unwrap().is_none());
}

async fn an_append_that_saw_an_older_sequence_conflicts_and_stores_nothing(storage: Storage) {
    let run_id = started(&storage).await;
    assert_eq!(one(&storage, step(run_id, 1)).await, Appended::Done);
    let mut late = step(run_id, 1);
    late.status = RunStatus::Canceled;
    let execution_id = contract::ExecutionId(id());
    late.open.push(crate::attempt(execution_id, None));
    assert_eq!(one(&storage, late).await, Appended::Conflict);
    let stored = storage.runs().load(run_id).await.unwrap().unwrap();
    assert_eq!((stored.run.status, stored.events.len()), (RunStatus::Running, 2));
    assert_eq!(storage.runs().run_of(&[execution_id]).await.unwrap(), [None]);
}

async fn an_append_to_an_unknown_run_conflicts(storage: Storage) {
    assert_eq!(one(&storage, step(RunId(id()), 0)).await, Appended::Conflict);
}

async fn of_eight_appenders_exactly_one_wins_each_sequence_number(storage: Storage) {
    const ROUNDS: u64 = 10;
    let run_id = started(&storage).await;
    for expected in 1..=ROUNDS {
        let tries = (0..8).map(|who| {
            let storage = storage.clone();
            tokio::spawn(async move {
                let append = Append { events: vec![event(&who.to_string())], ..step(run_id, expected) };
                (who, one(&storage, append).await)
            })
        });
        let results = join_all(tries).await.into_iter().map(Result::unwrap);
        let winners: Vec<i32> =
            results.filter(|(_, answer)| *answer == Appended::Done).map(|(who, _)| who).collect();
        let [winner] = winners.as_slice() else { panic!("winners of {expected}: {winners:?}") };
        let stored = storage.runs().load(run_id).await.unwrap().unwrap();
        assert_eq!(stored.events.last().unwrap().body.text(), winner.to_string());
    }
}

async fn a_batch_with_a_conflicting_run_stores_the_others(storage: Storage) {
    let (a, b, c) = (started(&storage).await, started(&storage).await, RunId(id()));
    let batch = [step(a, 1), step(b, 7), start(c)];
    let answers = storage.runs().append(&batch).await.unwrap();
    assert_eq!(answers, [Appended::Done, Appended::Conflict, Appended::Done]);
    let sequence = async |run| storage.runs().get(run).await.unwrap().unwrap().sequence;
    assert_eq!((sequence(a).await, sequence(b).await, sequence(c).await), (2, 1, 1));
    assert_eq!(storage.runs().load(b).await.unwrap().unwrap().events.len(), 1);
}

async fn appends_of_one_run_in_a_batch_take_effect_in_order(storage: Storage) {
    let run_id = RunId(id());
    let batch = [start(run_id), step(run_id, 1), step(run_id, 1), step(run_id, 2)];
    let answers = storage.runs().append(&batch).await.unwrap();
    assert_eq!(answers, [Appended::Done, Appended::Done, Appended::Conflict, Appended::Done]);
    assert_eq!(storage.runs().load(run_id).await.unwrap().unwrap().events.len(), 3);
}

async fn large_batches_are_stored_whole(storage: Storage) {
    let runs: Vec<RunId> = (0..333).map(|_| RunId(id())).collect();
    let starts: Vec<_> = runs.iter().map(|run_id| start(*run_id)).collect();
    assert!(storage.runs().append(&starts).await.unwrap().iter().all(|answer| *answer == Appended::Done));
    let steps: Vec<_> = runs
        .iter()
        .map(|run_id| {
            let mut append = step(*run_id, 1);
            append.open.push(crate::attempt(contract::ExecutionId(id()), None));
            append
        })
        .collect();
    assert!(storage.runs().append(&steps).await.unwrap().iter().all(|answer| *answer == Appended::Done));
    let closes: Vec<_> = steps
        .iter()
        .map(|opened| {
            let mut append = step(opened.run_id, 2);
            append.close.push(opened.open[0].execution_id);
            append
        })
        .collect();
    assert_eq!(storage.runs().outstanding_count().await.unwrap(), 333);
    assert!(storage.runs().append(&closes).await.unwrap().iter().all(|answer| *answer == Appended::Done));
    assert_eq!(storage.runs().outstanding_count().await.unwrap(), 0);
    for run_id in runs.iter().step_by(50) {
        assert_eq!(storage.runs().load(*run_id).await.unwrap().unwrap().events.len(), 3);
    }
}

async fn crossing_batches_of_two_engines_do_not_hinder_each_other(storage: Storage) {
    let runs: Vec<RunId> = join_all((0..20).map(|_| started(&storage))).await;
    let engine = |order: Vec<RunId>| {
        let storage = storage.clone();
        tokio::spawn(async move {
            for _ in 0..10 {
                let rows = join_all(
                    order.iter().map(|run| async { storage.runs().get(*run).await.unwrap().unwrap() }),
                );
                let batch: Vec<_> = rows.await.iter().map(|row| step(row.run_id, row.sequence)).collect();
                storage.runs().append(&batch).await.unwrap();
            }
        })
    };
    let backwards: Vec<RunId> = runs.iter().rev().copied().collect();
    for ended in join_all([engine(runs.clone()), engine(backwards)]).await {
        ended.unwrap();
    }
    for run_id in runs {
        assert!(storage.runs().load(run_id).await.unwrap().unwrap().run.sequence > 10);
    }
}

fn keyed(key: &str, process: u128) -> Append {
    let mut append = start(RunId(id()));
    let new = append.create.as_mut().unwrap();
    new.idempotency_key = Some(key.into());
    new.process_id = ProcessId(uuid::Uuid::from_u128(process));
    append
}

async fn an_idempotency_key_starts_one_run_per_process(storage: Storage) {
    let first = keyed("a", 1);
    let first_id = first.run_id;
    let batch = [first, keyed("a", 1), keyed("a", 2), keyed("b", 1)];
    let answers = storage.runs().append(&batch).await.unwrap();
    let winner = answers.iter().position(|answer| *answer == Appended::Done).unwrap();
    assert_eq!(winner, 0, "the first of the batch: {answers:?}");
    assert_eq!(answers[1], Appended::Exists(first_id));
    assert_eq!(answers[2..], [Appended::Done, Appended::Done]);
    assert_eq!(one(&storage, keyed("a", 1)).await, Appended::Exists(first_id));
    assert!(storage.runs().load(batch[1].run_id).await.unwrap().is_none());
    assert!(storage.runs().events(batch[1].run_id, 0, 10, u32::MAX).await.unwrap().is_empty());
}

async fn of_eight_starts_with_one_key_one_creates_the_run(storage: Storage) {
    let tries = (0..8).map(|_| {
        let storage = storage.clone();
        tokio::spawn(async move {
            let append = keyed("race", 1);
            (append.run_id, one(&storage, append).await)
        })
    });
    let results: Vec<_> = join_all(tries).await.into_iter().map(Result::unwrap).collect();
    let winners: Vec<_> = results.iter().filter(|(_, answer)| *answer == Appended::Done).collect();
    let [(winner, _)] = winners.as_slice() else { panic!("{results:?}") };
    for (run_id, answer) in &results {
        assert!(run_id == winner || *answer == Appended::Exists(*winner), "{results:?}");
    }
}

async fn the_same_start_again_names_its_run(storage: Storage) {
    let append = start(RunId(id()));
    assert_eq!(one(&storage, append.clone()).await, Appended::Done);
    assert_eq!(one(&storage, append.clone()).await, Appended::Exists(append.run_id));
    assert_eq!(storage.runs().load(append.run_id).await.unwrap().unwrap().events.len(), 1);
}

async fn a_late_result_keeps_the_end_of_the_run(storage: Storage) {
    let run_id = started(&storage).await;
    let end = Append {
        status: RunStatus::Canceled,
        finished_at: Some(Millis(5)),
        error: Some(json("{}")),
        ..step(run_id, 1)
    };
    assert_eq!(one(&storage, end).await, Appended::Done);
    let late = Append { status: RunStatus::Canceled, ..step(run_id, 2) };
    assert_eq!(one(&storage, late).await, Appended::Done);
    let run = storage.runs().get(run_id).await.unwrap().unwrap();
    assert_eq!((run.finished_at, run.error, run.sequence), (Some(Millis(5)), Some(json("{}")), 3));
}

async fn payloads_come_back_byte_by_byte(storage: Storage) {
    let texts = [
        r#"{"b":12345678901234567890123, "a" : 1.0, "a":1e400}"#,
        r#""\ud800 \u0000 \u00e9""#,
        "\"Ünïcödé — 日本語 — 🚀\"",
        "null",
        r#"[ -0, -0.0, 1E5 ]"#,
    ];
    let run_id = started(&storage).await;
    let append = Append { events: texts.iter().map(|text| event(text)).collect(), ..step(run_id, 1) };
    assert_eq!(one(&storage, append).await, Appended::Done);
    let stored = storage.runs().load(run_id).await.unwrap().unwrap();
    let bodies: Vec<&str> = stored.events[1..].iter().map(|event| event.body.text()).collect();
    assert_eq!(bodies, texts);
}

async fn a_body_of_a_mebibyte_is_stored(storage: Storage) {
    let run_id = started(&storage).await;
    let text = format!("\"{}\"", "é".repeat(1 << 19));
    let append = Append { events: vec![event(&text)], ..step(run_id, 1) };
    assert_eq!(one(&storage, append).await, Appended::Done);
    let stored = storage.runs().load(run_id).await.unwrap().unwrap();
    assert!(stored.events[1].body.text() == text);
}

async fn events_are_paged_by_sequence(storage: Storage) {
    let run_id = started(&storage).await;
    let events: Vec<NewEvent> = (2..=9).map(|n| event(&n.to_string())).collect();
    assert_eq!(one(&storage, Append { events, ..step(run_id, 1) }).await, Appended::Done);
    let page = storage.runs().events(run_id, 4, 3, u32::MAX).await.unwrap();
    assert_eq!(page.iter().map(|event| event.sequence).collect::<Vec<_>>(), [5, 6, 7]);
    assert!(storage.runs().events(run_id, 9, 3, u32::MAX).await.unwrap().is_empty());
}

async fn a_page_of_events_is_bounded_by_their_bytes_but_has_one_in_any_case(storage: Storage) {
    let run_id = started(&storage).await;
    let text = |bytes: usize| format!("\"{}\"", "ж".repeat((bytes - 2) / 2));
    let events = [100, 100, 100, 1_000, 100].map(|bytes| event(&text(bytes))).to_vec();
    assert_eq!(one(&storage, Append { events, ..step(run_id, 1) }).await, Appended::Done);
    let page = async |after, bytes| {
        let events = storage.runs().events(run_id, after, 100, bytes).await.unwrap();
        events.iter().map(|event| event.sequence).collect::<Vec<_>>()
    };
    assert_eq!(page(1, 299).await, [2, 3]);
    assert_eq!(page(1, 300).await, [2, 3, 4]);
    assert_eq!(page(4, 300).await, [5], "one that is larger than a page comes alone");
    assert_eq!(page(5, 300).await, [6]);
}

/// The pages of a run: how many events and how many bytes each has.
async fn pages(history: &mut History) -> Vec<(u64, usize)> {
    let mut found = Vec::new();
    let mut next = 1;
    loop {
        match history.next().await.unwrap() {
            Page::Events(events) => {
                for event in &events {
                    assert_eq!(event.sequence, next, "in order and without gaps");
                    next += 1;
                }
                let bytes = events.iter().map(|event| event.body.text().len()).sum();
                found.push((u64::try_from(events.len()).unwrap(), bytes));
            }
            Page::End => return found,
            Page::Gone => panic!("the run is there"),
        }
    }
}

async fn a_history_is_read_by_pages_bounded_in_events_and_bytes_however_long_it_is(storage: Storage) {
    const MIB: usize = 1024 * 1024;
    let run_id = started(&storage).await;
    let small: Vec<NewEvent> = (2..=2_500).map(|n| event(&n.to_string())).collect();
    assert_eq!(one(&storage, Append { events: small, ..step(run_id, 1) }).await, Appended::Done);
    let large = [1, 1, 1, 1, 1, 5, 1].map(|mib: usize| event(&format!("\"{}\"", "x".repeat(mib * MIB - 2))));
    assert_eq!(one(&storage, Append { events: large.to_vec(), ..step(run_id, 2_500) }).await, Appended::Done);
    let mut history = storage.runs().history(run_id).await.unwrap().unwrap();
    assert_eq!(history.run().sequence, 2_507);
    let pages = pages(&mut history).await;
    let events: Vec<u64> = pages.iter().map(|(events, _)| *events).collect();
    assert_eq!(events, [1_000, 1_000, 503, 2, 1, 1]);
    assert!(pages.iter().all(|(events, bytes)| *bytes <= 4 * MIB || *events == 1), "{pages:?}");
}

async fn a_history_ends_where_its_run_stood_when_the_reading_began(storage: Storage) {
    let run_id = started(&storage).await;
    let events: Vec<NewEvent> = (2..=1_500).map(|n| event(&n.to_string())).collect();
    assert_eq!(one(&storage, Append { events, ..step(run_id, 1) }).await, Appended::Done);
    let mut history = storage.runs().history(run_id).await.unwrap().unwrap();
    assert_eq!(one(&storage, step(run_id, 1_500)).await, Appended::Done);
    let read: u64 = pages(&mut history).await.iter().map(|(events, _)| events).sum();
    assert_eq!(read, 1_500);
}

async fn the_history_of_a_run_that_is_deleted_meanwhile_is_gone(storage: Storage) {
    let run_id = started(&storage).await;
    let events: Vec<NewEvent> = (2..=1_500).map(|n| event(&n.to_string())).collect();
    let ended =
        Append { events, status: RunStatus::Finished, finished_at: Some(Millis(3_000)), ..step(run_id, 1) };
    assert_eq!(one(&storage, ended).await, Appended::Done);
    let mut history = storage.runs().history(run_id).await.unwrap().unwrap();
    assert!(matches!(history.next().await.unwrap(), Page::Events(_)));
    assert_eq!(storage.runs().prune(&[run_id]).await.unwrap(), 1);
    while storage.runs().drop_events(1_000).await.unwrap() {}
    assert_eq!(history.next().await.unwrap(), Page::Gone);
}

/// Not of the suite: what SQLite and PostgreSQL cannot be asked the same way.
#[tokio::test]
async fn a_run_with_missing_events_is_corrupt_and_named() {
    let (storage, folder) = crate::sqlite().await;
    let run_id = started(&storage).await;
    assert_eq!(one(&storage, step(run_id, 1)).await, Appended::Done);
    let pool = sqlx::SqlitePool::connect(&crate::sqlite_url(&folder)).await.unwrap();
    sqlx::query("DELETE FROM run_events WHERE sequence = 1").execute(&pool).await.unwrap();
    let error = storage.runs().load(run_id).await.unwrap_err();
    assert!(matches!(&error, Error::Corrupt { what, .. } if what.contains(&run_id.to_string())), "{error}");
    // An attempt without a row is not invented by an update.
    let update = AttemptUpdate::new(contract::ExecutionId(id()));
    let append = Append { events: Vec::new(), update: vec![update], ..step(run_id, 0) };
    assert_eq!(one(&storage, append).await, Appended::Done);
}
