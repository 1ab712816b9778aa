//! The variables of TLS, the same rules at every door and client (protocol section 9).

use super::{
    Material, TlsClient, TlsServer,
    renewal::{PAUSE, Pem},
};
use crate::Error;
use config::{Origin, Reader};

/// Names of a door's variables. Each is declared under its own name and usually set by `NAME_FILE`.
#[derive(Clone, Copy, Debug)]
pub struct ServerVariables {
    /// The certificate chain.
    pub certificate: &'static str,
    /// Its key.
    pub key: &'static str,
    /// Authorities of client certificates.
    pub client_ca: &'static str,
    /// What the door speaks without TLS.
    pub door: Door,
}

/// What a door speaks inside TLS, and without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Frames on TCP.
    Tcp,
    /// HTTP.
    Http,
}

/// Names of a client's variables, as those of a door.
#[derive(Clone, Copy, Debug)]
pub struct ClientVariables {
    /// Authorities that servers are checked against; without them there is no TLS.
    pub ca: &'static str,
    /// The certificate chain to show to servers that ask for one.
    pub certificate: &'static str,
    /// Its key.
    pub key: &'static str,
    /// The name that the server's certificate must have, when it is not the host's. `None` where a URL
    /// says it, as with HTTP.
    pub server_name: Option<&'static str>,
    /// What the authorities are for, one sentence.
    pub doc: &'static str,
}

macro_rules! server {
    ($prefix:literal, $door:ident) => {
        Self {
            certificate: concat!($prefix, "_CERT"),
            key: concat!($prefix, "_KEY"),
            client_ca: concat!($prefix, "_CLIENT_CA"),
            door: Door::$door,
        }
    };
}

macro_rules! client {
    ($prefix:literal, $what:literal) => {
        Self {
            ca: concat!($prefix, "_CA"),
            certificate: concat!($prefix, "_CLIENT_CERT"),
            key: concat!($prefix, "_CLIENT_KEY"),
            server_name: Some(concat!($prefix, "_SERVER_NAME")),
            doc: concat!(
                "Authorities in PEM, usually as NAME_FILE: ",
                $what,
                " spoken to over TLS and checked against them; unset: plain TCP."
            ),
        }
    };
}

impl ServerVariables {
    /// The door of a plugin.
    pub const PLUGIN: Self = server!("PLUGIN_TLS", Tcp);
    /// The control plane's TCP door.
    pub const CONTROL_PLANE: Self = server!("RUNTIME_CONTROL_PLANE_TLS", Tcp);
    /// The control plane's HTTP.
    pub const CONTROL_PLANE_HTTP: Self = server!("RUNTIME_CONTROL_PLANE_HTTP_TLS", Http);
    /// Plugin-manager's TCP door.
    pub const PLUGIN_MANAGER: Self = server!("PLUGIN_MANAGER_TLS", Tcp);
    /// Plugin-manager's health port.
    pub const PLUGIN_MANAGER_HEALTH: Self = server!("PLUGIN_MANAGER_HEALTH_TLS", Http);
    /// The engine's RPC.
    pub const ENGINE: Self = server!("RUNTIME_ENGINE_TLS", Tcp);
    /// Secret-manager's door.
    pub const SECRET_MANAGER: Self = server!("SECRET_MANAGER_TLS", Tcp);
    /// File-service.
    pub const FILE_SERVICE: Self = server!("FILE_SERVICE_TLS", Http);
    /// The api.
    pub const API: Self = server!("API_TLS", Http);
}

impl ClientVariables {
    /// Plugins, from the control plane and plugin-manager. Nothing in a publication says that a
    /// plugin speaks TLS, so it is all plugins or none.
    pub const PLUGINS: Self = client!("CONVEYOR_PLUGIN_TLS", "every plugin is");
    /// The control plane, from plugins and executors.
    pub const CONTROL_PLANE: Self = client!("CONTROL_PLANE_TLS", "the control plane's TCP door is");
    /// Plugin-manager, from plugins and the platform's own services.
    pub const PLUGIN_MANAGER: Self = client!("PLUGIN_MANAGER_TLS", "plugin-manager's TCP door is");
    /// The engine, from the control plane and the api.
    pub const ENGINE: Self = client!("RUNTIME_ENGINE_TLS", "the engine's RPC is");
    /// Secret-manager, from the control plane and the api.
    pub const SECRET_MANAGER: Self = client!("SECRET_MANAGER_TLS", "secret-manager is");
    /// File-service, from all services that keep files. Its URL says that it speaks HTTPS.
    pub const FILE_SERVICE: Self = Self {
        ca: "FILE_SERVICE_TLS_CA",
        certificate: "FILE_SERVICE_TLS_CLIENT_CERT",
        key: "FILE_SERVICE_TLS_CLIENT_KEY",
        server_name: None,
        doc: "Authorities in PEM, usually as NAME_FILE, that file-service is checked against where its address \
              is https://; unset: those of the system.",
    };
}

