//! Where neighbours are: variables that several services read, declared once (protocol section 9).

use config::{HostPort, Reader};
use contract::manifest::Endpoint;

/// The engine's RPC.
pub fn engine(reader: &mut Reader<'_>) -> Endpoint {
    Endpoint {
        host: reader.host("RUNTIME_ENGINE_TCP_HOST", "runtime-engine", "Host of the engine's RPC."),
        port: reader.port("RUNTIME_ENGINE_RPC_TCP_PORT", 3000, "TCP port of the engine's RPC."),
    }
}

/// Secret-manager's door.
pub fn secret_manager(reader: &mut Reader<'_>) -> Endpoint {
    let default = HostPort { host: "secret-manager".to_owned(), port: 3000 };
    let HostPort { host, port } =
        reader.host_port("SECRETS_TCP_CONNECT", default, "Where secret-manager is reached.");
    Endpoint { host, port }
}

/// Base URL of file-service, without a slash at its end.
pub fn file_service(reader: &mut Reader<'_>) -> String {
    reader.base_url("FILE_SERVICE_BASE_URL", "http://file-service:3000", "Base URL of file-service.")
}
