//! Everything in one process, as `conveyor up` starts it.

use crate::{
    Platform, StubPlugin,
    deployment::{API_TOKEN, CONFIGURED, CONTROL_PLANE_KEY, INGRESS_TOKEN},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use testkit::{Clock, Process, Program};

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
    conveyor: PathBuf,
    variables: Vec<(String, String)>,
    clock: Option<Arc<Clock>>,
    folder: tempfile::TempDir,
}

impl Solo {
    /// Starts this binary with `extra` variables; without `DATABASE_URL` among them on SQLite.
    pub async fn start(conveyor: &Path, extra: &[(&str, &str)]) -> Self {
        Self::start_with(conveyor, extra, None).await
    }

    /// As [`Self::start`], with this wall clock.
    pub async fn start_by(conveyor: &Path, extra: &[(&str, &str)], clock: &Arc<Clock>) -> Self {
        Self::start_with(conveyor, extra, Some(Arc::clone(clock))).await
    }

    async fn start_with(conveyor: &Path, extra: &[(&str, &str)], clock: Option<Arc<Clock>>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = || testkit::free_port().expect("a free port");
        let (api, http_port, tcp_port, plugin_manager) = (port(), port(), port(), port());
        let own = [
            ("CONVEYOR_API_TOKEN", API_TOKEN.to_owned()),
            ("PLUGIN_CONTROL_PLANE_KEY", CONTROL_PLANE_KEY.to_owned()),
            ("PLUGIN_MANAGER_INGRESS_TOKEN", INGRESS_TOKEN.to_owned()),
            ("API_HTTP_PORT", api.to_string()),
            ("RUNTIME_CONTROL_PLANE_HTTP_PORT", http_port.to_string()),
            ("RUNTIME_CONTROL_PLANE_TCP_PORT", tcp_port.to_string()),
            ("PLUGIN_MANAGER_TCP_PORT", plugin_manager.to_string()),
            ("PLUGIN_MANAGER_HEALTH_PORT", port().to_string()),
        ];
        let extra = extra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let variables: Vec<_> =
            own.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(extra).collect();
        let process = up(conveyor, folder.path(), &variables, clock.as_deref()).await;
        let (platform, conveyor) = (Platform::at(api), conveyor.to_owned());
        Self { process, platform, http_port, tcp_port, plugin_manager, conveyor, variables, clock, folder }
    }

    /// Kills the process as a crash does and starts it anew, on the same data and ports.
    pub async fn crash_and_restart(&mut self) {
        self.process.kill().await.expect("conveyor is killed");
        self.process = up(&self.conveyor, self.folder.path(), &self.variables, self.clock.as_deref()).await;
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

/// Starts the binary and waits until it serves.
async fn up(conveyor: &Path, data: &Path, variables: &[(String, String)], clock: Option<&Clock>) -> Process {
    let program = Program::new(conveyor)
        .args(["up", "--data"])
        .arg(data)
        .without_env(&CONFIGURED)
        .envs(variables.iter().map(|(name, value)| (name, value)));
    let program = match clock {
        Some(clock) => program.clock(clock),
        None => program,
    };
    let process = program.spawn().expect("conveyor starts");
    if let Err(error) = process.wait_for_line("Conveyor is up", START).await {
        panic!("conveyor does not come up: {error}");
    }
    process
}
