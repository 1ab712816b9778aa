//! Plugin-manager at scale, as a process of a split deployment on PostgreSQL and Redis: a thousand
//! plugins of twenty nodes published by 32 publishers, the catalogue's answers, a crowd of executors
//! at start, a health sweep over a thousand endpoints of which fifty die, and the memory of it all.

use contract::{Json, manifest::MANIFEST_KIND, pattern};
use reqwest::header::{self, HeaderValue};
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    error::Error,
    net::{Ipv4Addr, SocketAddr},
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use system_tests::{
    Deployment,
    deployment::{API_TOKEN, INGRESS_TOKEN},
};
use testkit::{Postgres, Redis};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wire::{Client, ClientConfig, Reply, Request, Server, ServerConfig};

const PLUGINS: usize = 1_000;
const NODES: usize = 20;
const PUBLISHERS: usize = 32;
const DEAD: usize = 50;
const EXECUTORS: usize = 500;
const ASKED_FOR: usize = 10;
const ASKED: usize = 20;
const INTERVAL_MS: &str = "15000";
const DEADLINE: Duration = Duration::from_secs(60);
/// Three rounds of the sweep with their jitter, and some patience.
const SWEEP_LIMIT: Duration = Duration::from_secs(120);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    match measure().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the benchmark of the catalogue failed: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure() -> Outcome<()> {
    let postgres = Postgres::start().await?;
    let servers = system_tests::Servers {
        database_url: testkit::fresh_database(&postgres.url()).await?,
        redis: Redis::start().await?,
    };
    let variables = [("PLUGIN_MANAGER_PLUGIN_HEALTH_INTERVAL_MS", INTERVAL_MS)];
    let deployment = Deployment::start(&servers, &variables).await;
    let plugins: Vec<Plugin> = (0..PLUGINS).map(Plugin::start).collect::<Outcome<_>>()?;
    let manager = Client::new("127.0.0.1", deployment.ports.plugin_manager, ClientConfig::default());
    let memory = |what: &str| {
        let megabytes = deployment.memory_bytes("plugin-manager").unwrap_or_default() / (1024 * 1024);
        println!("{:<46}{megabytes:>8} MiB", format!("memory of plugin-manager, {what}"));
    };

    memory("empty");
    publish(&manager, &plugins).await?;
    memory("after the publications");
    // Before anything else has read the documents into memory.
    executors(deployment.ports.plugin_manager, deployment.ports.plugin_manager_health).await?;
    answers(&manager, deployment.ports.api).await?;
    sweep(&manager, &plugins).await?;
    memory("at the end");
    Ok(())
}

/// A plugin on a port of its own.
struct Plugin {
    id: String,
    address: SocketAddr,
    stop: CancellationToken,
}

impl Plugin {
    fn start(number: usize) -> Outcome<Self> {
        let id = format!("plugin-{number:04}");
        let items =
            Json::from(json!({ "items": node_types(&id).map(|name| item(&name)).collect::<Vec<_>>() }));
        let answer = move |request: Request| {
            let items = items.clone();
            async move {
                match pattern::find(&request.pattern) {
                    Some(pattern::EXECUTOR_BATCH_PULL) => Reply::Value(items),
                    _ => Reply::NoHandler,
                }
            }
        };
        let config = ServerConfig::new("plugin", (Ipv4Addr::LOCALHOST, 0).into());
        let server = Server::bind(config, Arc::new(answer))?;
        let (address, stop) = (server.local_addr(), CancellationToken::new());
        tokio::spawn(server.run(stop.clone(), stop.clone()));
        Ok(Self { id, address, stop })
    }

    fn manifest(&self) -> Json {
        let executors: Vec<Value> = node_types(&self.id).map(|name| json!({ "nodeType": name })).collect();
        Json::from(json!({
            "kind": MANIFEST_KIND, "token": INGRESS_TOKEN, "pluginId": self.id, "publicationVersion": "1.0.0",
            "label": format!("Plugin {}", self.id), "description": "One of a thousand", "executors": executors,
            "pull": {"host": self.address.ip().to_string(), "port": self.address.port()},
        }))
    }
}

