//! What a plugin is told by its environment (facts section 1.5).

use crate::reporter::ReporterSettings;
use config::Reader;
use secrecy::SecretString;
use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};
use wire::{
    TlsClient, TlsServer,
    tls::{ClientVariables, ServerVariables},
};

/// How a plugin listens, publishes and reports.
#[derive(Clone, Debug)]
pub struct PluginSettings {
    /// Address to listen on.
    pub bind: IpAddr,
    /// Port to listen on; 0 takes a free one.
    pub port: u16,
    /// TLS of the plugin's door; `None` is plain TCP.
    pub tls: Option<TlsServer>,
    /// Host under which the platform reaches the plugin.
    pub advertised_host: String,
    /// Port under which the platform reaches the plugin; `None` means the port that is listened on.
    pub advertised_port: Option<u16>,
    /// Port of health and UI bundles over HTTP; `None` is no HTTP.
    pub http_port: Option<u16>,
    /// Replaces the version that the code gives.
    pub version: Option<String>,
    /// Publication.
    pub publication: PublicationSettings,
    /// Where reports go.
    pub control_plane: ReporterSettings,
    /// Work.
    pub steps: StepSettings,
    /// How long running steps may take to finish and report after the plugin was told to stop.
    pub drain: Duration,
}

/// How a plugin makes itself known.
#[derive(Clone, Debug)]
pub struct PublicationSettings {
    /// Publish at start? Else somebody else tells plugin-manager.
    pub enabled: bool,
    /// Host of plugin-manager.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
    /// The token that opens plugin-manager's door; plugin-manager presents the same one when it
    /// pulls the executor batch. `None` lets everybody pull.
    pub token: Option<SecretString>,
    /// How plugin-manager is spoken to; `None` is plain TCP.
    pub tls: Option<TlsClient>,
    /// Tries before the plugin gives up publishing and only serves.
    pub max_attempts: u32,
    /// Ceiling of the first pause between tries; it doubles up to a minute.
    pub retry_base: Duration,
}

/// How a plugin works on steps.
#[derive(Clone, Debug)]
pub struct StepSettings {
    /// Tell the platform when work on a step begins.
    pub ack: bool,
    /// Pause between heartbeats of a step; `None` sends them only with progress.
    pub heartbeat: Option<Duration>,
    /// Steps under way at once; more are answered with `overloaded`.
    pub max_in_flight: usize,
}

const HTTP_PORT: &str = "PLUGIN_HEALTH_HTTP_PORT";

impl PluginSettings {
    /// Reads the environment. Faults are collected by the reader; what comes back after a fault is
    /// only a placeholder.
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let insecure = reader.flag(
            "CONVEYOR_INSECURE_DEV",
            false,
            "Lets services start without keys and tokens; only for a machine of your own.",
        );
        let port = listen_port(reader);
        let http_port =
            optional_port(reader, HTTP_PORT, "Port of health and UI bundles over HTTP; no HTTP when unset.");
        if http_port.is_some_and(|http_port| http_port == port && port != 0) {
            reader.fault(
                HTTP_PORT,
                Some(port.to_string()),
                "is also the TCP port; give them different ports",
            );
        }
        Self {
            bind: reader
                .of("CONVEYOR_BIND", "address", "0.0.0.0", "Address that every listener binds.")
                .unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            port,
            http_port,
            tls: TlsServer::read(reader, ServerVariables::PLUGIN),
            advertised_host: reader.text(
                "PLUGIN_PULL_ADVERTISED_HOST",
                "127.0.0.1",
                "Host under which the platform reaches the plugin.",
            ),
            advertised_port: optional_port(
                reader,
                "PLUGIN_PULL_ADVERTISED_PORT",
                "Port under which the platform reaches the plugin; the listening port when unset.",
            )
            .filter(|port| *port != 0),
            version: reader.optional_text(
                "PLUGIN_PUBLICATION_VERSION",
                "Version to publish; the plugin's own when unset.",
            ),
            publication: PublicationSettings::read(reader, insecure),
            control_plane: control_plane(reader, insecure),
            steps: StepSettings::read(reader),
            drain: reader.millis(
                "PLUGIN_DRAIN_MS",
                30_000,
                "How long running steps may take to finish and report after SIGTERM.",
            ),
        }
    }
}

impl PublicationSettings {
    fn read(reader: &mut Reader<'_>, insecure: bool) -> Self {
        Self {
            enabled: !reader.flag(
                "PLUGIN_MANAGER_MANIFEST_ON_INIT_DISABLED",
                false,
                "Start without publishing.",
            ),
            host: reader.text("PLUGIN_MANAGER_RPC_HOST", "127.0.0.1", "Host of plugin-manager."),
            port: reader.port("PLUGIN_MANAGER_RPC_PORT", 4016, "TCP port of plugin-manager."),
            token: reader.required_secret(
                "PLUGIN_MANAGER_INGRESS_TOKEN",
                insecure,
                "Token with which plugins publish, and with which plugin-manager pulls.",
            ),
            tls: TlsClient::read(reader, ClientVariables::PLUGIN_MANAGER),
            max_attempts: u32::try_from(reader.number(
                "PLUGIN_MANAGER_MANIFEST_ON_INIT_MAX_ATTEMPTS",
                "tries",
                30,
                "Tries to publish before the plugin gives up and only serves.",
            ))
            .unwrap_or(u32::MAX),
            retry_base: reader.millis(
                "PLUGIN_MANAGER_MANIFEST_ON_INIT_RETRY_BASE_MS",
                2000,
                "Longest first pause between tries to publish; it doubles with each try, up to a minute.",
            ),
        }
    }
}

