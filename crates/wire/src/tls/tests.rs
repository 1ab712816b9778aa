//! What is accepted as certificate, key and authority, and what refuses the start.

use super::*;
use config::{Reader, Variables};
use secrecy::ExposeSecret;
use std::{io::Write, path::Path};

const DOOR: ServerVariables = ServerVariables {
    certificate: "DOOR_TLS_CERT",
    key: "DOOR_TLS_KEY",
    client_ca: "DOOR_TLS_CLIENT_CA",
    door: settings::Door::Tcp,
};

/// A self-signed certificate with its key.
fn identity() -> Identity {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    Identity { certificates: certified.cert.pem(), key: certified.signing_key.serialize_pem().into() }
}

fn key(identity: &Identity) -> &str {
    identity.key.expose_secret()
}

fn read<const N: usize>(pairs: [(&str, &str); N]) -> (bool, Vec<config::Fault>) {
    let source = Variables::of(pairs);
    let mut reader = Reader::new(&source);
    (TlsServer::read(&mut reader, DOOR).is_some(), reader.faults().to_vec())
}

#[test]
fn key_of_another_certificate_is_refused() {
    let (one, other) = (identity(), identity());
    let mixed = Identity { certificates: one.certificates, key: other.key };
    assert!(matches!(TlsServer::new(&mixed, None), Err(Error::Tls { what: "key", .. })));
}

#[test]
fn texts_that_are_no_pem_are_refused_by_name() {
    let good = identity();
    let no_key = Identity { key: "secret text".into(), ..good.clone() };
    let error = TlsServer::new(&no_key, None).unwrap_err().to_string();
    assert!(error.contains("the key cannot be used") && !error.contains("secret text"), "{error}");
    let no_certificate = Identity { certificates: String::new(), ..good.clone() };
    assert!(matches!(TlsServer::new(&no_certificate, None), Err(Error::Tls { what: "certificate", .. })));
    assert!(matches!(TlsServer::new(&good, Some("x")), Err(Error::Tls { what: "client authorities", .. })));
    assert!(matches!(TlsClient::new("x", None), Err(Error::Tls { what: "authorities", .. })));
}

#[test]
fn door_without_variables_speaks_plain_tcp() {
    assert_eq!(read([]), (false, vec![]));
}

#[test]
fn certificate_and_key_come_both_or_neither_and_client_authorities_only_with_them() {
    let good = identity();
    for (pairs, variable) in [
        ([("DOOR_TLS_CERT", good.certificates.as_str())], "DOOR_TLS_CERT"),
        ([("DOOR_TLS_KEY", key(&good))], "DOOR_TLS_KEY"),
        ([("DOOR_TLS_CLIENT_CA", good.certificates.as_str())], "DOOR_TLS_CLIENT_CA"),
    ] {
        let (is_tls, faults) = read(pairs);
        assert!(!is_tls);
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(faults[0].variable, variable);
    }
    let (is_tls, faults) = read([
        ("DOOR_TLS_CERT", &good.certificates),
        ("DOOR_TLS_KEY", key(&good)),
        ("DOOR_TLS_CLIENT_CA", &good.certificates),
    ]);
    assert_eq!((is_tls, faults), (true, vec![]));
}

#[test]
fn faults_name_variable_and_file_and_never_show_the_key() {
    let (good, other) = (identity(), identity());
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(key(&other).as_bytes()).unwrap();
    let path = file.path().to_str().unwrap();
    let (is_tls, faults) = read([("DOOR_TLS_CERT", &good.certificates), ("DOOR_TLS_KEY_FILE", path)]);
    assert!(!is_tls);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!((faults[0].variable.as_str(), faults[0].value.as_deref()), ("DOOR_TLS_KEY_FILE", Some(path)));
    assert!(!format!("{faults:?}").contains("PRIVATE"));

    let (_, faults) = read([("DOOR_TLS_CERT_FILE", "/nowhere/cert.pem"), ("DOOR_TLS_KEY", key(&good))]);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!(faults[0].variable, "DOOR_TLS_CERT_FILE");
    assert_eq!(faults[0].value.as_deref(), Some("/nowhere/cert.pem"));
}

