//! Histories that were written once stay readable for ever: `tests/data/histories` keeps samples of
//! every event version and kind. `KEEP_HISTORIES=1` adds the samples that are missing; a sample that
//! is there is never written again.

use super::stage::{Stage, builtin, failure, field, graph, output_node, outputs, process, task};
use crate::core::{Event, Input, Policy, State};
use contract::{
    Json, Millis,
    report::{Dispatched, StepResult},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, path::PathBuf};

/// One kept history, and what it led to.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sample {
    process: Json,
    status: String,
    public_inputs: Json,
    /// Path and status of each step at the end.
    steps: Vec<(String, Json)>,
    events: Vec<Stored>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    at: Millis,
    kind: String,
    body: Json,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/histories")
}

fn steps(state: &State) -> Vec<(String, Json)> {
    let steps = state.detail(usize::MAX).steps.into_iter();
    steps.map(|step| (step.node_path.0, Json::of(&step.status).unwrap())).collect()
}

impl Sample {
    fn of(document: &Value, stage: &Stage) -> Self {
        let events = stage.history.iter().map(|(at, event)| Stored {
            at: *at,
            kind: event.kind().to_owned(),
            body: event.body().unwrap(),
        });
        Self {
            process: document.into(),
            status: stage.run().as_str().to_owned(),
            public_inputs: Json::of(&stage.state.public_inputs()).unwrap(),
            steps: steps(&stage.state),
            events: events.collect(),
        }
    }

    /// Reads and folds it as an engine does that loads the run.
    fn replay(&self) -> State {
        let events = self.events.iter();
        let events = events.map(|stored| (stored.at, Event::read(&stored.kind, &stored.body).unwrap()));
        let graph = graph(&self.process.value().unwrap());
        State::replay(contract::RunId(uuid::Uuid::from_u128(99)), graph, events).unwrap()
    }
}

/// Retries, deliveries, partial results, dead branches, a loop, a wait and a person.
fn finished() -> (Value, Stage) {
    let retry =
        json!({"execution": {"retry": {"maxAttempts": 2, "backoffMs": 10}}, "outputs": ["o", "never"]});
    let body = process(
        &[
            builtin("t", "system.trigger.input", &json!([{"name": "item"}])),
            task("b", &json!({})),
            output_node(&json!([])),
        ],
        &["t.item -> b.i", "b.o -> out.r"],
    );
    let looping = json!([field("iterator", &json!([1, 2])), field("body", &body)]);
    let document = process(
        &[
            builtin("t", "system.trigger.input", &json!([{"name": "q"}])),
            task("a", &retry),
            task("skipped", &json!({})),
            builtin("w", "system.loop", &looping),
            builtin("d", "system.delay", &json!([field("milliseconds", &json!(100))])),
            builtin("ask", "user.validation", &json!([])),
            output_node(&json!([])),
        ],
        &[
            "t.q -> a.q",
            "a.never -> skipped.i",
            "a.o -> w.free",
            "w.items -> d.value",
            "d.value -> ask.value",
            "ask.confirm -> out.answer",
            "w.last -> out.last",
        ],
    );
    let mut stage = Stage::of(&document, &json!({"q": "вопрос"}));
    let first = stage.attempt("a");
    stage.ack(first);
    stage.partial(first, 1);
    stage.fail("a", "once");
    let delivered = Dispatched::Delivered { implicit: true };
    stage.decide(Input::Dispatched(stage.attempt("a"), delivered));
    let mut result = StepResult::ok(outputs(&json!({})));
    result.outputs.insert("o".into(), Json::parse("12345678901234567890123.0").unwrap());
    stage.result(stage.attempt("a"), result);
    stage.finish("w[0]/b", &json!({"o": "eins"}));
    stage.finish("w[1]/b", &json!({"o": "zwei"}));
    stage.decide(Input::TimerDue(stage.attempt("d")));
    stage.confirm("ask", true, "ann");
    (document, stage)
}

