//! Attempts: their life, claims, deadlines.

use crate::{attempt, event, id, json, start, step, suite};
use contract::{ExecutionId, Millis, RunId, run::RunStatus};
use futures::future::join_all;
use std::{collections::HashSet, time::Duration};
use storage::{
    Storage,
    runs::{Append, Appended, AttemptLane, AttemptState, AttemptUpdate, NewEvent, new_execution_id},
};

suite!(
    an_attempt_is_outstanding_until_it_is_closed_and_known_for_ever,
    a_heartbeat_needs_no_sequence_number_and_changes_only_outstanding_attempts,
    an_update_keeps_what_it_does_not_name,
    an_update_of_a_conflicting_append_is_not_stored,
    a_dispatch_is_claimed_once_among_eight,
    a_claim_sets_the_delivery_deadline_by_the_clock_of_the_database,
    superseded_attempts_and_those_of_ended_runs_are_not_claimed,
    an_attempt_claimed_twice_in_one_call_is_claimed_once,
    due_attempts_are_taken_by_one_of_two_engines_and_held,
    due_attempts_come_oldest_first_and_up_to_a_limit,
    deadlines_later_than_the_taker_knows_are_left,
    claimed_attempts_are_not_lost_before_a_delivery_deadline_after_the_start,
    the_run_of_many_attempts_is_told_in_their_order,
    only_an_outstanding_attempt_of_a_running_run_is_live,
);

/// No deadline is later.
const EVER: Millis = Millis(i64::MAX);
/// Long enough that no test ends after it.
const HOUR: Duration = Duration::from_secs(3600);

/// A run with attempts of these deadlines.
pub(crate) async fn with_attempts(
    storage: &Storage,
    deadlines: &[Option<Millis>],
) -> (RunId, Vec<ExecutionId>) {
    let run_id = RunId(id());
    let mut append = start(run_id);
    append.open = deadlines.iter().map(|deadline| attempt(new_execution_id(run_id), *deadline)).collect();
    let ids: Vec<ExecutionId> = append.open.iter().map(|attempt| attempt.execution_id).collect();
    append.events = vec![scheduled(&ids)];
    assert_eq!(storage.runs().append(&[append]).await.unwrap(), [Appended::Done]);
    (run_id, ids)
}

