//! Opening what is shared and binding the services, each after those it calls.

use super::{
    listening::Listening,
    plan::Plan,
    supervise::{Platform, Unit},
};
use crate::services::ServiceName;
use anyhow::Context;
use contract::engine::NearEngine;
use queue::Queue;
use std::{
    fs::DirBuilder,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
};
use storage::Storage;
use tokio_util::sync::CancellationToken;

/// The file of the master key in the data folder, where none is configured.
const MASTER_KEY_FILE: &str = "secret-master.key";

/// Binds every service of the plan; nothing is served yet.
///
/// # Errors
/// The first service that cannot be bound, by name.
pub(crate) async fn bind(plan: Plan) -> anyhow::Result<Platform> {
    crate::descriptors::raise_limit();
    let shared = Shared::open(&plan).await?;
    let mut binding = Binding { plan, shared, units: Vec::new(), listening: Vec::new(), near_engine: None };
    for service in ServiceName::ALL {
        binding.bind(service).await.with_context(|| format!("{service} cannot start"))?;
    }
    Ok(Platform {
        units: binding.units,
        listening: binding.listening,
        storage: binding.shared.storage,
        queue: binding.shared.queue,
    })
}

/// The data folder, which only its owner enters.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn make_folder(path: &Path) -> anyhow::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).with_context(|| format!("the data folder {} cannot be made", path.display()))
}

/// Store and queue, as far as the services of this process need them.
struct Shared {
    storage: Option<Storage>,
    queue: Option<Queue>,
}

impl Shared {
    async fn open(plan: &Plan) -> anyhow::Result<Self> {
        let wanted = |needs: fn(ServiceName) -> bool| {
            ServiceName::ALL.into_iter().any(|service| needs(service) && plan.has(service))
        };
        let storage = if wanted(ServiceName::needs_database) {
            if plan.platform.is_embedded() {
                make_folder(&plan.platform.data_dir)?;
            }
            let opened = Storage::open(&plan.platform.storage()).await;
            Some(opened.context("the database cannot be opened (DATABASE_URL)")?)
        } else {
            None
        };
        let queue = match (&plan.platform.redis, wanted(ServiceName::needs_queue)) {
            (_, false) => None,
            (None, true) => Some(Queue::in_process()),
            (Some(redis), true) => {
                Some(Queue::redis(redis.clone()).await.context("Redis cannot be used (REDIS_URL)")?)
            }
        };
        Ok(Self { storage, queue })
    }

    fn storage(&self) -> anyhow::Result<Storage> {
        self.storage.clone().context("no database was opened")
    }

    fn queue(&self) -> anyhow::Result<Queue> {
        self.queue.clone().context("no queue was opened")
    }
}

struct Binding {
    plan: Plan,
    shared: Shared,
    units: Vec<Unit>,
    listening: Vec<Listening>,
    near_engine: Option<Arc<dyn NearEngine>>,
}

impl Binding {
    async fn bind(&mut self, service: ServiceName) -> anyhow::Result<()> {
        match service {
            ServiceName::RuntimeEngine => self.engine().await,
            ServiceName::SecretManager => self.secret_manager().await,
            ServiceName::FileService => self.file_service().await,
            ServiceName::PluginManager => self.plugin_manager().await,
            ServiceName::RuntimeControlPlane => self.control_plane().await,
            ServiceName::Executor => self.executor().await,
            ServiceName::Api => self.api().await,
        }
    }

    async fn engine(&mut self) -> anyhow::Result<()> {
        let Some(mut settings) = self.plan.engine.take() else { return Ok(()) };
        if settings.rpc_port == 0 {
            settings.bind = LOOPBACK;
        }
        let deps = runtime_engine::Deps { storage: self.shared.storage()?, queue: self.shared.queue()? };
        let stop = CancellationToken::new();
        let engine = runtime_engine::start(settings, deps, stop.clone()).await?;
        let address = self.listens(ServiceName::RuntimeEngine, "tcp", engine.local_addr());
        self.near_engine = Some(engine.near());
        self.units.push(Unit::new(ServiceName::RuntimeEngine, stop, async move { Ok(engine.run().await?) }));
        if let Some(control_plane) = &mut self.plan.control_plane {
            control_plane.engine = address.endpoint();
        }
        if let Some(api) = &mut self.plan.api {
            api.engine = address.endpoint();
        }
        Ok(())
    }

    async fn secret_manager(&mut self) -> anyhow::Result<()> {
        let Some(mut settings) = self.plan.secret_manager.take() else { return Ok(()) };
        internal(&mut settings.address);
        if settings.master_key.is_none() && self.plan.generates {
            make_folder(&self.plan.platform.data_dir)?;
            let file = self.plan.platform.data_dir.join(MASTER_KEY_FILE);
            settings.master_key = Some(secret_manager::load_or_create_key(&file)?);
        }
        let service = secret_manager::Service::bind(settings, self.shared.storage()?).await?;
        let address = self.listen_all(ServiceName::SecretManager, service.addresses());
        self.run(ServiceName::SecretManager, |stop| async move { Ok(service.run(stop).await?) });
        if let (Some(control_plane), Some(address)) = (&mut self.plan.control_plane, address) {
            control_plane.secret_manager = address.endpoint();
        }
        if let (Some(api), Some(address)) = (&mut self.plan.api, address) {
            api.secret_manager = address.endpoint();
        }
        Ok(())
    }

