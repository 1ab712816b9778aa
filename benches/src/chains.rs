//! Whole runs, step after step: from the request that starts a run to the answer to its last result,
//! with which the run has ended. Each step goes engine → lane → control plane → plugin → result → commit.

use crate::{
    cpu::Cpu,
    load::{self, Slice},
    us::Us,
};
use contract::{Json, RunId};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    error::Error,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use system_tests::{
    Platform,
    stub::{Attempt, NODE_TYPE},
};
use tokio::{sync::oneshot, task::JoinSet};
use wire::Client;

/// Steps of a run, and runs at once: idle, and under load.
const LEVELS: [(usize, usize); 3] = [(1, 1), (10, 1), (10, 64)];

/// One slice of measuring.
const SLICE: Duration = Duration::from_secs(3);

/// A run that takes longer is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// The slices, by steps and runs at once.
#[derive(Debug, Default)]
pub(crate) struct Chains(Vec<(usize, usize, Vec<Slice>)>);

/// Measures every level, in so many rounds.
pub(crate) async fn measure(us: &Us, rounds: usize) -> Result<Chains, Box<dyn Error>> {
    let mut processes = HashMap::new();
    for (steps, _) in LEVELS {
        processes.insert(steps, us.solo.platform.import(&chain(steps)).await);
    }
    let mut chains = Chains(LEVELS.map(|(steps, at_once)| (steps, at_once, Vec::new())).into());
    for round in 0..rounds {
        for (steps, at_once, slices) in &mut chains.0 {
            let process = processes.get(steps).ok_or("no process")?;
            let slice = slice(us, process, *steps, *at_once).await?;
            eprintln!(
                "chains, round {} of {rounds}, {steps} steps, {at_once} at once: {:.0} runs/s, p50 {:.2} ms, p99 {:.2} ms",
                round + 1,
                slice.per_second(),
                slice.quantile_ms(0.5),
                slice.quantile_ms(0.99)
            );
            slices.push(slice);
        }
    }
    Ok(chains)
}

/// A process: a trigger with the field `go`, and so many of the stub's nodes, one behind the other.
fn chain(steps: usize) -> Value {
    let mut widgets = vec![json!({
        "id": "start", "label": "Start", "source": {"nodeType": "system.trigger.input"},
        "config": [{"name": "go", "type": "string"}], "outputs": ["go"]
    })];
    let mut edges = Vec::new();
    for n in 0..steps {
        let id = format!("work-{n}");
        let (source, handle) = match n.checked_sub(1) {
            Some(before) => (format!("work-{before}"), "text"),
            None => ("start".to_owned(), "go"),
        };
        edges.push(json!({
            "id": format!("edge-{n}"), "source": source, "sourceHandle": handle, "target": id, "targetHandle": "go"
        }));
        widgets.push(json!({
            "id": id, "label": "Work", "source": {"nodeType": NODE_TYPE},
            "config": [{"name": "go", "type": "string", "isPort": true}], "outputs": ["text"]
        }));
    }
    json!({"settings": {"name": format!("chain of {steps}")}, "widgets": widgets, "edges": edges})
}

/// Runs under way: who waits for their ends, or when they ended. An end may come before the answer to
/// the start.
#[derive(Debug, Default)]
struct Runs(Mutex<HashMap<RunId, Run>>);

#[derive(Debug, Default)]
struct Run {
    done: usize,
    ended: Option<Instant>,
    waits: Option<oneshot::Sender<Instant>>,
}

impl Runs {
    fn with<T>(&self, run: RunId, change: impl FnOnce(&mut Run) -> T) -> T {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(runs.entry(run).or_default())
    }

    /// One more step of the run is stored.
    fn step_done(&self, run: RunId, steps: usize) {
        self.with(run, |run| {
            run.done += 1;
            if run.done < steps {
                return;
            }
            let now = Instant::now();
            match run.waits.take() {
                // Who gave up needs no word.
                Some(waits) => drop(waits.send(now)),
                None => run.ended = Some(now),
            }
        });
    }

    /// When the run ends.
    fn end(&self, run: RunId) -> oneshot::Receiver<Instant> {
        let (sender, receiver) = oneshot::channel();
        self.with(run, |run| match run.ended {
            Some(at) => drop(sender.send(at)),
            None => run.waits = Some(sender),
        });
        receiver
    }
}