impl StepSettings {
    fn read(reader: &mut Reader<'_>) -> Self {
        let heartbeat = reader.millis(
            "PLUGIN_HEARTBEAT_MS",
            10_000,
            "Pause between heartbeats of a running step; 0 sends them only with progress.",
        );
        Self {
            ack: !reader.flag("DISABLE_RUNTIME_STEP_ACK", false, "Send no word when work on a step begins."),
            heartbeat: Some(heartbeat).filter(|interval| !interval.is_zero()),
            max_in_flight: usize::try_from(reader.number(
                "PLUGIN_MAX_IN_FLIGHT",
                "steps",
                256,
                "Steps under way at once; more are answered with overloaded.",
            ))
            .unwrap_or(usize::MAX),
        }
    }
}

impl Default for StepSettings {
    fn default() -> Self {
        Self { ack: true, heartbeat: Some(Duration::from_secs(10)), max_in_flight: 256 }
    }
}

/// The first of the three variables that is set, in the order that existing plugins use.
fn listen_port(reader: &mut Reader<'_>) -> u16 {
    const DOC: &str = "Port to listen on; 0 takes a free one. Read in the order PLUGIN_TCP_PORT, EXECUTOR_TCP_PORT, PORT; 9400 when none is set.";
    ["PLUGIN_TCP_PORT", "EXECUTOR_TCP_PORT", "PORT"]
        .map(|name| optional_port(reader, name, DOC))
        .into_iter()
        .flatten()
        .next()
        .unwrap_or(9400)
}

fn optional_port(reader: &mut Reader<'_>, name: &'static str, doc: &'static str) -> Option<u16> {
    reader.optional(name, "port", doc, |text| {
        text.parse().map_err(|_| "is no port; use a whole number from 0 to 65535".to_owned())
    })
}

fn control_plane(reader: &mut Reader<'_>, insecure: bool) -> ReporterSettings {
    const DOC: &str = "Host of the control plane's TCP door. RUNTIME_ENGINE_TCP_HOST is read when CONTROL_PLANE_TCP_HOST is unset.";
    let host = reader.optional_text("CONTROL_PLANE_TCP_HOST", DOC);
    let alias = reader.optional_text("RUNTIME_ENGINE_TCP_HOST", DOC);
    ReporterSettings {
        host: host.or(alias).unwrap_or_else(|| "127.0.0.1".to_owned()),
        port: reader.port("RUNTIME_CONTROL_PLANE_TCP_PORT", 4021, "TCP port of the control plane."),
        key: reader.required_secret(
            "PLUGIN_CONTROL_PLANE_KEY",
            insecure,
            "Key with which plugins and executors report.",
        ),
        tls: TlsClient::read(reader, ClientVariables::CONTROL_PLANE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Variables;

    fn read<const N: usize>(pairs: [(&str, &str); N]) -> PluginSettings {
        let source = Variables::of(pairs);
        PluginSettings::read(&mut Reader::new(&source))
    }

    #[test]
    fn the_first_port_variable_that_is_set_counts() {
        assert_eq!(read([("PORT", "1"), ("EXECUTOR_TCP_PORT", "2"), ("PLUGIN_TCP_PORT", "3")]).port, 3);
        assert_eq!(read([("PORT", "1"), ("EXECUTOR_TCP_PORT", "2")]).port, 2);
        assert_eq!(read([("PORT", "0")]).port, 0);
        assert_eq!(read([]).port, 9400);
    }

    #[test]
    fn the_control_planes_host_has_an_alias() {
        assert_eq!(read([("RUNTIME_ENGINE_TCP_HOST", "a")]).control_plane.host, "a");
        assert_eq!(
            read([("RUNTIME_ENGINE_TCP_HOST", "a"), ("CONTROL_PLANE_TCP_HOST", "b")]).control_plane.host,
            "b"
        );
    }

    #[test]
    fn http_has_a_port_of_its_own_or_there_is_none() {
        assert_eq!(read([]).http_port, None);
        assert_eq!(read([("PORT", "0"), ("PLUGIN_HEALTH_HTTP_PORT", "0")]).http_port, Some(0));
        let source = Variables::of([
            ("PORT", "9400"),
            ("PLUGIN_HEALTH_HTTP_PORT", "9400"),
            ("CONVEYOR_INSECURE_DEV", "true"),
        ]);
        let mut reader = Reader::new(&source);
        PluginSettings::read(&mut reader);
        let named: Vec<_> = reader.faults().iter().map(|fault| fault.variable.as_str()).collect();
        assert_eq!(named, ["PLUGIN_HEALTH_HTTP_PORT"]);
    }

    #[test]
    fn missing_keys_refuse_the_start() {
        let source = Variables::default();
        let mut reader = Reader::new(&source);
        PluginSettings::read(&mut reader);
        let named: Vec<_> = reader.faults().iter().map(|fault| fault.variable.as_str()).collect();
        assert_eq!(named, ["PLUGIN_MANAGER_INGRESS_TOKEN", "PLUGIN_CONTROL_PLANE_KEY"]);
    }
}
