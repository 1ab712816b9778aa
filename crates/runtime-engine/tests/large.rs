//! Large processes: what a decision costs and a run holds grows with the process, not with its square.
//! Counted, not timed; `-- --ignored --nocapture` measures (docs/benchmarks.md, "Large processes").

#![allow(clippy::unwrap_used, reason = "a test ends where its helper fails")]

use contract::{
    ExecutionId, Json, Millis, ProcessId, RunId,
    report::{Ack, StepError, StepResult},
    run::{RunStatus, TriggerKind},
};
use runtime_engine::core::{
    Decision, Draw, Event, Graph, Input, Kept, Policy, RunStarted, State, shared_result,
};
use serde_json::{Value, json};
use std::{collections::VecDeque, fmt::Write, sync::Arc};
use uuid::Uuid;

/// Ids that count.
#[derive(Default)]
struct Counter(u128);

impl Draw for Counter {
    fn execution_id(&mut self) -> ExecutionId {
        self.0 += 1;
        ExecutionId(Uuid::from_u128(self.0))
    }

    fn chance(&mut self) -> f64 {
        0.5
    }
}

/// A run in the making, with what it cost.
struct Play {
    graph: Arc<Graph>,
    state: State,
    draw: Counter,
    open: VecDeque<ExecutionId>,
    /// Kept as they are stored.
    history: Vec<(Millis, &'static str, Json)>,
    /// The largest estimate of the state's memory.
    largest: usize,
}

const NOW: Millis = Millis(1_000);

fn compile(document: &Value) -> Arc<Graph> {
    Arc::new(Graph::compile(&Json::from(document).read().unwrap()).unwrap())
}

impl Play {
    fn start(graph: Arc<Graph>) -> Self {
        let started = RunStarted {
            process_id: ProcessId(Uuid::nil()),
            process_revision: 1,
            workspace_id: "w".into(),
            user_id: "u".into(),
            trigger: TriggerKind::Manual,
            payload: Default::default(),
            pins: Default::default(),
            traceparent: None,
            tracestate: None,
            retry_of: None,
        };
        let mut draw = Counter::default();
        let (run_id, policy) = (RunId(Uuid::nil()), Policy::default());
        let started = (started, Kept::new());
        let (state, decision) =
            State::start(run_id, Arc::clone(&graph), started, NOW, &policy, &mut draw).unwrap();
        let mut play = Self { graph, state, draw, open: VecDeque::new(), history: Vec::new(), largest: 0 };
        play.note(decision);
        play
    }

    fn note(&mut self, decision: Decision) {
        let stored = decision.events.iter().map(|event| (NOW, event.kind(), event.body().unwrap()));
        self.history.extend(stored);
        self.open.extend(decision.opened.into_iter().map(|opened| opened.execution_id));
        self.largest = self.largest.max(self.state.size());
    }

    fn decide(&mut self, input: Input) {
        let decision = self.state.decide(input, NOW, &Policy::default(), &mut self.draw).unwrap();
        self.note(decision);
    }

    fn report(&mut self, id: ExecutionId, result: StepResult) {
        let digest = result.digest();
        self.decide(Input::Result(id, shared_result(result), digest));
    }

    /// Every task ends well with this output, until none is left.
    fn finish_all(&mut self, output: &str) {
        while let Some(id) = self.open.pop_front() {
            let outputs = [("o".to_owned(), Json::of(output).unwrap())].into_iter().collect();
            self.report(id, StepResult::ok(outputs));
        }
        assert_eq!(self.state.status(), RunStatus::Finished);
    }

