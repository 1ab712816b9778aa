//! The example plugin as a child process, which never outlives the demo.

use super::beside;
use crate::{client::Client, compose::Plan};
use anyhow::{Context, bail};
use contract::manifest::Endpoint;
use queue::{Queue, Topic};
use secrecy::{ExposeSecret, SecretString};
use std::{process::Stdio, time::Duration};
use tokio::{
    net::TcpStream,
    process::{Child, Command},
};

/// The program.
pub(super) const NAME: &str = "text-tools";
/// What tells that it is in the catalogue.
pub(super) const NODE_TYPE: &str = "plugin.text-tools.count";

/// How long it may take to appear in the catalogue.
const PUBLISH_LIMIT: Duration = Duration::from_secs(60);
/// How often the catalogue is looked at when no notice comes.
const POLL: Duration = Duration::from_secs(1);
/// How long it may take to end by itself.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// What the plugin has to know of TLS where the platform's doors speak it; each also as `NAME_FILE`.
const TLS: [&str; 11] = [
    "PLUGIN_TLS_CERT",
    "PLUGIN_TLS_KEY",
    "PLUGIN_TLS_CLIENT_CA",
    "PLUGIN_MANAGER_TLS_CA",
    "PLUGIN_MANAGER_TLS_CLIENT_CERT",
    "PLUGIN_MANAGER_TLS_CLIENT_KEY",
    "PLUGIN_MANAGER_TLS_SERVER_NAME",
    "CONTROL_PLANE_TLS_CA",
    "CONTROL_PLANE_TLS_CLIENT_CERT",
    "CONTROL_PLANE_TLS_CLIENT_KEY",
    "CONTROL_PLANE_TLS_SERVER_NAME",
];

/// Where the plugin finds the platform.
pub(super) struct Addresses {
    pub(super) plugin_manager: Endpoint,
    pub(super) control_plane: Endpoint,
}

/// What opens the platform's doors to it.
pub(super) struct Keys {
    ingress_token: Option<SecretString>,
    control_plane_key: Option<SecretString>,
}

impl Keys {
    pub(super) fn of(plan: &Plan) -> Self {
        Self {
            ingress_token: plan.plugin_manager.as_ref().and_then(|settings| settings.ingress_token.clone()),
            control_plane_key: plan.control_plane.as_ref().and_then(|settings| settings.key.clone()),
        }
    }
}

/// The running plugin; killed when it is dropped.
pub(super) struct Plugin {
    child: Child,
}

impl Plugin {
    /// Starts it with nothing of our environment but what it needs. It is in a process group of its
    /// own, so that Ctrl-C reaches it through us and in order.
    pub(super) fn start(addresses: &Addresses, keys: &Keys) -> anyhow::Result<Self> {
        let program = beside(NAME)?;
        let mut command = Command::new(&program);
        command
            .env_clear()
            .env("CONVEYOR_BIND", "127.0.0.1")
            .env("PLUGIN_TCP_PORT", "0")
            .env("PLUGIN_MANAGER_RPC_HOST", &addresses.plugin_manager.host)
            .env("PLUGIN_MANAGER_RPC_PORT", addresses.plugin_manager.port.to_string())
            .env("PLUGIN_MANAGER_MANIFEST_ON_INIT_RETRY_BASE_MS", "100")
            .env("CONTROL_PLANE_TCP_HOST", &addresses.control_plane.host)
            .env("RUNTIME_CONTROL_PLANE_TCP_PORT", addresses.control_plane.port.to_string())
            .env("RUST_LOG", std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".to_owned()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true);
        let secrets = [
            ("PLUGIN_MANAGER_INGRESS_TOKEN", &keys.ingress_token),
            ("PLUGIN_CONTROL_PLANE_KEY", &keys.control_plane_key),
        ];
        for (name, secret) in secrets {
            match secret {
                Some(secret) => command.env(name, secret.expose_secret()),
                None => command.env("CONVEYOR_INSECURE_DEV", "true"),
            };
        }
        for name in TLS {
            for name in [name.to_owned(), format!("{name}_FILE")] {
                if let Some(value) = std::env::var_os(&name) {
                    command.env(name, value);
                }
            }
        }
        #[cfg(unix)]
        command.process_group(0);
        let child = command.spawn().with_context(|| format!("{} cannot be started", program.display()))?;
        Ok(Self { child })
    }

    /// Waits until it is in the catalogue.
    pub(super) async fn published(&mut self, client: &Client, queue: &Queue) -> anyhow::Result<()> {
        let mut notices = queue.subscribe(Topic::Catalogue).await?;
        let appeared = async {
            loop {
                if listed(client).await? {
                    return anyhow::Ok(());
                }
                // Told or not: the poll is the guarantee.
                let _ = tokio::time::timeout(POLL, notices.recv()).await;
            }
        };
        tokio::select! {
            appeared = tokio::time::timeout(PUBLISH_LIMIT, appeared) => {
                appeared.with_context(|| format!("{NAME} did not appear in the catalogue within {} s", PUBLISH_LIMIT.as_secs()))?
            }
            status = self.child.wait() => bail!("{NAME} ended before it was in the catalogue: {}", shown(status)),
        }
    }

    /// Waits until it ends by itself; how it ended.
    pub(super) async fn ended(&mut self) -> String {
        shown(self.child.wait().await)
    }

    /// Asks it to end, and kills it when it does not.
    pub(super) async fn stop(mut self) {
        self.terminate();
        if tokio::time::timeout(STOP_LIMIT, self.child.wait()).await.is_err() {
            tracing::warn!(
                event = "plugin_killed",
                plugin = NAME,
                limit_ms = STOP_LIMIT.as_millis(),
                "the plugin did not end by itself"
            );
            if let Err(error) = self.child.kill().await {
                tracing::warn!(event = "plugin_not_killed", plugin = NAME, "{error}");
            }
        }
    }

    #[cfg(unix)]
    fn terminate(&self) {
        use rustix::process::{Pid, Signal, kill_process};
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid
            && let Err(error) = kill_process(pid, Signal::TERM)
        {
            tracing::debug!(event = "plugin_not_told", plugin = NAME, "{error}");
        }
    }

    #[cfg(not(unix))]
    fn terminate(&self) {}
}

/// Is it in the catalogue, and there with the address of a living process? A folder that an earlier
/// demo used has its former address.
async fn listed(client: &Client) -> anyhow::Result<bool> {
    let plugins = client.plugins().await?;
    let ours = plugins.iter().find(|plugin| plugin.node_types.iter().any(|node_type| node_type == NODE_TYPE));
    let Some(plugin) = ours else { return Ok(false) };
    Ok(TcpStream::connect((plugin.endpoint.host.as_str(), plugin.endpoint.port)).await.is_ok())
}

fn shown(status: std::io::Result<std::process::ExitStatus>) -> String {
    status.map_or_else(|error| error.to_string(), |status| status.to_string())
}
