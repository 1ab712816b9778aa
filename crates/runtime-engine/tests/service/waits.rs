//! Loops, steps that wait for a person or a moment, limits and repetitions of runs, with engines
//! that come and go.

use crate::bed::{Bed, code_of, on_both_databases, start_of, tasks, values};
use contract::{
    ErrorCode, NodePath, RpcError, RunId, pattern,
    report::{Accepted, Receipt},
    run::{NodeStatus, RunDetail, RunRef, RunRetry, RunStarted, RunStatus, StepConfirm},
};
use queue::{Lane, Topic};
use serde_json::{Value, json};

on_both_databases!(
    a_loop_survives_a_restart_between_its_iterations,
    a_person_answers_another_engine_than_the_one_that_asked,
    a_delay_survives_a_restart_and_fires_by_the_databases_clock,
    a_run_beyond_its_deadline_fails_and_leaves_nothing_outstanding,
    a_start_beyond_the_limit_of_running_runs_is_refused_as_overloaded,
    simultaneous_starts_at_several_engines_stay_within_the_limit,
    a_repeated_run_keeps_what_had_finished,
    only_a_run_that_failed_or_was_canceled_is_repeated,
    a_schedule_starts_one_run_per_firing_however_many_engines_there_are,
);

fn widget(id: &str, node_type: &str, config: &Value) -> Value {
    json!({"id": id, "source": {"nodeType": node_type}, "outputs": ["o"], "config": config})
}

fn edge(source: &str, output: &str, target: &str, input: &str) -> Value {
    json!({"source": source, "sourceHandle": output, "target": target, "targetHandle": input})
}

/// A run that ends by itself is waited for by its notices.
async fn ended(bed: &Bed, engine: &crate::bed::Engine, run_id: RunId) -> RunDetail {
    let mut notices = bed.queue.subscribe(Topic::Runs).await.unwrap();
    loop {
        let detail = engine.get(run_id).await;
        if detail.run.status.is_terminal() {
            return detail;
        }
        notices.recv().await;
    }
}

async fn a_loop_survives_a_restart_between_its_iterations(bed: Bed) {
    let body = json!({
        "widgets": [
            widget("t", "system.trigger.input", &json!([{"name": "item"}])),
            widget("b", "plugin.test", &json!([])),
            widget("out", "system.output", &json!([{"name": "r"}])),
        ],
        "edges": [edge("t", "item", "b", "i"), edge("b", "o", "out", "r")],
    });
    let config = json!([{"name": "iterator", "value": ["x", "y"]}, {"name": "body", "value": body}]);
    let document = json!({
        "widgets": [widget("w", "system.loop", &config), widget("out", "system.output", &json!([]))],
        "edges": [edge("w", "items", "out", "items")],
    });
    let engine = bed.engine().await;
    let run_id = engine.run(bed.process(&document).await, &json!({})).await;
    let task = bed.take(Lane::Plugin).await;
    assert_eq!((task.node_path.0.as_str(), task.inputs.clone()), ("w[0]/b", values(&json!({"i": "x"}))));
    engine.finish(&task, &json!({"o": 1})).await;
    engine.stop().await;

    let engine = bed.engine().await;
    let task = bed.take_for(Lane::Plugin, "b", 1).await;
    assert_eq!(task.node_path.0, "w[1]/b");
    engine.finish(&task, &json!({"o": 2})).await;
    let detail = engine.get(run_id).await;
    assert_eq!(detail.run.status, RunStatus::Finished);
    assert_eq!(detail.public_inputs, Some(values(&json!({"items": [{"r": 1}, {"r": 2}]}))));
    engine.stop().await;
}

fn confirm(run_id: RunId, approved: bool) -> StepConfirm {
    StepConfirm {
        run_id,
        process_id: None,
        node_path: NodePath::root("ask"),
        approved,
        comment: None,
        by: "ann".into(),
    }
}

