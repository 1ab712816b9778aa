//! Files of runs, and what running steps say.

use crate::{attempts::with_attempts, step, suite};
use contract::{Digest, Json, Millis, NodePath, RunId, run::RunStatus};
use storage::{
    BlobRow, OrphanedFile, Storage,
    runs::{Append, AttemptUpdate, StepWord},
};
use uuid::Uuid;

suite!(
    a_file_of_a_run_is_given_to_its_owners_only,
    owners_of_runs_that_are_gone_are_found_after_a_while,
    an_attempt_is_placed_by_its_id_also_when_it_has_ended,
    running_steps_say_how_far_they_are,
);

fn blob(id: &str) -> BlobRow {
    BlobRow {
        file_id: id.into(),
        workspace_id: "w".into(),
        name: "o".into(),
        media_type: "application/json".into(),
        size: 5,
        digest: Digest([7; 32]),
        created_at: Millis(100),
    }
}

fn run(n: u128) -> RunId {
    RunId(Uuid::from_u128(n))
}

async fn a_file_of_a_run_is_given_to_its_owners_only(storage: Storage) {
    let blobs = storage.blobs();
    let (one, other) = (run(11), run(12));
    blobs.put_of_run(one, &blob("f-1")).await.unwrap();
    blobs.put_of_run(one, &BlobRow { name: "later".into(), ..blob("f-1") }).await.unwrap();
    assert_eq!(blobs.of_run(one, "f-1").await.unwrap(), Some(blob("f-1")), "what is there stays");
    assert_eq!(blobs.of_run(other, "f-1").await.unwrap(), None);
    blobs.share(one, other, Millis(200)).await.unwrap();
    blobs.share(one, other, Millis(300)).await.unwrap();
    assert_eq!(blobs.of_run(other, "f-1").await.unwrap(), Some(blob("f-1")));
    blobs.disown(one, "f-1").await.unwrap();
    assert_eq!(blobs.of_run(one, "f-1").await.unwrap(), None);
    assert!(blobs.of_run(other, "f-1").await.unwrap().is_some());
}

async fn owners_of_runs_that_are_gone_are_found_after_a_while(storage: Storage) {
    let blobs = storage.blobs();
    let (here, _) = with_attempts(&storage, &[None]).await;
    let gone = run(11);
    for owner in [here, gone] {
        blobs.put_of_run(owner, &blob("f-1")).await.unwrap();
    }
    blobs.put_of_run(gone, &blob("f-2")).await.unwrap();
    assert!(blobs.orphaned(Millis(100), 10).await.unwrap().is_empty(), "not old enough");
    let orphan = |id: &str, is_shared| OrphanedFile { run_id: gone, file_id: id.into(), is_shared };
    let mut found = blobs.orphaned(Millis(101), 10).await.unwrap();
    found.sort_by(|a, b| a.file_id.cmp(&b.file_id));
    assert_eq!(found, [orphan("f-1", true), orphan("f-2", false)]);
    assert_eq!(blobs.orphaned(Millis(101), 1).await.unwrap().len(), 1);
}

async fn an_attempt_is_placed_by_its_id_also_when_it_has_ended(storage: Storage) {
    let (run_id, ids) = with_attempts(&storage, &[None]).await;
    let place = storage.runs().place_of(ids[0]).await.unwrap().unwrap();
    assert_eq!((place.run_id, place.is_outstanding, place.status), (run_id, true, RunStatus::Running));
    storage.runs().append(&[Append { close: vec![ids[0]], ..step(run_id, 1) }]).await.unwrap();
    assert!(!storage.runs().place_of(ids[0]).await.unwrap().unwrap().is_outstanding);
    let nobody = contract::ExecutionId(Uuid::from_u128(99));
    assert_eq!(storage.runs().place_of(nobody).await.unwrap(), None);
}

async fn running_steps_say_how_far_they_are(storage: Storage) {
    let (run_id, ids) = with_attempts(&storage, &[None, None, None]).await;
    let says = |id, at, progress: Option<&str>, message: Option<&str>| AttemptUpdate {
        heartbeat_at: Some(Millis(at)),
        progress: progress.map(|text| Json::parse(text).unwrap()),
        message: message.map(str::to_owned),
        ..AttemptUpdate::new(id)
    };
    let update = vec![
        says(ids[0], 10, Some("0.5"), Some("Hälfte")),
        says(ids[1], 11, None, Some("начал")),
        says(ids[2], 12, None, None),
    ];
    let append = Append { update, ..Append::new(run_id, 99, RunStatus::Running, Millis(10)) };
    storage.runs().append(&[append]).await.unwrap();
    let later = vec![says(ids[0], 20, Some("0.75"), None)];
    let append = Append { update: later, ..Append::new(run_id, 99, RunStatus::Running, Millis(20)) };
    storage.runs().append(&[append]).await.unwrap();
    let found = storage.runs().words(run_id, 10).await.unwrap();
    let told = |word: &StepWord| {
        (word.execution_id, word.heartbeat_at, word.progress.clone(), word.message.clone().unwrap())
    };
    let three_quarters = Json::parse("0.75").unwrap();
    assert_eq!(
        found.iter().map(told).collect::<Vec<_>>(),
        [
            (ids[0], Some(Millis(20)), Some(three_quarters), "Hälfte".to_owned()),
            (ids[1], Some(Millis(11)), None, "начал".to_owned()),
        ]
    );
    assert!(found.iter().all(|word| word.node_path != NodePath(String::new())));
    assert_eq!(storage.runs().words(run_id, 1).await.unwrap().len(), 1);
    storage.runs().append(&[Append { close: vec![ids[0]], ..step(run_id, 1) }]).await.unwrap();
    assert_eq!(storage.runs().words(run_id, 10).await.unwrap().len(), 1, "what has ended says nothing");
}
