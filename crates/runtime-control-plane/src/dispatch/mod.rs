//! Dispatch: takes tasks from the plugin lane and brings them to their plugins (protocol sections 3,
//! 5 and 6).
//!
//! The lane is a hint. Each task is first claimed in the database, so that it is dispatched once, and
//! never for a run that has ended (failure matrix row 1). Nothing here survives a restart, and nothing
//! needs to: what was not told to the engine, its sweep finds.

mod catalogue;
mod deliver;
mod endpoints;
mod places;
mod prepare;
mod window;

pub(crate) use catalogue::CatalogueCache;

use crate::{
    PluginsDefault, Settings,
    batch::{BatchLimits, Batcher},
    engine::Engine,
    metrics::Metrics,
    reports::Reports,
    retry,
    secrets::Secrets,
};
use contract::{
    ExecutionId, RunId,
    report::{DispatchOutcome, ReportOutcome},
    task::Task,
};
use endpoints::Endpoints;
use places::Places;
use queue::{Lane, Queue};
use run_files::RunFiles;
use std::{sync::Arc, time::Duration};
use storage::Storage;
use tokio::{
    sync::{Semaphore, mpsc},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use window::{Admission, Admitted, Window};
use wire::ClientConfig;

/// Tasks taken from the lane at once.
const TAKE: usize = 32;
/// How long one look at the lane waits.
const TAKE_WAIT: Duration = Duration::from_secs(5);

/// What a claim runs longer than the delivery deadline: the time to tell the engine how it ended.
const CLAIM_GRACE: Duration = Duration::from_secs(5);

/// What a task adds to its inputs, bytes.
const TASK_ENVELOPE_BYTES: usize = 64 * 1024;

/// Claims of one statement, and statements at once.
const CLAIMS: BatchLimits = BatchLimits { items: 256, bytes: usize::MAX, pipelined: 2, waiting: 1024 };

/// Outcomes of one call, and calls at once; their bytes are those of a frame.
const OUTCOMES: BatchLimits = BatchLimits { items: 512, bytes: 0, pipelined: 4, waiting: 4096 };

/// The steps of a stop, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct DispatchStops {
    /// No task is taken any more; what was taken is delivered.
    pub(crate) taking: CancellationToken,
    /// Deliveries that are still open are given up and told to the engine.
    pub(crate) deliveries: CancellationToken,
    /// Everything ends.
    pub(crate) cut: CancellationToken,
}

/// The dispatcher.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    catalogue: Arc<CatalogueCache>,
    default_enabled: bool,
    secrets: Arc<Secrets>,
    files: RunFiles,
    /// The most bytes of a task's inputs.
    inputs_bytes: usize,
    /// Where plugins get the files that inputs still refer to.
    files_url: String,
    endpoints: Endpoints,
    reports: Arc<Reports>,
    claims: Batcher<ExecutionId, bool>,
    engine: Arc<Engine>,
    outcomes: Batcher<DispatchOutcome, ReportOutcome>,
    places: Places,
    listeners: Arc<Semaphore>,
    metrics: Arc<Metrics>,
    delivery_timeout: Duration,
    limits: crate::DispatchLimits,
    stops: DispatchStops,
}

/// What has to be known of a task once its payload is gone.
#[derive(Debug)]
struct Attempt {
    run_id: RunId,
    execution_id: ExecutionId,
    node_type: String,
    timeout: Duration,
    traceparent: Option<String>,
}