async fn a_person_answers_another_engine_than_the_one_that_asked(bed: Bed) {
    let document = json!({
        "widgets": [
            widget("ask", "user.validation", &json!([{"name": "value", "value": 5}])),
            widget("out", "system.output", &json!([])),
        ],
        "edges": [edge("ask", "confirm", "out", "answer")],
    });
    let (one, two) = (bed.engine().await, bed.engine().await);
    let run_id = one.run(bed.process(&document).await, &json!({})).await;
    let step = two.step(run_id, "ask").await;
    assert_eq!((step.status, step.inputs), (NodeStatus::Running, Some(values(&json!({"value": 5})))));
    let answer = async |engine: &crate::bed::Engine, approved| -> Result<Receipt, RpcError> {
        engine.call(pattern::RUNTIME_STEP_CONFIRM, &confirm(run_id, approved)).await
    };
    assert_eq!(answer(&two, true).await.unwrap().status, Accepted::Applied);
    assert_eq!(
        answer(&one, true).await.unwrap().status,
        Accepted::Duplicate,
        "a view that is old is read again"
    );
    assert_eq!(answer(&one, false).await.unwrap_err().code, ErrorCode::Conflict);
    let detail = one.get(run_id).await;
    assert_eq!(detail.run.status, RunStatus::Finished);
    let answer: Value = detail.public_inputs.unwrap()["answer"].read().unwrap();
    assert_eq!((&answer["by"], &answer["approved"]), (&json!("ann"), &json!(true)));
    assert_eq!(bed.storage.runs().outstanding_count().await.unwrap(), 0);
    one.stop().await;
    two.stop().await;
}

async fn a_delay_survives_a_restart_and_fires_by_the_databases_clock(bed: Bed) {
    let config = json!([{"name": "milliseconds", "value": 150}, {"name": "value", "value": "v"}]);
    let document = json!({
        "widgets": [widget("d", "system.delay", &config), widget("out", "system.output", &json!([]))],
        "edges": [edge("d", "value", "out", "r")],
    });
    let engine = bed.engine().await;
    let run_id = engine.run(bed.process(&document).await, &json!({})).await;
    assert_eq!(bed.storage.runs().outstanding_count().await.unwrap(), 1);
    engine.stop().await;
    let engine = bed.engine().await;
    let detail = ended(&bed, &engine, run_id).await;
    assert_eq!(detail.public_inputs, Some(values(&json!({"r": "v"}))));
    let step = &detail.steps[0];
    assert!(
        step.finished_at.unwrap().since(step.started_at.unwrap()).as_millis() >= 150,
        "not before its time"
    );
    assert_eq!(bed.storage.runs().outstanding_count().await.unwrap(), 0);
    engine.stop().await;
}

async fn a_run_beyond_its_deadline_fails_and_leaves_nothing_outstanding(bed: Bed) {
    let document = json!({
        "settings": {"name": "x", "timeoutMs": 50},
        "widgets": [widget("a", "plugin.test", &json!([]))],
        "edges": [],
    });
    let engine = bed.engine().await;
    let run_id = engine.run(bed.process(&document).await, &json!({})).await;
    let detail = ended(&bed, &engine, run_id).await;
    assert_eq!(detail.run.error.unwrap().error.code.as_deref(), Some("run_timeout"));
    assert_eq!(bed.storage.runs().outstanding_count().await.unwrap(), 0);
    engine.stop().await;
}

async fn a_start_beyond_the_limit_of_running_runs_is_refused_as_overloaded(bed: Bed) {
    let document = json!({
        "settings": {"name": "x", "maxConcurrentRuns": 1},
        "widgets": [widget("a", "plugin.test", &json!([]))],
        "edges": [],
    });
    let engine = bed.engine().await;
    let process_id = bed.process(&document).await;
    let mut keyed = start_of(process_id, &json!({}));
    keyed.idempotency_key = Some("k".into());
    let first: RunStarted = engine.call(pattern::RUNTIME_RUN_START, &keyed).await.unwrap();
    let error = engine.start(process_id, &json!({})).await.unwrap_err();
    assert_eq!((code_of(&error), error.retryable), (ErrorCode::Overloaded, true));
    let again: RunStarted = engine.call(pattern::RUNTIME_RUN_START, &keyed).await.unwrap();
    assert_eq!((again.run_id, again.created), (first.run_id, false), "a repeated start is none");
    let canceled = RunRef { run_id: first.run_id, process_id: None };
    let _: Receipt = engine.call(pattern::RUNTIME_RUN_CANCEL, &canceled).await.unwrap();
    engine.run(process_id, &json!({})).await;
    engine.stop().await;
}

fn repeat(run_id: RunId) -> RunRetry {
    RunRetry { run_id, process_id: None, user_id: "ann".into(), idempotency_key: None }
}

