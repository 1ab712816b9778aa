//! Restarts, lost queues, deadlines, an absent database, wrong credentials.

use crate::bed::{Bed, LONG, ack_of, chain, on_both_databases, raw, start_of, tasks, values};
use contract::{
    ErrorCode, pattern,
    report::{Dispatched, Partial, ReportBody, ReportOutcome, StepError, StepReport},
    run::{NodeStatus, RunList, RunListRequest, RunStarted, RunStatus},
};
use queue::{Lane, Queue};
use runtime_engine::Settings;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use storage::runs::{Append, Appended, NewEvent};

on_both_databases!(
    a_restarted_engine_goes_on_in_the_middle_of_a_run,
    a_restarted_engine_reads_a_history_of_many_pages,
    the_sweep_publishes_again_what_a_flushed_queue_lost,
    a_full_lane_keeps_nothing_from_the_other,
    a_failed_delivery_comes_again_as_a_new_attempt_until_the_budget_is_used_up,
    a_dispatch_without_ack_is_lost_after_its_deadline,
    after_a_start_nobody_is_declared_lost_before_one_delivery_deadline,
    a_step_without_result_times_out_after_its_ack,
    an_absent_database_is_told_as_retryable_and_nothing_is_applied,
    a_stop_answers_what_has_come,
    a_wrong_or_missing_token_is_refused,
    unknown_patterns_and_malformed_bodies_are_told_apart,
    a_task_too_large_for_a_lane_fails_its_step,
    what_the_database_refuses_hinders_no_other_run,
    a_run_of_a_newer_engine_is_left_to_it,
);

async fn a_restarted_engine_goes_on_in_the_middle_of_a_run(bed: Bed) {
    let engine = bed.engine().await;
    let run_id = engine.run(bed.process(&chain()).await, &json!({"q": 1})).await;
    let task = bed.take(Lane::Plugin).await;
    engine.ack(&task).await;
    engine.stop().await;

    let engine = bed.engine().await;
    assert_eq!(engine.step(run_id, "a").await.status, NodeStatus::Running);
    assert_eq!(engine.ack(&task).await.code(), "duplicate");
    assert_eq!(engine.finish(&task, &json!({"o": 2})).await.code(), "applied");
    engine.stop().await;

    let engine = bed.engine().await;
    let task = bed.take_for(Lane::Executor, "b", 1).await;
    assert_eq!(engine.finish(&task, &json!({"text": 3})).await.code(), "applied");
    let detail = engine.get(run_id).await;
    assert_eq!(
        (detail.run.status, &detail.public_inputs.unwrap()["r"]),
        (RunStatus::Finished, &contract::Json::of(&3).unwrap())
    );
    engine.stop().await;
}

/// Its pages are counted by the suite of `storage`.
async fn a_restarted_engine_reads_a_history_of_many_pages(bed: Bed) {
    let engine = bed.engine().await;
    let run_id = engine.run(bed.process(&tasks(&["a"])).await, &json!({})).await;
    let task = bed.take(Lane::Plugin).await;
    let partial = |sequence| StepReport {
        execution_id: task.execution_id,
        run_id: Some(run_id),
        body: ReportBody::Partial(Partial {
            sequence,
            outputs: values(&json!({"o": "x".repeat(1_048_576)})),
        }),
    };
    for first in [0, 5] {
        let told = engine.reports((first..first + 5).map(partial).collect()).await;
        assert!(told.iter().all(|outcome| outcome.code() == "applied"), "{told:?}");
    }
    engine.stop().await;

    let engine = bed.engine().await;
    assert_eq!(engine.reports(vec![partial(9)]).await[0].code(), "duplicate");
    assert_eq!(engine.finish(&task, &json!({"o": 1})).await.code(), "applied");
    assert_eq!(engine.get(run_id).await.run.status, RunStatus::Finished);
    engine.stop().await;
}

async fn the_sweep_publishes_again_what_a_flushed_queue_lost(mut bed: Bed) {
    // Nothing is published again by itself before the flush.
    bed.settings.policy.republish_after = Duration::from_millis(200);
    let engine = bed.engine().await;
    engine.run(bed.process(&chain()).await, &json!({"q": 1})).await;
    let lost = bed.take(Lane::Plugin).await;
    bed.flush().await;
    let again = bed.take(Lane::Plugin).await;
    assert_eq!(again, lost, "the same attempt, not a new one");
    engine.finish(&again, &json!({"o": 1})).await;
    bed.flush().await;
    bed.take_for(Lane::Executor, "b", 1).await;
    engine.stop().await;
}