/// What the dispatcher works with and shares with the rest of the service.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) catalogue: Arc<CatalogueCache>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) files: RunFiles,
    pub(crate) engine: Arc<Engine>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Dispatcher {
    pub(crate) fn new(settings: &Settings, storage: &Storage, parts: Parts, stops: DispatchStops) -> Self {
        let Parts { catalogue, secrets, files, engine, reports, metrics } = parts;
        let limits = settings.dispatch.clone();
        let claim_for = settings.delivery_timeout.saturating_add(CLAIM_GRACE);
        let config = ClientConfig {
            max_frame_bytes: settings.max_frame_bytes,
            // The window and the listeners are the bound.
            max_in_flight: limits.in_flight.saturating_add(limits.listening),
            tls: settings.plugin_tls.clone(),
            ..ClientConfig::default()
        };
        Self {
            catalogue,
            default_enabled: settings.plugins_default == PluginsDefault::Enabled,
            secrets,
            files,
            inputs_bytes: settings.max_frame_bytes.saturating_sub(TASK_ENVELOPE_BYTES),
            files_url: format!("{}/files", settings.api_url),
            endpoints: Endpoints::new(config),
            reports,
            outcomes: outcomes(Arc::clone(&engine), settings.max_frame_bytes),
            engine,
            claims: claims(storage, claim_for),
            places: Places::new(storage, claim_for, &limits),
            listeners: Arc::new(Semaphore::new(limits.listening.min(Semaphore::MAX_PERMITS))),
            metrics,
            delivery_timeout: settings.delivery_timeout,
            limits,
            stops,
        }
    }

    /// Dispatches until told to stop; returns when nothing is under way any more.
    pub(crate) async fn run(self, queue: &Queue) {
        let (window, admitted) = Window::new(self.limits.clone(), Arc::clone(&self.metrics));
        let shown = Arc::downgrade(&window);
        self.metrics.export_windows(move || shown.upgrade().map(|window| window.loads()).unwrap_or_default());
        let dispatcher = Arc::new(self);
        let deliveries = TaskTracker::new();
        let starting = tokio::spawn(Arc::clone(&dispatcher).start_admitted(admitted, deliveries.clone()));
        let waiting = tokio::spawn(Arc::clone(&dispatcher).serve_waiting(queue.clone(), Arc::clone(&window)));
        let taking = dispatcher.stops.taking.clone();
        // Before the catalogue is known no endpoint has a window.
        if taking.run_until_cancelled(dispatcher.catalogue.loaded()).await.is_some() {
            dispatcher.take(queue, &window).await;
        }
        give_back(queue, window.close()).await;
        // First all that was admitted has been started, then all that was started has ended.
        window.empty().await;
        deliveries.close();
        deliveries.wait().await;
        starting.abort();
        waiting.abort();
        give_back(queue, dispatcher.places.close()).await;
    }

    /// Takes tasks as long as there is room for them.
    async fn take(&self, queue: &Queue, window: &Arc<Window>) {
        let mut failures = 0;
        loop {
            let look = async {
                let room = window.room().await;
                queue.take(Lane::Plugin, room.min(TAKE), TAKE_WAIT).await
            };
            match self.stops.taking.run_until_cancelled(look).await {
                None => return,
                Some(Ok(items)) => {
                    failures = 0;
                    self.admit(window, &items).await;
                    self.endpoints.evict_idle();
                }
                Some(Err(error)) => {
                    tracing::warn!(
                        event = "lane_unavailable",
                        error = %error,
                        "tasks cannot be taken now; the engine's sweep publishes again what is lost"
                    );
                    retry::pause(failures, &self.stops.taking).await;
                    failures = failures.saturating_add(1);
                }
            }
        }
    }

    /// Lets what was taken into the window.
    async fn admit(&self, window: &Arc<Window>, items: &[String]) {
        let mut tasks: Vec<(Task, usize)> = Vec::with_capacity(items.len());
        for item in items {
            match serde_json::from_str(item) {
                Ok(task) => tasks.push((task, item.len())),
                Err(error) => {
                    self.metrics.dispatch("unreadable", "");
                    tracing::error!(event = "task_unreadable", error = %error, "a task on the lane cannot be read");
                }
            }
        }
        // Tasks of a plugin that was published just now need the window of its endpoint too.
        if tasks.iter().any(|(task, _)| self.target(task).is_none())
            && let Err(error) = self.catalogue.refresh().await
        {
            tracing::debug!(event = "catalogue_unreadable", error = %error, "policy will look again");
        }
        for (task, bytes) in tasks {
            let execution_id = task.execution_id;
            let Some(task) = self.behind_others(task, bytes) else { continue };
            if window.admit(self.target(&task), task, bytes) == Admission::Full {
                self.metrics.dispatch("backlog_full", "");
                tracing::debug!(
                    event = "backlog_full",
                    execution_id = %execution_id,
                    "the backlog of the task's endpoint is full; the engine's sweep publishes it again"
                );
            }
        }
    }

    async fn start_admitted(
        self: Arc<Self>,
        mut admitted: mpsc::UnboundedReceiver<Admitted>,
        deliveries: TaskTracker,
    ) {
        while let Some(admitted) = admitted.recv().await {
            let dispatcher = Arc::clone(&self);
            deliveries.spawn(async move {
                let cut = dispatcher.stops.cut.clone();
                cut.run_until_cancelled(dispatcher.dispatch(admitted)).await;
            });
        }
    }

    /// Dispatches one task.
    async fn dispatch(self: &Arc<Self>, Admitted { task, slot }: Admitted) {
        let until = Instant::now() + self.delivery_timeout;
        let Some((task, slot)) = self.claimed(task, slot).await else { return };
        let attempt = Attempt {
            run_id: task.run_id,
            execution_id: task.execution_id,
            node_type: task.node_type.clone(),
            timeout: Duration::from_millis(task.timeout_ms),
            traceparent: task.traceparent.clone(),
        };
        match self.prepare(task).await {
            Ok(prepared) => self.deliver(&attempt, prepared, until, slot).await,
            Err(outcome) => self.tell(&attempt, outcome).await,
        }
    }
}

/// Claims tasks in the database, many in one statement. A failed statement answers nobody: whether it
/// was carried out is unknown, and the engine's sweep finds out.
fn claims(storage: &Storage, delivery: Duration) -> Batcher<ExecutionId, bool> {
    let runs = storage.runs();
    Batcher::start(CLAIMS, move |ids: Vec<ExecutionId>| {
        let runs = runs.clone();
        async move {
            runs.claim_dispatch(&ids, delivery).await.unwrap_or_else(|error| {
                tracing::warn!(
                    event = "claim_failed",
                    tasks = ids.len(),
                    error = %error,
                    "tasks cannot be claimed now; the engine's sweep publishes them again"
                );
                Vec::new()
            })
        }
    })
}

/// Tells the engine how dispatches ended, many in one call.
fn outcomes(engine: Arc<Engine>, max_frame_bytes: usize) -> Batcher<DispatchOutcome, ReportOutcome> {
    let limits = BatchLimits { bytes: max_frame_bytes, ..OUTCOMES };
    Batcher::start(limits, move |outcomes| {
        let engine = Arc::clone(&engine);
        async move { engine.dispatch_outcomes(outcomes).await }
    })
}

/// Gives parked tasks to other control planes. Best effort: the sweep would do it later.
async fn give_back(queue: &Queue, parked: Vec<Task>) {
    let items: Vec<_> = parked.iter().filter_map(|task| serde_json::to_string(task).ok()).collect();
    if items.is_empty() {
        return;
    }
    if let Err(error) = queue.push(Lane::Plugin, items).await {
        tracing::debug!(event = "give_back_failed", error = %error, "parked tasks are left to the engine's sweep");
    }
}
