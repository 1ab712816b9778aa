//! What reporters are told over RPC, and that it is durable when they are told.

use crate::bed::{Bed, ack_of, chain, tasks, through_both_doors, values};
use contract::{
    ErrorCode, ExecutionId, Json, RunId,
    report::{
        Accepted, Ack, Dispatched, Receipt, ReportBody, ReportOutcome, StepError, StepReport, StepResult,
    },
    run::{NodeStatus, RunStatus},
};
use queue::Lane;
use serde_json::json;
use std::collections::BTreeMap;
use storage::runs::AttemptState;
use uuid::Uuid;

through_both_doors!(
    the_table_of_answers_holds,
    a_batch_is_answered_item_by_item_in_order,
    reports_without_a_run_find_it_by_their_attempt,
    the_same_result_sent_at_once_many_times_is_applied_once,
    what_was_answered_is_in_the_database,
    an_ack_tells_whose_ack_counts,
    heartbeats_move_the_deadline_and_add_no_history,
    a_refused_dispatch_fails_the_step_once,
    many_runs_at_once_all_end,
);

async fn the_table_of_answers_holds(bed: Bed) {
    let engine = bed.engine().await;
    let mut document = tasks(&["a", "b"]);
    document["widgets"][0]["execution"] = json!({"retry": {"maxAttempts": 2, "backoffMs": 1}});
    let run_id = engine.run(bed.process(&document).await, &json!({})).await;
    let first = bed.take_for(Lane::Plugin, "a", 1).await;
    assert_eq!(engine.ack(&first).await.code(), "applied");
    assert_eq!(engine.ack(&first).await.code(), "duplicate");
    assert_eq!(engine.partial(&first, 1).await.code(), "applied");
    assert_eq!(engine.partial(&first, 1).await.code(), "duplicate");
    assert_eq!(engine.fail(&first, "once").await.code(), "applied");
    assert_eq!(engine.fail(&first, "once").await.code(), "duplicate");
    assert_eq!(engine.fail(&first, "twice").await.code(), "conflicting_result");
    let told = engine.heartbeat(&first).await;
    let ReportOutcome::Err(error) = told else { panic!("{told:?}") };
    assert_eq!((error.code, error.retryable), (ErrorCode::Superseded, false));
    assert_eq!(error.details.unwrap()["previousState"], "failed");
    let second = bed.take_for(Lane::Plugin, "a", 2).await;
    assert_eq!(engine.finish(&second, &json!({"o": 1})).await.code(), "applied");
    assert_eq!(engine.ack(&second).await.code(), "duplicate", "a result before its ack is fine");
    let b = bed.take_for(Lane::Plugin, "b", 1).await;
    engine.fail(&b, "broken").await;
    assert_eq!(engine.get(run_id).await.run.status, RunStatus::Failed);
    assert_eq!(
        engine.finish(&second, &json!({"o": 1})).await.code(),
        "duplicate",
        "also after the run's end"
    );
    engine.stop().await;
}

async fn a_batch_is_answered_item_by_item_in_order(bed: Bed) {
    let engine = bed.engine().await;
    let process_id = bed.process(&tasks(&["a"])).await;
    let mut reports = Vec::new();
    for _ in 0..20 {
        engine.run(process_id, &json!({})).await;
    }
    let unknown = ExecutionId(Uuid::now_v7());
    for number in 0..20u8 {
        let task = bed.take(Lane::Plugin).await;
        let body = ReportBody::Result(StepResult::ok(values(&json!({"o": number}))));
        let report = StepReport { execution_id: task.execution_id, run_id: Some(task.run_id), body };
        reports.extend([report.clone(), ack_of(unknown), report]);
    }
    let outcomes = engine.reports(reports).await;
    assert_eq!(outcomes.len(), 60);
    let codes: Vec<_> = outcomes.iter().map(ReportOutcome::code).collect();
    for three in codes.chunks(3) {
        // A task that was republished meanwhile is taken twice here; its second result conflicts.
        assert!(["applied", "conflicting_result"].contains(&three[0]), "{three:?}");
        assert_eq!(three[1], "unknown_execution");
        assert_eq!(three[2] == "duplicate", three[0] == "applied", "{three:?}");
    }
    engine.stop().await;
}

async fn reports_without_a_run_find_it_by_their_attempt(bed: Bed) {
    let engine = bed.engine().await;
    engine.run(bed.process(&tasks(&["a"])).await, &json!({})).await;
    let task = bed.take(Lane::Plugin).await;
    let unknown = ExecutionId(Uuid::now_v7());
    let outcomes = engine.reports(vec![ack_of(unknown), ack_of(task.execution_id), ack_of(unknown)]).await;
    let codes: Vec<_> = outcomes.iter().map(ReportOutcome::code).collect();
    assert_eq!(codes, ["unknown_execution", "applied", "unknown_execution"]);
    let stray = StepReport { run_id: Some(RunId(Uuid::now_v7())), ..ack_of(task.execution_id) };
    assert_eq!(engine.reports(vec![stray]).await[0].code(), "unknown_execution");
    engine.stop().await;
}

