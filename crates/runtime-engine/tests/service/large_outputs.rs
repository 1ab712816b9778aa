//! Outputs that are too large for the history lie in file-service (protocol section 3).

use crate::bed::{Bed, Engine, on_both_databases};
use contract::{
    ExecutionId, Json, RunId,
    file::FileRef,
    pattern,
    report::{Heartbeat, ReportBody, ReportOutcome, StepReport},
    run::{NodeStatus, RunHistory, RunHistoryRequest, RunRetry, RunStarted, RunStatus},
    task::Task,
};
use queue::{Lane, Notice, Topic};
use run_files::{RunFiles, RunFilesSettings};
use runtime_engine::Settings;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

on_both_databases!(
    outputs_of_one_mebibyte_stand_in_the_history_and_larger_ones_in_a_file,
    the_same_large_result_again_is_a_duplicate_and_another_one_a_conflict,
    what_the_engine_looks_into_stays_in_the_history_whatever_its_size,
    while_file_service_is_away_a_large_result_is_told_to_come_again,
    what_file_service_refuses_stays_in_the_history,
    a_late_large_result_is_kept_as_a_reference,
    a_repetition_owns_the_files_of_what_it_keeps,
    what_a_running_step_says_is_told_to_those_who_watch_and_shown_with_it,
);

const MIB: usize = 1024 * 1024;

/// A file-service on the bed's database.
struct Files {
    settings: RunFilesSettings,
    stop: CancellationToken,
    running: JoinHandle<Result<(), file_service::Error>>,
    _folder: TempDir,
}

impl Files {
    async fn start(bed: &Bed, max_file_bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = file_service::Settings {
            address: "127.0.0.1:0".parse().unwrap(),
            tls: None,
            dir: folder.path().to_owned(),
            max_file_bytes,
            token: Some("files".into()),
            sweep: file_service::SweepSettings::default(),
        };
        let service = file_service::Service::bind(settings, bed.storage.clone()).await.unwrap();
        let url = format!("http://{}", service.addresses()[0].1);
        let stop = CancellationToken::new();
        let running = tokio::spawn(service.run(stop.clone()));
        let settings = RunFilesSettings { url, token: Some("files".into()), tls: None };
        Self { settings, stop, running, _folder: folder }
    }

    async fn engine(&self, bed: &Bed) -> Engine {
        bed.engine_with(&Settings { files: self.settings.clone(), ..limited(bed) }).await
    }

    async fn text(&self, run_id: RunId, file: &FileRef) -> String {
        RunFiles::new(&self.settings).unwrap().text(run_id, file, u64::MAX).await.unwrap()
    }

    async fn stop(self) {
        self.stop.cancel();
        self.running.await.unwrap().unwrap();
    }
}

/// With the limit of the protocol.
fn limited(bed: &Bed) -> Settings {
    Settings { inline_output_bytes: MIB, ..bed.settings.clone() }
}

/// `a.o -> b.i`
fn two() -> Value {
    json!({
        "widgets": [
            {"id": "a", "source": {"nodeType": "plugin.test"}, "outputs": ["o", "small"]},
            {"id": "b", "source": {"nodeType": "plugin.test"}, "outputs": ["o"]},
        ],
        "edges": [{"source": "a", "sourceHandle": "o", "target": "b", "targetHandle": "i"}],
    })
}

fn large(bytes: usize) -> Value {
    json!({"o": "x".repeat(bytes), "small": 1})
}

fn reference(value: Option<&Json>) -> FileRef {
    FileRef::of(value.unwrap()).expect("a reference")
}

