//! Running the bound services: one that ends before it was told to stops the process, and a stop
//! goes from those who report to those who are reported to.

use super::listening::Listening;
use crate::services::ServiceName;
use anyhow::anyhow;
use futures::future::BoxFuture;
use queue::Queue;
use std::{collections::HashMap, fmt};
use storage::Storage;
use tokio::task::{Id, JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// The last stage of a stop.
const LAST_STAGE: u8 = 3;

/// A bound service.
pub(super) struct Unit {
    service: ServiceName,
    stop: CancellationToken,
    run: BoxFuture<'static, anyhow::Result<()>>,
}

impl Unit {
    pub(super) fn new(
        service: ServiceName,
        stop: CancellationToken,
        run: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) -> Self {
        Self { service, stop, run: Box::pin(run) }
    }
}

/// Bound services that are not served yet.
pub(crate) struct Platform {
    pub(super) units: Vec<Unit>,
    /// Where they listen.
    pub(crate) listening: Vec<Listening>,
    pub(super) storage: Option<Storage>,
    pub(super) queue: Option<Queue>,
}

impl fmt::Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Platform").field("listening", &self.listening).finish_non_exhaustive()
    }
}

impl Platform {
    /// A service's listener.
    pub(crate) fn find(&self, service: ServiceName, door: &str) -> Option<Listening> {
        self.listening
            .iter()
            .find(|listening| listening.service == service && listening.door == door)
            .copied()
    }

    /// The queue that the services share.
    pub(crate) fn queue(&self) -> Option<&Queue> {
        self.queue.as_ref()
    }

    /// Serves until `stop`, then ends in order.
    ///
    /// # Errors
    /// The first service that failed or ended by itself, by name.
    pub(crate) async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let mut crew = Crew::default();
        for unit in self.units {
            crew.start(unit);
        }
        let first = tokio::select! {
            () = stop.cancelled() => None,
            ended = crew.next() => ended,
        };
        let mut failure = first.map(|(service, result)| match result {
            Ok(()) => anyhow!("{service} ended by itself"),
            Err(error) => error.context(format!("{service} failed")),
        });
        if let Some(error) = &failure {
            tracing::error!(event = "service_failed", "{error:#}; everything stops");
        }
        for stage in 0..=LAST_STAGE {
            if let Some(error) = crew.stop(stage).await {
                failure.get_or_insert(error);
            }
        }
        if let Some(storage) = self.storage {
            storage.close().await;
        }
        tracing::info!(event = "stopped", "all services have ended");
        failure.map_or(Ok(()), Err)
    }

    /// Serves in the background.
    pub(crate) fn start(self) -> Started {
        let stop = CancellationToken::new();
        Started { task: tokio::spawn(self.run(stop.clone())), stop }
    }
}

/// A platform that is served in the background.
#[derive(Debug)]
pub(crate) struct Started {
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Started {
    /// Waits until it ends by itself, which is a failure. Cancel-safe.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        match (&mut self.task).await {
            Ok(Err(error)) => error,
            Ok(Ok(())) => anyhow!("the services ended by themselves"),
            Err(error) => anyhow!("the supervisor failed: {error}"),
        }
    }

    /// Stops it in order.
    ///
    /// # Errors
    /// A service that could not end well, by name.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.task.await?
    }
}

/// The running services.
#[derive(Default)]
struct Crew {
    tasks: JoinSet<anyhow::Result<()>>,
    members: HashMap<Id, (ServiceName, CancellationToken)>,
}

impl Crew {
    fn start(&mut self, unit: Unit) {
        let id = self.tasks.spawn(unit.run).id();
        self.members.insert(id, (unit.service, unit.stop));
    }

    /// The next service that ends; `None` when none is left.
    async fn next(&mut self) -> Option<(ServiceName, anyhow::Result<()>)> {
        let (id, result) = match self.tasks.join_next_with_id().await? {
            Ok((id, result)) => (id, result),
            Err(error) => (error.id(), Err(anyhow!("it panicked: {error}"))),
        };
        // Every task is a member until it ends.
        self.members.remove(&id).map(|(service, _)| (service, result))
    }

    /// Tells the services of a stage to stop and waits for them; the first that fails.
    async fn stop(&mut self, stage: u8) -> Option<anyhow::Error> {
        let of_stage = |service: &ServiceName| service.stop_stage() == stage;
        for (service, stop) in self.members.values() {
            if of_stage(service) {
                stop.cancel();
            }
        }
        let mut failure = None;
        while self.members.values().any(|(service, _)| of_stage(service)) {
            let (service, result) = self.next().await?;
            if let Err(error) = result {
                tracing::error!(event = "service_failed", service = service.as_str(), "{error:#}");
                failure.get_or_insert(error.context(format!("{service} failed")));
            }
        }
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    type Order = Arc<Mutex<Vec<ServiceName>>>;

    fn platform(units: Vec<Unit>) -> Platform {
        Platform { units, listening: Vec::new(), storage: None, queue: None }
    }

    fn obedient(service: ServiceName, order: &Order) -> Unit {
        let (stop, order) = (CancellationToken::new(), Arc::clone(order));
        Unit::new(service, stop.clone(), async move {
            stop.cancelled().await;
            order.lock().unwrap().push(service);
            Ok(())
        })
    }

    #[tokio::test]
    async fn reporters_stop_before_those_who_are_reported_to() {
        let order = Order::default();
        let units = ServiceName::ALL.map(|service| obedient(service, &order)).into();
        let started = platform(units).start();
        started.stop().await.unwrap();
        let stages: Vec<_> = order.lock().unwrap().iter().map(|service| service.stop_stage()).collect();
        assert_eq!(stages, [0, 0, 0, 1, 2, 3, 3]);
    }

    #[tokio::test]
    async fn a_service_that_fails_stops_everything_and_is_named() {
        let order = Order::default();
        let failing =
            Unit::new(ServiceName::Api, CancellationToken::new(), async { Err(anyhow!("no more sockets")) });
        let units = vec![obedient(ServiceName::RuntimeEngine, &order), failing];
        let error = platform(units).run(CancellationToken::new()).await.unwrap_err();
        assert_eq!(format!("{error:#}"), "api failed: no more sockets");
        assert_eq!(*order.lock().unwrap(), [ServiceName::RuntimeEngine]);
    }

    #[tokio::test]
    async fn a_service_that_panics_is_named_too() {
        let panicking = Unit::new(ServiceName::Executor, CancellationToken::new(), async { panic!("a bug") });
        let error = platform(vec![panicking]).run(CancellationToken::new()).await.unwrap_err();
        assert!(format!("{error:#}").starts_with("executor failed: it panicked"), "{error:#}");
    }
}
