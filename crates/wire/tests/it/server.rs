//! Requests, replies and the end of connections.

use crate::common::{Raw, config, soon, start, start_with, until};
use contract::ErrorCode;
use std::{net::Ipv6Addr, sync::atomic::Ordering};
use tokio::net::TcpStream;
use wire::{Client, ClientConfig, Limits, Refusal, ServerConfig};

#[tokio::test]
async fn requests_of_one_connection_run_at_once_and_are_answered_as_they_end() {
    let server = start(config());
    let mut peer = server.connect().await;
    peer.request("hold", "1", "a").await;
    peer.request("echo", "2", "b").await;
    assert_eq!(peer.receive().await, r#"{"response":2,"isDisposed":true,"id":"b"}"#);
    peer.request("release", "0", "c").await;
    let mut last = [peer.receive().await, peer.receive().await];
    last.sort_unstable();
    assert_eq!(last, [r#"{"isDisposed":true,"id":"c"}"#, r#"{"response":1,"isDisposed":true,"id":"a"}"#]);
}

#[tokio::test]
async fn reading_pauses_while_as_many_requests_are_in_work_as_may_be() {
    let server = start_with(|limits| limits.max_in_flight = 1);
    let mut peer = server.connect().await;
    peer.request("hold", "1", "a").await;
    peer.request("echo", "2", "b").await;
    until(|| server.handler.holding.load(Ordering::SeqCst) == 1).await;
    assert_eq!(server.stats.requests(), 1);
    server.handler.release();
    assert_eq!(peer.receive().await, r#"{"response":1,"isDisposed":true,"id":"a"}"#);
    assert_eq!(peer.receive().await, r#"{"response":2,"isDisposed":true,"id":"b"}"#);
}

#[tokio::test]
async fn panic_of_a_handler_is_an_error_and_not_a_dead_connection() {
    let server = start(config());
    let mut peer = server.connect().await;
    peer.request("panic", "1", "a").await;
    let reply = peer.receive().await;
    assert!(
        reply.contains(ErrorCode::Internal.as_str()) && reply.ends_with(r#""isDisposed":true,"id":"a"}"#),
        "{reply}"
    );
    peer.request("echo", "2", "b").await;
    assert_eq!(peer.receive().await, r#"{"response":2,"isDisposed":true,"id":"b"}"#);
    assert_eq!(server.stats.panics(), 1);
}

#[tokio::test]
async fn events_are_handled_and_never_answered() {
    let server = start(config());
    let mut peer = server.connect().await;
    for pattern in ["evt", "panic", "nope", "err.ours"] {
        peer.send(&format!(r#"{{"pattern":"{pattern}","data":1}}"#)).await;
    }
    peer.request("undef", "1", "last").await;
    assert_eq!(peer.receive().await, r#"{"isDisposed":true,"id":"last"}"#);
    until(|| server.handler.events.load(Ordering::SeqCst) == 4).await;
}

#[tokio::test]
async fn request_without_a_pattern_is_answered_with_no_handler() {
    let server = start(config());
    let mut peer = server.connect().await;
    peer.send(r#"{"id":"a"}"#).await;
    assert!(peer.receive().await.contains("There is no matching message handler"));
}

#[tokio::test]
async fn end_of_a_stream_that_comes_later_is_a_packet_of_its_own() {
    let server = start(config());
    let mut peer = server.connect().await;
    peer.request("obs.late", "0", "a").await;
    for wanted in
        [r#"{"response":1,"id":"a"}"#, r#"{"response":2,"id":"a"}"#, r#"{"isDisposed":true,"id":"a"}"#]
    {
        assert_eq!(peer.receive().await, wanted);
    }
}

#[tokio::test]
async fn stream_waits_for_a_slow_peer_instead_of_overflowing_its_queue() {
    let server = start_with(|limits| limits.write_queue_bytes = 3 << 20);
    let mut peer = server.connect().await;
    peer.request("obs.large", "40", "a").await;
    // Other requests are served while the stream waits.
    peer.request("hold", "1", "b").await;
    until(|| server.handler.holding.load(Ordering::SeqCst) == 1).await;
    for _ in 0..40 {
        assert!(peer.receive().await.len() > 1_000_000);
    }
    assert_eq!(server.stats.refused(Refusal::WriteQueue), 0);
}

#[tokio::test]
async fn reply_larger_than_a_frame_may_be_becomes_an_error_and_one_at_the_limit_passes() {
    let server = start_with(|limits| limits.max_frame_bytes = 1000);
    let mut peer = server.connect().await;
    let envelope = r#"{"response":"","isDisposed":true,"id":"a"}"#.len();
    peer.request("large", &(1000 - envelope).to_string(), "a").await;
    assert_eq!(peer.receive().await.len(), 1000);
    peer.request("large", &(1001 - envelope).to_string(), "a").await;
    let reply = peer.receive().await;
    assert!(
        reply.contains("payload_too_large") && reply.contains("1001") && reply.contains("1000"),
        "{reply}"
    );
}

#[tokio::test]
async fn peer_that_writes_everything_before_it_reads_is_served() {
    // What real Nest clients do: reading must not wait for writing (nobody would ever go on).
    let server = start(config());
    let mut peer = server.connect().await;
    let data = format!("\"{}\"", "x".repeat(1 << 20));
    for id in 0..12 {
        peer.request("echo", &data, &id.to_string()).await;
    }
    for _ in 0..12 {
        assert!(peer.receive().await.len() > data.len());
    }
}

#[tokio::test]
async fn half_closed_peer_still_gets_its_reply() {
    let server = start(config());
    let mut peer = server.connect().await;
    peer.request("hold", "1", "a").await;
    soon(tokio::io::AsyncWriteExt::shutdown(&mut peer.0)).await.unwrap();
    until(|| server.handler.holding.load(Ordering::SeqCst) == 1).await;
    server.handler.release();
    assert_eq!(peer.rest().await, br#"41#{"response":1,"isDisposed":true,"id":"a"}"#);
}

#[tokio::test]
async fn good_frames_before_a_bad_one_are_answered_before_the_connection_closes() {
    let server = start(config());
    let mut peer = server.connect().await;
    peer.request("hold", "1", "a").await;
    peer.write("abc#{}").await;
    until(|| server.handler.holding.load(Ordering::SeqCst) == 1).await;
    server.handler.release();
    assert_eq!(peer.rest().await, br#"41#{"response":1,"isDisposed":true,"id":"a"}"#);
}

#[tokio::test]
async fn draining_refuses_connections_answers_what_is_in_work_and_ends() {
    let server = start(config());
    let mut idle = server.connect().await;
    let mut busy = server.connect().await;
    idle.request("undef", "1", "a").await;
    idle.receive().await;
    busy.request("hold", "1", "a").await;
    until(|| server.handler.holding.load(Ordering::SeqCst) == 1).await;
    server.accept_stop.cancel();
    assert_eq!(idle.rest().await, b"");
    // While it drains, a busy connection is served on.
    busy.request("undef", "1", "b").await;
    assert_eq!(busy.receive().await, r#"{"isDisposed":true,"id":"b"}"#);
    assert!(soon(TcpStream::connect(server.address)).await.is_err());
    server.handler.release();
    assert_eq!(busy.rest().await, br#"41#{"response":1,"isDisposed":true,"id":"a"}"#);
    soon(server.task).await.unwrap();
}

#[tokio::test]
async fn stopping_connections_drops_what_is_in_work() {
    let server = start(config());
    let mut busy = server.connect().await;
    busy.request("hold", "1", "a").await;
    until(|| server.handler.holding.load(Ordering::SeqCst) == 1).await;
    server.connections_stop.cancel();
    assert_eq!(busy.rest().await, b"");
    soon(server.task).await.unwrap();
    assert_eq!(server.stats.open(), 0);
}

#[tokio::test]
async fn ipv4_peers_of_an_ipv6_listener_are_judged_as_ipv4() {
    let config = ServerConfig {
        allow: "127.0.0.0/8".parse().unwrap(),
        ..ServerConfig::new("test", (Ipv6Addr::UNSPECIFIED, 0).into())
    };
    let server = start(config);
    let stream = TcpStream::connect(("127.0.0.1", server.address.port())).await.unwrap();
    let mut peer = Raw(stream);
    peer.request("peer", "0", "a").await;
    assert_eq!(peer.receive().await, r#"{"response":"127.0.0.1","isDisposed":true,"id":"a"}"#);
}

#[tokio::test]
async fn address_in_use_is_named() {
    let server = start(config());
    let error =
        wire::Server::bind(ServerConfig::new("other", server.address), server.handler.clone()).unwrap_err();
    assert!(error.to_string().contains(&server.address.to_string()), "{error}");
}

#[tokio::test]
async fn closures_are_handlers() {
    let echo = |request: wire::Request| async move { wire::Reply::Value(request.data) };
    let server = wire::Server::bind(config(), std::sync::Arc::new(echo)).unwrap();
    let address = server.local_addr();
    tokio::spawn(server.run(Default::default(), Default::default()));
    let client = Client::new(address.ip().to_string(), address.port(), ClientConfig::default());
    let reply = client.call::<_, u32>("any", &7, crate::common::PATIENCE).await.unwrap();
    assert_eq!(reply, 7);
}

#[test]
fn default_limits_are_those_of_the_protocol() {
    let limits = Limits::default();
    assert_eq!((limits.max_frame_bytes, limits.max_connections), (16 << 20, 4096));
    assert_eq!((limits.first_byte_timeout.as_secs(), limits.frame_timeout.as_secs()), (10, 10));
}
