//! Ways of starting: other defaults than the services' own. A variable that is set always goes
//! before them (protocol section 9).

use crate::credentials::Credentials;
use std::{collections::BTreeMap, path::Path};

/// A way of starting.
#[derive(Clone)]
pub(crate) struct Profile {
    /// What `conveyor config` and messages call it.
    pub(crate) name: &'static str,
    /// Defaults by variable.
    pub(crate) defaults: BTreeMap<&'static str, String>,
    /// May keys that are missing be made in the data folder?
    pub(crate) generates: bool,
}

/// The port of plugin-manager's TCP door in one process, without an offset.
pub(crate) const PLUGIN_MANAGER_PORT: u16 = 4016;

/// The listeners that people, scripts and plugins use, with their ports in one process.
const DOORS: [(&str, u16); 5] = [
    ("API_HTTP_PORT", 8080),
    ("RUNTIME_CONTROL_PLANE_HTTP_PORT", 4020),
    ("RUNTIME_CONTROL_PLANE_TCP_PORT", 4021),
    ("PLUGIN_MANAGER_TCP_PORT", PLUGIN_MANAGER_PORT),
    ("PLUGIN_MANAGER_HEALTH_PORT", 4017),
];

/// The listeners that only neighbours use: any free port will do.
pub(crate) const INTERNAL_DOORS: [&str; 3] =
    ["RUNTIME_ENGINE_RPC_TCP_PORT", "SECRET_MANAGER_TCP_PORT", "FILE_SERVICE_HTTP_PORT"];

impl Profile {
    /// One service of a split deployment: its own defaults.
    pub(crate) fn single() -> Self {
        Self { name: "serve", defaults: BTreeMap::new(), generates: false }
    }

    /// Several services of a split deployment in one process, whose own default ports would collide.
    pub(crate) fn several() -> Self {
        Self { name: "serve", defaults: fixed_ports(0), generates: false }
    }

    /// `conveyor up`.
    pub(crate) fn up(data_dir: &Path, port_offset: u16, credentials: &Credentials) -> Self {
        let mut defaults = fixed_ports(port_offset);
        defaults.extend(local(data_dir, credentials));
        Self { name: "up", defaults, generates: true }
    }

    /// `conveyor demo`.
    pub(crate) fn demo(data_dir: &Path, port_offset: u16, credentials: &Credentials) -> Self {
        let mut profile = Self::up(data_dir, port_offset, credentials);
        profile.name = "demo";
        profile.defaults.insert("PLUGIN_MANAGER_ALLOW_REPUBLISH", "true".to_owned());
        profile.defaults.insert("EXECUTOR_HTTP_ALLOW_PRIVATE", "true".to_owned());
        // The plugin starts after plugin-manager and publishes itself.
        profile.defaults.insert("PLUGIN_MANAGER_STARTUP_RECONCILE", "false".to_owned());
        profile
    }

    /// `conveyor run`: no port is anybody else's business.
    pub(crate) fn run(data_dir: &Path, credentials: &Credentials) -> Self {
        let mut defaults = local(data_dir, credentials);
        let doors = DOORS.iter().map(|(name, _)| *name).chain(INTERNAL_DOORS);
        defaults.extend(doors.map(|name| (name, "0".to_owned())));
        // What lives for one run does not judge the plugins of the folder.
        defaults.insert("PLUGIN_MANAGER_STARTUP_RECONCILE", "false".to_owned());
        Self { name: "run", defaults, generates: true }
    }
}

/// The command line bounds the offset so that no sum exceeds the last port.
fn fixed_ports(offset: u16) -> BTreeMap<&'static str, String> {
    let doors = DOORS.iter().map(|(name, port)| (*name, port.saturating_add(offset).to_string()));
    doors.chain(INTERNAL_DOORS.map(|name| (name, "0".to_owned()))).collect()
}

fn local(data_dir: &Path, credentials: &Credentials) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("CONVEYOR_BIND", "127.0.0.1".to_owned()),
        ("CONVEYOR_DATA_DIR", data_dir.display().to_string()),
        ("CONVEYOR_PLUGINS_DEFAULT", "enabled".to_owned()),
        ("CONVEYOR_API_TOKEN", credentials.api_token.clone()),
        ("PLUGIN_CONTROL_PLANE_KEY", credentials.control_plane_key.clone()),
        ("PLUGIN_MANAGER_INGRESS_TOKEN", credentials.ingress_token.clone()),
        ("RUNTIME_ENGINE_RPC_TOKEN", credentials.engine_token.clone()),
        ("SECRET_MANAGER_TOKEN", credentials.secret_manager_token.clone()),
        ("FILE_SERVICE_TOKEN", credentials.file_service_token.clone()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(profile: &Profile, name: &str) -> String {
        profile.defaults[name].clone()
    }

    #[test]
    fn the_offset_moves_every_fixed_port_and_no_other() {
        let none = Credentials::none();
        let demo = Profile::demo(Path::new("data"), 1000, &none);
        assert_eq!(DOORS.map(|(name, _)| port(&demo, name)), ["9080", "5020", "5021", "5016", "5017"]);
        assert!(INTERNAL_DOORS.iter().all(|name| port(&demo, name) == "0"));
    }

    #[test]
    fn a_run_takes_free_ports_only() {
        let run = Profile::run(Path::new("data"), &Credentials::none());
        assert!(DOORS.iter().all(|(name, _)| port(&run, name) == "0"));
    }
}
