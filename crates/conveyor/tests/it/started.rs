//! A `conveyor up` of its own folder, and the commands that talk to it.

use crate::command::{BINARY, CONFIGURED, Said, conveyor};
use serde_json::Value;
use std::time::Duration;
use testkit::{Process, Program};

/// No time is asserted: this only bounds a test that hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A platform that runs until it is dropped.
pub(crate) struct Started {
    folder: tempfile::TempDir,
    url: String,
    _process: Process,
}

impl Started {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ports = [
            "API_HTTP_PORT",
            "RUNTIME_CONTROL_PLANE_HTTP_PORT",
            "RUNTIME_CONTROL_PLANE_TCP_PORT",
            "PLUGIN_MANAGER_TCP_PORT",
            "PLUGIN_MANAGER_HEALTH_PORT",
        ];
        let process = Program::new(BINARY)
            .without_env(&CONFIGURED)
            .envs(ports.map(|name| (name, "0")))
            .args(["up", "--data"])
            .arg(folder.path())
            .spawn()
            .unwrap();
        let line = process.wait_for_line("  API ", LIMIT).await.unwrap();
        let url = line.trim_start().strip_prefix("API").unwrap().trim().to_owned();
        process.wait_for_line("  API token ", LIMIT).await.unwrap();
        Self { folder, url, _process: process }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn data(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    pub(crate) fn token(&self) -> String {
        let kept = std::fs::read_to_string(self.folder.path().join("credentials.json")).unwrap();
        serde_json::from_str::<Value>(&kept).unwrap()["apiToken"].as_str().unwrap().to_owned()
    }

    /// Runs a command against it.
    pub(crate) fn said(&self, arguments: &[&str]) -> Said {
        conveyor(&[arguments, &["--data", self.data()]].concat(), &[("CONVEYOR_URL", &self.url)])
    }

    /// Runs it, expecting success; what it prints.
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let said = self.said(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {}{}", said.out, said.err);
        said.out
    }

    /// Runs it with `--json`, expecting success; the one document that it prints.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let out = self.done(&[arguments, &["--json"]].concat());
        assert_eq!(out.lines().count(), 1, "{out}");
        serde_json::from_str(&out).unwrap()
    }

    /// Stores a document; the id of its only process.
    pub(crate) fn import(&self, path: &str) -> String {
        self.json(&["process", "import", path])["processes"][0]["id"].as_str().unwrap().to_owned()
    }
}