async fn outputs_of_one_mebibyte_stand_in_the_history_and_larger_ones_in_a_file(bed: Bed) {
    let files = Files::start(&bed, u64::MAX).await;
    let engine = files.engine(&bed).await;
    let process_id = bed.process(&two()).await;
    for (bytes, is_file) in [(MIB, false), (MIB + 2_000, true)] {
        let run_id = engine.run(process_id, &json!({})).await;
        let task = bed.take_for(Lane::Plugin, "a", 1).await;
        assert_eq!(engine.finish(&task, &large(bytes)).await.code(), "applied");
        let mut next = bed.take_for(Lane::Plugin, "b", 1).await;
        while next.run_id != run_id {
            // The sweep puts the task of the run before on its lane again.
            next = bed.take_for(Lane::Plugin, "b", 1).await;
        }
        assert_eq!(FileRef::of(&next.inputs["i"]).is_some(), is_file, "{bytes}");
        let outputs = engine.step(run_id, "a").await.outputs.unwrap();
        assert_eq!(outputs["small"].text(), "1", "what fits stays");
        if is_file {
            let file = reference(outputs.get("o"));
            assert_eq!(file.size, (bytes + 2) as u64);
            let text = files.text(run_id, &file).await;
            let written = format!("\"{}\"", "x".repeat(bytes));
            assert!(text == written, "the file holds the output as it was reported");
            let asked = RunHistoryRequest { run_id, process_id: None, after: 0, limit: 1000 };
            let history: RunHistory = engine.call(pattern::RUNTIME_RUN_HISTORY, &asked).await.unwrap();
            let largest = history.events.iter().map(|event| event.event.text().len()).max();
            assert!(largest.unwrap() < 2_000, "events stay small");
        }
    }
    engine.stop().await;
    files.stop().await;
}

async fn the_same_large_result_again_is_a_duplicate_and_another_one_a_conflict(bed: Bed) {
    let files = Files::start(&bed, u64::MAX).await;
    let engine = files.engine(&bed).await;
    engine.run(bed.process(&two()).await, &json!({})).await;
    let task = bed.take_for(Lane::Plugin, "a", 1).await;
    assert_eq!(engine.finish(&task, &large(2 * MIB)).await.code(), "applied");
    assert_eq!(engine.finish(&task, &large(2 * MIB)).await.code(), "duplicate");
    assert_eq!(engine.finish(&task, &large(2 * MIB + 1)).await.code(), "conflicting_result");
    assert_eq!(engine.finish(&task, &json!({"o": 1})).await.code(), "conflicting_result");
    let nobody = Task { execution_id: ExecutionId(uuid::Uuid::now_v7()), ..task };
    assert_eq!(engine.finish(&nobody, &large(2 * MIB)).await.code(), "unknown_execution");
    engine.stop().await;
    files.stop().await;
}

async fn what_the_engine_looks_into_stays_in_the_history_whatever_its_size(bed: Bed) {
    let files = Files::start(&bed, u64::MAX).await;
    let engine = files.engine(&bed).await;
    let document = json!({
        "widgets": [
            {"id": "a", "source": {"nodeType": "plugin.test"}, "outputs": ["o"]},
            {"id": "x", "source": {"nodeType": "system.object.extract"},
                "config": [{"name": "map", "value": {"name": "name"}}]},
            {"id": "out", "source": {"nodeType": "system.output"}},
        ],
        "edges": [
            {"source": "a", "sourceHandle": "o", "target": "x", "targetHandle": "source"},
            {"source": "x", "sourceHandle": "name", "target": "out", "targetHandle": "name"},
        ],
    });
    let run_id = engine.run(bed.process(&document).await, &json!({})).await;
    let task = bed.take_for(Lane::Plugin, "a", 1).await;
    let outputs = json!({"o": {"name": "Анна", "rest": "x".repeat(2 * MIB)}});
    assert_eq!(engine.finish(&task, &outputs).await.code(), "applied");
    let detail = engine.get(run_id).await;
    assert_eq!(detail.run.status, RunStatus::Finished);
    assert_eq!(detail.public_inputs.unwrap()["name"].text(), "\"Анна\"");
    engine.stop().await;
    files.stop().await;
}

async fn while_file_service_is_away_a_large_result_is_told_to_come_again(bed: Bed) {
    let files = Files::start(&bed, u64::MAX).await;
    let port = files.settings.url.clone();
    files.stop().await;
    let settings = RunFilesSettings { url: port, token: None, tls: None };
    let engine = bed.engine_with(&Settings { files: settings, ..limited(&bed) }).await;
    let run_id = engine.run(bed.process(&two()).await, &json!({})).await;
    let task = bed.take_for(Lane::Plugin, "a", 1).await;
    let ReportOutcome::Err(error) = engine.finish(&task, &large(2 * MIB)).await else { panic!("refused") };
    assert!(error.retryable && error.code == contract::ErrorCode::Unavailable, "{error}");
    assert_ne!(
        engine.step(run_id, "a").await.status,
        NodeStatus::Finished,
        "nothing is lost, nothing is stored"
    );
    assert_eq!(
        engine.finish(&task, &json!({"o": "small"})).await.code(),
        "applied",
        "small ones need no file"
    );
    engine.stop().await;
}