async fn simultaneous_starts_at_several_engines_stay_within_the_limit(bed: Bed) {
    const MOST: usize = 3;
    let (one, two) = (bed.engine().await, bed.engine().await);
    let mut document = tasks(&["a"]);
    document["settings"] = json!({"name": "x", "maxConcurrentRuns": MOST});
    let process_id = bed.process(&document).await;
    let payload = json!({});
    // Twice, so that the second time places are taken that were freed.
    for _ in 0..2 {
        let starts = (0..20).map(|n| [&one, &two][n % 2].start(process_id, &payload));
        let (started, refused): (Vec<_>, Vec<_>) =
            futures::future::join_all(starts).await.into_iter().partition(Result::is_ok);
        assert_eq!((started.len(), refused.len()), (MOST, 20 - MOST));
        assert!(refused.iter().all(|refused| {
            refused.as_ref().is_err_and(|error| code_of(error) == ErrorCode::Overloaded && error.retryable)
        }));
        // Hints may come twice.
        let mut ended = 0;
        while ended < MOST {
            let task = bed.take_for(Lane::Plugin, "a", 1).await;
            ended += usize::from(one.finish(&task, &json!({"o": 1})).await.code() == "applied");
        }
    }
    one.stop().await;
    two.stop().await;
}

async fn a_repeated_run_keeps_what_had_finished(bed: Bed) {
    let engine = bed.engine().await;
    let run_id = engine.run(bed.process(&crate::bed::chain()).await, &json!({"q": 1})).await;
    let task = bed.take(Lane::Plugin).await;
    engine.finish(&task, &json!({"o": "dear"})).await;
    let task = bed.take(Lane::Executor).await;
    engine.fail(&task, "broken").await;
    let second: RunStarted = engine.call(pattern::RUNTIME_RUN_RETRY, &repeat(run_id)).await.unwrap();
    assert_ne!(second.run_id, run_id);
    let task = loop {
        let task = bed.take(Lane::Executor).await;
        if task.run_id == second.run_id {
            break task;
        }
    };
    assert_eq!((task.inputs.clone(), task.user_id.as_str()), (values(&json!({"i": "dear"})), "ann"));
    engine.finish(&task, &json!({"text": "done"})).await;
    let detail = engine.get(second.run_id).await;
    assert_eq!((detail.run.status, detail.steps[1].attempts), (RunStatus::Finished, 0));
    engine.stop().await;
}

async fn only_a_run_that_failed_or_was_canceled_is_repeated(bed: Bed) {
    let engine = bed.engine().await;
    let run_id = engine.run(bed.process(&crate::bed::tasks(&["a"])).await, &json!({})).await;
    let refused = async |run_id| {
        engine.call::<_, RunStarted>(pattern::RUNTIME_RUN_RETRY, &repeat(run_id)).await.unwrap_err().code
    };
    assert_eq!(refused(run_id).await, ErrorCode::Conflict);
    assert_eq!(refused(RunId(uuid::Uuid::now_v7())).await, ErrorCode::RunNotFound);
    engine.stop().await;
}

/// A process that was last saved long ago: its last firing is made up for at once.
async fn a_schedule_starts_one_run_per_firing_however_many_engines_there_are(bed: Bed) {
    let trigger = json!({"type": "schedule", "cron": "*/30 * * * *", "timeZone": "Europe/Riga"});
    let document = json!({
        "settings": {"name": "x", "triggers": [trigger]},
        "widgets": [
            widget("t", "system.trigger.input", &json!([])),
            widget("out", "system.output", &json!([])),
        ],
        "edges": [edge("t", "trigger", "out", "trigger")],
    });
    let process_id = bed.process(&document).await;
    let mut notices = bed.queue.subscribe(Topic::Runs).await.unwrap();
    let before = bed.storage.now().await.unwrap();
    let engines = [bed.engine().await, bed.engine().await, bed.engine().await];
    let queue::Notice::Message(run_id) = notices.recv().await else { panic!("a run starts") };
    let detail = ended(&bed, &engines[0], run_id.parse().unwrap()).await;
    let trigger: Value = detail.public_inputs.unwrap()["trigger"].read().unwrap();
    assert_eq!(trigger["type"], json!("schedule"));
    for engine in engines {
        engine.stop().await;
    }
    let filter = storage::runs::RunFilter {
        workspace_id: "default".into(),
        process_id: Some(process_id),
        status: None,
    };
    let runs = bed.storage.runs().list(&filter, None, 10).await.unwrap();
    let mut moments: Vec<_> = runs.iter().map(|run| run.idempotency_key.clone().unwrap()).collect();
    moments.dedup();
    assert_eq!(moments.len(), runs.len(), "one run per firing");
    let after = bed.storage.now().await.unwrap();
    assert!(runs.len() == 1 || before.0 / 1_800_000 != after.0 / 1_800_000, "{moments:?}");
}