fn node_types(id: &str) -> impl Iterator<Item = String> {
    let id = id.to_owned();
    (0..NODES).map(move |node| format!("plugin.{id}.node-{node:02}"))
}

fn item(node_type: &str) -> Value {
    let port = |name: &str| json!({"name": name, "type": "string", "label": name, "description": "A value"});
    let (inputs, outputs) =
        (["first", "second", "third", "fourth"].map(port), ["result", "detail"].map(port));
    json!({
        "nodeType": node_type, "name": "Does something", "description": "What it does, in a sentence.",
        "help": "# Help\n\nTwo lines of it.", "tags": ["bench"], "sectionPath": ["Bench"],
        "inputs": inputs, "outputs": outputs,
    })
}

async fn publish(manager: &Client, plugins: &[Plugin]) -> Outcome<()> {
    let queue: Arc<Mutex<VecDeque<Json>>> =
        Arc::new(Mutex::new(plugins.iter().map(Plugin::manifest).collect()));
    let begun = Instant::now();
    let mut publishers = JoinSet::new();
    for _ in 0..PUBLISHERS {
        let (manager, queue) = (manager.clone(), Arc::clone(&queue));
        publishers.spawn(async move {
            let mut times = Vec::new();
            loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some(manifest) = next else { return Ok(times) };
                let begun = Instant::now();
                manager.request(pattern::MANIFEST_REQUEST_V2.name, &manifest, DEADLINE).await?;
                times.push(begun.elapsed());
            }
        });
    }
    let mut times = Vec::new();
    while let Some(done) = publishers.join_next().await {
        let done: Result<Vec<Duration>, wire::CallError> = done?;
        times.extend(done?);
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{:<46}{:>8.1} s, {:.0} plugins/s, p50 {:.0} ms, p99 {:.0} ms",
        format!("{PLUGINS} plugins × {NODES} nodes, {PUBLISHERS} publishers"),
        seconds,
        PLUGINS as f64 / seconds,
        percentile(&mut times, 50),
        percentile(&mut times, 99),
    );
    Ok(())
}

async fn answers(manager: &Client, api: u16) -> Outcome<()> {
    let mut times = Vec::new();
    for pattern in [pattern::PLUGIN_LIST.name, pattern::PLUGIN_HEALTH.name] {
        times.clear();
        let mut bytes = 0;
        for _ in 0..ASKED {
            let begun = Instant::now();
            bytes = ask(manager, pattern, json!({})).await?.text().len();
            times.push(begun.elapsed());
        }
        told(&format!("{pattern} of plugin-manager"), &mut times, bytes);
    }
    times.clear();
    let http = reqwest::Client::builder().no_proxy().build()?;
    let palette = async |etag: Option<&HeaderValue>| -> Outcome<(Duration, usize, Option<HeaderValue>)> {
        let mut request = http.get(format!("http://127.0.0.1:{api}/palette")).bearer_auth(API_TOKEN);
        if let Some(etag) = etag {
            request = request.header(header::IF_NONE_MATCH, etag);
        }
        let begun = Instant::now();
        let response = request.send().await?.error_for_status()?;
        let etag = response.headers().get(header::ETAG).cloned();
        let bytes = response.bytes().await?.len();
        Ok((begun.elapsed(), bytes, etag))
    };
    let (first, whole, mut etag) = palette(None).await?;
    for _ in 0..ASKED {
        times.push(palette(None).await?.0);
    }
    let mut known = Vec::new();
    for _ in 0..ASKED {
        let (time, sent, newer) = palette(etag.as_ref()).await?;
        // The catalogue may change at any time: then the palette is sent anew.
        if sent == 0 {
            known.push(time);
        }
        etag = newer;
    }
    told("GET /palette of the api, the first", &mut [first], whole);
    told("GET /palette of the api, afterwards", &mut times, whole);
    told("GET /palette of the api, known (304)", &mut known, 0);
    Ok(())
}

