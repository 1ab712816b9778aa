//! Closed-loop load: so many reports in flight, each sent when the answer to the one before it came.

use crate::cpu::Cpu;
use contract::{ExecutionId, Json, RunId};
use serde::Serialize;
use std::{
    error::Error,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use system_tests::{
    deployment::CONTROL_PLANE_KEY,
    stub::{Attempt, NODE_TYPE},
};
use wire::{Client, ClientConfig};

/// Connections of the client: a handful of plugins.
const CONNECTIONS: usize = 4;

/// Bytes of a result, and a little more.
const RESULT_BYTES: usize = 1200;

/// An answer that takes longer is a failure.
const DEADLINE: Duration = Duration::from_secs(30);

/// A measured slice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slice {
    pub(crate) results: usize,
    pub(crate) took: Duration,
    pub(crate) cpu: Cpu,
    /// Sorted.
    pub(crate) latencies: Vec<Duration>,
}

impl Slice {
    /// Results per second.
    pub(crate) fn per_second(&self) -> f64 {
        self.results as f64 / self.took.as_secs_f64().max(f64::EPSILON)
    }

    /// Microseconds of processor time per result, over all processes.
    pub(crate) fn cpu_micros(&self) -> f64 {
        self.cpu.family.as_secs_f64() * 1e6 / self.results.max(1) as f64
    }

    /// The same of the client, of the servers and of the database.
    pub(crate) fn cpu_micros_by_part(&self) -> [f64; 3] {
        let Cpu { family, client, database, .. } = self.cpu;
        [client, family.saturating_sub(client + database), database]
            .map(|part| part.as_secs_f64() * 1e6 / self.results.max(1) as f64)
    }

    /// Processor time of others, in percent of one core: what makes the figures worse than they are.
    pub(crate) fn foreign_percent(&self) -> f64 {
        let foreign = self.cpu.machine.saturating_sub(self.cpu.family);
        foreign.as_secs_f64() * 100.0 / self.took.as_secs_f64().max(f64::EPSILON)
    }

    /// The latency that this share of results did not exceed, milliseconds.
    pub(crate) fn quantile_ms(&self, share: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let at = (last as f64 * share).round() as usize;
        self.latencies.get(at).map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [client, servers, database] = self.cpu_micros_by_part();
        write!(
            f,
            "{:.0} reports/s ({:.0} µs CPU each: client {client:.0}, servers {servers:.0}, database {database:.0}; \
             foreign CPU {:.0} %)",
            self.per_second(),
            self.cpu_micros(),
            self.foreign_percent()
        )
    }
}

/// The middle slice by throughput.
pub(crate) fn median(slices: &[Slice]) -> Option<&Slice> {
    let mut sorted: Vec<&Slice> = slices.iter().collect();
    sorted.sort_by(|a, b| a.per_second().total_cmp(&b.per_second()));
    sorted.get(sorted.len() / 2).copied()
}

/// For people: two digits behind the point.
pub(crate) fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

/// What is sent.
#[derive(Debug)]
pub(crate) enum Work {
    /// The result of each attempt.
    Results(Vec<Attempt>),
    /// Heartbeats of one attempt, without end.
    Heartbeats(Attempt),
}

impl Work {
    fn get(&self, number: usize) -> Option<Attempt> {
        match self {
            Self::Results(attempts) => attempts.get(number).copied(),
            Self::Heartbeats(attempt) => Some(*attempt),
        }
    }

    fn pattern(&self) -> &'static str {
        match self {
            Self::Results(_) => "plugin.executor.step_result",
            Self::Heartbeats(_) => "plugin.executor.step_heartbeat",
        }
    }
}

/// A client as a plugin has it.
pub(crate) fn client(port: u16) -> Client {
    Client::new("127.0.0.1", port, ClientConfig { connections: CONNECTIONS, ..ClientConfig::default() })
}

/// A result of about a kilobyte.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StepResult<'a> {
    key: &'a str,
    run_id: RunId,
    execution_id: ExecutionId,
    node_type: &'a str,
    status: &'a str,
    outputs: &'a Json,
}

/// `{"text": ..., "score": ..., "tags": [...]}` of 726 bytes.
pub(crate) fn outputs() -> Result<Json, serde_json::Error> {
    let sentence = "Съешь ещё этих мягких французских булок, да выпей чаю. ";
    let value = serde_json::json!({
        "text": sentence.repeat(6), "score": 0.8312, "count": 1_234_567_890_123u64,
        "tags": ["alpha", "beta", "gamma"], "nested": {"ok": true, "none": null}
    });
    Json::of(&value)
}

/// Sends reports for `time` or until no attempt is left.
pub(crate) async fn slice(
    client: &Client,
    work: Work,
    in_flight: usize,
    time: Duration,
) -> Result<Slice, Box<dyn Error>> {
    let outputs = outputs()?;
    let shared = Arc::new((client.clone(), work, outputs, AtomicUsize::new(0)));
    let (cpu, start) = (Cpu::now(), Instant::now());
    let workers: Vec<_> = (0..in_flight)
        .map(|_| {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                let (client, work, outputs, next) = &*shared;
                let mut latencies = Vec::new();
                while start.elapsed() < time {
                    let Some(attempt) = work.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                    let sent = Instant::now();
                    send(client, work.pattern(), attempt, outputs).await?;
                    latencies.push(sent.elapsed());
                }
                Ok::<_, String>(latencies)
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for worker in workers {
        latencies.extend(worker.await??);
    }
    let took = start.elapsed();
    latencies.sort_unstable();
    Ok(Slice { results: latencies.len(), took, cpu: Cpu::now().since(cpu), latencies })
}

/// Sends one report and insists that it was stored.
pub(crate) async fn send(
    client: &Client,
    pattern: &str,
    attempt: Attempt,
    outputs: &Json,
) -> Result<(), String> {
    let result = StepResult {
        key: CONTROL_PLANE_KEY,
        run_id: attempt.run_id,
        execution_id: attempt.execution_id,
        node_type: NODE_TYPE,
        status: "ok",
        outputs,
    };
    let answer: Result<Json, _> = client.call_sized(pattern, &result, RESULT_BYTES, DEADLINE).await;
    match answer {
        Ok(answer) if answer.text().contains("\"applied\"") => Ok(()),
        Ok(answer) => Err(format!("a report was not stored: {}", answer.text())),
        Err(error) => Err(format!("a report was not answered: {error}")),
    }
}
