//! Starting, reading and canceling runs.

use crate::bed::{Bed, chain, code_of, on_both_databases, start_of, tasks, values};
use contract::{
    Digest, ErrorCode, Json, Millis, ProcessId, PublicationId,
    manifest::Endpoint,
    pattern,
    report::Receipt,
    run::{
        NodeStatus, RunDetail, RunHistory, RunHistoryRequest, RunList, RunListRequest, RunRef, RunStarted,
        RunStatus, StepConfirm,
    },
};
use queue::{Lane, Notice, Topic};
use serde_json::json;
use storage::catalogue::{Committed, NewPublication};
use uuid::Uuid;

on_both_databases!(
    a_run_goes_from_trigger_over_both_lanes_to_its_result,
    missing_required_fields_are_named_by_path_and_nothing_starts,
    a_start_with_the_same_idempotency_key_answers_with_the_first_run,
    unknown_and_foreign_processes_are_not_found,
    a_process_that_cannot_be_run_is_refused_with_what_is_wrong,
    runs_are_listed_newest_first_in_pages,
    a_history_is_read_in_pages_with_payloads_as_sent,
    a_page_of_a_history_ends_where_a_frame_would,
    cancel_ends_the_run_and_tells_those_who_work_on_it,
    a_run_keeps_the_publication_and_the_revision_it_started_with,
    confirming_a_step_that_does_not_wait_is_a_conflict,
    metrics_tell_runs_reports_and_outstanding_attempts,
);

async fn a_run_goes_from_trigger_over_both_lanes_to_its_result(bed: Bed) {
    let engine = bed.engine().await;
    let mut notices = bed.queue.subscribe(Topic::Runs).await.unwrap();
    let process_id = bed.process(&chain()).await;
    let run_id = engine.run(process_id, &json!({"q": "вопрос"})).await;
    assert_eq!(notices.recv().await, Notice::Message(run_id.to_string()));

    let task = bed.take(Lane::Plugin).await;
    assert_eq!((task.run_id, task.node_id.as_str(), task.attempt), (run_id, "a", 1));
    assert_eq!((task.inputs, task.diagram_id), (values(&json!({"i": "вопрос"})), process_id));
    assert_eq!(engine.step(run_id, "a").await.status, NodeStatus::Queued);
    let task = bed.take_for(Lane::Plugin, "a", 1).await;
    engine.ack(&task).await;
    assert_eq!(engine.step(run_id, "a").await.status, NodeStatus::Running);
    engine.finish(&task, &json!({"o": {"big": 1}})).await;

    let task = bed.take(Lane::Executor).await;
    assert_eq!(
        (task.node_type.as_str(), task.inputs),
        ("system.template", values(&json!({"i": {"big": 1}})))
    );
    let detail = engine.get(run_id).await;
    assert_eq!((detail.run.status, detail.public_inputs), (RunStatus::Running, None));
    let task = bed.take_for(Lane::Executor, "b", 1).await;
    engine.finish(&task, &json!({"text": "ответ"})).await;

    let detail = engine.get(run_id).await;
    assert_eq!(
        (detail.run.status, detail.public_inputs),
        (RunStatus::Finished, Some(values(&json!({"r": "ответ"}))))
    );
    assert!(detail.run.finished_at.is_some() && detail.run.error.is_none());
    assert_eq!(bed.storage.runs().outstanding_count().await.unwrap(), 0);
    engine.stop().await;
}

async fn missing_required_fields_are_named_by_path_and_nothing_starts(bed: Bed) {
    let engine = bed.engine().await;
    let process_id = bed.process(&chain()).await;
    let error = engine.start(process_id, &json!({"other": 1})).await.unwrap_err();
    assert_eq!((code_of(&error), error.retryable), (ErrorCode::InvalidInput, false));
    assert_eq!(error.details.unwrap()["faults"][0]["path"], "$.q");
    let list = RunListRequest {
        process_id: None,
        workspace_id: "default".into(),
        status: None,
        cursor: None,
        limit: 5,
    };
    let runs: RunList = engine.call(pattern::RUNTIME_RUN_LIST, &list).await.unwrap();
    assert_eq!(runs.runs.len(), 0);
    engine.stop().await;
}