/// An event that schedules attempts, all in one.
pub(crate) fn scheduled(ids: &[ExecutionId]) -> NewEvent {
    let named: Vec<String> =
        ids.iter().map(|id| format!(r#"{{"nodePath":"w-loop[3]/b-turn","executionId":"{id}"}}"#)).collect();
    let body = json(&format!(r#"{{"v":1,"data":{},"others":[{}]}}"#, named[0], named.join(",")));
    NewEvent { kind: "step_scheduled".to_owned(), body }
}

async fn close(storage: &Storage, run_id: RunId, expected: u64, execution_id: ExecutionId) {
    let append = Append { close: vec![execution_id], ..step(run_id, expected) };
    assert_eq!(storage.runs().append(&[append]).await.unwrap(), [Appended::Done]);
}

async fn an_attempt_is_outstanding_until_it_is_closed_and_known_for_ever(storage: Storage) {
    let (run_id, ids) = with_attempts(&storage, &[Some(Millis(7_000)), None]).await;
    let outstanding = storage.runs().outstanding(run_id).await.unwrap();
    assert_eq!(outstanding.iter().map(|row| row.execution_id).collect::<Vec<_>>(), ids);
    let first = &outstanding[0];
    assert_eq!((first.run_id, first.attempt, first.state), (run_id, 1, AttemptState::Queued));
    assert_eq!((first.node_path.0.as_str(), first.lane.as_str()), ("w-loop[3]/b-turn", "plugin"));
    assert_eq!((first.deadline, first.opened_at), (Some(Millis(7_000)), Millis(1_000)));

    close(&storage, run_id, 1, ids[0]).await;
    let outstanding = storage.runs().list_outstanding(10).await.unwrap();
    assert_eq!(outstanding.iter().map(|row| row.execution_id).collect::<Vec<_>>(), ids[1..]);
    close(&storage, run_id, 2, ids[1]).await;
    assert_eq!(storage.runs().outstanding_count().await.unwrap(), 0);
    assert_eq!(storage.runs().run_of(&ids).await.unwrap(), [Some(run_id), Some(run_id)]);
    // Nor does an id count that only ends as the run's does.
    let stranger = new_execution_id(run_id);
    assert_eq!(storage.runs().run_of(&[stranger, ids[1]]).await.unwrap(), [None, Some(run_id)]);
}

async fn a_heartbeat_needs_no_sequence_number_and_changes_only_outstanding_attempts(storage: Storage) {
    let (run_id, ids) = with_attempts(&storage, &[None, None]).await;
    close(&storage, run_id, 1, ids[1]).await;
    let beat = |id: ExecutionId, at: i64| AttemptUpdate {
        heartbeat_at: Some(Millis(at)),
        progress: Some(json("0.25")),
        deadline: Some(Some(Millis(at + 50))),
        ..AttemptUpdate::new(id)
    };
    let append = Append {
        update: vec![beat(ids[0], 100), beat(ids[1], 100)],
        ..Append::new(run_id, 99, RunStatus::Running, Millis(100))
    };
    let batch = [append.clone(), Append { update: vec![beat(ids[0], 200)], ..append }];
    assert_eq!(storage.runs().append(&batch).await.unwrap(), [Appended::Done, Appended::Done]);
    let outstanding = storage.runs().outstanding(run_id).await.unwrap();
    let [row] = outstanding.as_slice() else { panic!("a closed attempt stays closed") };
    assert_eq!((row.heartbeat_at, row.deadline), (Some(Millis(200)), Some(Millis(250))));
    assert_eq!(row.progress, Some(json("0.25")));
    let run = storage.runs().get(run_id).await.unwrap().unwrap();
    assert_eq!((run.sequence, run.updated_at), (2, Millis(2_000)));
}

async fn an_update_keeps_what_it_does_not_name(storage: Storage) {
    let (run_id, ids) = with_attempts(&storage, &[Some(Millis(7_000))]).await;
    let running = AttemptUpdate {
        state: Some(AttemptState::Running),
        acked_at: Some(Millis(5)),
        ..AttemptUpdate::new(ids[0])
    };
    let append = Append { update: vec![running], ..step(run_id, 1) };
    storage.runs().append(&[append]).await.unwrap();
    let row = storage.runs().outstanding(run_id).await.unwrap().remove(0);
    assert_eq!(
        (row.state, row.acked_at, row.deadline),
        (AttemptState::Running, Some(Millis(5)), Some(Millis(7_000)))
    );
    let forever = AttemptUpdate { deadline: Some(None), ..AttemptUpdate::new(ids[0]) };
    storage.runs().append(&[Append { update: vec![forever], ..step(run_id, 2) }]).await.unwrap();
    let row = storage.runs().outstanding(run_id).await.unwrap().remove(0);
    assert_eq!((row.state, row.acked_at, row.deadline), (AttemptState::Running, Some(Millis(5)), None));
}

async fn an_update_of_a_conflicting_append_is_not_stored(storage: Storage) {
    let (run_id, ids) = with_attempts(&storage, &[None]).await;
    let update = AttemptUpdate { state: Some(AttemptState::Running), ..AttemptUpdate::new(ids[0]) };
    let append = Append { update: vec![update], close: ids.clone(), ..step(run_id, 7) };
    assert_eq!(storage.runs().append(&[append]).await.unwrap(), [Appended::Conflict]);
    let row = storage.runs().outstanding(run_id).await.unwrap().remove(0);
    assert_eq!(row.state, AttemptState::Queued);
}

async fn a_dispatch_is_claimed_once_among_eight(storage: Storage) {
    let (_, ids) = with_attempts(&storage, &[None; 20]).await;
    let claims = (0..8).map(|who| {
        let (storage, mut ids) = (storage.clone(), ids.clone());
        tokio::spawn(async move {
            if who % 2 == 0 {
                ids.reverse();
            }
            let claimed = storage.runs().claim_dispatch(&ids, HOUR).await.unwrap();
            ids.into_iter().zip(claimed).filter(|(_, mine)| *mine).map(|(id, _)| id).collect::<Vec<_>>()
        })
    });
    let claimed: Vec<ExecutionId> = join_all(claims).await.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(claimed.len(), ids.len());
    assert_eq!(claimed.into_iter().collect::<HashSet<_>>(), ids.into_iter().collect());
}

async fn a_claim_sets_the_delivery_deadline_by_the_clock_of_the_database(storage: Storage) {
    let (run_id, ids) = with_attempts(&storage, &[None]).await;
    let before = storage.now().await.unwrap();
    assert_eq!(storage.runs().claim_dispatch(&ids, HOUR).await.unwrap(), [true]);
    let after = storage.now().await.unwrap();
    let row = storage.runs().outstanding(run_id).await.unwrap().remove(0);
    assert_eq!(row.state, AttemptState::Dispatched);
    let dispatched_at = row.dispatched_at.unwrap();
    assert!(before <= dispatched_at && dispatched_at <= after, "{before:?} {dispatched_at:?} {after:?}");
    assert_eq!(row.deadline, Some(dispatched_at.plus(HOUR)));
}

async fn superseded_attempts_and_those_of_ended_runs_are_not_claimed(storage: Storage) {
    let (superseded, old) = with_attempts(&storage, &[None]).await;
    close(&storage, superseded, 1, old[0]).await;
    let (canceled, left) = with_attempts(&storage, &[None]).await;
    let cancel = Append { status: RunStatus::Canceled, finished_at: Some(Millis(9)), ..step(canceled, 1) };
    storage.runs().append(&[cancel]).await.unwrap();
    let ids = [old[0], left[0], ExecutionId(id())];
    assert_eq!(storage.runs().claim_dispatch(&ids, HOUR).await.unwrap(), [false, false, false]);
    assert!(storage.runs().claim_dispatch(&[], HOUR).await.unwrap().is_empty());
}

async fn an_attempt_claimed_twice_in_one_call_is_claimed_once(storage: Storage) {
    let (_, ids) = with_attempts(&storage, &[None]).await;
    assert_eq!(storage.runs().claim_dispatch(&[ids[0], ids[0]], HOUR).await.unwrap(), [true, false]);
}

async fn due_attempts_are_taken_by_one_of_two_engines_and_held(storage: Storage) {
    let now = storage.now().await.unwrap();
    let deadlines = [Some(Millis(1)), Some(now.plus(HOUR)), None];
    let (run_id, ids) = with_attempts(&storage, &deadlines).await;
    let runs = storage.runs();
    let (one, two) = tokio::join!(runs.take_due(10, HOUR, false, EVER), runs.take_due(10, HOUR, false, EVER));
    let taken = [one.unwrap(), two.unwrap()].concat();
    let [due] = taken.as_slice() else { panic!("{taken:?}") };
    assert_eq!((due.execution_id, due.run_id, due.state), (ids[0], run_id, AttemptState::Queued));
    assert_eq!((due.deadline, due.lane), (Millis(1), AttemptLane::Plugin));
    assert!(runs.take_due(10, HOUR, false, EVER).await.unwrap().is_empty());

    // A hold that has passed makes it due again.
    let (_, other) = with_attempts(&storage, &[Some(Millis(1))]).await;
    assert_eq!(runs.take_due(10, Duration::ZERO, false, EVER).await.unwrap()[0].execution_id, other[0]);
    assert_eq!(runs.take_due(10, Duration::ZERO, false, EVER).await.unwrap()[0].execution_id, other[0]);
}

async fn due_attempts_come_oldest_first_and_up_to_a_limit(storage: Storage) {
    let (_, ids) = with_attempts(&storage, &[Some(Millis(30)), Some(Millis(10)), Some(Millis(20))]).await;
    let due = storage.runs().take_due(2, HOUR, false, EVER).await.unwrap();
    assert_eq!(due.iter().map(|due| due.execution_id).collect::<Vec<_>>(), [ids[1], ids[2]]);
    let due = storage.runs().take_due(2, HOUR, false, EVER).await.unwrap();
    assert_eq!(due.iter().map(|due| due.execution_id).collect::<Vec<_>>(), [ids[0]]);
}

async fn deadlines_later_than_the_taker_knows_are_left(storage: Storage) {
    let (_, ids) = with_attempts(&storage, &[Some(Millis(20)), Some(Millis(10))]).await;
    let due = storage.runs().take_due(10, HOUR, false, Millis(19)).await.unwrap();
    assert_eq!(due.iter().map(|due| due.execution_id).collect::<Vec<_>>(), ids[1..]);
}

async fn claimed_attempts_are_not_lost_before_a_delivery_deadline_after_the_start(storage: Storage) {
    let (run_id, ids) = with_attempts(&storage, &[Some(Millis(1)), Some(Millis(1)), Some(Millis(1))]).await;
    let state = |id, state| AttemptUpdate { state: Some(state), ..AttemptUpdate::new(id) };
    let append = Append {
        update: vec![state(ids[1], AttemptState::Dispatched), state(ids[2], AttemptState::Running)],
        events: vec![event("1")],
        ..step(run_id, 1)
    };
    storage.runs().append(&[append]).await.unwrap();
    let early = storage.runs().take_due(10, HOUR, true, EVER).await.unwrap();
    assert_eq!(early.iter().map(|due| due.execution_id).collect::<Vec<_>>(), ids[..1]);
    let due = storage.runs().take_due(10, HOUR, false, EVER).await.unwrap();
    let states: HashSet<_> = due.iter().map(|due| due.state).collect();
    assert_eq!(states, HashSet::from([AttemptState::Dispatched, AttemptState::Running]));
}

async fn the_run_of_many_attempts_is_told_in_their_order(storage: Storage) {
    let (run_id, ids) = with_attempts(&storage, &[None; 3]).await;
    let (other, others) = with_attempts(&storage, &[None; 600]).await;
    let mut asked = vec![ids[2], ExecutionId(id()), ids[0], ids[2]];
    asked.extend(&others);
    let told = storage.runs().run_of(&asked).await.unwrap();
    assert_eq!(told[..4], [Some(run_id), None, Some(run_id), Some(run_id)]);
    assert!(told[4..].iter().all(|run| *run == Some(other)));
    assert!(storage.runs().run_of(&[]).await.unwrap().is_empty());
}

async fn only_an_outstanding_attempt_of_a_running_run_is_live(storage: Storage) {
    let (run_id, ids) = with_attempts(&storage, &[None, None]).await;
    let live = storage.runs().live(ids[0]).await.unwrap().unwrap();
    let run = storage.runs().get(run_id).await.unwrap().unwrap();
    assert_eq!((live.lane.as_str(), &live.workspace_id), ("plugin", &run.workspace_id));
    assert_eq!(storage.runs().live(ExecutionId(id())).await.unwrap(), None);
    close(&storage, run_id, 1, ids[0]).await;
    assert_eq!(storage.runs().live(ids[0]).await.unwrap(), None);
    let end = Append { status: RunStatus::Canceled, ..step(run_id, 2) };
    assert_eq!(storage.runs().append(&[end]).await.unwrap(), [Appended::Done]);
    assert_eq!(storage.runs().live(ids[1]).await.unwrap(), None);
}
