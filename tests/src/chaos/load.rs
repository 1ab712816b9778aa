//! Starts runs through the API until it is answered, each with an idempotency key of its own; some
//! are started twice at the same time. Some runs are then answered, canceled or repeated, and files go
//! to and fro.

use super::{
    Random, Shape,
    deeds::{Deed, Intent},
    shape::{SECRET_NAME, SECRET_VALUE},
};
use crate::{Platform, deployment::API_TOKEN};
use base64::{Engine, prelude::BASE64_STANDARD as STANDARD};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    sync::{Arc, Mutex, PoisonError},
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
/// With one start in so many a file is stored.
const FILE: u64 = 12;

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
    /// What else was done to it.
    pub deed: Deed,
}

/// A file that the API said it had stored.
#[derive(Clone, Debug)]
pub struct StoredFile {
    /// By which it is read again.
    pub id: String,
    /// What it held.
    pub content: String,
}

/// All that the load asked for.
#[derive(Debug, Default)]
pub struct Done {
    /// The runs.
    pub runs: Vec<Asked>,
    /// The files.
    pub files: Vec<StoredFile>,
}

/// The client of the API.
#[derive(Debug)]
pub struct Load {
    http: reqwest::Client,
    base: String,
    /// The imported processes.
    pub processes: BTreeMap<Shape, String>,
    /// Calls that are not through, each with the last answer: what a suite that hangs waits for.
    unanswered: Mutex<BTreeMap<String, String>>,
}

impl Load {
    /// Imports the processes and stores the secret.
    pub async fn prepare(platform: &Platform) -> Self {
        let secret = json!({"value": SECRET_VALUE.to_string()});
        platform.call(Method::PUT, &format!("/secrets/{SECRET_NAME}"), Some(&secret)).await;
        let mut processes = BTreeMap::new();
        for shape in Shape::STARTED {
            processes.insert(shape, platform.import(&shape.document()).await);
        }
        let http = reqwest::Client::builder().timeout(CALL_TIMEOUT).build().expect("an HTTP client");
        Self { http, base: platform.url(""), processes, unanswered: Mutex::default() }
    }

    /// Starts runs for this time, and returns when everything has been answered.
    pub async fn run(self: Arc<Self>, seed: u64, length: Duration) -> Done {
        let mut random = Random::new(seed, 3);
        let end = Instant::now() + length;
        let (mut starts, mut files) = (JoinSet::new(), JoinSet::new());
        let mut next = Instant::now();
        for number in 0i64.. {
            next += Duration::from_millis(random.within(PACE));
            if next >= end {
                break;
            }
            let shape = Shape::STARTED[random.within(0..=Shape::STARTED.len() as u64 - 1) as usize];
            let twice = random.one_in(TWICE);
            let intent = Intent::of(shape, &mut random);
            let has_file = random.one_in(FILE);
            sleep_until(next).await;
            starts.spawn(Arc::clone(&self).ask(shape, number, twice, intent));
            if has_file {
                files.spawn(Arc::clone(&self).store(number));
            }
        }
        Done { runs: starts.join_all().await.concat(), files: files.join_all().await }
    }

    async fn ask(self: Arc<Self>, shape: Shape, number: i64, twice: bool, intent: Intent) -> Vec<Asked> {
        let process = self.processes[&shape].clone();
        let key = format!("key-{number}");
        let payload = shape.payload(number);
        let runs = self.start(&format!("/flow/{process}/webhook"), &key, &payload, twice).await;
        let asked = Asked { shape, process, input: number, runs, deed: Deed::Nothing };
        self.carry_out(intent, asked, twice).await
    }

    /// What has not been answered for good, in words.
    pub fn unanswered(&self) -> String {
        let unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        unanswered.iter().map(|(what, answer)| format!("\n{what}: {answer}")).collect()
    }

    /// Notes the last answer; `None`: it is through.
    pub(super) fn note(&self, what: &str, answer: Option<String>) {
        let mut unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Some(answer) => unanswered.insert(what.to_owned(), answer),
            None => unanswered.remove(what),
        };
    }

    /// Starts a run, twice at once if asked to: the runs that were named.
    pub(super) async fn start(&self, path: &str, key: &str, body: &Value, twice: bool) -> BTreeSet<String> {
        let what = format!("start {path} by {key}");
        let one = async || loop {
            let (status, answer) = self.insist(Method::POST, path, Some(key), Some(body)).await;
            if let Some(run) = answer["runId"].as_str().filter(|_| status.is_success()) {
                self.note(&what, None);
                return run.to_owned();
            }
            self.note(&what, Some(format!("{status} {answer}")));
            sleep(RETRY_PAUSE).await;
        };
        if twice {
            let (first, second) = tokio::join!(one(), one());
            return BTreeSet::from([first, second]);
        }
        BTreeSet::from([one().await])
    }

    async fn store(self: Arc<Self>, number: i64) -> StoredFile {
        // Any process: files belong to the workspace.
        let path = format!("/internal/diagram/{}/files", self.processes[&Shape::Chain]);
        let content = format!("file {number}");
        let data = format!("data:text/plain;base64,{}", STANDARD.encode(&content));
        let body = json!({"name": format!("{number}.txt"), "data": data});
        loop {
            let (status, answer) = self.insist(Method::POST, &path, None, Some(&body)).await;
            match answer["fileId"].as_str().filter(|_| status.is_success()) {
                Some(id) => return StoredFile { id: id.to_owned(), content },
                None => sleep(RETRY_PAUSE).await,
            }
        }
    }

    /// Calls until there is an answer that is more than "not now".
    pub(super) async fn insist(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> (StatusCode, Value) {
        let what = format!("{method} {path}");
        loop {
            let mut call = self.http.request(method.clone(), format!("{}{path}", self.base));
            call = call.bearer_auth(API_TOKEN);
            if let Some(key) = key {
                call = call.header("Idempotency-Key", key);
            }
            if let Some(body) = body {
                call = call.json(body);
            }
            match answered(call.send().await).await {
                Ok(answered) => {
                    self.note(&what, None);
                    return answered;
                }
                Err(why) => self.note(&what, Some(why)),
            }
            sleep(RETRY_PAUSE).await;
        }
    }
}

/// The answer; `Err`: there was none, or it asks to try again.
async fn answered(answer: reqwest::Result<reqwest::Response>) -> Result<(StatusCode, Value), String> {
    let answer = answer.map_err(|error| error.to_string())?;
    let status = answer.status();
    let text = answer.text().await.map_err(|error| error.to_string())?;
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return Err(format!("{status} {text}"));
    }
    Ok((status, serde_json::from_str(&text).unwrap_or_default()))
}
