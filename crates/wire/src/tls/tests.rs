//! What is accepted as certificate, key and authority, and what refuses the start.

use super::*;
use config::{Reader, Variables};
use std::io::Write;

const DOOR: ServerVariables =
    ServerVariables { certificate: "DOOR_TLS_CERT", key: "DOOR_TLS_KEY", client_ca: "DOOR_TLS_CLIENT_CA" };

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
    let names = ClientVariables { ca: "PEER_TLS_CA", certificate: "PEER_CERT", key: "PEER_KEY", doc: "" };
    let good = identity();
    for (pairs, is_tls, faults) in [
        (vec![], false, 0),
        (vec![("PEER_TLS_CA", good.certificates.as_str())], true, 0),
        (vec![("PEER_TLS_CA", "nonsense")], false, 1),
        (vec![("PEER_CERT", good.certificates.as_str())], false, 1),
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