async fn the_same_result_sent_at_once_many_times_is_applied_once(bed: Bed) {
    let engine = bed.engine().await;
    engine.run(bed.process(&chain()).await, &json!({"q": 1})).await;
    let task = bed.take(Lane::Plugin).await;
    let result = json!({"o": 1});
    let sent = futures::future::join_all((0..32).map(|_| engine.finish(&task, &result))).await;
    let mut codes: BTreeMap<&str, usize> = BTreeMap::new();
    sent.iter().for_each(|outcome| *codes.entry(outcome.code()).or_default() += 1);
    assert_eq!(codes, BTreeMap::from([("applied", 1), ("duplicate", 31)]));
    engine.stop().await;
}

async fn what_was_answered_is_in_the_database(bed: Bed) {
    let engine = bed.engine().await;
    let run_id = engine.run(bed.process(&chain()).await, &json!({"q": 1})).await;
    let events = async || bed.storage.runs().load(run_id).await.unwrap().unwrap().events.len();
    assert_eq!(events().await, 3);
    let task = bed.take(Lane::Plugin).await;
    engine.ack(&task).await;
    assert_eq!(events().await, 4);
    engine.finish(&task, &json!({"o": 1})).await;
    assert_eq!(events().await, 6, "the step's end and the next step");
    engine.stop().await;
}

async fn an_ack_tells_whose_ack_counts(bed: Bed) {
    let engine = bed.engine().await;
    engine.run(bed.process(&tasks(&["a"])).await, &json!({})).await;
    let task = bed.take(Lane::Plugin).await;
    let by = |worker: &str| StepReport {
        body: ReportBody::Ack(Ack { worker_id: Some(worker.into()), ..Ack::default() }),
        ..ack_of(task.execution_id)
    };
    let told = |status, worker: &str| ReportOutcome::Ok(Receipt { status, worker_id: Some(worker.into()) });
    let outcomes = engine.reports(vec![by("one"), by("two")]).await;
    assert_eq!(outcomes, [told(Accepted::Applied, "one"), told(Accepted::Duplicate, "one")]);
    engine.stop().await;
}

async fn heartbeats_move_the_deadline_and_add_no_history(bed: Bed) {
    let engine = bed.engine().await;
    let run_id = engine.run(bed.process(&tasks(&["a"])).await, &json!({})).await;
    let task = bed.take(Lane::Plugin).await;
    engine.ack(&task).await;
    let row = async || bed.storage.runs().outstanding(run_id).await.unwrap().remove(0);
    let (acked, before) = (row().await, bed.storage.runs().get(run_id).await.unwrap().unwrap());
    assert_eq!((acked.state, acked.heartbeat_at), (AttemptState::Running, None));
    let beat = contract::report::Heartbeat { progress: Some(Json::parse("0.25").unwrap()), message: None };
    let report = StepReport { body: ReportBody::Heartbeat(beat), ..ack_of(task.execution_id) };
    assert_eq!(engine.reports(vec![report]).await[0].code(), "applied");
    let beaten = row().await;
    assert!(beaten.deadline >= acked.deadline && beaten.heartbeat_at.is_some());
    assert_eq!(beaten.progress.unwrap().text(), "0.25");
    assert_eq!(bed.storage.runs().get(run_id).await.unwrap().unwrap(), before);
    engine.stop().await;
}

async fn a_refused_dispatch_fails_the_step_once(bed: Bed) {
    let engine = bed.engine().await;
    let run_id = engine.run(bed.process(&tasks(&["a"])).await, &json!({})).await;
    let task = bed.take(Lane::Plugin).await;
    let refused = StepError::of(ErrorCode::PluginDisabled, "test@1 is not enabled");
    assert_eq!(engine.dispatched(&task, Dispatched::Refused(refused.clone())).await.code(), "applied");
    let step = engine.step(run_id, "a").await;
    assert_eq!((step.status, step.attempts, step.error), (NodeStatus::Failed, 1, Some(refused)));
    let error = engine.get(run_id).await.run.error.unwrap();
    assert_eq!(error.error.code.as_deref(), Some("plugin_disabled"));
    engine.stop().await;
}

async fn many_runs_at_once_all_end(bed: Bed) {
    let engine = bed.engine().await;
    let process_id = bed.process(&chain()).await;
    let payload = json!({"q": 1});
    let runs = futures::future::join_all((0..50).map(|_| engine.run(process_id, &payload))).await;
    let mut left = 100;
    while left > 0 {
        for lane in [Lane::Plugin, Lane::Executor] {
            let wait = std::time::Duration::from_millis(1);
            for text in bed.queue.take(lane, 100, wait).await.unwrap() {
                let task = serde_json::from_str(&text).unwrap();
                if engine.finish(&task, &json!({"o": 1, "text": 2})).await.code() == "applied" {
                    left -= 1;
                }
            }
        }
    }
    for run_id in runs {
        assert_eq!(engine.get(run_id).await.run.status, RunStatus::Finished);
    }
    assert_eq!(bed.storage.runs().outstanding_count().await.unwrap(), 0);
    engine.stop().await;
}