/// All executors ask for a plugin each at the same moment, as after a restart of their hosts.
async fn executors(port: u16, health: u16) -> Outcome<()> {
    let queries = loads(health).await?;
    let mut crowd = JoinSet::new();
    let begun = Instant::now();
    for executor in 0..EXECUTORS {
        crowd.spawn(async move {
            let client = Client::new("127.0.0.1", port, ClientConfig::default());
            let begun = Instant::now();
            let wanted = json!({ "pluginId": format!("plugin-{:04}", executor % ASKED_FOR) });
            ask(&client, pattern::MANIFEST_REQUEST.name, wanted).await.map(|_| begun.elapsed())
        });
    }
    let mut times = Vec::new();
    while let Some(done) = crowd.join_next().await {
        times.push(done??);
    }
    let elapsed = begun.elapsed();
    println!(
        "{:<46}{:>8.0} ms, {} queries, p50 {:.0} ms, p99 {:.0} ms",
        format!("{EXECUTORS} executors ask for {ASKED_FOR} manifests at once"),
        elapsed.as_secs_f64() * 1000.0,
        loads(health).await? - queries,
        percentile(&mut times, 50),
        percentile(&mut times, 99),
    );
    Ok(())
}

/// Publications that plugin-manager has read from the database for hand-out.
async fn loads(health: u16) -> Outcome<u64> {
    const NAME: &str = "conveyor_plugin_manager_hand_out_loads_total ";
    let page = reqwest::get(format!("http://127.0.0.1:{health}/metrics")).await?.text().await?;
    let value = page.lines().find_map(|line| line.strip_prefix(NAME));
    Ok(value.ok_or("plugin-manager shows no hand-out loads")?.trim().parse()?)
}

async fn sweep(manager: &Client, plugins: &[Plugin]) -> Outcome<()> {
    plugins.iter().take(DEAD).for_each(|plugin| plugin.stop.cancel());
    let begun = Instant::now();
    loop {
        let health = ask(manager, pattern::PLUGIN_HEALTH.name, json!({})).await?.value()?;
        let states: Vec<(&str, &str)> = health["plugins"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|row| Some((row["pluginId"].as_str()?, row["health"]["state"].as_str()?)))
            .collect();
        let dead = |id: &str| plugins.iter().take(DEAD).any(|plugin| plugin.id == id);
        let found = states.iter().filter(|(id, state)| *state == "offline" && dead(id)).count();
        let wrong = states.iter().filter(|(id, state)| *state != "online" && !dead(id)).count();
        if found == DEAD || begun.elapsed() > SWEEP_LIMIT {
            println!(
                "{:<46}{:>8.1} s until {found} of {DEAD} dead ones are offline, {wrong} living ones misjudged",
                format!("sweep of {PLUGINS} endpoints, every {INTERVAL_MS} ms"),
                begun.elapsed().as_secs_f64(),
            );
            return Ok(());
        }
        // Health is asked for, there is no event of it outside of plugin-manager.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn ask(client: &Client, pattern: &str, mut data: Value) -> Result<Json, wire::CallError> {
    if let Value::Object(fields) = &mut data {
        fields.insert("token".to_owned(), json!(INGRESS_TOKEN));
    }
    client.request(pattern, &Json::from(data), DEADLINE).await
}

fn told(what: &str, times: &mut [Duration], bytes: usize) {
    let (p50, p99) = (percentile(times, 50), percentile(times, 99));
    println!("{what:<46}{p50:>8.1} ms, p99 {p99:.1} ms, {:.1} MiB", bytes as f64 / (1024.0 * 1024.0));
}

/// In milliseconds.
fn percentile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    let place = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(place).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}
