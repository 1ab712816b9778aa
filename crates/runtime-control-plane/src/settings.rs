//! Variables of the control plane (protocol section 9).

use config::Reader;
use contract::manifest::Endpoint;
use run_files::RunFilesSettings;
use secrecy::SecretString;
use std::{fmt, net::IpAddr, str::FromStr, time::Duration};
use wire::{
    AllowList, TlsClient, TlsServer, TrustProxy, neighbours,
    tls::{ClientVariables, ServerVariables},
};

/// Everything that the service can be told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of both listeners.
    pub bind: IpAddr,
    /// Port of the HTTP listener; 0 lets the system choose.
    pub http_port: u16,
    /// Port of the TCP listener; 0 lets the system choose.
    pub tcp_port: u16,
    /// The engine's RPC door.
    pub engine: Endpoint,
    /// The engine's RPC credential, when it wants one.
    pub engine_token: Option<SecretString>,
    /// How the engine is spoken to; `None` is plain TCP.
    pub engine_tls: Option<TlsClient>,
    /// The key of plugins and executors. `None` only with `insecure`.
    pub key: Option<SecretString>,
    /// The key before the rotation, accepted and counted.
    pub key_previous: Option<SecretString>,
    /// Who may come to either door.
    pub allow: AllowList,
    /// Whose `X-Forwarded-For` is believed (HTTP).
    pub trust_proxy: TrustProxy,
    /// Proxies that begin each TCP connection with a PROXY protocol v2 header.
    pub proxy_protocol: TrustProxy,
    /// TLS of the TCP door; `None` is plain TCP.
    pub tls: Option<TlsServer>,
    /// TLS of the HTTP door; `None` is plain HTTP.
    pub http_tls: Option<TlsServer>,
    /// How plugins are spoken to; `None` is plain TCP.
    pub plugin_tls: Option<TlsClient>,
    /// The secret-manager's TCP door.
    pub secret_manager: Endpoint,
    /// The secret-manager's credential.
    pub secret_manager_token: Option<SecretString>,
    /// How secret-manager is spoken to; `None` is plain TCP.
    pub secret_manager_tls: Option<TlsClient>,
    /// Where values lie that are too large for the history of a run.
    pub files: RunFilesSettings,
    /// Base URL of api, without a slash at the end: plugins are told it where they get files.
    pub api_url: String,
    /// Largest TCP frame and HTTP body, bytes.
    pub max_frame_bytes: usize,
    /// Open connections of each door.
    pub max_connections: usize,
    /// Is a plugin enabled where nobody has said anything?
    pub plugins_default: PluginsDefault,
    /// From the dispatch of a task to its delivery.
    pub delivery_timeout: Duration,
    /// From the arrival of a report to its answer.
    pub report_timeout: Duration,
    /// Bounds of the dispatcher.
    pub dispatch: DispatchLimits,
    /// How long a stop may take until everything is cut off.
    pub drain_timeout: Duration,
    /// Accept reports without a key.
    pub insecure: bool,
}

/// Bounds of the dispatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DispatchLimits {
    /// Undelivered tasks at once.
    pub in_flight: usize,
    /// Bytes of all undelivered tasks together, beyond which no more are taken.
    pub in_flight_bytes: usize,
    /// Undelivered tasks of one plugin endpoint at once.
    pub in_flight_per_endpoint: usize,
    /// Tasks of one endpoint that wait here for room in its window; beyond it they go back to the
    /// engine's sweep.
    pub backlog_per_endpoint: usize,
    /// Bytes of all waiting tasks together; those of one endpoint take half of them at most.
    pub backlog_bytes: usize,
    /// Delivered tasks whose plugins may still answer on the connection.
    pub listening: usize,
}

impl Default for DispatchLimits {
    fn default() -> Self {
        Self {
            in_flight: 4096,
            in_flight_bytes: 256 * MIB,
            in_flight_per_endpoint: 256,
            backlog_per_endpoint: 65_536,
            backlog_bytes: 128 * MIB,
            listening: 65_536,
        }
    }
}

/// Is a plugin enabled where nobody has said anything (protocol section 6)?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PluginsDefault {
    /// No: a workspace enables each plugin.
    #[default]
    Disabled,
    /// Yes: for a machine of one's own.
    Enabled,
}

impl fmt::Display for PluginsDefault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disabled => "disabled",
            Self::Enabled => "enabled",
        })
    }
}

