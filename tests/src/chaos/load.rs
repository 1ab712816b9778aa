//! Starts runs through the API until it is answered, each with an idempotency key of its own; some
//! are started twice at the same time.

use super::{Random, Shape};
use crate::{Platform, deployment::API_TOKEN};
use reqwest::Method;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    sync::Arc,
    time::Duration,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

/// Between two starts, milliseconds.
const PACE: RangeInclusive<u64> = 30..=170;
/// Of a call that the API may never answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// One start in so many is sent twice at once.
const TWICE: u64 = 4;

/// A run that was asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What is run.
    pub shape: Shape,
    /// Its process.
    pub process: String,
    /// Its input.
    pub input: i64,
    /// Every run that the API named for its key: one, or the platform is wrong.
    pub runs: BTreeSet<String>,
}

/// The client of the API.
#[derive(Debug)]
pub struct Load {
    http: reqwest::Client,
    base: String,
    /// The imported processes.
    pub processes: BTreeMap<Shape, String>,
}

impl Load {
    /// Imports the processes.
    pub async fn prepare(platform: &Platform) -> Self {
        let mut processes = BTreeMap::new();
        for shape in Shape::ALL {
            processes.insert(shape, platform.import(&shape.document()).await);
        }
        let http = reqwest::Client::builder().timeout(CALL_TIMEOUT).build().expect("an HTTP client");
        Self { http, base: platform.url(""), processes }
    }

    /// Starts runs for this time, and returns when each start has been answered.
    pub async fn run(self: Arc<Self>, seed: u64, length: Duration) -> Vec<Asked> {
        let mut random = Random::new(seed, 3);
        let end = Instant::now() + length;
        let mut starts = JoinSet::new();
        let mut next = Instant::now();
        for number in 0i64.. {
            next += Duration::from_millis(random.within(PACE));
            if next >= end {
                break;
            }
            let shape = Shape::ALL[random.within(0..=Shape::ALL.len() as u64 - 1) as usize];
            let twice = random.one_in(TWICE);
            sleep_until(next).await;
            starts.spawn(Arc::clone(&self).ask(shape, number, twice));
        }
        starts.join_all().await
    }

    async fn ask(self: Arc<Self>, shape: Shape, number: i64, twice: bool) -> Asked {
        let process = self.processes[&shape].clone();
        let key = format!("key-{number}");
        let start = || self.start(&process, &key, shape.payload(number));
        let runs = if twice {
            let (first, second) = tokio::join!(start(), start());
            BTreeSet::from([first, second])
        } else {
            BTreeSet::from([start().await])
        };
        Asked { shape, process, input: number, runs }
    }

    async fn start(&self, process: &str, key: &str, payload: Value) -> String {
        loop {
            let call = self.http.request(Method::POST, format!("{}/flow/{process}/webhook", self.base));
            let call = call.bearer_auth(API_TOKEN).header("Idempotency-Key", key).json(&payload);
            if let Some(run) = run_of(call.send().await).await {
                return run;
            }
            sleep(RETRY_PAUSE).await;
        }
    }
}

async fn run_of(answer: reqwest::Result<reqwest::Response>) -> Option<String> {
    let answer = answer.ok().filter(|answer| answer.status().is_success())?;
    let body: Value = serde_json::from_str(&answer.text().await.ok()?).ok()?;
    body["runId"].as_str().map(str::to_owned)
}
