//! A split deployment: every service a process of its own, on PostgreSQL and Redis.

use crate::{Servers, binary};
use std::{collections::BTreeMap, time::Duration};
use testkit::{Process, Program};

/// The services, in the order in which they are started: a service comes after those it calls.
pub const SERVICES: [&str; 7] = [
    "runtime-engine",
    "secret-manager",
    "file-service",
    "plugin-manager",
    "runtime-control-plane",
    "executor",
    "api",
];

/// What `conveyor serve` logs once, when everything that it serves is open. The words "listening" come
/// earlier too (of the queue) and several times, and a service without a door has none of its own.
pub const SERVING: &str = "event=\"serving\"";

/// Variables that configure us; a developer's own must not reach a test.
pub const CONFIGURED: [&str; 10] = [
    "API_",
    "CONTROL_PLANE_",
    "CONVEYOR_",
    "DATABASE_",
    "EXECUTOR_",
    "FILE_",
    "PLUGIN_",
    "REDIS_",
    "RUNTIME_",
    "SECRET",
];

/// Long enough for a busy machine; nothing is asserted by it.
const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(60);

/// The token of the platform's API in tests.
pub const API_TOKEN: &str = "system-test-api-token-000000000000";
/// The key of the control plane in tests.
pub const CONTROL_PLANE_KEY: &str = "system-test-control-plane-key";
/// The token of plugin-manager in tests.
pub const INGRESS_TOKEN: &str = "system-test-ingress-token";

/// Ports of the services' listeners.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// The platform's API.
    pub api: u16,
    /// The engine's RPC.
    pub engine: u16,
    /// The control plane's HTTP door.
    pub control_plane_http: u16,
    /// The control plane's TCP door.
    pub control_plane_tcp: u16,
    /// Plugin-manager's TCP door.
    pub plugin_manager: u16,
    /// Plugin-manager's health.
    pub plugin_manager_health: u16,
    /// Secret-manager.
    pub secret_manager: u16,
    /// File-service.
    pub file_service: u16,
}

impl Ports {
    pub(crate) fn free() -> Self {
        let port = || testkit::free_port().expect("a free port");
        Self {
            api: port(),
            engine: port(),
            control_plane_http: port(),
            control_plane_tcp: port(),
            plugin_manager: port(),
            plugin_manager_health: port(),
            secret_manager: port(),
            file_service: port(),
        }
    }
}

/// Seven processes.
#[derive(Debug)]
pub struct Deployment {
    /// Where they listen.
    pub ports: Ports,
    environment: BTreeMap<&'static str, String>,
    processes: BTreeMap<&'static str, Process>,
    _folder: tempfile::TempDir,
}

impl Deployment {
    /// Starts all services on these servers and waits until each listens. `extra` variables are
    /// given to every service.
    pub async fn start(servers: &Servers, extra: &[(&'static str, &str)]) -> Self {
        let ports = Ports::free();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut environment = environment(ports, &servers.database_url, &servers.redis.url(), folder.path());
        environment.extend(extra.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let mut deployment = Self { ports, environment, processes: BTreeMap::new(), _folder: folder };
        for service in SERVICES {
            deployment.start_service(service).await;
        }
        deployment
    }

    /// Starts one service that is not running.
    pub async fn start_service(&mut self, service: &'static str) {
        let process = Program::new(binary("conveyor"))
            .args(["serve", service])
            .without_env(&CONFIGURED)
            .envs(self.environment.iter())
            .spawn()
            .expect("conveyor starts");
        if let Err(error) = process.wait_for_line(SERVING, START).await {
            panic!("{service} does not serve: {error}");
        }
        self.processes.insert(service, process);
    }

    /// One more process of a service, with other values for some variables.
    pub async fn another(&self, service: &'static str, other: &[(&'static str, String)]) -> Process {
        let mut environment = self.environment.clone();
        environment.extend(other.iter().cloned());
        let process = Program::new(binary("conveyor"))
            .args(["serve", service])
            .without_env(&CONFIGURED)
            .envs(environment.iter())
            .spawn()
            .expect("conveyor starts");
        if let Err(error) = process.wait_for_line(SERVING, START).await {
            panic!("another {service} does not serve: {error}");
        }
        process
    }

    /// Kills a service as a crash would.
    pub async fn kill(&mut self, service: &str) {
        let process = self.processes.remove(service).expect("the service runs");
        process.kill().await.expect("it dies");
    }

    /// Stops a service as an operator would; tells whether it ended with exit code 0.
    pub async fn stop(&mut self, service: &str) -> bool {
        let process = self.processes.remove(service).expect("the service runs");
        process.stop(STOP).await.expect("it stops").success()
    }

    /// The environment of a plugin process that is to work with this deployment.
    pub fn plugin_environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("PLUGIN_TCP_PORT", "0".to_owned()),
            ("PLUGIN_MANAGER_RPC_HOST", "127.0.0.1".to_owned()),
            ("PLUGIN_MANAGER_RPC_PORT", self.ports.plugin_manager.to_string()),
            ("PLUGIN_MANAGER_INGRESS_TOKEN", INGRESS_TOKEN.to_owned()),
            ("CONTROL_PLANE_TCP_HOST", "127.0.0.1".to_owned()),
            ("RUNTIME_CONTROL_PLANE_TCP_PORT", self.ports.control_plane_tcp.to_string()),
            ("PLUGIN_CONTROL_PLANE_KEY", CONTROL_PLANE_KEY.to_owned()),
        ]
    }

    /// Resident memory of a service; `None` where the system does not tell.
    pub fn memory_bytes(&self, service: &str) -> Option<u64> {
        let pid = self.processes.get(service)?.pid();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    }

    /// Does a service hold these bytes anywhere in its memory, freed memory included?
    pub fn memory_holds(&self, service: &str, bytes: &[u8]) -> bool {
        let process = self.processes.get(service).expect("the service runs");
        testkit::memory::holds(process.pid(), bytes).expect("the memory of a child can be read")
    }

    /// Waits until a service has printed a line with this text.
    pub async fn prints(&self, service: &str, text: &str) {
        let process = self.processes.get(service).expect("the service runs");
        process.wait_for_line(text, START).await.expect("the line is printed");
    }
}

