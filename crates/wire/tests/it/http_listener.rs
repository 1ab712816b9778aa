//! The HTTP accept loop: what is closed, what the peer is told, what is counted, and who is not hurt.

use crate::{
    common::{soon, until},
    tls::Authority,
};
use bytes::Bytes;
use hyper::{
    Request, Response,
    body::{Body, Frame, Incoming, SizeHint},
};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use tower::service_fn;
use wire::{HttpConfig, HttpLimits, HttpListener, HttpPeer, Refusal, Stats, TlsServer};

const SHORT: Duration = Duration::from_millis(30);

/// `count` times the same chunk.
struct Chunks(usize, Bytes);

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.0 == 0 {
            return Poll::Ready(None);
        }
        self.0 -= 1;
        Poll::Ready(Some(Ok(Frame::data(self.1.clone()))))
    }

    fn is_end_stream(&self) -> bool {
        self.0 == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.0 * self.1.len()) as u64)
    }
}

struct Running {
    address: SocketAddr,
    stats: Arc<Stats>,
    gate: Arc<Semaphore>,
    accept_stop: CancellationToken,
    connections_stop: CancellationToken,
    task: JoinHandle<()>,
}

/// `/peer` names the peer, `/hold` waits for a permit, `/huge` has a gigabyte.
fn start(change: impl FnOnce(&mut HttpLimits)) -> Running {
    let mut config = HttpConfig::new("test", (Ipv4Addr::LOCALHOST, 0).into());
    change(&mut config.limits);
    run(config)
}