#[test]
fn clients_speak_tls_when_they_are_told_whom_to_trust() {
    let names = ClientVariables {
        ca: "PEER_TLS_CA",
        certificate: "PEER_CERT",
        key: "PEER_KEY",
        server_name: Some("PEER_NAME"),
        doc: "",
    };
    let good = identity();
    for (pairs, is_tls, faults) in [
        (vec![], false, 0),
        (vec![("PEER_TLS_CA", good.certificates.as_str())], true, 0),
        (vec![("PEER_TLS_CA", "nonsense")], false, 1),
        (vec![("PEER_CERT", good.certificates.as_str())], false, 1),
        (vec![("PEER_NAME", "peer.test")], false, 1),
        (vec![("PEER_NAME", "peer.test"), ("PEER_TLS_CA", good.certificates.as_str())], true, 0),
        (vec![("PEER_CERT", good.certificates.as_str()), ("PEER_KEY", key(&good))], false, 1),
        (
            vec![
                ("PEER_TLS_CA", good.certificates.as_str()),
                ("PEER_CERT", good.certificates.as_str()),
                ("PEER_KEY", key(&good)),
            ],
            true,
            0,
        ),
    ] {
        let source: Variables = pairs.into_iter().collect();
        let mut reader = Reader::new(&source);
        assert_eq!(TlsClient::read(&mut reader, names).is_some(), is_tls);
        assert_eq!(reader.faults().len(), faults);
    }
}

/// A door of these files that looks at them before every handshake.
fn door_of(certificate: &Path, key: &Path) -> Result<TlsServer, Error> {
    let pem =
        |path: &Path| Some(Pem::new(std::fs::read_to_string(path).unwrap().into(), Some(path.to_path_buf())));
    let material = Material { certificate: pem(certificate), key: pem(key), authorities: None };
    TlsServer::of(material, Duration::ZERO)
}

async fn config_of(door: &TlsServer) -> Arc<ServerConfig> {
    door.0.current().await
}

#[tokio::test]
async fn renewed_files_count_from_the_next_connection_and_the_old_ones_while_the_new_do_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key_file) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
    let (old, new) = (identity(), identity());
    write(&certificate, &old.certificates);
    write(&key_file, key(&old));
    let door = door_of(&certificate, &key_file).unwrap();
    let before = config_of(&door).await;
    assert!(Arc::ptr_eq(&before, &config_of(&door).await));

    write(&certificate, &new.certificates);
    assert!(Arc::ptr_eq(&before, &config_of(&door).await));
    std::fs::remove_file(&key_file).unwrap();
    assert!(Arc::ptr_eq(&before, &config_of(&door).await));
    write(&key_file, key(&new));
    let after = config_of(&door).await;
    assert!(!Arc::ptr_eq(&before, &after));
    assert!(Arc::ptr_eq(&after, &config_of(&door).await));
}

#[tokio::test]
async fn texts_that_are_no_files_are_never_looked_at_again() {
    let door = TlsServer::new(&identity(), None).unwrap();
    assert!(Arc::ptr_eq(&config_of(&door).await, &config_of(&door).await));
}

#[test]
fn variables_of_a_client_may_name_the_servers_certificate() {
    let good = identity();
    let source = Variables::of([
        ("CONTROL_PLANE_TLS_CA", good.certificates.as_str()),
        ("CONTROL_PLANE_TLS_SERVER_NAME", "control-plane"),
    ]);
    let client = TlsClient::read(&mut Reader::new(&source), ClientVariables::CONTROL_PLANE).unwrap();
    assert_eq!(client.name_of("10.0.0.7"), "control-plane");
    assert_eq!(TlsClient::new(&good.certificates, None).unwrap().name_of("10.0.0.7"), "10.0.0.7");
}