    /// Reads the history as an engine does that loads the run.
    fn load(&self) -> State {
        let events = self.history.iter().map(|(at, kind, body)| (*at, Event::read(kind, body).unwrap()));
        State::replay(RunId(Uuid::nil()), Arc::clone(&self.graph), events).unwrap()
    }
}

fn task(id: &str) -> Value {
    json!({"id": id, "source": {"nodeType": "plugin.test"}, "outputs": ["o"]})
}

fn edge(source: &str, target: &str, input: &str) -> Value {
    json!({"source": source, "sourceHandle": "o", "target": target, "targetHandle": input})
}

/// One after the other.
fn chain(nodes: usize) -> Value {
    let id = |number: usize| format!("n{number}");
    let widgets: Vec<Value> = (0..nodes).map(|number| task(&id(number))).collect();
    let edges: Vec<Value> = (1..nodes).map(|number| edge(&id(number - 1), &id(number), "i")).collect();
    json!({"widgets": widgets, "edges": edges})
}

/// All at once into one result.
fn fan(nodes: usize) -> Value {
    let id = |number: usize| format!("n{number}");
    let mut widgets: Vec<Value> = (0..nodes).map(|number| task(&id(number))).collect();
    widgets.push(json!({"id": "out", "source": {"nodeType": "system.output"}}));
    let edges: Vec<Value> = (0..nodes).map(|number| edge(&id(number), "out", &id(number))).collect();
    json!({"widgets": widgets, "edges": edges})
}

/// A loop over so many elements, with one task per iteration.
fn looping(iterations: usize, mode: &str) -> Value {
    let body = json!({
        "widgets": [
            {"id": "t", "source": {"nodeType": "system.trigger.input"}, "config": [{"name": "item"}]},
            task("b"),
            {"id": "end", "source": {"nodeType": "system.output"}},
        ],
        "edges": [
            {"source": "t", "sourceHandle": "item", "target": "b", "targetHandle": "i"},
            edge("b", "end", "r"),
        ],
    });
    let list: Vec<usize> = (0..iterations).collect();
    let config = json!([
        {"name": "iterator", "value": list}, {"name": "body", "value": body},
        {"name": "mode", "value": mode}, {"name": "concurrency", "value": 100},
    ]);
    json!({
        "widgets": [
            {"id": "w", "source": {"nodeType": "system.loop"}, "config": config},
            {"id": "out", "source": {"nodeType": "system.output"}},
        ],
        "edges": [{"source": "w", "sourceHandle": "items", "target": "out", "targetHandle": "items"}],
    })
}

/// Events and the largest state of a run of the document, and that it loads as it was.
fn cost(document: &Value) -> (usize, usize) {
    let mut play = Play::start(compile(document));
    play.finish_all("ok");
    assert!(play.load() == play.state, "a loaded run is the one that was played");
    (play.history.len(), play.largest)
}

/// What twice as much costs, at most: twice as much, and a little for longer numbers.
fn is_linear((events, bytes): (usize, usize), (twice_events, twice_bytes): (usize, usize)) -> bool {
    twice_events <= 2 * events && twice_bytes * 10 <= bytes * 21
}

#[test]
fn events_and_memory_of_a_run_grow_with_its_nodes() {
    for shape in [chain, fan] {
        assert!(is_linear(cost(&shape(1_000)), cost(&shape(2_000))));
    }
}

#[test]
fn events_and_memory_of_a_loop_grow_with_its_iterations_and_finished_ones_leave_their_output_only() {
    for mode in ["sequential", "parallel"] {
        let (small, large) = (cost(&looping(1_000, mode)), cost(&looping(2_000, mode)));
        assert!(is_linear(small, large), "{mode}: {small:?} {large:?}");
        let per_iteration = (large.1 - small.1) / 1_000;
        assert!(per_iteration < 500, "{mode}: {per_iteration} bytes of each finished iteration are held");
    }
}

#[test]
fn an_iteration_that_ended_is_held_no_longer() {
    let mut play = Play::start(compile(&looping(1_000, "parallel")));
    assert_eq!(play.state.outstanding(), 100, "as many as may run at the same time");
    let shown = play.state.detail(usize::MAX).steps.len();
    play.finish_all("ok");
    assert!(shown > 300 && play.state.detail(usize::MAX).steps.len() == 2);
}

#[test]
fn a_failing_run_is_over_when_the_last_of_what_runs_has_ended() {
    let mut play = Play::start(compile(&fan(2_000)));
    let ids: Vec<ExecutionId> = play.open.iter().copied().collect();
    let (running, queued) = ids.split_at(1_000);
    running.iter().for_each(|id| play.decide(Input::Ack(*id, Ack::default())));
    let failed = StepResult::failed(StepError { message: "broken".into(), ..StepError::default() });
    play.report(running[0], failed);
    let canceled = play.history.iter().filter(|(_, kind, _)| *kind == "step_canceled").count();
    assert_eq!(canceled, queued.len(), "what nobody works on is withdrawn at once");
    for id in &running[1..] {
        assert_eq!(play.state.status(), RunStatus::Running);
        play.report(*id, StepResult::ok(Default::default()));
    }
    assert_eq!(play.state.status(), RunStatus::Failed);
}

#[test]
fn a_step_that_waits_for_many_names_some_of_them() {
    let play = Play::start(compile(&fan(2_000)));
    let steps = play.state.detail(usize::MAX).steps;
    let waits = steps.last().unwrap().waits_for.clone().unwrap();
    assert!(waits.starts_with("the results of n0, n1, ") && waits.ends_with(" and 1980 more"), "{waits}");
}

/// Resident memory of this process, KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

/// CPU time of this process, milliseconds: what it takes whoever else is at work.
fn cpu_ms() -> u64 {
    let status = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = status.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // User and system time in hundredths of a second.
    (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()) * 10
}

#[test]
#[ignore = "measures; the figures stand in docs/benchmarks.md"]
fn large_processes_measured() {
    let mut table =
        String::from("process: events, history MiB, CPU ms of the run, held MiB, CPU ms of a load\n");
    for (name, document) in [
        ("chain of 10,000 nodes", chain(10_000)),
        ("10,000 nodes into one result", fan(10_000)),
        ("loop of 10,000 iterations", looping(10_000, "sequential")),
        ("the same, 100 at a time", looping(10_000, "parallel")),
        ("loop of 100,000 iterations", looping(100_000, "sequential")),
    ] {
        let graph = compile(&document);
        let before = resident();
        let began = cpu_ms();
        let mut play = Play::start(graph);
        play.finish_all(&"x".repeat(100));
        let played = cpu_ms() - began;
        let history: usize = play.history.iter().map(|(_, _, body)| body.text().len()).sum();
        let began = cpu_ms();
        let loaded = play.load();
        let load = cpu_ms() - began;
        assert!(loaded == play.state);
        drop(loaded);
        let history_mib = history as f64 / 1_048_576.0;
        let held = play.state.size() as f64 / 1_048_576.0;
        let grown_mib = resident().saturating_sub(before) / 1024;
        let events = play.history.len();
        writeln!(
            table,
            "{name}: {events}, {history_mib:.1}, {played}, {held:.1}, {load} (the process grew by {grown_mib} MiB)"
        )
        .unwrap();
    }
    println!("{table}");
}
