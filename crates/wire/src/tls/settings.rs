//! The variables of TLS, the same rules at every door and client (protocol section 9).

use super::{Identity, TlsClient, TlsServer};
use crate::Error;
use config::{Origin, Reader};
use secrecy::{ExposeSecret, SecretString};

/// Names of a door's variables. Each is declared under its own name and usually set by `NAME_FILE`.
#[derive(Clone, Copy, Debug)]
pub struct ServerVariables {
    /// The certificate chain.
    pub certificate: &'static str,
    /// Its key.
    pub key: &'static str,
    /// Authorities of client certificates.
    pub client_ca: &'static str,
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
    /// What the authorities are for, one sentence.
    pub doc: &'static str,
}

impl ClientVariables {
    /// Plugins, from the control plane and plugin-manager. Nothing in a publication says that a
    /// plugin speaks TLS, so it is all plugins or none.
    pub const PLUGINS: Self = Self {
        ca: "CONVEYOR_PLUGIN_TLS_CA",
        certificate: "CONVEYOR_PLUGIN_TLS_CLIENT_CERT",
        key: "CONVEYOR_PLUGIN_TLS_CLIENT_KEY",
        doc: "Authorities in PEM, usually as NAME_FILE: every plugin is spoken to over TLS and checked against them; unset: plain TCP.",
    };
    /// The control plane, from plugins and executors.
    pub const CONTROL_PLANE: Self = Self {
        ca: "CONTROL_PLANE_TLS_CA",
        certificate: "CONTROL_PLANE_TLS_CLIENT_CERT",
        key: "CONTROL_PLANE_TLS_CLIENT_KEY",
        doc: "Authorities in PEM, usually as NAME_FILE: the control plane's TCP door is spoken to over TLS and checked against them; unset: plain TCP.",
    };
    /// Plugin-manager, from plugins and the platform's own services.
    pub const PLUGIN_MANAGER: Self = Self {
        ca: "PLUGIN_MANAGER_TLS_CA",
        certificate: "PLUGIN_MANAGER_TLS_CLIENT_CERT",
        key: "PLUGIN_MANAGER_TLS_CLIENT_KEY",
        doc: "Authorities in PEM, usually as NAME_FILE: plugin-manager's TCP door is spoken to over TLS and checked against them; unset: plain TCP.",
    };
}

impl TlsServer {
    /// Reads a door's variables; `None` is a door without TLS. Certificate and key come both or
    /// neither, and authorities of clients only with them. Faults stay with the reader.
    pub fn read(reader: &mut Reader<'_>, names: ServerVariables) -> Option<Self> {
        const CERTIFICATE: &str = "Certificate chain of the TCP door in PEM, usually as NAME_FILE; unset: the door speaks plain TCP.";
        const KEY: &str = "Key of the TCP door's certificate in PEM, usually as NAME_FILE.";
        const CLIENT_CA: &str = "Authorities in PEM, usually as NAME_FILE: the TCP door lets in only clients that show a certificate of theirs.";
        let certificates = reader.secret(names.certificate, CERTIFICATE);
        let key = reader.secret(names.key, KEY);
        let client_ca = reader.secret(names.client_ca, CLIENT_CA);
        if [names.certificate, names.key, names.client_ca].iter().any(|name| has_fault(reader, name)) {
            return None;
        }
        let identity = match (certificates, key) {
            (Some(certificates), Some(key)) => Identity::of(&certificates, key),
            (None, None) if client_ca.is_none() => return None,
            (None, None) => return refuse(reader, names.client_ca, &needs(names.certificate)),
            (Some(_), None) => return refuse(reader, names.certificate, &needs(names.key)),
            (None, Some(_)) => return refuse(reader, names.key, &needs(names.certificate)),
        };
        match Self::new(&identity, client_ca.as_ref().map(SecretString::expose_secret)) {
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
    /// key, and only with the authorities. Faults stay with the reader.
    pub fn read(reader: &mut Reader<'_>, names: ClientVariables) -> Option<Self> {
        const CERTIFICATE: &str =
            "Certificate chain in PEM, usually as NAME_FILE, shown to TLS doors that ask for one.";
        const KEY: &str = "Key in PEM, usually as NAME_FILE, of the certificate that TLS doors are shown.";
        let ca = reader.secret(names.ca, names.doc);
        let certificates = reader.secret(names.certificate, CERTIFICATE);
        let key = reader.secret(names.key, KEY);
        if [names.ca, names.certificate, names.key].iter().any(|name| has_fault(reader, name)) {
            return None;
        }
        let identity = match (certificates, key) {
            (None, None) => None,
            (Some(certificates), Some(key)) => Some(Identity::of(&certificates, key)),
            (Some(_), None) => return refuse(reader, names.certificate, &needs(names.key)),
            (None, Some(_)) => return refuse(reader, names.key, &needs(names.certificate)),
        };
        let Some(ca) = ca else {
            return identity.and_then(|_| refuse(reader, names.certificate, &needs(names.ca)));
        };
        match Self::new(ca.expose_secret(), identity.as_ref()) {
            Ok(tls) => Some(tls),
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

impl Identity {
    fn of(certificates: &SecretString, key: SecretString) -> Self {
        Self { certificates: certificates.expose_secret().to_owned(), key }
    }
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