async fn a_full_lane_keeps_nothing_from_the_other(bed: Bed) {
    let engine = bed.engine().await;
    bed.queue.push(Lane::Plugin, vec![String::new(); 10_000]).await.unwrap();
    let run_id = engine.run(bed.process(&chain()).await, &json!({"q": 1})).await;
    // The plugin's task stands behind the others, or was not put there again: both are right.
    let runs = bed.storage.runs();
    let attempt = runs.outstanding(run_id).await.unwrap().remove(0).execution_id;
    let report = contract::report::StepResult::ok(crate::bed::values(&json!({"o": 1})));
    let report = contract::report::StepReport {
        execution_id: attempt,
        run_id: Some(run_id),
        body: contract::report::ReportBody::Result(report),
    };
    assert_eq!(engine.reports(vec![report]).await[0].code(), "applied");
    let lost = bed.take_for(Lane::Executor, "b", 1).await;
    let again = bed.take_for(Lane::Executor, "b", 1).await;
    assert_eq!(
        (again.execution_id, bed.queue.depth(Lane::Plugin).await.unwrap()),
        (lost.execution_id, 10_001)
    );
    engine.stop().await;
}

async fn a_failed_delivery_comes_again_as_a_new_attempt_until_the_budget_is_used_up(bed: Bed) {
    let engine = bed.engine().await;
    let run_id = engine.run(bed.process(&tasks(&["a"])).await, &json!({})).await;
    for attempt in 1..=6 {
        let task = bed.take_for(Lane::Plugin, "a", attempt).await;
        let claimed = bed.storage.runs().claim_dispatch(&[task.execution_id], LONG).await.unwrap();
        assert_eq!(claimed, [true]);
        let failed = StepError::of(ErrorCode::PluginOffline, "test@1 does not answer");
        assert_eq!(engine.dispatched(&task, Dispatched::Failed(failed)).await.code(), "applied");
        assert_eq!(engine.finish(&task, &json!({})).await.code(), "superseded");
    }
    let step = engine.step(run_id, "a").await;
    assert_eq!((step.status, step.attempts), (NodeStatus::Failed, 6));
    let error = step.error.unwrap();
    assert_eq!(error.code.as_deref(), Some("delivery_failed"));
    assert!(error.message.contains("test@1 does not answer"), "{}", error.message);
    engine.stop().await;
}

/// Claims the attempt with a delivery deadline that passes at once.
async fn claim_and_vanish(bed: &Bed, task: &contract::task::Task) {
    let claimed = bed.storage.runs().claim_dispatch(&[task.execution_id], Duration::from_millis(1)).await;
    assert_eq!(claimed.unwrap(), [true]);
}

async fn a_dispatch_without_ack_is_lost_after_its_deadline(mut bed: Bed) {
    bed.settings.policy.delivery_timeout = Duration::from_millis(20);
    let engine = bed.engine().await;
    engine.run(bed.process(&tasks(&["a"])).await, &json!({})).await;
    let first = bed.take(Lane::Plugin).await;
    claim_and_vanish(&bed, &first).await;
    let second = bed.take_for(Lane::Plugin, "a", 2).await;
    assert_eq!(engine.ack(&first).await.code(), "superseded");
    assert_eq!(engine.ack(&second).await.code(), "applied");
    engine.stop().await;
}

async fn after_a_start_nobody_is_declared_lost_before_one_delivery_deadline(bed: Bed) {
    let engine = bed.engine().await;
    let run_id = engine.run(bed.process(&tasks(&["a", "b"])).await, &json!({})).await;
    let task = bed.take_for(Lane::Plugin, "a", 1).await;
    claim_and_vanish(&bed, &task).await;
    engine.stop().await;
    bed.flush().await;

    let engine = bed.engine().await;
    // Two sweeps have looked at what is due, the lost dispatch included.
    bed.take_for(Lane::Plugin, "b", 1).await;
    bed.take_for(Lane::Plugin, "b", 1).await;
    assert_eq!(engine.step(run_id, "a").await.attempts, 1);
    assert_eq!(
        engine.ack(&task).await.code(),
        "applied",
        "the ack that came late because the engine was away"
    );
    engine.stop().await;
}

