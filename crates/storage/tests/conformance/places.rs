//! Claims of plugins that may have only so many attempts at once.

use crate::{attempt, catalogue::publication, id, start, step, suite};
use contract::{ExecutionId, Millis, RunId, run::RunStatus};
use futures::future::join_all;
use std::{collections::HashSet, time::Duration};
use storage::{
    Storage,
    runs::{Append, Appended, AttemptState, PlaceClaim},
};

suite!(
    a_plugin_is_given_no_more_attempts_at_once_than_its_limit,
    the_limit_holds_among_many_claimers,
    a_place_is_free_when_its_attempt_or_its_run_has_ended,
    those_that_find_no_place_stay_queued_and_learn_who_has_the_places,
    what_cannot_be_claimed_takes_no_place,
    a_plugin_without_a_limit_has_a_place_for_everybody,
    a_lower_limit_takes_nothing_away_and_gives_nothing_until_there_is_room,
    a_limit_is_part_of_the_catalogue,
);

const HOUR: Duration = Duration::from_secs(3600);
const PLUGIN: &str = "com.example.limited";

/// So many runs with one attempt each.
async fn queued(storage: &Storage, count: usize) -> Vec<(RunId, ExecutionId)> {
    let mut all = Vec::new();
    for _ in 0..count {
        let (run_id, execution_id) = (RunId(id()), ExecutionId(id()));
        let append = Append { open: vec![attempt(execution_id, None)], ..start(run_id) };
        assert_eq!(storage.runs().append(&[append]).await.unwrap(), [Appended::Done]);
        all.push((run_id, execution_id));
    }
    all
}

fn executions(queued: &[(RunId, ExecutionId)]) -> Vec<ExecutionId> {
    queued.iter().map(|(_, execution_id)| *execution_id).collect()
}

async fn publish(storage: &Storage) {
    storage.catalogue().commit(&publication(PLUGIN, "1.0.0", &["plugin.limited"])).await.unwrap();
}

async fn limit(storage: &Storage, most: Option<u32>) {
    publish(storage).await;
    storage.catalogue().set_max_attempts(PLUGIN, most).await.unwrap();
}

async fn claim(storage: &Storage, ids: &[ExecutionId]) -> Vec<PlaceClaim> {
    storage.runs().claim_places(PLUGIN, ids, HOUR).await.unwrap().answers
}

async fn end(storage: &Storage, (run_id, execution_id): (RunId, ExecutionId)) {
    let append = Append { close: vec![execution_id], ..step(run_id, 1) };
    assert_eq!(storage.runs().append(&[append]).await.unwrap(), [Appended::Done]);
}

async fn a_plugin_is_given_no_more_attempts_at_once_than_its_limit(storage: Storage) {
    limit(&storage, Some(2)).await;
    let all = queued(&storage, 4).await;
    let ids = executions(&all);
    // The oldest first, in whatever order they are asked for.
    let asked = [ids[3], ids[1], ids[0]];
    assert_eq!(claim(&storage, &asked).await, [PlaceClaim::Full, PlaceClaim::Granted, PlaceClaim::Granted]);
    assert_eq!(claim(&storage, &ids[2..]).await, [PlaceClaim::Full, PlaceClaim::Full]);
    let before = storage.now().await.unwrap();
    let row = storage.runs().outstanding(all[0].0).await.unwrap().remove(0);
    assert_eq!((row.state, row.deadline > Some(before)), (AttemptState::Dispatched, true));
}

async fn the_limit_holds_among_many_claimers(storage: Storage) {
    limit(&storage, Some(5)).await;
    let ids = executions(&queued(&storage, 40).await);
    let claims = (0..8).map(|who| {
        let (storage, mut ids) = (storage.clone(), ids.clone());
        tokio::spawn(async move {
            if who % 2 == 0 {
                ids.reverse();
            }
            let claims = storage.runs().claim_places(PLUGIN, &ids, HOUR).await.unwrap();
            let granted =
                |(id, claim): (ExecutionId, PlaceClaim)| (claim == PlaceClaim::Granted).then_some(id);
            ids.into_iter().zip(claims.answers).filter_map(granted).collect::<Vec<_>>()
        })
    });
    let granted: Vec<ExecutionId> = join_all(claims).await.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(granted.len(), 5);
    assert_eq!(granted.into_iter().collect::<HashSet<_>>().len(), 5);
}

