use crate::MasterKey;
use config::Reader;
use secrecy::{ExposeSecret, SecretString};
use std::net::SocketAddr;
use wire::{AllowList, TlsServer, tls::ServerVariables};

/// How secret-manager listens and seals.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// Who may connect.
    pub allow: AllowList,
    /// TLS of the door; `None` is plain TCP.
    pub tls: Option<TlsServer>,
    /// What callers must present as `token` of the message; `None` lets everybody call.
    pub token: Option<SecretString>,
    /// Seals and opens. Without it the service does not start; a start with an embedded database
    /// may set it from [`crate::load_or_create_key`].
    pub master_key: Option<MasterKey>,
    /// Only opens, while a rotation is under way.
    pub previous_key: Option<MasterKey>,
}

impl Settings {
    /// Reads and declares the variables. Faults are collected by the reader; what comes back after
    /// a fault is only a placeholder.
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let insecure = reader.insecure_dev();
        let bind = reader.bind_address();
        let port = reader.port("SECRET_MANAGER_TCP_PORT", 3000, "TCP port of secret-manager.");
        Self {
            address: SocketAddr::new(bind, port),
            allow: reader
                .list(
                    "SECRET_MANAGER_ALLOW_CIDRS",
                    "CIDR list",
                    "0.0.0.0/0,::/0",
                    "Addresses that may resolve and store secrets.",
                )
                .unwrap_or_default(),
            tls: TlsServer::read(reader, ServerVariables::SECRET_MANAGER),
            token: reader.required_secret(
                "SECRET_MANAGER_TOKEN",
                insecure,
                "Token that the control plane and the api present to secret-manager.",
            ),
            master_key: key(
                reader,
                "SECRET_MANAGER_MASTER_KEY",
                "Key that seals the secrets: 32 bytes in base64.",
            ),
            previous_key: key(
                reader,
                "SECRET_MANAGER_MASTER_KEY_PREVIOUS",
                "Key that sealed older secrets, while a rotation is under way.",
            ),
        }
    }
}

fn key(reader: &mut Reader<'_>, name: &'static str, doc: &'static str) -> Option<MasterKey> {
    let text = reader.secret(name, doc)?;
    text.expose_secret()
        .parse()
        .map_err(|error: crate::Error| reader.fault(name, None, error.to_string()))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Variables;

    #[test]
    fn a_malformed_key_refuses_the_start_and_is_not_shown() {
        let source = Variables::of([("SECRET_MANAGER_MASTER_KEY", "hunter2"), ("SECRET_MANAGER_TOKEN", "t")]);
        let mut reader = Reader::new(&source);
        Settings::read(&mut reader);
        let faults = reader.finish().unwrap_err().to_string();
        assert!(faults.contains("SECRET_MANAGER_MASTER_KEY: the master key is not 32 bytes"), "{faults}");
        assert!(!faults.contains("hunter2"));
    }
}
