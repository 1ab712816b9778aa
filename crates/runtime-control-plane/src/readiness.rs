//! Is the service of use? Asked by `/ready`, which everybody may call: at most one probe a second.

use crate::{dispatch::CatalogueCache, engine::Engine};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Mutex;

/// How long an answer is good for.
const FRESH: Duration = Duration::from_secs(1);

/// The probe of readiness: the engine answers and the catalogue is loaded.
#[derive(Debug)]
pub(crate) struct Readiness {
    engine: Arc<Engine>,
    catalogue: Arc<CatalogueCache>,
    last: Mutex<Option<(Instant, bool)>>,
}

impl Readiness {
    pub(crate) fn new(engine: Arc<Engine>, catalogue: Arc<CatalogueCache>) -> Self {
        Self { engine, catalogue, last: Mutex::new(None) }
    }

    /// Callers at the same time share one probe.
    pub(crate) async fn is_ready(&self) -> bool {
        let mut last = self.last.lock().await;
        if let Some((asked, ready)) = *last
            && asked.elapsed() < FRESH
        {
            return ready;
        }
        let ready = self.catalogue.current().is_some() && self.engine.answers().await;
        *last = Some((Instant::now(), ready));
        ready
    }
}