async fn what_file_service_refuses_stays_in_the_history(bed: Bed) {
    let files = Files::start(&bed, MIB as u64).await;
    let engine = files.engine(&bed).await;
    let run_id = engine.run(bed.process(&two()).await, &json!({})).await;
    let task = bed.take_for(Lane::Plugin, "a", 1).await;
    assert_eq!(engine.finish(&task, &large(2 * MIB)).await.code(), "applied");
    assert_eq!(engine.step(run_id, "a").await.outputs.unwrap()["o"].text().len(), 2 * MIB + 2);
    engine.stop().await;
    files.stop().await;
}

async fn a_late_large_result_is_kept_as_a_reference(bed: Bed) {
    let files = Files::start(&bed, u64::MAX).await;
    let engine = files.engine(&bed).await;
    let run_id = engine.run(bed.process(&two()).await, &json!({})).await;
    let task = bed.take_for(Lane::Plugin, "a", 1).await;
    engine.ack(&task).await;
    let _: Json = engine.call(pattern::RUNTIME_RUN_CANCEL, &json!({"runId": run_id})).await.unwrap();
    assert_eq!(engine.finish(&task, &large(2 * MIB)).await.code(), "run_terminal");
    let asked = RunHistoryRequest { run_id, process_id: None, after: 0, limit: 1000 };
    let history: RunHistory = engine.call(pattern::RUNTIME_RUN_HISTORY, &asked).await.unwrap();
    let late = history.events.iter().find(|event| event.kind == "late_result").unwrap();
    assert!(late.event.text().len() < 2_000 && late.event.text().contains("$file"));
    engine.stop().await;
    files.stop().await;
}

async fn a_repetition_owns_the_files_of_what_it_keeps(bed: Bed) {
    let files = Files::start(&bed, u64::MAX).await;
    let engine = files.engine(&bed).await;
    let run_id = engine.run(bed.process(&two()).await, &json!({})).await;
    let task = bed.take_for(Lane::Plugin, "a", 1).await;
    engine.finish(&task, &large(2 * MIB)).await;
    let task = bed.take_for(Lane::Plugin, "b", 1).await;
    engine.fail(&task, "broken").await;
    let asked = RunRetry { run_id, process_id: None, user_id: "u".into(), idempotency_key: None };
    let again: RunStarted = engine.call(pattern::RUNTIME_RUN_RETRY, &asked).await.unwrap();
    let task = bed.take_for(Lane::Plugin, "b", 1).await;
    assert_eq!(task.run_id, again.run_id);
    let file = reference(task.inputs.get("i"));
    assert!(files.text(again.run_id, &file).await.len() > 2 * MIB);
    let stranger = engine.start(bed.process(&two()).await, &json!({})).await.unwrap().run_id;
    assert_eq!(bed.storage.blobs().of_run(stranger, &file.id).await.unwrap(), None);
    engine.stop().await;
    files.stop().await;
}

async fn what_a_running_step_says_is_told_to_those_who_watch_and_shown_with_it(bed: Bed) {
    let engine = bed.engine().await;
    let mut notices = bed.queue.subscribe(Topic::Runs).await.unwrap();
    let run_id = engine.run(bed.process(&two()).await, &json!({})).await;
    let told = Notice::Message(run_id.to_string());
    assert_eq!(notices.recv().await, told, "the start");
    let task = bed.take_for(Lane::Plugin, "a", 1).await;
    engine.ack(&task).await;
    assert_eq!(notices.recv().await, told, "the ack");
    assert_eq!(engine.step(run_id, "a").await.word, None);
    let says = |progress: &str, message: Option<&str>| {
        let progress = Some(Json::parse(progress).unwrap());
        let beat = Heartbeat { progress, message: message.map(str::to_owned) };
        StepReport {
            execution_id: task.execution_id,
            run_id: Some(run_id),
            body: ReportBody::Heartbeat(beat),
        }
    };
    engine.reports(vec![says("0.25", Some("Страница 1"))]).await;
    assert_eq!(notices.recv().await, told, "what the step says");
    engine.reports(vec![says("0.5", None)]).await;
    let word = engine.step(run_id, "a").await.word.unwrap();
    assert_eq!((word.progress.unwrap().text(), word.message.as_deref()), ("0.5", Some("Страница 1")));
    assert!(word.at.is_some());
    engine.finish(&task, &json!({"o": 1})).await;
    assert_eq!(engine.step(run_id, "a").await.word, None, "a step that has ended says nothing any more");
    engine.stop().await;
}