    async fn file_service(&mut self) -> anyhow::Result<()> {
        let Some(mut settings) = self.plan.file_service.take() else { return Ok(()) };
        internal(&mut settings.address);
        let is_https = settings.tls.is_some();
        let service = file_service::Service::bind(settings, self.shared.storage()?).await?;
        self.listen_all(ServiceName::FileService, service.addresses());
        self.speaks_https(ServiceName::FileService, "http", is_https);
        self.run(ServiceName::FileService, |stop| async move { Ok(service.run(stop).await?) });
        let address = self.find(ServiceName::FileService, "http");
        let Some(url) = address.map(|address| address.url()) else { return Ok(()) };
        if let Some(plugin_manager) = &mut self.plan.plugin_manager {
            plugin_manager.files.url.clone_from(&url);
        }
        if let Some(control_plane) = &mut self.plan.control_plane {
            control_plane.files.url.clone_from(&url);
        }
        if let Some(engine) = &mut self.plan.engine {
            engine.files.url.clone_from(&url);
        }
        if let Some(executor) = &mut self.plan.executor {
            executor.files.url.clone_from(&url);
        }
        if let Some(api) = &mut self.plan.api {
            api.files.url = url;
        }
        Ok(())
    }

    async fn plugin_manager(&mut self) -> anyhow::Result<()> {
        let Some(settings) = self.plan.plugin_manager.take() else { return Ok(()) };
        let is_https = settings.health_tls.is_some();
        let service =
            plugin_manager::Service::bind(settings, self.shared.storage()?, self.shared.queue()?).await?;
        self.listen_all(ServiceName::PluginManager, service.addresses());
        self.speaks_https(ServiceName::PluginManager, "health", is_https);
        self.run(ServiceName::PluginManager, |stop| async move { Ok(service.run(stop).await?) });
        let address = self.find(ServiceName::PluginManager, "tcp");
        if let (Some(api), Some(address)) = (&mut self.plan.api, address) {
            api.plugin_manager = address.endpoint();
        }
        Ok(())
    }

    async fn control_plane(&mut self) -> anyhow::Result<()> {
        let Some(mut settings) = self.plan.control_plane.take() else { return Ok(()) };
        // api is bound last, on the port that it was told.
        if let Some(api) = self.plan.api.as_ref().filter(|api| api.http_port != 0) {
            let address = SocketAddr::new(api.bind, api.http_port);
            let is_https = api.tls.is_some();
            settings.api_url = Listening { service: ServiceName::Api, door: "http", address, is_https }.url();
        }
        let is_https = settings.http_tls.is_some();
        let deps = runtime_control_plane::Deps {
            storage: self.shared.storage()?,
            queue: self.shared.queue()?,
            engine: self.near_engine.clone(),
        };
        let service = runtime_control_plane::Service::bind(settings, deps).await?;
        self.listen_all(ServiceName::RuntimeControlPlane, service.addresses());
        self.speaks_https(ServiceName::RuntimeControlPlane, "http", is_https);
        self.run(
            ServiceName::RuntimeControlPlane,
            |stop| async move { Ok(Box::pin(service.run(stop)).await?) },
        );
        let address = self.find(ServiceName::RuntimeControlPlane, "tcp");
        if let (Some(executor), Some(address)) = (&mut self.plan.executor, address) {
            let endpoint = address.endpoint();
            executor.control_plane.host = endpoint.host;
            executor.control_plane.port = endpoint.port;
        }
        Ok(())
    }

    async fn executor(&mut self) -> anyhow::Result<()> {
        let Some(settings) = self.plan.executor.take() else { return Ok(()) };
        let service = executor::Service::bind(settings, self.shared.queue()?).await?;
        self.listen_all(ServiceName::Executor, service.addresses());
        self.run(ServiceName::Executor, |stop| async move { Ok(service.run(stop).await?) });
        Ok(())
    }

    async fn api(&mut self) -> anyhow::Result<()> {
        let Some(settings) = self.plan.api.take() else { return Ok(()) };
        let is_https = settings.tls.is_some();
        let service = api::Service::bind(settings, self.shared.storage()?, self.shared.queue()?).await?;
        self.listen_all(ServiceName::Api, service.addresses());
        self.speaks_https(ServiceName::Api, "http", is_https);
        self.run(ServiceName::Api, |stop| async move { Ok(service.run(stop).await?) });
        Ok(())
    }

    fn run<F, R>(&mut self, service: ServiceName, run: F)
    where
        F: FnOnce(CancellationToken) -> R,
        R: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let stop = CancellationToken::new();
        self.units.push(Unit::new(service, stop.clone(), run(stop)));
    }

    fn listens(&mut self, service: ServiceName, door: &'static str, address: SocketAddr) -> Listening {
        let listening = Listening { service, door, address, is_https: false };
        self.listening.push(listening);
        listening
    }

    /// Notes all listeners of a service; the first of them.
    fn listen_all(
        &mut self,
        service: ServiceName,
        addresses: Vec<(&'static str, SocketAddr)>,
    ) -> Option<Listening> {
        let all: Vec<_> =
            addresses.into_iter().map(|(door, address)| self.listens(service, door, address)).collect();
        all.first().copied()
    }

    /// Notes what an HTTP listener speaks.
    fn speaks_https(&mut self, service: ServiceName, door: &str, is_https: bool) {
        let found = self.listening.iter_mut().find(|one| one.service == service && one.door == door);
        if let Some(listening) = found {
            listening.is_https = is_https;
        }
    }

    fn find(&self, service: ServiceName, door: &str) -> Option<Listening> {
        self.listening
            .iter()
            .find(|listening| listening.service == service && listening.door == door)
            .copied()
    }
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A listener on any free port is for neighbours in this process only.
fn internal(address: &mut SocketAddr) {
    if address.port() == 0 {
        address.set_ip(LOOPBACK);
    }
}