async fn slice(us: &Us, process: &str, steps: usize, at_once: usize) -> Result<Slice, Box<dyn Error>> {
    let runs = Arc::new(Runs::default());
    let (cpu, start) = (Cpu::now(), Instant::now());
    let mut workers = JoinSet::new();
    for _ in 0..at_once {
        let (platform, process, runs) = (us.solo.platform.clone(), process.to_owned(), Arc::clone(&runs));
        workers.spawn(async move {
            let mut latencies = Vec::new();
            while start.elapsed() < SLICE {
                latencies.push(run_one(&platform, &process, &runs).await?);
            }
            Ok::<_, String>(latencies)
        });
    }
    let mut latencies: Vec<Duration> = Vec::new();
    let measured = async {
        while let Some(worker) = workers.join_next().await {
            latencies.extend(worker??);
        }
        Ok::<_, Box<dyn Error>>(())
    };
    tokio::select! {
        measured = measured => measured?,
        failed = answer_tasks(us, &runs, steps) => return Err(failed.into()),
    }
    let took = start.elapsed();
    latencies.sort_unstable();
    Ok(Slice { results: latencies.len(), took, cpu: Cpu::now().since(cpu), latencies })
}

async fn run_one(platform: &Platform, process: &str, runs: &Runs) -> Result<Duration, String> {
    let began = Instant::now();
    let run = platform.start(process, &json!({"go": "go"})).await;
    let run = run.parse().map_err(|_| format!("{run} is no run's id"))?;
    match tokio::time::timeout(PATIENCE, runs.end(run)).await {
        Ok(Ok(ended)) => Ok(ended.saturating_duration_since(began)),
        _ => Err(format!("a run did not end within {} s", PATIENCE.as_secs())),
    }
}

/// Answers each task with its result at once, until one is not stored: the reason.
async fn answer_tasks(us: &Us, runs: &Arc<Runs>, steps: usize) -> String {
    let outputs = match load::outputs() {
        Ok(outputs) => outputs,
        Err(error) => return error.to_string(),
    };
    let mut answers = JoinSet::new();
    loop {
        tokio::select! {
            attempt = us.plugin.next() => {
                let (client, outputs, runs) = (us.client().clone(), outputs.clone(), Arc::clone(runs));
                answers.spawn(answer(client, attempt, outputs, runs, steps));
            }
            Some(answered) = answers.join_next() => match answered {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error,
                Err(error) => return error.to_string(),
            },
        }
    }
}

async fn answer(
    client: Client,
    attempt: Attempt,
    outputs: Json,
    runs: Arc<Runs>,
    steps: usize,
) -> Result<(), String> {
    load::send(&client, "plugin.executor.step_result", attempt, &outputs).await?;
    runs.step_done(attempt.run_id, steps);
    Ok(())
}

impl Chains {
    /// For the file.
    pub(crate) fn json(&self) -> Value {
        let rows = self.0.iter().filter_map(|(steps, at_once, slices)| {
            let slice = load::median(slices)?;
            Some(json!({
                "steps": steps,
                "in_flight": at_once,
                "runs_per_second": slice.per_second().round(),
                "steps_per_second": (slice.per_second() * *steps as f64).round(),
                "p50_ms": load::hundredths(slice.quantile_ms(0.5)),
                "p99_ms": load::hundredths(slice.quantile_ms(0.99)),
                "cpu_us_per_step": (slice.cpu_micros() / *steps as f64).round(),
                "foreign_cpu_percent": slice.foreign_percent().round(),
            }))
        });
        rows.collect()
    }
}

impl fmt::Display for Chains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| steps of a run | runs at once | runs/s | steps/s | p50 / p99 of a run, ms | CPU µs/step | foreign CPU % |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|")?;
        for (steps, at_once, slices) in &self.0 {
            let Some(slice) = load::median(slices) else { continue };
            writeln!(
                f,
                "| {steps} | {at_once} | {:.0} | {:.0} | {:.2} / {:.2} | {:.0} | {:.0} |",
                slice.per_second(),
                slice.per_second() * *steps as f64,
                slice.quantile_ms(0.5),
                slice.quantile_ms(0.99),
                slice.cpu_micros() / *steps as f64,
                slice.foreign_percent(),
            )?;
        }
        Ok(())
    }
}
