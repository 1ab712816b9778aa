//! TLS below the frames: who gets in, who does not, and what they are told.

use crate::common::{PATIENCE, Raw, Running, config, json, soon, start, until};
use contract::Json;
use futures::future::join_all;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use std::{sync::atomic::Ordering, time::Duration};
use tokio::io::AsyncReadExt;
use wire::{CallError, Client, ClientConfig, Refusal, ServerConfig, TlsClient, TlsServer, tls::Identity};

/// An authority, and what it has signed.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "test authority");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn sign(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Identity { certificates: certificate.pem(), key: key.serialize_pem().into() }
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    fn client(&self) -> TlsClient {
        TlsClient::new(&self.0.pem(), None).unwrap()
    }
}

/// The settings of a door whose certificate is for 127.0.0.1.
fn door(authority: &Authority, client_ca: Option<&Authority>) -> ServerConfig {
    let client_ca = client_ca.map(|authority| authority.0.pem());
    let tls = TlsServer::new(&authority.sign("127.0.0.1"), client_ca.as_deref()).unwrap();
    ServerConfig { tls: Some(tls), ..config() }
}

fn client(server: &Running, tls: Option<TlsClient>) -> Client {
    Client::new("127.0.0.1", server.address.port(), ClientConfig { tls, ..ClientConfig::default() })
}

async fn echo(client: &Client) -> Result<Json, CallError> {
    client.request("echo", &json("1"), PATIENCE).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_inside_tls_are_the_same_many_large_and_small() {
    let authority = Authority::new();
    let server = start(door(&authority, None));
    let client = client(&server, Some(authority.client()));
    let calls = (0..200usize).map(|n| {
        let client = client.clone();
        async move {
            let text = "ж😀x".repeat(if n % 20 == 0 { 200_000 } else { n });
            assert_eq!(client.call::<_, String>("echo", &text, PATIENCE).await.unwrap(), text);
        }
    });
    soon(join_all(calls)).await;
    client.emit("evt", &json("7"), PATIENCE).await.unwrap();
    until(|| server.handler.events.load(Ordering::SeqCst) == 1).await;
    assert_eq!(server.stats.accepted(), 1);
}

#[tokio::test]
async fn requests_go_out_while_replies_are_not_read() {
    // The peer's own output is full: our reading must go on, and so must our writing.
    let authority = Authority::new();
    let server = start(door(&authority, None));
    let client = client(&server, Some(authority.client()));
    let large = Json::of(&"x".repeat(2_000_000)).unwrap();
    let calls = (0..10).map(|_| client.request("echo", &large, PATIENCE));
    for reply in soon(join_all(calls)).await {
        assert_eq!(reply.unwrap().text().len(), large.text().len());
    }
}

#[tokio::test]
async fn server_of_an_unknown_authority_or_with_another_name_is_not_spoken_to() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = start(door(&authority, None));
    let unknown = echo(&client(&server, Some(other.client()))).await;
    assert!(
        matches!(&unknown, Err(CallError::Connect { source, .. }) if source.to_string().contains("TLS")),
        "{unknown:?}"
    );
    let tls = Some(TlsServer::new(&authority.sign("elsewhere.test"), None).unwrap());
    let elsewhere = start(ServerConfig { tls, ..config() });
    let named = echo(&client(&elsewhere, Some(authority.client()))).await;
    assert!(matches!(named, Err(CallError::Connect { .. })), "{named:?}");
    let told = client(&elsewhere, Some(authority.client().expecting("elsewhere.test")));
    assert_eq!(echo(&told).await.unwrap().text(), "1");
    until(|| server.stats.refused(Refusal::TlsHandshake) == 1 && server.stats.open() == 0).await;
    assert_eq!(elsewhere.stats.requests(), 1);
}

#[tokio::test]
async fn only_clients_with_a_certificate_of_the_named_authority_get_in() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let server = start(door(&authority, Some(&clients)));
    let with = |identity| Some(TlsClient::new(&authority.0.pem(), Some(&identity)).unwrap());
    assert_eq!(echo(&client(&server, with(clients.sign("plugin")))).await.unwrap().text(), "1");
    for tls in [Some(authority.client()), with(authority.sign("plugin"))] {
        let refused = echo(&client(&server, tls)).await;
        assert!(matches!(refused, Err(CallError::Closed { .. } | CallError::Connect { .. })), "{refused:?}");
    }
    until(|| server.stats.refused(Refusal::TlsHandshake) == 2).await;
    assert_eq!(server.stats.requests(), 1);
}

