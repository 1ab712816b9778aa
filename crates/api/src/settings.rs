//! Variables of the api service (protocol sections 8 and 9).

use config::Reader;
use contract::manifest::Endpoint;
use run_files::RunFilesSettings;
use secrecy::SecretString;
use std::net::IpAddr;
use wire::{
    TlsClient, TlsServer, neighbours,
    tls::{ClientVariables, ServerVariables},
};

/// Everything that the service can be told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of the HTTP listener.
    pub bind: IpAddr,
    /// Port of the HTTP listener; 0 lets the system choose.
    pub http_port: u16,
    /// TLS of the HTTP listener; `None` is plain HTTP.
    pub tls: Option<TlsServer>,
    /// The token that every route but the public ones needs. `None` only with `insecure`.
    pub token: Option<SecretString>,
    /// Accept requests without a token, as the local user.
    pub insecure: bool,
    /// The engine's RPC door.
    pub engine: Endpoint,
    /// The engine's RPC credential, when it wants one.
    pub engine_token: Option<SecretString>,
    /// How the engine is spoken to; `None` is plain TCP.
    pub engine_tls: Option<TlsClient>,
    /// The plugin-manager's RPC door.
    pub plugin_manager: Endpoint,
    /// The plugin-manager's credential.
    pub plugin_manager_token: Option<SecretString>,
    /// How plugin-manager is spoken to; `None` is plain TCP.
    pub plugin_manager_tls: Option<TlsClient>,
    /// The secret-manager's RPC door.
    pub secret_manager: Endpoint,
    /// The secret-manager's credential.
    pub secret_manager_token: Option<SecretString>,
    /// How secret-manager is spoken to; `None` is plain TCP.
    pub secret_manager_tls: Option<TlsClient>,
    /// Where file-service is.
    pub files: RunFilesSettings,
    /// The largest request body, bytes.
    pub payload_limit_bytes: usize,
    /// Open connections; more are answered 503.
    pub max_connections: usize,
    /// How many event streams may be open at once.
    pub max_event_streams: usize,
}

impl Settings {
    /// Declares and reads every variable of the service; faults stay with the reader.
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let insecure = reader.insecure_dev();
        Self {
            insecure,
            bind: reader.bind_address(),
            http_port: reader.port("API_HTTP_PORT", 3000, "HTTP port of the platform API."),
            tls: TlsServer::read(reader, ServerVariables::API),
            token: reader.required_secret(
                "CONVEYOR_API_TOKEN",
                insecure,
                "Bearer token of the platform API. `up`, `demo` and `run` make one at the first start.",
            ),
            engine: neighbours::engine(reader),
            engine_token: reader
                .secret("RUNTIME_ENGINE_RPC_TOKEN", "Token of the engine's RPC; unset: none is asked for."),
            engine_tls: TlsClient::read(reader, ClientVariables::ENGINE),
            plugin_manager: Endpoint {
                host: reader.host("PLUGIN_MANAGER_RPC_HOST", "plugin-manager", "Host of plugin-manager."),
                port: reader.port("PLUGIN_MANAGER_RPC_PORT", 3000, "TCP port of plugin-manager."),
            },
            plugin_manager_token: reader.required_secret(
                "PLUGIN_MANAGER_INGRESS_TOKEN",
                insecure,
                "Token of plugin-manager's TCP door, the same on plugins and services.",
            ),
            plugin_manager_tls: TlsClient::read(reader, ClientVariables::PLUGIN_MANAGER),
            secret_manager: neighbours::secret_manager(reader),
            secret_manager_token: reader.required_secret(
                "SECRET_MANAGER_TOKEN",
                insecure,
                "Token of secret-manager's TCP door.",
            ),
            secret_manager_tls: TlsClient::read(reader, ClientVariables::SECRET_MANAGER),
            files: RunFilesSettings {
                url: neighbours::file_service(reader),
                token: reader.required_secret(
                    "FILE_SERVICE_TOKEN",
                    insecure,
                    "Bearer token of file-service.",
                ),
                tls: RunFilesSettings::read_tls(reader),
            },
            payload_limit_bytes: reader
                .parsed(
                    "PAYLOAD_LIMIT",
                    "bytes",
                    ByteSize(16 * 1024 * 1024),
                    "Largest request body; a number of bytes, or with kb, mb or gb.",
                    parse_bytes,
                )
                .0,
            max_connections: reader.bounded(
                "API_MAX_CONNECTIONS",
                "connections",
                4096,
                1..=1_000_000,
                "Open connections of the platform API.",
            ),
            max_event_streams: usize::try_from(reader.number(
                "API_MAX_EVENT_STREAMS",
                "streams",
                1024,
                "How many event streams of runs may be open at once.",
            ))
            .unwrap_or(usize::MAX),
        }
    }
}

/// A number of bytes.
struct ByteSize(usize);

impl std::fmt::Display for ByteSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

fn parse_bytes(text: &str) -> Result<ByteSize, String> {
    let text = text.to_ascii_lowercase();
    let (digits, unit) = text
        .split_at_checked(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
        .unwrap_or((&text, ""));
    let factor = match unit.trim() {
        "" | "b" => Some(1_usize),
        "k" | "kb" => Some(1024),
        "m" | "mb" => Some(1024 * 1024),
        "g" | "gb" => Some(1024 * 1024 * 1024),
        _ => None,
    };
    digits
        .parse::<usize>()
        .ok()
        .zip(factor)
        .and_then(|(number, factor)| number.checked_mul(factor))
        .filter(|bytes| *bytes > 0)
        .map(ByteSize)
        .ok_or_else(|| "is no size; write a number of bytes, or a number with kb, mb or gb".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_or_carry_a_unit() {
        let bytes = |text| parse_bytes(text).map(|size| size.0).ok();
        assert_eq!(bytes("100"), Some(100));
        assert_eq!(bytes("16mb"), Some(16 * 1024 * 1024));
        assert_eq!(bytes("1 GB"), Some(1024 * 1024 * 1024));
        assert_eq!((bytes("mb"), bytes("0"), bytes("5 apples")), (None, None, None));
    }

    #[test]
    fn missing_tokens_refuse_the_start_unless_it_is_a_machine_of_ones_own() {
        let source = config::Variables::default();
        let mut reader = Reader::new(&source);
        Settings::read(&mut reader);
        let named: Vec<_> = reader.faults().iter().map(|fault| fault.variable.as_str()).collect();
        assert_eq!(
            named,
            [
                "CONVEYOR_API_TOKEN",
                "PLUGIN_MANAGER_INGRESS_TOKEN",
                "SECRET_MANAGER_TOKEN",
                "FILE_SERVICE_TOKEN"
            ]
        );
        let source = config::Variables::of([("CONVEYOR_INSECURE_DEV", "true")]);
        let mut reader = Reader::new(&source);
        Settings::read(&mut reader);
        assert_eq!(reader.faults(), []);
    }
}
