//! The service put together.

use crate::{
    documents::Documents,
    door::Door,
    error::Error,
    hand_out::HandOuts,
    health::{Ledger, Sweep},
    http::{self, Routes, Shown},
    metrics::{Doors, Exposition, Metrics},
    publication::{Publisher, Rules, assets::Assets, pull::Puller},
    reconcile::{Progress, Reconcile},
    settings::Settings,
    tokens::Tokens,
    view::View,
};
use parking_lot::Mutex;
use queue::{Notices, Queue, Topic};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use storage::Storage;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use wire::{HttpConfig, HttpListener, Limits, Server, ServerConfig};

/// How long calls in work may take when the service stops.
const DRAIN: Duration = Duration::from_secs(30);

/// plugin-manager: everything bound, nothing running.
pub struct Service {
    server: Server<Door>,
    health: HttpListener,
    router: Routes,
    view: Arc<View>,
    notices: Notices,
    reconcile: Option<Reconcile>,
    sweep: Option<Sweep>,
    /// Ends waiting hand-outs.
    stop_waiting: CancellationToken,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

impl Service {
    /// Reads the catalogue and binds both listeners.
    ///
    /// # Errors
    /// [`Error`], when the catalogue cannot be read or an address cannot be listened on.
    pub async fn bind(settings: Settings, storage: Storage, queue: Queue) -> Result<Self, Error> {
        if settings.ingress_token.is_none() {
            tracing::warn!(
                event = "insecure_dev",
                "PLUGIN_MANAGER_INGRESS_TOKEN is not set: everyone who can connect may publish plugins"
            );
        }
        // Subscribed before the catalogue is read: no change falls in between.
        let notices = queue.subscribe(Topic::Catalogue).await?;
        let view = Arc::new(View::open(storage.catalogue(), queue.clone()).await?);
        let metrics = Arc::new(Metrics::default());
        let tokens = Arc::new(Tokens::new(&settings));
        let ledger = Arc::new(Ledger::new(
            storage.clone(),
            Arc::clone(&view),
            Arc::clone(&metrics),
            settings.health.thresholds,
        ));
        let publisher = Arc::new(Publisher::new(
            storage.clone(),
            Arc::clone(&view),
            Arc::clone(&ledger),
            Arc::clone(&metrics),
            Puller {
                timeout: settings.executor_pull_timeout,
                max_frame_bytes: settings.max_frame_bytes,
                tls: settings.plugin_tls.clone(),
            },
            Assets::new(&settings)?,
            Rules {
                allow_republish: settings.allow_republish,
                require_signed: settings.require_signed,
                keys: settings.signing_keys.clone(),
            },
        ));
        let progress = watch::Sender::new(Progress::Off);
        let reconciled = progress.subscribe();
        let reconcile = settings.startup_reconcile.then(|| Reconcile {
            progress,
            storage: storage.clone(),
            publisher: Arc::clone(&publisher),
            metrics: Arc::clone(&metrics),
            queue: queue.clone(),
            tokens: tokens.for_pull(None),
            timeout: settings.startup_pull_timeout,
        });
        let stop_waiting = CancellationToken::new();
        let documents = Arc::new(Documents::new(storage.catalogue(), Arc::clone(&metrics)));
        let door = Door {
            storage: storage.clone(),
            view: Arc::clone(&view),
            hand_outs: HandOuts {
                view: Arc::clone(&view),
                documents: Arc::clone(&documents),
                timeout: settings.executor_pull_timeout,
                stop: stop_waiting.clone(),
            },
            documents,
            publisher,
            tokens: Arc::clone(&tokens),
            metrics: Arc::clone(&metrics),
            enabled_by_default: settings.enabled_by_default,
            last_unauthorized: Mutex::default(),
        };
        let server = bind_door(&settings, door)?;
        let health = bind_health(&settings)?;
        let doors = Doors { tcp: server.stats(), health: health.stats() };
        let exposition = Exposition::new(&metrics, doors, tokens.credentials(), Arc::clone(&view));
        let interval = settings.health.interval;
        let sweep =
            Sweep::new(Arc::clone(&view), ledger, queue.clone(), settings.health, settings.plugin_tls);
        let router = http::router(Shown {
            storage,
            queue,
            view: Arc::clone(&view),
            tokens,
            exposition,
            reconciled,
            sweep: interval,
        });
        Ok(Self { server, health, router, view, notices, reconcile, sweep, stop_waiting })
    }

    /// Where it listens: `tcp` (the door) and `health` (HTTP).
    pub fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        vec![("tcp", self.server.local_addr()), ("health", self.health.local_addr())]
    }

    /// Serves until `stop`; then takes no new connections, answers what is in work for at most 30 s,
    /// and returns.
    ///
    /// # Errors
    /// [`Error::Serve`] when the listeners end before that.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let Self { server, health, router, view, notices, reconcile, sweep, stop_waiting } = self;
        let mut tasks = JoinSet::new();
        {
            let (stop, view) = (stop.clone(), Arc::clone(&view));
            tasks.spawn(async move { view.run(notices, stop).await });
        }
        if let Some(reconcile) = reconcile {
            tasks.spawn(reconcile.run(stop.clone()));
        }
        if let Some(sweep) = sweep {
            tasks.spawn(sweep.run(stop.clone()));
        }
        let (accept_stop, connections_stop) = (CancellationToken::new(), CancellationToken::new());
        let mut doors = {
            let (accept_stop, connections_stop) = (accept_stop.clone(), connections_stop.clone());
            tokio::spawn(async move {
                tokio::join!(
                    server.run(accept_stop.clone(), connections_stop.clone()),
                    health.run(router, accept_stop.clone(), connections_stop.clone()),
                );
            })
        };

        let failed = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            // They end by themselves only when one panics.
            ended = &mut doors => ended.err(),
        };
        stop_waiting.cancel();
        if let Some(error) = failed {
            tasks.shutdown().await;
            return Err(Error::Serve(error));
        }
        accept_stop.cancel();
        if tokio::time::timeout(DRAIN, &mut doors).await.is_err() {
            connections_stop.cancel();
            let _ = doors.await;
        }
        while tasks.join_next().await.is_some() {}
        Ok(())
    }
}

fn bind_door(settings: &Settings, door: Door) -> Result<Server<Door>, Error> {
    let address = SocketAddr::new(settings.bind, settings.tcp_port);
    let limits = Limits { max_frame_bytes: settings.max_frame_bytes, ..Limits::default() };
    let config = ServerConfig {
        allow: settings.allow.clone(),
        tls: settings.tls.clone(),
        limits,
        ..ServerConfig::new("plugin-manager", address)
    };
    Ok(Server::bind(config, Arc::new(door))?)
}

fn bind_health(settings: &Settings) -> Result<HttpListener, Error> {
    let address = SocketAddr::new(settings.bind, settings.health_port);
    let config =
        HttpConfig { tls: settings.health_tls.clone(), ..HttpConfig::new("plugin-manager-health", address) };
    HttpListener::bind(config).map_err(Error::Health)
}
