//! Connections behind proxies that speak the PROXY protocol, version 2.

use crate::common::{Running, config, start, until};
use contract::ErrorCode;
use std::{net::Ipv6Addr, time::Duration};
use wire::Refusal;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const SHORT: Duration = Duration::from_millis(30);

fn server(trusted: &str, allow: &str) -> Running {
    let mut config = config();
    config.proxy_protocol = trusted.parse().unwrap();
    config.allow = allow.parse().unwrap();
    config.limits.first_byte_timeout = SHORT * 100;
    start(config)
}

fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    [SIGNATURE, &[command, family], &u16::try_from(rest.len()).unwrap().to_be_bytes(), rest].concat()
}

/// For the client 203.0.113.7.
fn v4() -> Vec<u8> {
    header(0x21, 0x11, &[203, 0, 113, 7, 10, 0, 0, 1, 0x12, 0x67, 0, 80])
}

/// For the client `address`.
fn v6(address: &str) -> Vec<u8> {
    let client: Ipv6Addr = address.parse().unwrap();
    header(0x21, 0x21, &[&client.octets()[..], &[0; 16], &[0x12, 0x67, 0, 80]].concat())
}

#[tokio::test]
async fn address_that_a_trusted_proxy_conveys_is_the_peers() {
    let server = server("127.0.0.1", "203.0.113.0/24,2001:db8::/32");
    for (header, address) in
        [(v4(), "203.0.113.7"), (v6("2001:db8::7"), "2001:db8::7"), (v6("::ffff:203.0.113.8"), "203.0.113.8")]
    {
        let mut peer = server.connect().await;
        peer.write(header).await;
        peer.request("peer", "0", "a").await;
        assert_eq!(peer.receive().await, format!(r#"{{"response":"{address}","isDisposed":true,"id":"a"}}"#));
    }
}

#[tokio::test]
async fn header_and_first_frame_may_come_in_any_pieces() {
    let server = server("127.0.0.1", "203.0.113.0/24");
    let frame = wire::codec::encode(r#"{"pattern":"peer","data":0,"id":"a"}"#);
    let bytes = [&v4()[..], &frame].concat();
    let mut whole = server.connect().await;
    whole.write(&bytes).await;
    let answer = whole.receive().await;
    let mut pieces = server.connect().await;
    for byte in bytes {
        pieces.write([byte]).await;
    }
    assert_eq!(pieces.receive().await, answer);
}

#[tokio::test]
async fn allowlist_judges_the_conveyed_address_and_not_the_proxys() {
    let server = server("127.0.0.1", "127.0.0.1");
    let mut peer = server.connect().await;
    peer.write(v4()).await;
    let (code, message) = peer.refusal().await;
    assert_eq!(code, ErrorCode::ForbiddenAddress);
    assert!(message.contains("203.0.113.7"), "{message}");
    assert_eq!(server.stats.refused(Refusal::AddressNotAllowed), 1);
}

#[tokio::test]
async fn proxy_that_speaks_for_itself_is_judged_as_itself() {
    let server = server("127.0.0.1", "127.0.0.1");
    let mut peer = server.connect().await;
    peer.write(header(0x20, 0, &[])).await;
    peer.request("peer", "0", "a").await;
    assert_eq!(peer.receive().await, r#"{"response":"127.0.0.1","isDisposed":true,"id":"a"}"#);
}

#[tokio::test]
async fn trusted_proxy_must_begin_with_a_header() {
    let server = server("127.0.0.1", "0.0.0.0/0");
    for bytes in [
        &b"36#{\"pattern\":\"peer\",\"data\":0}"[..],
        b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
        &header(0x21, 0, &[]),
    ] {
        let mut peer = server.connect().await;
        peer.write(bytes).await;
        let mut rest = Vec::new();
        // A reset ends it too: the frame was not read.
        let _ = crate::common::soon(tokio::io::AsyncReadExt::read_to_end(&mut peer.0, &mut rest)).await;
        assert_eq!(rest, b"");
    }
    until(|| server.stats.refused(Refusal::ProxyHeader) == 3 && server.stats.open() == 0).await;
}

#[tokio::test]
async fn header_of_an_untrusted_peer_is_no_frame() {
    let server = server("10.0.0.1", "127.0.0.1");
    let mut peer = server.connect().await;
    peer.write(v4()).await;
    peer.request("peer", "0", "a").await;
    assert_eq!(peer.refusal().await.0, ErrorCode::PayloadTooLarge);
    assert_eq!(server.stats.refused(Refusal::HeaderTooLong), 1);
    let mut peer = server.connect().await;
    peer.request("peer", "0", "a").await;
    assert_eq!(peer.receive().await, r#"{"response":"127.0.0.1","isDisposed":true,"id":"a"}"#);
}

#[tokio::test]
async fn header_takes_part_in_the_time_for_the_first_byte() {
    let mut config = config();
    config.proxy_protocol = "127.0.0.1".parse().unwrap();
    config.limits.first_byte_timeout = SHORT;
    let server = start(config);
    let mut silent = server.connect().await;
    let mut half = server.connect().await;
    half.write(&v4()[..20]).await;
    assert_eq!(silent.rest().await, b"");
    assert_eq!(half.rest().await, b"");
    assert_eq!(server.stats.refused(Refusal::ProxyHeader), 2);
    let mut mute = server.connect().await;
    mute.write(v4()).await;
    assert_eq!(mute.refusal().await.0, ErrorCode::Timeout);
    assert_eq!(server.stats.refused(Refusal::FirstByteTimeout), 1);
}

#[tokio::test]
async fn proxies_that_have_said_nothing_do_not_hold_up_a_stop() {
    let server = server("127.0.0.1", "127.0.0.1");
    let mut silent = server.connect().await;
    until(|| server.stats.open() == 1).await;
    server.accept_stop.cancel();
    assert_eq!(silent.rest().await, b"");
    crate::common::soon(server.task).await.unwrap();
}