async fn a_step_without_result_times_out_after_its_ack(mut bed: Bed) {
    bed.settings.policy.delivery_timeout = Duration::from_millis(1);
    let engine = bed.engine().await;
    let mut document = tasks(&["a", "b"]);
    document["widgets"][0]["execution"] = json!({"timeoutMs": 1, "onError": "continue"});
    let run_id = engine.run(bed.process(&document).await, &json!({})).await;
    let mut notices = bed.queue.subscribe(queue::Topic::Steps).await.unwrap();
    let task = bed.take_for(Lane::Plugin, "a", 1).await;
    engine.ack(&task).await;
    let queue::Notice::Message(told) = notices.recv().await else { panic!() };
    assert!(told.contains(&task.execution_id.to_string()));
    let step = engine.step(run_id, "a").await;
    assert_eq!(
        (step.status, step.error.unwrap().code.as_deref()),
        (NodeStatus::Failed, Some("step_timeout"))
    );
    let ReportOutcome::Err(error) = engine.finish(&task, &json!({"o": 1})).await else { panic!() };
    assert_eq!(
        (error.code, &error.details.unwrap()["previousState"]),
        (ErrorCode::Superseded, &json!("timed_out"))
    );
    engine.stop().await;
}

async fn an_absent_database_is_told_as_retryable_and_nothing_is_applied(bed: Bed) {
    let engine = bed.engine().await;
    let process_id = bed.process(&chain()).await;
    engine.run(process_id, &json!({"q": 1})).await;
    let task = bed.take(Lane::Plugin).await;
    engine.storage.close().await;
    let ReportOutcome::Err(error) = engine.finish(&task, &json!({"o": 1})).await else { panic!() };
    assert_eq!((error.code, error.retryable), (ErrorCode::EngineUnavailable, true));
    let error = engine.start(process_id, &json!({"q": 1})).await.unwrap_err();
    assert_eq!((error.code, error.retryable), (ErrorCode::EngineUnavailable, true));
    engine.stop().await;

    let engine = bed.engine().await;
    assert_eq!(engine.finish(&task, &json!({"o": 1})).await.code(), "applied", "the resend after the outage");
    engine.stop().await;
}

async fn a_stop_answers_what_has_come(bed: Bed) {
    let engine = bed.engine().await;
    let process_id = bed.process(&tasks(&["a"])).await;
    for _ in 0..20 {
        engine.run(process_id, &json!({})).await;
    }
    let mut sent = Vec::new();
    let client = engine.client.clone();
    for _ in 0..20 {
        let task = bed.take(Lane::Plugin).await;
        let client = client.clone();
        let report = json!({"reports": [{"executionId": task.execution_id, "runId": task.run_id,
            "body": {"kind": "result", "value": {"status": "ok", "outputs": {"o": 1}}}}]});
        sent.push((
            task,
            tokio::spawn(async move {
                let data = contract::Json::from(&report);
                client.request(pattern::RUNTIME_STEP_REPORTS.name, &data, LONG).await
            }),
        ));
    }
    engine.stop().await;
    // Whoever was told "applied" can forget: it is in the history.
    for (task, answer) in sent {
        let Ok(answer) = answer.await.unwrap() else { continue };
        let applied = answer.text().contains("applied") || answer.text().contains("duplicate");
        let row = bed.storage.runs().get(task.run_id).await.unwrap().unwrap();
        assert!(!applied || row.status == RunStatus::Finished, "{}", answer.text());
    }
}

async fn a_wrong_or_missing_token_is_refused(bed: Bed) {
    let settings = Settings { rpc_token: Some("s3cret".into()), ..bed.settings.clone() };
    let engine = bed.engine_with(&settings).await;
    let asked = |token: Value| json!({"token": token, "workspaceId": "default", "limit": 1});
    for wrong in [json!(null), json!("other"), json!(5), json!("")] {
        let error = engine.call::<_, RunList>(pattern::RUNTIME_RUN_LIST, &asked(wrong)).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Unauthorized);
        assert!(!error.message.contains("s3cret"));
    }
    engine.call::<_, RunList>(pattern::RUNTIME_RUN_LIST, &asked(json!("s3cret"))).await.unwrap();
    engine.stop().await;
}

async fn unknown_patterns_and_malformed_bodies_are_told_apart(bed: Bed) {
    let engine = bed.engine().await;
    let null = contract::Json::null();
    for pattern in ["runtime.dance", "plugin.list"] {
        let error = engine.client.request(pattern, &null, LONG).await.unwrap_err();
        assert!(matches!(error, wire::CallError::NoHandler), "{error}");
    }
    let error =
        engine.call::<_, RunList>(pattern::RUNTIME_RUN_LIST, &json!({"limit": "x"})).await.unwrap_err();
    assert_eq!((error.code, error.retryable), (ErrorCode::InvalidRequest, false));
    let list = RunListRequest {
        process_id: None,
        workspace_id: "default".into(),
        status: None,
        cursor: Some("nonsense".into()),
        limit: 1,
    };
    let error = engine.call::<_, RunList>(pattern::RUNTIME_RUN_LIST, &list).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidRequest);
    engine.stop().await;
}

