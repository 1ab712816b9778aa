//! How many runs of a process may be running at the same time.

use crate::{id, start, step, suite};
use contract::{ProcessId, RunId, run::RunStatus};
use futures::future::join_all;
use storage::{
    Storage,
    runs::{Append, Appended},
};

suite!(
    of_simultaneous_starts_exactly_as_many_succeed_as_the_limit_allows,
    a_place_is_free_when_its_run_has_ended,
    a_repeated_start_is_no_start_also_when_all_places_are_taken,
    runs_that_were_started_without_a_limit_count_from_a_new_revision_on,
    processes_do_not_share_their_limits,
    a_batch_of_limited_and_other_starts_is_answered_in_its_order,
    running_places_are_told_and_a_run_is_found_by_its_key,
);

fn limited(process_id: ProcessId, run_id: RunId, most: u32, key: Option<&str>) -> Append {
    let mut append = Append { max_running: Some(most), ..start(run_id) };
    if let Some(run) = &mut append.create {
        run.process_id = process_id;
        run.idempotency_key = key.map(str::to_owned);
    }
    append
}

async fn one(storage: &Storage, append: Append) -> Appended {
    storage.runs().append(&[append]).await.unwrap()[0]
}

async fn finish(storage: &Storage, run_id: RunId) {
    let end = Append { status: RunStatus::Finished, ..step(run_id, 1) };
    assert_eq!(one(storage, end).await, Appended::Done);
}

async fn of_simultaneous_starts_exactly_as_many_succeed_as_the_limit_allows(storage: Storage) {
    let process_id = ProcessId(id());
    let starts = (0..8).map(|_| {
        let storage = storage.clone();
        let batch: Vec<Append> = (0..5).map(|_| limited(process_id, RunId(id()), 7, None)).collect();
        tokio::spawn(async move {
            let answers = storage.runs().append(&batch).await.unwrap();
            batch.iter().zip(answers).map(|(append, answer)| (append.run_id, answer)).collect::<Vec<_>>()
        })
    });
    let answers: Vec<_> = join_all(starts).await.into_iter().flat_map(Result::unwrap).collect();
    let (done, full): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|(_, answer)| *answer == Appended::Done);
    assert_eq!((done.len(), full.len()), (7, 33));
    assert!(full.iter().all(|(_, answer)| *answer == Appended::Full));
    for (run_id, _) in full {
        assert!(storage.runs().load(run_id).await.unwrap().is_none(), "nothing of a refused start is stored");
    }
    for (run_id, _) in done {
        assert_eq!(storage.runs().load(run_id).await.unwrap().unwrap().events.len(), 1);
    }
}

async fn a_place_is_free_when_its_run_has_ended(storage: Storage) {
    let process_id = ProcessId(id());
    let (first, second, third) = (RunId(id()), RunId(id()), RunId(id()));
    assert_eq!(one(&storage, limited(process_id, first, 1, None)).await, Appended::Done);
    assert_eq!(one(&storage, limited(process_id, second, 1, None)).await, Appended::Full);
    finish(&storage, first).await;
    assert_eq!(one(&storage, limited(process_id, second, 1, None)).await, Appended::Done);
    storage.runs().prune(&[first]).await.unwrap();
    assert_eq!(one(&storage, limited(process_id, third, 1, None)).await, Appended::Full);
    assert_eq!(one(&storage, limited(process_id, third, 2, None)).await, Appended::Done, "a higher limit");
}

async fn a_repeated_start_is_no_start_also_when_all_places_are_taken(storage: Storage) {
    let process_id = ProcessId(id());
    let (first, other) = (RunId(id()), RunId(id()));
    assert_eq!(one(&storage, limited(process_id, first, 1, Some("k"))).await, Appended::Done);
    assert_eq!(one(&storage, limited(process_id, other, 1, Some("k"))).await, Appended::Exists(first));
    assert_eq!(one(&storage, limited(process_id, first, 1, None)).await, Appended::Exists(first));
    assert_eq!(one(&storage, limited(process_id, other, 1, Some("l"))).await, Appended::Full);
}

async fn runs_that_were_started_without_a_limit_count_from_a_new_revision_on(storage: Storage) {
    let process_id = ProcessId(id());
    let mut free = limited(process_id, RunId(id()), 1, None);
    free.max_running = None;
    assert_eq!(one(&storage, free).await, Appended::Done);
    let mut next = limited(process_id, RunId(id()), 1, None);
    next.create.as_mut().unwrap().process_revision = 2;
    assert_eq!(one(&storage, next).await, Appended::Full);
}

async fn processes_do_not_share_their_limits(storage: Storage) {
    for _ in 0..3 {
        assert_eq!(one(&storage, limited(ProcessId(id()), RunId(id()), 1, None)).await, Appended::Done);
    }
}

async fn a_batch_of_limited_and_other_starts_is_answered_in_its_order(storage: Storage) {
    let (one, two) = (ProcessId(id()), ProcessId(id()));
    let running = RunId(id());
    storage.runs().append(&[start(running)]).await.unwrap();
    let batch = [
        limited(two, RunId(id()), 1, None),
        step(running, 1),
        limited(one, RunId(id()), 1, None),
        start(RunId(id())),
        limited(two, RunId(id()), 1, None),
        step(running, 2),
        step(running, 9),
    ];
    assert_eq!(
        storage.runs().append(&batch).await.unwrap(),
        [
            Appended::Done,
            Appended::Done,
            Appended::Done,
            Appended::Done,
            Appended::Full,
            Appended::Done,
            Appended::Conflict,
        ]
    );
}

async fn running_places_are_told_and_a_run_is_found_by_its_key(storage: Storage) {
    let process_id = ProcessId(id());
    let ids = [RunId(id()), RunId(id())];
    let starts = [limited(process_id, ids[0], 9, Some("k")), limited(process_id, ids[1], 9, None)];
    let runs = storage.runs();
    runs.append(&starts).await.unwrap();
    assert_eq!(runs.running_places(process_id).await.unwrap(), 2);
    finish(&storage, ids[1]).await;
    assert_eq!(runs.running_places(process_id).await.unwrap(), 1);
    assert_eq!(runs.with_key(process_id, "k").await.unwrap(), Some(ids[0]));
    assert_eq!(runs.with_key(process_id, "other").await.unwrap(), None);
}