async fn a_start_with_the_same_idempotency_key_answers_with_the_first_run(bed: Bed) {
    let engine = bed.engine().await;
    let process_id = bed.process(&chain()).await;
    let mut asked = start_of(process_id, &json!({"q": 1}));
    asked.idempotency_key = Some("order-7".into());
    let first: RunStarted = engine.call(pattern::RUNTIME_RUN_START, &asked).await.unwrap();
    let second: RunStarted = engine.call(pattern::RUNTIME_RUN_START, &asked).await.unwrap();
    assert_eq!((first.created, second.created, second.run_id), (true, false, first.run_id));
    engine.stop().await;
}

async fn unknown_and_foreign_processes_are_not_found(bed: Bed) {
    let engine = bed.engine().await;
    let error = engine.start(ProcessId(Uuid::now_v7()), &json!({})).await.unwrap_err();
    assert_eq!(code_of(&error), ErrorCode::NotFound);
    let process_id = bed.process(&chain()).await;
    let mut asked = start_of(process_id, &json!({"q": 1}));
    asked.workspace_id = "other".into();
    let error = engine.call::<_, RunStarted>(pattern::RUNTIME_RUN_START, &asked).await.unwrap_err();
    assert_eq!(code_of(&error), ErrorCode::NotFound);
    let run_id = engine.run(process_id, &json!({"q": 1})).await;
    let elsewhere = RunRef { run_id, process_id: Some(ProcessId(Uuid::now_v7())) };
    let error = engine.call::<_, RunDetail>(pattern::RUNTIME_RUN_GET, &elsewhere).await.unwrap_err();
    assert_eq!(code_of(&error), ErrorCode::RunNotFound);
    let error = engine.call::<_, Receipt>(pattern::RUNTIME_RUN_CANCEL, &elsewhere).await.unwrap_err();
    assert_eq!(code_of(&error), ErrorCode::RunNotFound);
    engine.stop().await;
}

async fn a_process_that_cannot_be_run_is_refused_with_what_is_wrong(bed: Bed) {
    let engine = bed.engine().await;
    let document = json!({"widgets": [{"id": "w-loop", "source": {"nodeType": "system.loop"}}], "edges": []});
    let error = engine.start(bed.process(&document).await, &json!({})).await.unwrap_err();
    assert_eq!(code_of(&error), ErrorCode::InvalidProcess);
    assert!(error.message.contains("w-loop") && error.message.contains("body"), "{}", error.message);
    engine.stop().await;
}

async fn runs_are_listed_newest_first_in_pages(bed: Bed) {
    let engine = bed.engine().await;
    let process_id = bed.process(&json!({"widgets": [], "edges": []})).await;
    let mut started = Vec::new();
    for _ in 0..5 {
        started.push(engine.run(process_id, &json!({})).await);
    }
    started.sort_unstable();
    let mut asked = RunListRequest {
        process_id: Some(process_id),
        workspace_id: "default".into(),
        status: Some(RunStatus::Finished),
        cursor: None,
        limit: 2,
    };
    let mut listed = Vec::new();
    loop {
        let page: RunList = engine.call(pattern::RUNTIME_RUN_LIST, &asked).await.unwrap();
        listed.extend(page.runs.into_iter().map(|run| run.id));
        let Some(cursor) = page.next_cursor else { break };
        asked.cursor = Some(cursor);
    }
    listed.sort_unstable();
    assert_eq!(listed, started);
    asked.limit = 0;
    let error = engine.call::<_, RunList>(pattern::RUNTIME_RUN_LIST, &asked).await.unwrap_err();
    assert_eq!(code_of(&error), ErrorCode::InvalidRequest);
    engine.stop().await;
}