impl Door {
    fn docs(self) -> [&'static str; 3] {
        match self {
            Self::Tcp => [
                "Certificate chain of the TCP door in PEM, usually as NAME_FILE; unset: the door speaks plain TCP.",
                "Key of the TCP door's certificate in PEM, usually as NAME_FILE.",
                "Authorities in PEM, usually as NAME_FILE: the TCP door lets in only clients that show a certificate of theirs.",
            ],
            Self::Http => [
                "Certificate chain of the HTTP door in PEM, usually as NAME_FILE; unset: the door speaks plain HTTP.",
                "Key of the HTTP door's certificate in PEM, usually as NAME_FILE.",
                "Authorities in PEM, usually as NAME_FILE: the HTTP door lets in only clients that show a certificate of theirs.",
            ],
        }
    }
}

impl TlsServer {
    /// Reads a door's variables; `None` is a door without TLS. Certificate and key come both or
    /// neither, and authorities of clients only with them. Faults stay with the reader.
    pub fn read(reader: &mut Reader<'_>, names: ServerVariables) -> Option<Self> {
        let [certificate_doc, key_doc, client_ca_doc] = names.door.docs();
        let material = Material {
            certificate: pem(reader, names.certificate, certificate_doc),
            key: pem(reader, names.key, key_doc),
            authorities: pem(reader, names.client_ca, client_ca_doc),
        };
        if [names.certificate, names.key, names.client_ca].iter().any(|name| has_fault(reader, name)) {
            return None;
        }
        match (&material.certificate, &material.key) {
            (Some(_), Some(_)) => {}
            (None, None) if material.authorities.is_none() => return None,
            (None, None) => return refuse(reader, names.client_ca, &needs(names.certificate)),
            (Some(_), None) => return refuse(reader, names.certificate, &needs(names.key)),
            (None, Some(_)) => return refuse(reader, names.key, &needs(names.certificate)),
        }
        match Self::of(material, PAUSE) {
            Ok(tls) => Some(tls),
            Err(error) => {
                let variable = match &error {
                    Error::Tls { what: "key", .. } => names.key,
                    Error::Tls { what: "client authorities", .. } => names.client_ca,
                    _ => names.certificate,
                };
                refuse(reader, variable, &error.to_string())
            }
        }
    }
}

impl TlsClient {
    /// Reads a client's variables; `None` is a client without TLS. A certificate to show comes with its
    /// key, and only with the authorities, as does a name. Faults stay with the reader.
    pub fn read(reader: &mut Reader<'_>, names: ClientVariables) -> Option<Self> {
        const CERTIFICATE: &str =
            "Certificate chain in PEM, usually as NAME_FILE, shown to TLS doors that ask for one.";
        const KEY: &str = "Key in PEM, usually as NAME_FILE, of the certificate that TLS doors are shown.";
        const NAME: &str =
            "Name that the TLS door's certificate must have; unset: the host that is connected to.";
        let material = Material {
            authorities: pem(reader, names.ca, names.doc),
            certificate: pem(reader, names.certificate, CERTIFICATE),
            key: pem(reader, names.key, KEY),
        };
        let server_name = names.server_name.and_then(|name| Some((name, reader.optional_text(name, NAME)?)));
        if [names.ca, names.certificate, names.key].iter().any(|name| has_fault(reader, name)) {
            return None;
        }
        match (&material.certificate, &material.key) {
            (Some(_), None) => return refuse(reader, names.certificate, &needs(names.key)),
            (None, Some(_)) => return refuse(reader, names.key, &needs(names.certificate)),
            (Some(_), Some(_)) if material.authorities.is_none() => {
                return refuse(reader, names.certificate, &needs(names.ca));
            }
            _ if material.authorities.is_some() => {}
            _ => return server_name.and_then(|(name, _)| refuse(reader, name, &needs(names.ca))),
        }
        match Self::of(material, PAUSE) {
            Ok(tls) => Some(match server_name {
                Some((_, name)) => tls.expecting(&name),
                None => tls,
            }),
            Err(error) => {
                let variable = match &error {
                    Error::Tls { what: "key", .. } => names.key,
                    Error::Tls { what: "certificate", .. } => names.certificate,
                    _ => names.ca,
                };
                refuse(reader, variable, &error.to_string())
            }
        }
    }
}

/// A text, and the file that it is in when the variable names one.
fn pem(reader: &mut Reader<'_>, name: &'static str, doc: &'static str) -> Option<Pem> {
    let text = reader.secret(name, doc)?;
    let file = match reader.entries().iter().find(|entry| entry.name == name)?.origin.clone() {
        Origin::File(path) => Some(path.into()),
        _ => None,
    };
    Some(Pem::new(text, file))
}

fn needs(other: &str) -> String {
    format!("is set, but {other}_FILE is not; set both, or neither for plain TCP")
}

/// Was the file that the variable names unreadable?
fn has_fault(reader: &Reader<'_>, name: &str) -> bool {
    reader.faults().iter().any(|fault| fault.variable.strip_suffix("_FILE") == Some(name))
}

/// A fault that names the variable as it was set, and its file. Texts of certificates and keys are
/// not shown.
fn refuse<T>(reader: &mut Reader<'_>, name: &'static str, message: &str) -> Option<T> {
    let origin = reader.entries().iter().find(|entry| entry.name == name).map(|entry| entry.origin.clone());
    match origin {
        Some(Origin::File(path)) => reader.fault(&format!("{name}_FILE"), Some(path), message),
        _ => reader.fault(name, None, message),
    }
    None
}
