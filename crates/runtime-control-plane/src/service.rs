//! The service: binds both doors, runs them and the dispatcher, stops in good order.

use crate::{
    Error, Settings,
    access::Access,
    dispatch::{CatalogueCache, DispatchStops, Dispatcher, Parts},
    engine::Engine,
    executor_secrets::ExecutorDesk,
    http::{self, BodyBudget, HttpDoor},
    metrics::Metrics,
    readiness::Readiness,
    reports::Reports,
    secrets::Secrets,
    tcp::TcpDoor,
};
use contract::engine::NearEngine;
use queue::{Queue, Topic};
use run_files::RunFiles;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use storage::Storage;
use tokio_util::sync::CancellationToken;

/// The last part of a stop is for the doors: reports under way are answered.
const LAST_PART: u32 = 6;

/// What the control plane works with.
#[derive(Clone, Debug)]
pub struct Deps {
    /// The database: catalogue and claims.
    pub storage: Storage,
    /// Lanes and notices.
    pub queue: Queue,
    /// The engine, when it is in this process; otherwise it is called at [`Settings::engine`].
    pub engine: Option<Arc<dyn NearEngine>>,
}

/// Everything bound, nothing running.
#[derive(Debug)]
pub struct Service {
    http: wire::HttpListener,
    tcp: wire::Server<TcpDoor>,
    door: Arc<HttpDoor>,
    dispatcher: Dispatcher,
    catalogue: Arc<CatalogueCache>,
    queue: Queue,
    stops: Stops,
    drain_timeout: Duration,
}

/// The steps of a stop.
#[derive(Clone, Debug, Default)]
struct Stops {
    /// First the dispatcher; its last step ends everything.
    dispatch: DispatchStops,
    /// Then the doors close; reports under way are answered.
    doors: CancellationToken,
}

impl Service {
    /// Listens at both doors. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// A door that cannot be opened, or a missing key.
    pub async fn bind(settings: Settings, deps: Deps) -> Result<Self, Error> {
        let Deps { storage, queue, engine } = deps;
        let metrics = Arc::new(Metrics::new());
        let access = Arc::new(Access::new(&settings, Arc::clone(&metrics))?);
        let stops = Stops::default();
        let engine = Arc::new(Engine::new(&settings, engine));
        let reports = Arc::new(Reports::start(
            Arc::clone(&engine),
            settings.max_frame_bytes,
            settings.report_timeout,
            Arc::clone(&metrics),
            stops.dispatch.cut.clone(),
        ));
        let secrets = Arc::new(Secrets::new(&settings));
        let tcp_door = TcpDoor {
            access: Arc::clone(&access),
            reports: Arc::clone(&reports),
            executors: ExecutorDesk::new(&storage, Arc::clone(&secrets)),
            limit: settings.max_frame_bytes,
        };
        let limits = wire::Limits {
            max_frame_bytes: settings.max_frame_bytes,
            max_connections: settings.max_connections,
            ..wire::Limits::default()
        };
        let address = SocketAddr::new(settings.bind, settings.tcp_port);
        let config = wire::ServerConfig {
            allow: settings.allow.clone(),
            proxy_protocol: settings.proxy_protocol.clone(),
            limits: limits.clone(),
            tls: settings.tls.clone(),
            ..wire::ServerConfig::new("runtime-control-plane", address)
        };
        let tcp = wire::Server::bind(config, Arc::new(tcp_door))?;
        let http = wire::HttpListener::bind(wire::HttpConfig {
            name: "runtime-control-plane-http",
            address: SocketAddr::new(settings.bind, settings.http_port),
            tls: settings.http_tls.clone(),
            limits: wire::HttpLimits {
                max_connections: settings.max_connections,
                head_timeout: limits.first_byte_timeout,
                ..wire::HttpLimits::default()
            },
        })?;
        metrics.export(tcp.stats(), http.stats(), access.credentials());
        let catalogue = Arc::new(CatalogueCache::new(storage.clone()));
        let door = HttpDoor {
            access,
            reports: Arc::clone(&reports),
            engine: Arc::clone(&engine),
            metrics: Arc::clone(&metrics),
            readiness: Arc::new(Readiness::new(Arc::clone(&engine), Arc::clone(&catalogue))),
            budget: BodyBudget::new(
                limits.max_buffered_bytes,
                settings.max_frame_bytes,
                limits.frame_timeout,
            ),
        };
        let files = RunFiles::new(&settings.files)?;
        let parts = Parts { catalogue: Arc::clone(&catalogue), secrets, files, engine, reports, metrics };
        let dispatcher = Dispatcher::new(&settings, &storage, parts, stops.dispatch.clone());
        Ok(Self {
            http,
            tcp,
            door: Arc::new(door),
            dispatcher,
            catalogue,
            queue,
            stops,
            drain_timeout: settings.drain_timeout,
        })
    }

    /// Where it listens: `http` and `tcp`.
    pub fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        vec![("http", self.http.local_addr()), ("tcp", self.tcp.local_addr())]
    }

    /// Serves until `stop`. Then no task is taken any more, deliveries and reports under way are
    /// finished, and the doors close; what is not finished within the drain timeout is cut off.
    ///
    /// # Errors
    /// [`Error::Queue`] when the queue cannot be subscribed to.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let Self { http, tcp, door, dispatcher, catalogue, queue, stops, drain_timeout } = self;
        let notices = queue.subscribe(Topic::Catalogue).await?;
        tracing::info!(
            event = "control_plane_started",
            http = %http.local_addr(),
            tcp = %tcp.local_addr(),
            "the control plane listens"
        );
        let doors = async {
            tokio::join!(
                http.run(http::router(door), stops.doors.clone(), stops.dispatch.cut.clone()),
                tcp.run(stops.doors.clone(), stops.dispatch.cut.clone()),
            )
        };
        let dispatching = async {
            dispatcher.run(&queue).await;
            // Nothing is being delivered any more: the doors may close.
            stops.doors.cancel();
        };
        let work = async {
            tokio::join!(doors, dispatching);
            // Both have ended: so may those that only serve them.
            stops.dispatch.cut.cancel();
        };
        tokio::join!(
            work,
            catalogue.follow(notices, stops.dispatch.cut.clone()),
            drain(stop, stops.clone(), drain_timeout)
        );
        tracing::info!(event = "control_plane_stopped", "the control plane has stopped");
        Ok(())
    }
}

/// Waits for `stop` and then sees to it that all ends within `limit`.
async fn drain(stop: CancellationToken, stops: Stops, limit: Duration) {
    if stops.dispatch.cut.run_until_cancelled(stop.cancelled()).await.is_none() {
        return;
    }
    tracing::info!(
        event = "control_plane_stopping",
        limit_ms = limit.as_millis(),
        "finishing what is under way"
    );
    stops.dispatch.taking.cancel();
    let last = limit / LAST_PART;
    let steps = async {
        tokio::time::sleep(limit.saturating_sub(last)).await;
        stops.dispatch.deliveries.cancel();
        tokio::time::sleep(last / 2).await;
        stops.doors.cancel();
        tokio::time::sleep(last - last / 2).await;
    };
    if stops.dispatch.cut.run_until_cancelled(steps).await.is_some() {
        tracing::warn!(
            event = "control_plane_cut_off",
            "the limit of the stop is over; what is left is cut off"
        );
        stops.dispatch.cut.cancel();
    }
}