#[tokio::test]
async fn plain_client_at_a_tls_door_is_closed_and_counted() {
    let server = start(door(&Authority::new(), None));
    let refused = echo(&client(&server, None)).await;
    assert!(refused.is_err(), "{refused:?}");
    until(|| server.stats.refused(Refusal::TlsHandshake) == 1 && server.stats.open() == 0).await;
}

#[tokio::test]
async fn tls_client_at_a_plain_door_fails_to_connect() {
    let server = start(config());
    let failed = echo(&client(&server, Some(Authority::new().client()))).await;
    assert!(matches!(failed, Err(CallError::Connect { .. })), "{failed:?}");
}

#[tokio::test]
async fn handshake_takes_part_in_the_time_for_the_first_byte() {
    let mut config = door(&Authority::new(), None);
    config.limits.first_byte_timeout = Duration::from_millis(30);
    let server = start(config);
    let mut silent = server.connect().await;
    let mut half = server.connect().await;
    // The header of a handshake record that does not come.
    half.write([0x16, 3, 1, 2, 0]).await;
    assert_eq!(ends(&mut silent).await + ends(&mut half).await, 0);
    assert_eq!(server.stats.refused(Refusal::TlsHandshake), 2);
}

#[tokio::test]
async fn probe_that_connects_and_goes_is_no_refusal() {
    let server = start(door(&Authority::new(), None));
    drop(server.connect().await);
    until(|| server.stats.accepted() == 1 && server.stats.open() == 0).await;
    assert_eq!(server.stats.refused(Refusal::TlsHandshake), 0);
}

#[tokio::test]
async fn refused_address_hears_nothing_in_plain_text() {
    let mut config = door(&Authority::new(), None);
    config.allow = "203.0.113.0/24".parse().unwrap();
    let server = start(config);
    assert_eq!(ends(&mut server.connect().await).await, 0);
    assert_eq!(server.stats.refused(Refusal::AddressNotAllowed), 1);
}

#[tokio::test]
async fn unfinished_handshakes_do_not_hold_up_a_stop() {
    let server = start(door(&Authority::new(), None));
    let mut silent = server.connect().await;
    until(|| server.stats.open() == 1).await;
    server.accept_stop.cancel();
    assert_eq!(ends(&mut silent).await, 0);
    soon(server.task).await.unwrap();
}

#[tokio::test]
async fn proxys_header_comes_before_tls() {
    let authority = Authority::new();
    let mut config = door(&authority, None);
    config.proxy_protocol = "127.0.0.1".parse().unwrap();
    config.allow = "203.0.113.0/24".parse().unwrap();
    let server = start(config);
    // A proxy: its header, then the client's bytes as they are.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut upstream = server.connect().await;
    tokio::spawn(async move {
        let (mut downstream, _) = listener.accept().await.unwrap();
        upstream.write(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x07\x0a\0\0\x01\x12\x67\0\x50").await;
        tokio::io::copy_bidirectional(&mut downstream, &mut upstream.0).await
    });
    let tls = Some(authority.client());
    let client = Client::new("127.0.0.1", port, ClientConfig { tls, ..ClientConfig::default() });
    let address = client.call::<_, String>("peer", &0, PATIENCE).await.unwrap();
    assert_eq!(address, "203.0.113.7");
}

#[tokio::test]
async fn refusals_after_the_handshake_are_frames_inside_tls() {
    let authority = Authority::new();
    let mut config = door(&authority, None);
    config.limits.max_frame_bytes = 1000;
    let server = start(config);
    let client = client(&server, Some(authority.client()));
    let too_large = Json::of(&"x".repeat(5000)).unwrap();
    let refused = client.request("echo", &too_large, PATIENCE).await;
    assert!(
        matches!(&refused, Err(CallError::Remote(error)) if error.message.contains("1000")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn open_tls_connections_are_drained_at_a_stop() {
    let authority = Authority::new();
    let server = start(door(&authority, None));
    let client = client(&server, Some(authority.client()));
    let call = tokio::spawn(async move { client.request("hold", &json("1"), PATIENCE).await });
    until(|| server.handler.holding.load(Ordering::SeqCst) == 1).await;
    server.accept_stop.cancel();
    server.handler.release();
    assert_eq!(soon(call).await.unwrap().unwrap().text(), "1");
    soon(server.task).await.unwrap();
}

/// Reads until the end, which may be a reset; how many bytes came.
async fn ends(peer: &mut Raw) -> usize {
    let mut bytes = Vec::new();
    let _ = soon(peer.0.read_to_end(&mut bytes)).await;
    bytes.len()
}
