//! Everything in one process, as `conveyor up` starts it.

use crate::{
    Platform, StubPlugin,
    deployment::{API_TOKEN, CONTROL_PLANE_KEY, INGRESS_TOKEN},
};
use std::{path::Path, time::Duration};
use testkit::{Process, Program};

/// Long enough for a busy machine; nothing is asserted by it.
const START: Duration = Duration::from_secs(60);

/// One process with all services.
#[derive(Debug)]
pub struct Solo {
    /// The process.
    pub process: Process,
    /// The platform's API.
    pub platform: Platform,
    /// The control plane's HTTP door.
    pub http_port: u16,
    /// The control plane's TCP door.
    pub tcp_port: u16,
    /// Plugin-manager's TCP door.
    pub plugin_manager: u16,
    _folder: tempfile::TempDir,
}

impl Solo {
    /// Starts this binary with `extra` variables; without `DATABASE_URL` among them on SQLite.
    pub async fn start(conveyor: &Path, extra: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = || testkit::free_port().expect("a free port");
        let (api, http_port, tcp_port, plugin_manager) = (port(), port(), port(), port());
        let process = Program::new(conveyor)
            .args(["up", "--data"])
            .arg(folder.path())
            .without_env(&["CONVEYOR_", "DATABASE_", "REDIS_", "PLUGIN_", "RUNTIME_"])
            .env("CONVEYOR_API_TOKEN", API_TOKEN)
            .env("PLUGIN_CONTROL_PLANE_KEY", CONTROL_PLANE_KEY)
            .env("PLUGIN_MANAGER_INGRESS_TOKEN", INGRESS_TOKEN)
            .env("API_HTTP_PORT", api.to_string())
            .env("RUNTIME_CONTROL_PLANE_HTTP_PORT", http_port.to_string())
            .env("RUNTIME_CONTROL_PLANE_TCP_PORT", tcp_port.to_string())
            .env("PLUGIN_MANAGER_TCP_PORT", plugin_manager.to_string())
            .env("PLUGIN_MANAGER_HEALTH_PORT", port().to_string())
            .envs(extra.iter().copied())
            .spawn()
            .expect("conveyor starts");
        if let Err(error) = process.wait_for_line("Conveyor is up", START).await {
            panic!("conveyor does not come up: {error}");
        }
        let platform = Platform::at(api);
        Self { process, platform, http_port, tcp_port, plugin_manager, _folder: folder }
    }

    /// A stub plugin in its catalogue.
    pub async fn plugin(&self) -> StubPlugin {
        let plugin = StubPlugin::start(self.plugin_manager, INGRESS_TOKEN).await;
        self.platform.wait_for_plugin(crate::stub::PLUGIN_ID).await;
        plugin
    }

    /// The most memory that the process ever had, bytes.
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.pid()));
        let status = status.expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux counts memory");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib * 1024
    }
}