pub(crate) fn environment(
    ports: Ports,
    database_url: &str,
    redis_url: &str,
    folder: &std::path::Path,
) -> BTreeMap<&'static str, String> {
    let local = |port: u16| format!("127.0.0.1:{port}");
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let host = || "127.0.0.1".to_owned();
    // 32 bytes, base64.
    let master_key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    BTreeMap::from([
        ("CONVEYOR_BIND", host()),
        ("CONVEYOR_DATA_DIR", folder.display().to_string()),
        ("DATABASE_URL", database_url.to_owned()),
        ("REDIS_URL", redis_url.to_owned()),
        ("CONVEYOR_PLUGINS_DEFAULT", "enabled".to_owned()),
        ("CONVEYOR_API_TOKEN", API_TOKEN.to_owned()),
        ("API_HTTP_PORT", ports.api.to_string()),
        ("API_BASE_URL", url(ports.api)),
        ("RUNTIME_ENGINE_TCP_HOST", host()),
        ("RUNTIME_ENGINE_RPC_TCP_PORT", ports.engine.to_string()),
        ("RUNTIME_ENGINE_RPC_TOKEN", "system-test-engine-token".to_owned()),
        ("RUNTIME_CONTROL_PLANE_HTTP_PORT", ports.control_plane_http.to_string()),
        ("RUNTIME_CONTROL_PLANE_TCP_PORT", ports.control_plane_tcp.to_string()),
        ("CONTROL_PLANE_TCP_HOST", host()),
        ("PLUGIN_CONTROL_PLANE_KEY", CONTROL_PLANE_KEY.to_owned()),
        ("PLUGIN_MANAGER_TCP_PORT", ports.plugin_manager.to_string()),
        ("PLUGIN_MANAGER_HEALTH_PORT", ports.plugin_manager_health.to_string()),
        ("PLUGIN_MANAGER_RPC_HOST", host()),
        ("PLUGIN_MANAGER_RPC_PORT", ports.plugin_manager.to_string()),
        ("PLUGIN_MANAGER_INGRESS_TOKEN", INGRESS_TOKEN.to_owned()),
        ("PLUGIN_MANAGER_FILE_SERVICE_URL", url(ports.file_service)),
        ("SECRET_MANAGER_TCP_PORT", ports.secret_manager.to_string()),
        ("SECRET_MANAGER_TOKEN", "system-test-secret-token".to_owned()),
        ("SECRET_MANAGER_MASTER_KEY", master_key.to_owned()),
        ("SECRETS_TCP_CONNECT", local(ports.secret_manager)),
        ("FILE_SERVICE_HTTP_PORT", ports.file_service.to_string()),
        ("FILE_SERVICE_BASE_URL", url(ports.file_service)),
        ("FILE_SERVICE_TOKEN", "system-test-file-token".to_owned()),
    ])
}
