use config::Reader;
use plugin_sdk::reporter::ReporterSettings;
use run_files::RunFilesSettings;
use std::time::Duration;
use wire::{TlsClient, tls::ClientVariables};

/// How the executor works and where it reports.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Steps under way at once.
    pub concurrency: usize,
    /// Where reports go.
    pub control_plane: ReporterSettings,
    /// Pause between heartbeats of a running step.
    pub heartbeat: Duration,
    /// May `system.http.request` reach loopback, private and link-local addresses?
    pub allow_private: bool,
    /// Where values lie that are too large for the history of a run.
    pub files: RunFilesSettings,
    /// How long running steps may take to finish and report after the stop.
    pub drain: Duration,
}

impl Settings {
    /// Reads and declares the variables. Faults are collected by the reader; what comes back after
    /// a fault is only a placeholder.
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let insecure = reader.insecure_dev();
        let concurrency = reader.bounded(
            "EXECUTOR_CONCURRENCY",
            "steps",
            64,
            1..=1_000_000,
            "Steps of built-in nodes under way at once.",
        );
        Self {
            concurrency,
            control_plane: ReporterSettings {
                host: reader.host(
                    "CONTROL_PLANE_TCP_HOST",
                    "runtime-control-plane",
                    "Host of the control plane's TCP door.",
                ),
                port: reader.port("RUNTIME_CONTROL_PLANE_TCP_PORT", 3001, "TCP port of the control plane."),
                key: reader.required_secret(
                    "PLUGIN_CONTROL_PLANE_KEY",
                    insecure,
                    "Key with which plugins and executors report.",
                ),
                tls: TlsClient::read(reader, ClientVariables::CONTROL_PLANE),
            },
            heartbeat: reader.millis(
                "EXECUTOR_HEARTBEAT_MS",
                10_000,
                "Pause between heartbeats of a running step.",
            ),
            allow_private: reader.flag(
                "EXECUTOR_HTTP_ALLOW_PRIVATE",
                false,
                "Lets system.http.request reach loopback, private and link-local addresses.",
            ),
            files: RunFilesSettings::read(reader),
            drain: reader.millis(
                "EXECUTOR_DRAIN_MS",
                30_000,
                "How long running steps may take to finish and report after the stop.",
            ),
        }
    }
}
