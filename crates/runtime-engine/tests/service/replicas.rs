//! Any number of engines serve any run: compare and swap, nothing to fail over.

use crate::bed::{Bed, Engine, chain, on_both_databases, tasks};
use contract::{
    pattern,
    report::Receipt,
    run::{RunRef, RunStatus},
};
use queue::Lane;
use serde_json::json;

on_both_databases!(
    two_engines_serve_one_run_in_turn,
    an_engine_with_an_old_state_tells_no_untruth,
    of_two_engines_that_get_the_same_result_one_applies_it,
    a_run_goes_on_when_one_engine_is_gone,
);

async fn two(bed: &Bed) -> (Engine, Engine) {
    (bed.engine().await, bed.engine().await)
}

async fn two_engines_serve_one_run_in_turn(bed: Bed) {
    let (one, other) = two(&bed).await;
    let run_id = one.run(bed.process(&chain()).await, &json!({"q": 1})).await;
    let task = bed.take(Lane::Plugin).await;
    assert_eq!(other.ack(&task).await.code(), "applied");
    assert_eq!(one.ack(&task).await.code(), "duplicate");
    assert_eq!(one.partial(&task, 1).await.code(), "applied");
    assert_eq!(other.partial(&task, 1).await.code(), "duplicate");
    assert_eq!(other.finish(&task, &json!({"o": 1})).await.code(), "applied");
    let task = bed.take_for(Lane::Executor, "b", 1).await;
    assert_eq!(one.finish(&task, &json!({"text": 1})).await.code(), "applied");
    assert_eq!(other.finish(&task, &json!({"text": 2})).await.code(), "conflicting_result");
    assert_eq!(other.get(run_id).await.run.status, RunStatus::Finished);
    one.stop().await;
    other.stop().await;
}

async fn an_engine_with_an_old_state_tells_no_untruth(bed: Bed) {
    let (one, other) = two(&bed).await;
    let mut document = tasks(&["a", "b"]);
    document["widgets"][0]["execution"] = json!({"retry": {"maxAttempts": 3, "backoffMs": 1}});
    let run_id = one.run(bed.process(&document).await, &json!({})).await;
    let first = bed.take_for(Lane::Plugin, "a", 1).await;
    // `one` holds the run as it is now; all that follows it does not see.
    assert_eq!(one.ack(&first).await.code(), "applied");
    assert_eq!(other.fail(&first, "once").await.code(), "applied");
    assert_eq!(one.heartbeat(&first).await.code(), "superseded", "not taken for a sign of life");
    let second = bed.take_for(Lane::Plugin, "a", 2).await;
    assert_eq!(other.fail(&second, "twice").await.code(), "applied");
    let third = bed.take_for(Lane::Plugin, "a", 3).await;
    assert_eq!(one.ack(&third).await.code(), "applied", "an attempt that the other made is known");
    let reference = RunRef { run_id, process_id: None };
    other.call::<_, Receipt>(pattern::RUNTIME_RUN_CANCEL, &reference).await.unwrap();
    assert_eq!(one.heartbeat(&third).await.code(), "run_terminal");
    assert_eq!(one.finish(&third, &json!({})).await.code(), "run_terminal");
    one.stop().await;
    other.stop().await;
}

async fn of_two_engines_that_get_the_same_result_one_applies_it(bed: Bed) {
    let (one, other) = two(&bed).await;
    let process_id = bed.process(&chain()).await;
    for _ in 0..10 {
        one.run(process_id, &json!({"q": 1})).await;
        let task = bed.take(Lane::Plugin).await;
        let result = json!({"o": 1});
        let (a, b) = tokio::join!(one.finish(&task, &result), other.finish(&task, &result));
        let mut codes = [a.code(), b.code()];
        codes.sort_unstable();
        assert!(codes == ["applied", "duplicate"] || codes == ["duplicate", "duplicate"], "{codes:?}");
        bed.flush().await;
    }
    one.stop().await;
    other.stop().await;
}

async fn a_run_goes_on_when_one_engine_is_gone(bed: Bed) {
    let (one, other) = two(&bed).await;
    let run_id = one.run(bed.process(&chain()).await, &json!({"q": 1})).await;
    one.stop().await;
    bed.flush().await;
    let task = bed.take_for(Lane::Plugin, "a", 1).await;
    other.finish(&task, &json!({"o": 1})).await;
    let task = bed.take_for(Lane::Executor, "b", 1).await;
    other.finish(&task, &json!({"text": 1})).await;
    assert_eq!(other.get(run_id).await.run.status, RunStatus::Finished);
    other.stop().await;
}