async fn a_place_is_free_when_its_attempt_or_its_run_has_ended(storage: Storage) {
    limit(&storage, Some(2)).await;
    let all = queued(&storage, 5).await;
    let ids = executions(&all);
    assert_eq!(claim(&storage, &ids[..2]).await, [PlaceClaim::Granted; 2]);
    end(&storage, all[0]).await;
    assert_eq!(claim(&storage, &ids[2..4]).await, [PlaceClaim::Granted, PlaceClaim::Full]);
    let canceled = Append {
        status: RunStatus::Canceled,
        close: vec![ids[1]],
        finished_at: Some(Millis(9)),
        ..step(all[1].0, 1)
    };
    storage.runs().append(&[canceled]).await.unwrap();
    assert_eq!(claim(&storage, &ids[3..]).await, [PlaceClaim::Granted, PlaceClaim::Full]);
}

async fn those_that_find_no_place_stay_queued_and_learn_who_has_the_places(storage: Storage) {
    limit(&storage, Some(2)).await;
    let all = queued(&storage, 3).await;
    let ids = executions(&all);
    let first = storage.runs().claim_places(PLUGIN, &ids[..2], HOUR).await.unwrap();
    assert!(first.holders.is_empty(), "nobody has to wait");
    let claims = storage.runs().claim_places(PLUGIN, &ids[2..], HOUR).await.unwrap();
    assert_eq!(claims.answers, [PlaceClaim::Full]);
    let holders: HashSet<RunId> = claims.holders.into_iter().collect();
    assert_eq!(holders, HashSet::from([all[0].0, all[1].0]));
    let row = storage.runs().outstanding(all[2].0).await.unwrap().remove(0);
    assert_eq!((row.state, row.dispatched_at), (AttemptState::Queued, None));
}

async fn what_cannot_be_claimed_takes_no_place(storage: Storage) {
    limit(&storage, Some(1)).await;
    let all = queued(&storage, 3).await;
    let ids = executions(&all);
    end(&storage, all[0]).await;
    let asked = [ids[0], ExecutionId(id()), ids[1], ids[1]];
    let gone = PlaceClaim::Gone;
    assert_eq!(claim(&storage, &asked).await, [gone, gone, PlaceClaim::Granted, gone]);
    assert_eq!(claim(&storage, &ids[1..]).await, [gone, PlaceClaim::Full]);
    assert!(claim(&storage, &[]).await.is_empty());
}

async fn a_plugin_without_a_limit_has_a_place_for_everybody(storage: Storage) {
    limit(&storage, None).await;
    let ids = executions(&queued(&storage, 300).await);
    assert_eq!(claim(&storage, &ids).await, [PlaceClaim::Granted; 300]);
}

async fn a_lower_limit_takes_nothing_away_and_gives_nothing_until_there_is_room(storage: Storage) {
    limit(&storage, Some(3)).await;
    let all = queued(&storage, 5).await;
    let ids = executions(&all);
    assert_eq!(claim(&storage, &ids[..3]).await, [PlaceClaim::Granted; 3]);
    storage.catalogue().set_max_attempts(PLUGIN, Some(1)).await.unwrap();
    end(&storage, all[0]).await;
    end(&storage, all[1]).await;
    assert_eq!(claim(&storage, &ids[3..]).await, [PlaceClaim::Full; 2]);
    end(&storage, all[2]).await;
    assert_eq!(claim(&storage, &ids[3..]).await, [PlaceClaim::Granted, PlaceClaim::Full]);
}

async fn a_limit_is_part_of_the_catalogue(storage: Storage) {
    publish(&storage).await;
    let catalogue = storage.catalogue();
    let before = catalogue.snapshot().await.unwrap();
    assert_eq!(before.plugins[PLUGIN].max_attempts, None);
    let change = catalogue.set_max_attempts(PLUGIN, Some(2)).await.unwrap();
    assert!(change.changed && change.revision > before.revision);
    assert!(!catalogue.set_max_attempts(PLUGIN, Some(2)).await.unwrap().changed);
    let after = catalogue.renewed(&before).await.unwrap().unwrap();
    assert_eq!(after.plugins[PLUGIN].max_attempts, Some(2));
    assert!(catalogue.set_max_attempts(PLUGIN, None).await.unwrap().changed);
    assert!(!catalogue.set_max_attempts("com.example.unknown", Some(1)).await.unwrap().changed);
}
