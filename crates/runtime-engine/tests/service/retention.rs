//! Runs that have ended are deleted in the background.

use crate::bed::{Bed, Engine, chain, code_of, on_both_databases, tasks};
use contract::{
    ErrorCode, ProcessId, RunId, pattern,
    report::Receipt,
    run::{RunDetail, RunRef},
};
use queue::{Lane, Notice, Topic};
use runtime_engine::Retention;
use serde_json::json;
use std::time::Duration;

on_both_databases!(
    a_run_is_deleted_when_its_time_has_come_and_running_ones_stay,
    of_each_process_the_newest_runs_are_kept,
    a_late_report_for_a_pruned_run_is_of_an_unknown_execution,
    two_engines_prune_without_harm_and_count_each_run_once,
    nothing_is_deleted_where_retention_is_off,
);

const SOON: Retention =
    Retention { max_age: Some(Duration::ZERO), max_runs: None, interval: Duration::from_millis(10) };

async fn get(engine: &Engine, run_id: RunId) -> Option<RunDetail> {
    let answer = engine.call(pattern::RUNTIME_RUN_GET, &RunRef { run_id, process_id: None }).await;
    answer.map_err(|error| assert_eq!(code_of(&error), ErrorCode::RunNotFound)).ok()
}

/// A run that has ended; its one attempt.
async fn ended(bed: &Bed, engine: &Engine, process_id: ProcessId) -> contract::task::Task {
    let run_id = engine.run(process_id, &json!({})).await;
    let task = task_of(bed, run_id).await;
    engine.finish(&task, &json!({"o": 1})).await;
    task
}

/// The run's task, passing over repeated hints about others.
async fn task_of(bed: &Bed, run_id: RunId) -> contract::task::Task {
    loop {
        let task = bed.take(Lane::Plugin).await;
        if task.run_id == run_id {
            return task;
        }
    }
}

/// Waits until the run is gone, with everything that belonged to it.
async fn gone(bed: &Bed, engine: &Engine, task: &contract::task::Task) {
    let runs = bed.storage.runs();
    while get(engine, task.run_id).await.is_some()
        || !runs.events(task.run_id, 0, 1, u32::MAX).await.unwrap().is_empty()
        || runs.run_of(&[task.execution_id]).await.unwrap()[0].is_some()
    {
        tokio::task::yield_now().await;
    }
}

async fn page(engine: &Engine) -> String {
    engine.call(pattern::RUNTIME_METRICS, &json!({})).await.unwrap()
}

fn pruned(page: &str, reason: &str) -> u64 {
    let line = format!("conveyor_engine_runs_pruned_total{{reason=\"{reason}\"}} ");
    page.lines().find_map(|text| text.strip_prefix(&line)).map_or(0, |count| count.parse().unwrap())
}

async fn a_run_is_deleted_when_its_time_has_come_and_running_ones_stay(mut bed: Bed) {
    bed.settings.retention = SOON;
    let engine = bed.engine().await;
    let process_id = bed.process(&tasks(&["a"])).await;
    let running = engine.run(process_id, &json!({})).await;
    let waits = task_of(&bed, running).await;
    let task = ended(&bed, &engine, process_id).await;
    gone(&bed, &engine, &task).await;
    assert_eq!(pruned(&page(&engine).await, "age"), 1);
    assert!(get(&engine, running).await.is_some());
    engine.finish(&waits, &json!({"o": 1})).await;
    gone(&bed, &engine, &waits).await;
    let page = page(&engine).await;
    assert!(page.contains("conveyor_engine_oldest_run_age_seconds 0"), "{page}");
    engine.stop().await;
}

async fn of_each_process_the_newest_runs_are_kept(mut bed: Bed) {
    bed.settings.retention = Retention { max_age: None, max_runs: Some(2), ..SOON };
    let engine = bed.engine().await;
    let process_id = bed.process(&tasks(&["a"])).await;
    let other = ended(&bed, &engine, bed.process(&tasks(&["a"])).await).await;
    let mut made = Vec::new();
    for _ in 0..4 {
        made.push(ended(&bed, &engine, process_id).await);
    }
    for task in &made[..2] {
        gone(&bed, &engine, task).await;
    }
    for task in [&made[2], &made[3], &other] {
        assert!(get(&engine, task.run_id).await.is_some());
    }
    assert_eq!(pruned(&page(&engine).await, "count"), 2);
    engine.stop().await;
}

async fn a_late_report_for_a_pruned_run_is_of_an_unknown_execution(mut bed: Bed) {
    bed.settings.retention = SOON;
    let engine = bed.engine().await;
    let process_id = bed.process(&tasks(&["a"])).await;
    let run_id = engine.run(process_id, &json!({})).await;
    let task = task_of(&bed, run_id).await;
    engine.ack(&task).await;
    let _: Receipt =
        engine.call(pattern::RUNTIME_RUN_CANCEL, &RunRef { run_id, process_id: None }).await.unwrap();
    gone(&bed, &engine, &task).await;
    // The engine that ended the run holds it still, but cannot store anything for it.
    assert_eq!(engine.finish(&task, &json!({"o": 2})).await.code(), "unknown_execution");
    let other = bed.engine().await;
    assert_eq!(other.heartbeat(&task).await.code(), "unknown_execution");
    engine.stop().await;
    other.stop().await;
}

async fn two_engines_prune_without_harm_and_count_each_run_once(mut bed: Bed) {
    bed.settings.retention = SOON;
    let (one, two) = (bed.engine().await, bed.engine().await);
    let process_id = bed.process(&tasks(&["a"])).await;
    let mut made = Vec::new();
    for engine in [&one, &two, &one, &two] {
        made.push(ended(&bed, engine, process_id).await);
    }
    for task in &made {
        gone(&bed, &one, task).await;
    }
    assert_eq!(pruned(&page(&one).await, "age") + pruned(&page(&two).await, "age"), 4);
    one.stop().await;
    two.stop().await;
}

async fn nothing_is_deleted_where_retention_is_off(mut bed: Bed) {
    bed.settings.retention = Retention { max_age: None, max_runs: None, ..SOON };
    let engine = bed.engine().await;
    let mut notices = bed.queue.subscribe(Topic::Runs).await.unwrap();
    let kept = bed.process(&tasks(&["a"])).await;
    let task = ended(&bed, &engine, kept).await;
    // Long enough for a sweep that would have deleted it.
    let next = engine.run(bed.process(&chain()).await, &json!({"q": 1})).await;
    while notices.recv().await != Notice::Message(next.to_string()) {}
    assert!(get(&engine, task.run_id).await.is_some());
    assert_eq!(pruned(&page(&engine).await, "age"), 0);
    engine.stop().await;
}