async fn a_history_is_read_in_pages_with_payloads_as_sent(bed: Bed) {
    let engine = bed.engine().await;
    let process_id = bed.process(&chain()).await;
    let mut asked = start_of(process_id, &json!({}));
    let big = r#"{"n":123456789012345678901234567890.10,"s":"\ud800"}"#;
    asked.payload.insert("q".into(), Json::parse(big).unwrap());
    let started: RunStarted = engine.call(pattern::RUNTIME_RUN_START, &asked).await.unwrap();
    let request = |after, limit| RunHistoryRequest { run_id: started.run_id, process_id: None, after, limit };
    let page: RunHistory = engine.call(pattern::RUNTIME_RUN_HISTORY, &request(0, 2)).await.unwrap();
    let kinds: Vec<_> = page.events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!((kinds.as_slice(), page.last), (["run_started", "step_evaluated"].as_slice(), 3));
    assert!(page.events[0].event.text().contains(big));
    let page: RunHistory = engine.call(pattern::RUNTIME_RUN_HISTORY, &request(2, 100)).await.unwrap();
    assert_eq!((page.events[0].sequence, page.events[0].kind.as_str()), (3, "step_scheduled"));
    let task = bed.take(Lane::Plugin).await;
    assert_eq!(task.inputs["i"].text(), big);
    engine.stop().await;
}

async fn a_page_of_a_history_ends_where_a_frame_would(mut bed: Bed) {
    bed.settings.max_frame_bytes = 64 * 1024;
    let engine = bed.engine().await;
    let run_id = engine.run(bed.process(&chain()).await, &json!({"q": "x".repeat(60_000)})).await;
    let task = bed.take(Lane::Plugin).await;
    engine.finish(&task, &json!({"o": "y".repeat(60_000)})).await;
    let (mut after, mut pages, mut kinds) = (0, 0, Vec::new());
    loop {
        let request = RunHistoryRequest { run_id, process_id: None, after, limit: 1000 };
        let page: RunHistory = engine.call(pattern::RUNTIME_RUN_HISTORY, &request).await.unwrap();
        kinds.extend(page.events.iter().map(|event| event.kind.clone()));
        pages += 1;
        after = page.events.last().unwrap().sequence;
        if after == page.last {
            break;
        }
    }
    assert_eq!(kinds, ["run_started", "step_evaluated", "step_scheduled", "step_finished", "step_scheduled"]);
    assert!(pages > 2, "{pages}");
    engine.stop().await;
}

async fn cancel_ends_the_run_and_tells_those_who_work_on_it(bed: Bed) {
    let engine = bed.engine().await;
    let run_id = engine.run(bed.process(&tasks(&["a"])).await, &json!({})).await;
    let task = bed.take(Lane::Plugin).await;
    engine.ack(&task).await;
    let mut steps = bed.queue.subscribe(Topic::Steps).await.unwrap();
    let reference = RunRef { run_id, process_id: None };
    let receipt: Receipt = engine.call(pattern::RUNTIME_RUN_CANCEL, &reference).await.unwrap();
    assert_eq!(receipt.status, contract::report::Accepted::Applied);
    let Notice::Message(told) = steps.recv().await else { panic!() };
    assert!(told.contains(&task.execution_id.to_string()), "{told}");
    assert_eq!(engine.get(run_id).await.run.status, RunStatus::Canceled);
    assert_eq!(engine.finish(&task, &json!({"o": 1})).await.code(), "run_terminal");
    let request = RunHistoryRequest { run_id, process_id: None, after: 0, limit: 100 };
    let history: RunHistory = engine.call(pattern::RUNTIME_RUN_HISTORY, &request).await.unwrap();
    assert_eq!(history.events.last().unwrap().kind, "late_result");
    let again: Receipt = engine.call(pattern::RUNTIME_RUN_CANCEL, &reference).await.unwrap();
    assert_eq!(again.status, contract::report::Accepted::Duplicate);
    assert_eq!(
        bed.storage.runs().claim_dispatch(&[task.execution_id], crate::bed::LONG).await.unwrap(),
        [false]
    );
    engine.stop().await;
}

