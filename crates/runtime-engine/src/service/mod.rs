//! The service around the core: RPC, committers, publishing, the sweep.

mod catalogue;
mod committer;
mod draw;
mod engine;
mod error;
mod graphs;
mod large_outputs;
mod metrics;
mod near;
mod publisher;
mod reports;
mod retention;
mod rpc;
mod runs;
mod schedules;
mod settings;
mod sweep;

pub use error::Error;
pub use retention::Retention;
pub use settings::Settings;

use catalogue::Catalogue;
use committer::Committer;
use contract::engine::NearEngine;
use engine::{Engine, Shared};
use futures::{StreamExt, stream::FuturesUnordered};
use graphs::Graphs;
use large_outputs::LargeOutputs;
use metrics::Metrics;
use near::Near;
use publisher::Publisher;
use queue::Queue;
use retention::Pruner;
use rpc::Door;
use run_files::RunFiles;
use schedules::Schedules;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use storage::Storage;
use sweep::Sweep;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use wire::{Credentials, Limits, Server, ServerConfig, TrustProxy};

/// What the engine works with.
#[derive(Clone, Debug)]
pub struct Deps {
    /// The database: the truth.
    pub storage: Storage,
    /// Lanes and notices: hints.
    pub queue: Queue,
}

/// A started engine: its door is bound and its parts are at work; [`Service::run`] serves.
#[derive(Debug)]
pub struct Service {
    server: Server<Door>,
    near: Arc<dyn NearEngine>,
    parts: Vec<(&'static str, JoinHandle<()>)>,
    stop: CancellationToken,
    drain_timeout: Duration,
}

/// Starts the engine: reads clock and catalogue, binds the door, starts committers and sweep.
/// `stop` ends it.
///
/// # Errors
/// [`Error`], when the database does not answer or the door cannot be bound.
pub async fn start(settings: Settings, deps: Deps, stop: CancellationToken) -> Result<Service, Error> {
    let Deps { storage, queue } = deps;
    let metrics = Arc::new(Metrics::default());
    let clock = storage::Clock::new(storage.clone());
    clock.watch().await?;
    let shared = Arc::new(Shared {
        clock,
        graphs: Graphs::new(storage.clone()),
        catalogue: Arc::new(Catalogue::start(storage.clone()).await?),
        policy: settings.policy.clone(),
        page_bytes: settings.max_frame_bytes / 2,
        large_outputs: LargeOutputs::new(RunFiles::new(&settings.files)?, settings.inline_output_bytes),
        metrics: Arc::clone(&metrics),
        storage,
    });
    let mut parts = Vec::new();
    let notices = queue.subscribe(queue::Topic::Catalogue).await?;
    let following = Arc::clone(&shared.catalogue).follow(notices, stop.clone());
    parts.push(("catalogue", tokio::spawn(following)));
    let (publisher, publishing) = Publisher::new(queue.clone(), metrics);
    let mut senders = Vec::new();
    let committers = committers(&settings, &shared.storage);
    for _ in 0..committers {
        let (sender, commands) = mpsc::channel(committer::BACKLOG);
        let cache_bytes = settings.cache_bytes / committers;
        let committer = Committer::new(Arc::clone(&shared), publisher.clone(), cache_bytes);
        parts.push(("committer", tokio::spawn(committer.run(commands))));
        senders.push(sender);
    }
    drop(publisher);
    parts.push(("publisher", tokio::spawn(publishing)));
    let engine = Engine::new(shared, senders);
    let pruner = Pruner::new(engine.clone(), queue.clone(), settings.retention);
    parts.push(("retention", tokio::spawn(pruner.run(stop.clone()))));
    let sweep = Sweep::new(engine.clone(), queue, settings.sweep_interval);
    parts.push(("sweep", tokio::spawn(sweep.run(stop.clone()))));
    let schedules = Schedules::new(engine.clone());
    parts.push(("schedules", tokio::spawn(schedules.run(stop.clone()))));
    let near = Arc::new(Near::new(engine.downgrade(), stop.clone()));
    let server = bind(&settings, engine)?;
    tracing::info!(event = "engine_started", address = %server.local_addr(), committers, "engine started");
    Ok(Service { server, near, parts, stop, drain_timeout: settings.drain_timeout })
}

fn committers(settings: &Settings, storage: &Storage) -> usize {
    match settings.committers {
        // More than processors only make the transactions smaller.
        0 if storage.is_shared() => {
            std::thread::available_parallelism().map_or(3, |cores| cores.get().min(3))
        }
        0 => 1,
        // One connection each: more than this is a typing mistake.
        count => count.min(64),
    }
}

fn bind(settings: &Settings, engine: Engine) -> Result<Server<Door>, Error> {
    let credentials = settings.rpc_token.clone().map(|token| Credentials::new(token, None));
    let door = Arc::new(Door::new(engine, credentials));
    let config = ServerConfig {
        name: "engine",
        address: SocketAddr::new(settings.bind, settings.rpc_port),
        allow: settings.allow.clone(),
        limits: Limits { max_frame_bytes: settings.max_frame_bytes.saturating_mul(2), ..Limits::default() },
        proxy_protocol: TrustProxy::Nobody,
        tls: settings.tls.clone(),
        wipe_requests: false,
    };
    let server = Server::bind(config, Arc::clone(&door))?;
    door.know_stats(server.stats());
    Ok(server)
}

/// Waits for the end of all parts. A part that panics ends the engine: without it some runs would
/// stand still, while another engine, or this one started anew, takes them on.
async fn watch(parts: Vec<(&'static str, JoinHandle<()>)>, stop: CancellationToken) -> Result<(), Error> {
    let mut parts: FuturesUnordered<_> =
        parts.into_iter().map(|(task, part)| async move { (task, part.await) }).collect();
    let mut result = Ok(());
    while let Some((task, ended)) = parts.next().await {
        if let Err(source) = ended {
            tracing::error!(event = "engine_part_panicked", task, "the engine stops: {source}");
            stop.cancel();
            result = Err(Error::Task { task, source });
        }
    }
    result
}

impl Service {
    /// Where the RPC door listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// The door for whoever shares the process. It does not keep the engine from ending.
    pub fn near(&self) -> Arc<dyn NearEngine> {
        Arc::clone(&self.near)
    }

    /// Serves until `stop`, then drains: no connection is accepted any more, every report that came
    /// is stored and answered, what was decided is published. Takes at most the drain timeout.
    ///
    /// # Errors
    /// [`Error::Task`], when a part ended by a panic.
    pub async fn run(self) -> Result<(), Error> {
        let Self { server, near: _, parts, stop, drain_timeout } = self;
        let give_up = CancellationToken::new();
        let timer = tokio::spawn({
            let (stop, give_up) = (stop.clone(), give_up.clone());
            async move {
                stop.cancelled().await;
                tokio::time::sleep(drain_timeout).await;
                give_up.cancel();
            }
        });
        // The door, and with it the last way to the committers, is dropped with the server; then they
        // end, and after them the publisher.
        let (result, ()) = tokio::join!(watch(parts, stop.clone()), server.run(stop, give_up));
        timer.abort();
        tracing::info!(event = "engine_stopped", "engine stopped");
        result
    }
}