async fn a_task_too_large_for_a_lane_fails_its_step(bed: Bed) {
    let engine = bed.engine().await;
    let document = json!({
        "widgets": [
            {"id": "a", "source": {"nodeType": "plugin.test"}, "outputs": ["o"]},
            {"id": "b", "source": {"nodeType": "plugin.test"}, "outputs": ["o"]},
            {"id": "c", "source": {"nodeType": "plugin.test"}, "outputs": ["o"]},
            {"id": "sum", "source": {"nodeType": "plugin.test"}, "outputs": ["o"]},
        ],
        "edges": [
            {"source": "a", "sourceHandle": "o", "target": "sum", "targetHandle": "x"},
            {"source": "b", "sourceHandle": "o", "target": "sum", "targetHandle": "y"},
            {"source": "c", "sourceHandle": "o", "target": "sum", "targetHandle": "z"},
        ],
    });
    let run_id = engine.run(bed.process(&document).await, &json!({})).await;
    let mut notices = bed.queue.subscribe(queue::Topic::Runs).await.unwrap();
    let large = json!({"o": "x".repeat(queue::MAX_ITEM_BYTES / 3)});
    for node in ["a", "b", "c"] {
        let task = bed.take_for(Lane::Plugin, node, 1).await;
        assert_eq!(engine.finish(&task, &large).await.code(), "applied");
    }
    while engine.get(run_id).await.run.status == RunStatus::Running {
        notices.recv().await;
    }
    let detail = engine.get(run_id).await;
    assert!(detail.steps[0].outputs_omitted && detail.steps[0].outputs.is_none(), "too much for one answer");
    let step = engine.step(run_id, "sum").await;
    assert_eq!(step.error.unwrap().code.as_deref(), Some("payload_too_large"));
    engine.stop().await;
}

async fn what_the_database_refuses_hinders_no_other_run(bed: Bed) {
    let engine = bed.engine().await;
    let process_id = bed.process(&tasks(&["a"])).await;
    let start = |number: usize| {
        let mut asked = start_of(process_id, &json!({}));
        if number.is_multiple_of(4) {
            // PostgreSQL cannot hold it in a text.
            asked.user_id = "nul\u{0}".into();
        }
        asked
    };
    let starts: Vec<_> = (0..32).map(start).collect();
    let sent = starts.iter().map(|asked| engine.call::<_, RunStarted>(pattern::RUNTIME_RUN_START, asked));
    for (number, answer) in futures::future::join_all(sent).await.into_iter().enumerate() {
        match answer {
            Ok(started) => assert!(started.created),
            Err(error) => assert_eq!((number % 4, error.code), (0, ErrorCode::InvalidRequest)),
        }
    }
    engine.stop().await;
}

async fn a_run_of_a_newer_engine_is_left_to_it(bed: Bed) {
    let engine = bed.engine().await;
    let run_id = engine.run(bed.process(&tasks(&["a"])).await, &json!({})).await;
    let task = bed.take(Lane::Plugin).await;
    let row = bed.storage.runs().get(run_id).await.unwrap().unwrap();
    let mut append = Append::new(run_id, row.sequence, RunStatus::Running, row.updated_at);
    let body = contract::Json::from(json!({"v": 9, "data": {}}));
    append.events.push(NewEvent { kind: "step_acked".into(), body });
    assert_eq!(bed.storage.runs().append(&[append]).await.unwrap(), [Appended::Done]);
    let ReportOutcome::Err(error) = engine.finish(&task, &json!({"o": 1})).await else { panic!() };
    assert_eq!((error.code, error.retryable), (ErrorCode::EngineUnavailable, true));
    assert!(error.message.contains("upgrade"), "{}", error.message);
    engine.stop().await;
}

#[tokio::test]
async fn a_port_that_is_taken_refuses_the_start_with_the_address() {
    let bed = Bed::sqlite().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let deps = runtime_engine::Deps { storage: bed.storage.clone(), queue: Queue::in_process() };
    let settings = Settings { rpc_port: port, ..bed.settings.clone() };
    let error = runtime_engine::start(settings, deps, Default::default()).await.unwrap_err();
    assert!(error.to_string().contains(&port.to_string()), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_neighbour_neither_keeps_a_stopping_engine_nor_is_left_without_an_answer() {
    let bed = Bed::near().await;
    let engine = bed.engine().await;
    engine.run(bed.process(&tasks(&["a"])).await, &json!({})).await;
    let report = raw(&ack_of(bed.take(Lane::Plugin).await.execution_id));
    let near = Arc::clone(&engine.near);
    engine.stop().await;
    let answers = near.step_reports(vec![report.clone(), report]).await;
    let codes: Vec<_> = answers.iter().map(ReportOutcome::code).collect();
    assert_eq!(codes, ["engine_unavailable", "engine_unavailable"]);
}