fn run(config: HttpConfig) -> Running {
    let listener = HttpListener::bind(config).unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let service = service_fn(move |request: Request<Incoming>| {
        let held = Arc::clone(&held);
        async move {
            let body = match request.uri().path() {
                "/huge" => Chunks(1024, vec![b'x'; 1 << 20].into()),
                "/hold" => {
                    held.acquire().await.unwrap().forget();
                    Chunks(1, "held".into())
                }
                _ => {
                    let HttpPeer(peer) = request.extensions().get().unwrap();
                    Chunks(1, peer.ip().to_string().into())
                }
            };
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    let (accept_stop, connections_stop) = (CancellationToken::new(), CancellationToken::new());
    Running {
        address: listener.local_addr(),
        stats: listener.stats(),
        gate,
        accept_stop: accept_stop.clone(),
        connections_stop: connections_stop.clone(),
        task: tokio::spawn(listener.run(service, accept_stop, connections_stop)),
    }
}

impl Running {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

async fn ask(stream: &mut (impl AsyncWrite + Unpin), path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
    soon(stream.write_all(request.as_bytes())).await.unwrap();
}

/// Reads until the text ends so.
async fn read_to(stream: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let read = soon(stream.read_buf(&mut text)).await.unwrap();
        assert_ne!(read, 0, "closed after {:?}", String::from_utf8_lossy(&text));
    }
    String::from_utf8(text).unwrap()
}

async fn rest(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    // A reset ends it too.
    let _ = soon(stream.read_to_end(&mut text)).await;
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn request_is_served_with_its_peers_address_and_the_connection_stays() {
    let server = start(|_| {});
    let mut client = server.connect().await;
    for _ in 0..2 {
        ask(&mut client, "/peer").await;
        assert!(read_to(&mut client, "127.0.0.1").await.starts_with("HTTP/1.1 200"));
    }
    assert_eq!((server.stats.accepted(), server.stats.open(), server.stats.requests()), (1, 1, 2));
}

#[tokio::test]
async fn silent_socket_is_closed_and_counted() {
    let server = start(|limits| limits.head_timeout = SHORT);
    assert_eq!(rest(server.connect().await).await, "");
    until(|| server.stats.refused(Refusal::FirstByteTimeout) == 1).await;
    until(|| server.stats.open() == 0).await;
}

#[tokio::test]
async fn head_that_keeps_trickling_is_closed_all_the_same() {
    let server = start(|limits| limits.head_timeout = SHORT);
    let mut client = server.connect().await;
    client.write_all(b"GET / HTTP/1.1\r\nX: ").await.unwrap();
    soon(async {
        while server.stats.refused(Refusal::FrameTimeout) == 0 {
            // The server may have closed already.
            let _ = client.write_all(b"x").await;
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn idle_connection_that_has_asked_is_closed_in_the_same_time_and_is_no_refusal() {
    let server = start(|limits| limits.head_timeout = SHORT);
    let mut client = server.connect().await;
    ask(&mut client, "/peer").await;
    assert!(rest(client).await.ends_with("127.0.0.1"));
    until(|| server.stats.open() == 0).await;
    assert!(Refusal::ALL.iter().all(|reason| server.stats.refused(*reason) == 0));
}

#[tokio::test]
async fn work_may_take_longer_than_a_head() {
    let server = start(|limits| limits.head_timeout = SHORT);
    let mut client = server.connect().await;
    ask(&mut client, "/hold").await;
    until(|| server.stats.requests() == 1).await;
    // The silent one is the clock.
    assert_eq!(rest(server.connect().await).await, "");
    server.gate.add_permits(1);
    read_to(&mut client, "held").await;
}

#[tokio::test]
async fn connections_over_the_cap_are_told_to_come_back() {
    let server = start(|limits| limits.max_connections = 1);
    let mut first = server.connect().await;
    ask(&mut first, "/peer").await;
    read_to(&mut first, "127.0.0.1").await;
    let mut second = server.connect().await;
    ask(&mut second, "/peer").await;
    let answer = rest(second).await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("Retry-After: 1"), "{answer}");
    assert!(answer.contains("limit of 1 connections") && answer.contains("\"overloaded\""), "{answer}");
    assert_eq!(server.stats.refused(Refusal::TooManyConnections), 1);
    drop(first);
    until(|| server.stats.open() == 0).await;
    let mut third = server.connect().await;
    ask(&mut third, "/peer").await;
    read_to(&mut third, "127.0.0.1").await;
}

#[tokio::test]
async fn head_over_the_limit_and_other_protocols_are_refused() {
    let server = start(|limits| limits.max_head_bytes = 8192);
    let mut client = server.connect().await;
    let head = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(10_000));
    soon(client.write_all(head.as_bytes())).await.unwrap();
    assert!(rest(client).await.starts_with("HTTP/1.1 431"));
    until(|| server.stats.refused(Refusal::HeaderTooLong) == 1).await;
    let mut client = server.connect().await;
    soon(client.write_all(b"40#{\"pattern\":\"plugin.executor.step_ack\"}\r\n")).await.unwrap();
    assert!(rest(client).await.starts_with("HTTP/1.1 400"));
    until(|| server.stats.refused(Refusal::Malformed) == 1).await;
}

#[tokio::test]
async fn peer_that_does_not_take_its_answer_is_closed() {
    let server = start(|limits| limits.write_timeout = SHORT);
    let mut client = server.connect().await;
    ask(&mut client, "/huge").await;
    until(|| server.stats.refused(Refusal::WriteQueue) == 1).await;
    until(|| server.stats.open() == 0).await;
}

#[tokio::test]
async fn stop_finishes_what_is_in_work_and_closes_what_is_idle() {
    let server = start(|_| {});
    let mut idle = server.connect().await;
    ask(&mut idle, "/peer").await;
    read_to(&mut idle, "127.0.0.1").await;
    let mut busy = server.connect().await;
    ask(&mut busy, "/hold").await;
    until(|| server.stats.requests() == 2).await;
    server.accept_stop.cancel();
    assert_eq!(rest(idle).await, "");
    server.gate.add_permits(1);
    assert!(rest(busy).await.ends_with("held"));
    soon(server.task).await.unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn second_step_of_a_stop_drops_what_is_in_work() {
    let server = start(|_| {});
    let mut busy = server.connect().await;
    ask(&mut busy, "/hold").await;
    until(|| server.stats.requests() == 1).await;
    server.accept_stop.cancel();
    server.connections_stop.cancel();
    soon(server.task).await.unwrap();
    assert_eq!(rest(busy).await, "");
}

/// A door that speaks HTTPS, and a client that trusts it.
fn start_tls(change: impl FnOnce(&mut HttpLimits)) -> (Running, tokio_rustls::TlsConnector) {
    let authority = Authority::new();
    let mut config = HttpConfig::new("test", (Ipv4Addr::LOCALHOST, 0).into());
    config.tls = Some(TlsServer::new(&authority.sign("127.0.0.1"), None).unwrap());
    change(&mut config.limits);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (run(config), Arc::new(client).into())
}

#[tokio::test]
async fn inside_tls_it_is_the_same_http_and_many_requests_share_the_connection() {
    let (server, connector) = start_tls(|_| {});
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut client = soon(connector.connect(name, server.connect().await)).await.unwrap();
    for _ in 0..2 {
        ask(&mut client, "/peer").await;
        assert!(read_to(&mut client, "127.0.0.1").await.starts_with("HTTP/1.1 200"));
    }
    assert_eq!((server.stats.accepted(), server.stats.requests()), (1, 2));
    server.accept_stop.cancel();
    soon(server.task).await.unwrap();
}

#[tokio::test]
async fn plain_http_at_a_tls_door_is_closed_and_counted_and_a_probe_is_not() {
    let (server, _) = start_tls(|_| {});
    let mut plain = server.connect().await;
    ask(&mut plain, "/peer").await;
    let mut answer = Vec::new();
    let _ = soon(plain.read_to_end(&mut answer)).await;
    // At most the alert of TLS.
    assert!(!answer.starts_with(b"HTTP") && answer.len() < 20, "{answer:?}");
    drop(server.connect().await);
    until(|| server.stats.accepted() == 2 && server.stats.open() == 0).await;
    assert_eq!((server.stats.refused(Refusal::TlsHandshake), server.stats.requests()), (1, 0));
}

#[tokio::test]
async fn tls_handshake_that_is_never_finished_is_closed_and_counted_and_holds_up_no_stop() {
    let (server, _) = start_tls(|limits| limits.head_timeout = SHORT);
    let mut half = server.connect().await;
    half.write_all(&[0x16, 3, 1, 2, 0]).await.unwrap();
    assert_eq!(rest(half).await + &rest(server.connect().await).await, "");
    assert_eq!(server.stats.refused(Refusal::TlsHandshake), 2);
    let (server, _) = start_tls(|_| {});
    let silent = server.connect().await;
    until(|| server.stats.open() == 1).await;
    server.accept_stop.cancel();
    soon(server.task).await.unwrap();
    drop(silent);
}

#[tokio::test]
async fn connection_over_the_cap_of_a_tls_door_hears_nothing_in_plain_text() {
    let (server, _) = start_tls(|limits| limits.max_connections = 1);
    let first = server.connect().await;
    until(|| server.stats.open() == 1).await;
    assert_eq!(rest(server.connect().await).await, "");
    until(|| server.stats.refused(Refusal::TooManyConnections) == 1).await;
    drop(first);
}