/// A failure that withdraws a queued step, in a run with a deadline.
fn failed() -> (Value, Stage) {
    let mut document =
        process(&[task("a", &json!({})), task("queued", &json!({})), task("b", &json!({}))], &[]);
    document["settings"] = json!({"name": "limited", "timeoutMs": 60_000});
    let mut stage = Stage::of(&document, &json!({}));
    stage.ack(stage.attempt("b"));
    stage.decide(Input::DeliveryOverdue(stage.attempt("a")));
    stage.fail("a", "broken");
    stage.finish("b", &json!({"o": 1}));
    (document, stage)
}

/// A repetition that keeps a step, is canceled, and hears of a step after that.
fn repeated() -> (Value, Stage) {
    let document = process(&[task("a", &json!({})), task("b", &json!({}))], &["a.o -> b.i"]);
    let mut first = Stage::of(&document, &json!({}));
    first.finish("a", &json!({"o": "dear"}));
    first.fail("b", "broken");
    let kept = first.state.kept();
    let mut stage = Stage::keeping(graph(&document), &json!({}), Policy::default(), kept);
    let attempt = stage.attempt("b");
    stage.ack(attempt);
    stage.decide(Input::Cancel);
    stage.result(attempt, failure("late"));
    (document, stage)
}

/// A repetition of a loop that failed in its second iteration, of a step under `continue` that gives
/// its error, in the order of their paths.
fn resumed() -> (Value, Stage) {
    let body = process(
        &[
            builtin("t", "system.trigger.input", &json!([{"name": "item"}])),
            task("b", &json!({"execution": {"onError": "continue"}})),
            task("c", &json!({})),
            output_node(&json!([])),
        ],
        &["t.item -> b.i", "t.item -> c.i", "b.error -> out.why", "c.o -> out.r"],
    );
    let looping = json!([field("iterator", &json!([1, 2, 3])), field("body", &body)]);
    let document =
        process(&[builtin("w", "system.loop", &looping), output_node(&json!([]))], &["w.items -> out.items"]);
    let mut first = Stage::of(&document, &json!({}));
    first.fail("w[0]/b", "without b");
    first.finish("w[0]/c", &json!({"o": "dear"}));
    first.finish("w[1]/b", &json!({"o": 1}));
    first.fail("w[1]/c", "broken");
    let kept = first.state.kept();
    let mut stage = Stage::keeping(graph(&document), &json!({}), Policy::default(), kept);
    stage.finish("w[1]/c", &json!({"o": "again"}));
    stage.fail("w[2]/b", "without b");
    stage.finish("w[2]/c", &json!({"o": "new"}));
    (document, stage)
}

fn kept() -> Vec<(String, Sample)> {
    let mut found: Vec<_> = fs::read_dir(folder())
        .expect("the samples are part of the crate")
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            (path.display().to_string(), serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap())
        })
        .collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

#[test]
fn kept_histories_stay_readable_and_lead_where_they_led() {
    if std::env::var_os("KEEP_HISTORIES").is_some() {
        for (name, (document, stage)) in [
            ("v1-finished", finished()),
            ("v1-failed", failed()),
            ("v1-repeated", repeated()),
            ("v1-resumed", resumed()),
        ] {
            let path = folder().join(format!("{name}.json"));
            if !path.exists() {
                fs::create_dir_all(folder()).unwrap();
                let text = serde_json::to_string_pretty(&Sample::of(&document, &stage)).unwrap();
                fs::write(path, text + "\n").unwrap();
            }
        }
    }
    for (name, sample) in kept() {
        let state = sample.replay();
        assert_eq!(state.status().as_str(), sample.status, "{name}");
        let public_inputs: Value = sample.public_inputs.value().unwrap();
        assert_eq!(serde_json::to_value(state.public_inputs()).unwrap(), public_inputs, "{name}");
        assert_eq!(steps(&state), sample.steps, "{name}");
    }
}

#[test]
fn every_kind_of_event_has_a_kept_sample() {
    let samples = kept();
    let kept: BTreeSet<&str> =
        samples.iter().flat_map(|(_, sample)| &sample.events).map(|stored| stored.kind.as_str()).collect();
    let written: BTreeSet<&str> = Event::KINDS.iter().copied().collect();
    assert_eq!(kept, written, "run this test once with KEEP_HISTORIES=1 after adding a sample");
}
