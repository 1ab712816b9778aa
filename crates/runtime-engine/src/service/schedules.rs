//! Schedule triggers (`settings.triggers` of a diagram): each firing starts a run, by whichever engine
//! sees it first.
//!
//! A firing is an idempotency key, so that any number of engines start one run. Engines keep no other
//! account of what has fired: one that begins to watch a schedule makes up for its last firing when
//! that is at most [`CATCH_UP`] ago and the process was not saved since; the key tells whether
//! somebody had started it.

use super::{engine::Engine, runs};
use contract::{
    ErrorCode, Json, Millis, ProcessId, RpcError,
    process::Process,
    run::{RunStart, TriggerKind},
    schedule::Schedule,
};
use indexmap::IndexMap;
use std::{collections::HashMap, time::Duration};
use storage::processes::ProcessRow;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// How long ago a missed firing may be that is made up for.
const CATCH_UP: Duration = Duration::from_secs(60 * 60);

/// How often processes are looked through for changes.
const POLL: Duration = Duration::from_secs(5);

/// How often schedules are looked at.
const TICK: Duration = Duration::from_millis(500);

/// Processes that are read at once.
const PAGE: u32 = 500;

/// The user of runs that the clock starts.
const USER: &str = "schedule";

/// A process as it was last read; one without schedules is kept too, so that it is read once.
#[derive(Debug)]
struct Watched {
    revision: i64,
    workspace_id: String,
    schedules: Vec<(usize, Schedule)>,
    /// Firings up to here are settled.
    until: Millis,
}

#[derive(Debug)]
pub(super) struct Schedules {
    engine: Engine,
    watched: HashMap<ProcessId, Watched>,
}

impl Schedules {
    pub(super) fn new(engine: Engine) -> Self {
        Self { engine, watched: HashMap::new() }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut polled: Option<Instant> = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            if polled.is_none_or(|at| at.elapsed() >= POLL) {
                polled = Some(Instant::now());
                if let Err(error) = self.poll().await {
                    tracing::warn!(event = "schedules_unread", "what is known of schedules stays: {error}");
                }
            }
            self.fire().await;
        }
    }

    /// Reads the processes that have changed.
    async fn poll(&mut self) -> Result<(), storage::Error> {
        let mut seen = HashMap::with_capacity(self.watched.len());
        let mut after = None;
        loop {
            let page = self.engine.shared.storage.processes().heads(after, PAGE).await?;
            let is_last = page.len() < PAGE as usize;
            after = page.last().map(|row| row.process_id);
            for row in page {
                let known = self.watched.remove(&row.process_id);
                let watched = match known.filter(|known| known.revision == row.revision) {
                    Some(known) => known,
                    None => self.read(&row).await?,
                };
                seen.insert(row.process_id, watched);
            }
            if is_last {
                self.watched = seen;
                return Ok(());
            }
        }
    }

    async fn read(&self, row: &ProcessRow) -> Result<Watched, storage::Error> {
        let document = self.engine.shared.storage.processes().revision(row.process_id, row.revision).await?;
        let oldest = Millis(self.engine.shared.clock.now().0.saturating_sub(Millis(0).plus(CATCH_UP).0));
        Ok(Watched {
            revision: row.revision,
            workspace_id: row.workspace_id.clone(),
            schedules: document.map(|document| schedules(row.process_id, &document)).unwrap_or_default(),
            until: row.updated_at.max(oldest),
        })
    }

    async fn fire(&mut self) {
        let now = self.engine.shared.clock.now();
        for (process_id, watched) in &mut self.watched {
            let mut is_settled = true;
            for (index, schedule) in &watched.schedules {
                if let Some(at) = schedule.due(watched.until, now) {
                    let started = start(&self.engine, *process_id, &watched.workspace_id, *index, at).await;
                    tell(*process_id, at, &started);
                    // The next look tries again what only the database's absence hindered.
                    let is_away = started.is_err_and(|error| error.code == ErrorCode::EngineUnavailable);
                    is_settled &= !is_away || now.since(at) >= CATCH_UP;
                }
            }
            if is_settled {
                watched.until = now;
            }
        }
    }
}

/// The schedules of a process that is active, each with its place among the triggers. Saving refuses
/// malformed ones; what was saved by other hands is logged and never fires.
fn schedules(process_id: ProcessId, document: &Json) -> Vec<(usize, Schedule)> {
    let Ok(process) = document.read::<Process>() else { return Vec::new() };
    if process.settings.is_active == Some(false) {
        return Vec::new();
    }
    let triggers = process.settings.triggers.iter().enumerate();
    let read = triggers.filter_map(|(index, trigger)| Some((index, Schedule::read(trigger)?)));
    read.filter_map(|(index, schedule)| {
        let reason = match schedule {
            Ok(schedule) if schedule.fires() => return Some((index, schedule)),
            Ok(_) => "cron names no moment that ever comes".to_owned(),
            Err(faults) => {
                let faults: Vec<_> =
                    faults.iter().map(|fault| format!("{} {}", fault.field, fault.message)).collect();
                faults.join("; ")
            }
        };
        tracing::warn!(event = "schedule_malformed", %process_id, trigger = index, "it never fires: {reason}");
        None
    })
    .collect()
}

async fn start(
    engine: &Engine,
    process_id: ProcessId,
    workspace_id: &str,
    trigger: usize,
    at: Millis,
) -> Result<contract::run::RunStarted, RpcError> {
    let asked = RunStart {
        process_id,
        workspace_id: workspace_id.to_owned(),
        user_id: USER.to_owned(),
        trigger: TriggerKind::Schedule,
        payload: IndexMap::new(),
        idempotency_key: Some(format!("schedule:{trigger}:{}", at.0)),
        traceparent: None,
        tracestate: None,
    };
    runs::start(engine, asked).await
}

fn tell(process_id: ProcessId, at: Millis, started: &Result<contract::run::RunStarted, RpcError>) {
    match started {
        Ok(started) if started.created => {
            tracing::info!(event = "schedule_fired", %process_id, run_id = %started.run_id, at_ms = at.0, "run started");
        }
        // Another engine was faster.
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(event = "schedule_refused", %process_id, at_ms = at.0, "no run was started: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// The places of the triggers that are watched.
    fn watched(settings: &Value) -> Vec<usize> {
        let document = Json::from(json!({"settings": settings, "widgets": [], "edges": []}));
        schedules(ProcessId(uuid::Uuid::nil()), &document).into_iter().map(|(place, _)| place).collect()
    }

    #[test]
    fn only_schedules_that_fire_and_only_those_of_active_processes_are_watched() {
        let schedule = |cron: &str| json!({"type": "schedule", "cron": cron, "timeZone": "Europe/Riga"});
        let february = "0 0 30 2 *";
        let triggers =
            [json!({"type": "manual"}), schedule("0 9 * * *"), schedule(february), schedule("soon")];
        assert_eq!(watched(&json!({"name": "x", "triggers": triggers})), [1]);
        assert_eq!(watched(&json!({"name": "x", "triggers": triggers, "isActive": true})), [1]);
        assert!(watched(&json!({"name": "x", "triggers": triggers, "isActive": false})).is_empty());
    }
}