async fn publish(bed: &Bed, version: &str, output: &str) -> PublicationId {
    let publication_id = PublicationId(Uuid::now_v7());
    let item = json!({"nodeType": "plugin.test", "inputs": null,
        "outputs": [{"name": output, "type": "string", "label": "O"}]});
    let new = NewPublication {
        publication_id,
        plugin_id: "test".into(),
        version: version.into(),
        digest: Digest([version.len() as u8; 32]),
        manifest: Json::from(json!({"pluginId": "test", "label": "Test"})),
        items: Json::from(json!([item])),
        assets: Vec::new(),
        node_types: vec!["plugin.test".into()],
        pull: Endpoint { host: "127.0.0.1".into(), port: 1 },
        node_endpoints: Vec::new(),
        at: Millis(1),
        allow_republish: false,
        seal: storage::catalogue::Seal::default(),
    };
    assert!(matches!(bed.storage.catalogue().commit(&new).await.unwrap(), Committed::Committed { .. }));
    publication_id
}

async fn a_run_keeps_the_publication_and_the_revision_it_started_with(bed: Bed) {
    let engine = bed.engine().await;
    let mut document = tasks(&["a"]);
    document["widgets"][0]["outputs"] = serde_json::Value::Null;
    let process_id = bed.process(&document).await;
    // Published after the engine read the catalogue, and nobody told it.
    let first = publish(&bed, "1", "answer").await;
    let run_id = engine.run(process_id, &json!({})).await;
    let task = bed.take(Lane::Plugin).await;
    assert_eq!(
        (task.publication_id, task.outputs.as_slice()),
        (Some(first), ["answer".to_owned()].as_slice())
    );

    publish(&bed, "22", "other").await;
    let draft = storage::processes::ProcessDraft {
        name: "changed".into(),
        document: Json::from(tasks(&["z"])),
        node_types: Vec::new(),
    };
    bed.storage.processes().update(process_id, &draft, Millis(2)).await.unwrap();
    engine.stop().await;
    bed.flush().await;

    let engine = bed.engine().await;
    let again = bed.take_for(Lane::Plugin, "a", 1).await;
    assert_eq!((again.publication_id, &again.outputs), (Some(first), &task.outputs));
    engine.finish(&again, &json!({"answer": 1})).await;
    assert_eq!(engine.get(run_id).await.run.status, RunStatus::Finished);
    let run_id = engine.run(process_id, &json!({})).await;
    assert_eq!(engine.get(run_id).await.steps[0].node_id, "z", "a new run takes the new revision");
    engine.stop().await;
}

async fn confirming_a_step_that_does_not_wait_is_a_conflict(bed: Bed) {
    let engine = bed.engine().await;
    let run_id = engine.run(bed.process(&tasks(&["a"])).await, &json!({})).await;
    let confirm = |node: &str| StepConfirm {
        run_id,
        process_id: None,
        node_path: contract::NodePath::root(node),
        approved: true,
        comment: None,
        by: "local".into(),
    };
    let code = async |node: &str| {
        engine.call::<_, Json>(pattern::RUNTIME_STEP_CONFIRM, &confirm(node)).await.unwrap_err().code
    };
    assert_eq!((code("a").await, code("nobody").await), (ErrorCode::Conflict, ErrorCode::NotFound));
    engine.stop().await;
}

async fn metrics_tell_runs_reports_and_outstanding_attempts(bed: Bed) {
    let engine = bed.engine().await;
    engine.run(bed.process(&tasks(&["a", "b"])).await, &json!({})).await;
    let task = bed.take(Lane::Plugin).await;
    engine.ack(&task).await;
    let page: String = engine.call(pattern::RUNTIME_METRICS, &json!({})).await.unwrap();
    for line in [
        "conveyor_engine_runs_total{outcome=\"started\"} 1",
        "conveyor_engine_reports_total{outcome=\"applied\"} 1",
        "conveyor_engine_outstanding_attempts 2",
        "# EOF",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
    engine.stop().await;
}