impl FromStr for PluginsDefault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "disabled" => Ok(Self::Disabled),
            "enabled" => Ok(Self::Enabled),
            _ => Err("must be `disabled` or `enabled`".to_owned()),
        }
    }
}

const MIB: usize = 1024 * 1024;

/// Every IPv4 and IPv6 address.
const EVERYONE: &str = "0.0.0.0/0,::/0";

impl Settings {
    /// Declares and reads every variable of the service; faults stay with the reader.
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let insecure = reader.insecure_dev();
        Self {
            insecure,
            bind: reader.bind_address(),
            http_port: reader.port("RUNTIME_CONTROL_PLANE_HTTP_PORT", 3000, "HTTP port: reports of steps, metrics, health."),
            tcp_port: reader.port("RUNTIME_CONTROL_PLANE_TCP_PORT", 3001, "TCP port: reports of steps."),
            engine: neighbours::engine(reader),
            engine_token: reader.secret("RUNTIME_ENGINE_RPC_TOKEN", "Token of the engine's RPC; unset: none is asked for."),
            key: reader.required_secret(
                "PLUGIN_CONTROL_PLANE_KEY",
                insecure,
                "Key of both doors, the same on plugins and executors.",
            ),
            key_previous: reader.secret(
                "PLUGIN_CONTROL_PLANE_KEY_PREVIOUS",
                "Key before a rotation; still accepted, its uses are counted.",
            ),
            allow: reader
                .list(
                    "PLUGIN_CONTROL_PLANE_ALLOW_CIDRS",
                    "CIDR list",
                    EVERYONE,
                    "Addresses that may come to either door, separated by commas.",
                )
                .unwrap_or_default(),
            trust_proxy: reader
                .list(
                    "PLUGIN_CONTROL_PLANE_TRUST_PROXY",
                    "CIDR list",
                    "false",
                    "Whose X-Forwarded-For is believed: false, true (loopback and private peers) or a CIDR list.",
                )
                .unwrap_or_default(),
            proxy_protocol: reader
                .list(
                    "PLUGIN_CONTROL_PLANE_PROXY_PROTOCOL",
                    "CIDR list",
                    "false",
                    "Proxies that begin each TCP connection with a PROXY protocol v2 header: false, true (loopback and \
                     private peers) or a CIDR list.",
                )
                .unwrap_or_default(),
            tls: TlsServer::read(reader, ServerVariables::CONTROL_PLANE),
            http_tls: TlsServer::read(reader, ServerVariables::CONTROL_PLANE_HTTP),
            engine_tls: TlsClient::read(reader, ClientVariables::ENGINE),
            plugin_tls: TlsClient::read(reader, ClientVariables::PLUGINS),
            secret_manager: neighbours::secret_manager(reader),
            secret_manager_token: reader.secret(
                "SECRET_MANAGER_TOKEN",
                "Token of secret-manager's TCP door; without it only steps without secrets can be dispatched.",
            ),
            secret_manager_tls: TlsClient::read(reader, ClientVariables::SECRET_MANAGER),
            files: RunFilesSettings::read(reader),
            api_url: reader.base_url("API_BASE_URL", "http://api:3000", "Base URL of api, as plugins reach it: tasks name it where inputs refer to files."),
            max_frame_bytes: reader.bounded(
                "CONVEYOR_MAX_FRAME_BYTES",
                "bytes",
                16 * MIB,
                1024..=1024 * MIB,
                "Largest TCP frame and HTTP body.",
            ),
            max_connections: reader.bounded(
                "RUNTIME_CONTROL_PLANE_MAX_CONNECTIONS",
                "connections",
                4096,
                1..=1_000_000,
                "Open connections of each door.",
            ),
            plugins_default: reader.parsed(
                "CONVEYOR_PLUGINS_DEFAULT",
                "choice",
                PluginsDefault::Disabled,
                "Is a plugin enabled in workspaces that have not said so?",
                str::parse,
            ),
            delivery_timeout: reader.positive_millis(
                "RUNTIME_CONTROL_PLANE_DELIVERY_TIMEOUT_MS",
                30_000,
                "From the dispatch of a task to its delivery.",
            ),
            report_timeout: reader.positive_millis(
                "RUNTIME_CONTROL_PLANE_REPORT_TIMEOUT_MS",
                10_000,
                "From the arrival of a report to its answer; then the reporter is told to try again.",
            ),
            dispatch: DispatchLimits::read(reader),
            drain_timeout: reader.positive_millis(
                "RUNTIME_CONTROL_PLANE_DRAIN_TIMEOUT_MS",
                30_000,
                "How long a stop may take to finish deliveries and reports.",
            ),
        }
    }
}

impl DispatchLimits {
    fn read(reader: &mut Reader<'_>) -> Self {
        let default = Self::default();
        Self {
            in_flight: reader.bounded(
                "RUNTIME_CONTROL_PLANE_IN_FLIGHT",
                "tasks",
                default.in_flight,
                1..=1_000_000,
                "Undelivered tasks at once.",
            ),
            in_flight_per_endpoint: reader.bounded(
                "RUNTIME_CONTROL_PLANE_IN_FLIGHT_PER_PLUGIN",
                "tasks",
                default.in_flight_per_endpoint,
                1..=1_000_000,
                "Undelivered tasks of one plugin endpoint at once.",
            ),
            backlog_per_endpoint: reader.bounded(
                "RUNTIME_CONTROL_PLANE_BACKLOG_PER_PLUGIN",
                "tasks",
                default.backlog_per_endpoint,
                0..=1_000_000,
                "Tasks that wait for one plugin endpoint; those beyond come again with the engine's sweep.",
            ),
            ..default
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Variables;

    fn read(source: &Variables) -> Result<Settings, Vec<String>> {
        let mut reader = Reader::new(source);
        let settings = Settings::read(&mut reader);
        match reader.finish() {
            Ok(_) => Ok(settings),
            Err(invalid) => Err(invalid.0.iter().map(ToString::to_string).collect()),
        }
    }

    fn keys() -> Variables {
        Variables::of([("PLUGIN_CONTROL_PLANE_KEY", "key")])
    }

    #[test]
    fn defaults_are_those_of_the_service_page() {
        let settings = read(&keys()).unwrap();
        assert_eq!((settings.http_port, settings.tcp_port), (3000, 3001));
        assert_eq!(settings.engine.to_string(), "runtime-engine:3000");
        assert_eq!(settings.secret_manager.to_string(), "secret-manager:3000");
        assert_eq!(settings.files.url, "http://file-service:3000");
        assert_eq!(settings.api_url, "http://api:3000");
        assert_eq!(settings.allow, AllowList::everyone());
        assert_eq!(settings.trust_proxy, TrustProxy::Nobody);
        assert_eq!(settings.max_frame_bytes, 16 * MIB);
        assert_eq!(settings.plugins_default, PluginsDefault::Disabled);
    }

    #[test]
    fn every_wrong_variable_refuses_the_start_and_is_named() {
        let wrong = [
            ("RUNTIME_CONTROL_PLANE_HTTP_PORT", "x"),
            ("PLUGIN_CONTROL_PLANE_ALLOW_CIDRS", "10.0.0.0/8,10.0.0.0/33"),
            ("PLUGIN_CONTROL_PLANE_TRUST_PROXY", "perhaps"),
            ("SECRETS_TCP_CONNECT", "secret-manager"),
            ("FILE_SERVICE_BASE_URL", "file-service"),
            ("API_BASE_URL", "ftp://api"),
            ("CONVEYOR_MAX_FRAME_BYTES", "1"),
            ("CONVEYOR_PLUGINS_DEFAULT", "yes"),
        ];
        let mut source = keys();
        wrong.iter().for_each(|(name, text)| source.set(name, *text));
        let faults = read(&source).unwrap_err();
        assert_eq!(faults.len(), wrong.len(), "{faults:?}");
        for (name, text) in wrong {
            assert!(
                faults.iter().any(|fault| fault.contains(name) && fault.contains(text)),
                "{name}: {faults:?}"
            );
        }
    }

    #[test]
    fn empty_allowlist_is_not_the_default() {
        let mut source = keys();
        source.set("PLUGIN_CONTROL_PLANE_ALLOW_CIDRS", "");
        assert_eq!(read(&source).unwrap_err().len(), 1);
    }

    #[test]
    fn missing_key_is_accepted_only_on_a_machine_of_ones_own() {
        assert_eq!(read(&Variables::default()).unwrap_err().len(), 1);
        assert!(read(&Variables::of([("CONVEYOR_INSECURE_DEV", "true")])).unwrap().key.is_none());
    }
}
