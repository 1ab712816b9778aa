//! Each limit: what is refused, what the peer is told, what is counted, and who is not hurt.

use crate::common::{PATIENCE, Raw, Running, config, soon, start, start_with, until};
use contract::ErrorCode;
use std::{sync::atomic::Ordering, time::Duration};
use tokio::io::AsyncWriteExt;
use wire::Refusal;

const SHORT: Duration = Duration::from_millis(30);

#[tokio::test]
async fn silent_socket_is_closed() {
    let server = start_with(|limits| limits.first_byte_timeout = SHORT);
    let (code, message) = server.connect().await.refusal().await;
    assert_eq!(code, ErrorCode::Timeout);
    assert!(message.contains("30 ms"), "{message}");
    assert_eq!(server.stats.refused(Refusal::FirstByteTimeout), 1);
}

#[tokio::test]
async fn half_frame_is_closed() {
    let server = start_with(|limits| limits.frame_timeout = SHORT);
    for part in ["4", "40#", "40#{\"pattern\":"] {
        let mut peer = server.connect().await;
        peer.write(part).await;
        assert_eq!(peer.refusal().await.0, ErrorCode::Timeout, "{part}");
    }
    assert_eq!(server.stats.refused(Refusal::FrameTimeout), 3);
}

#[tokio::test]
async fn frame_that_keeps_trickling_is_closed_all_the_same() {
    let server = start_with(|limits| limits.frame_timeout = SHORT);
    let mut peer = server.connect().await;
    peer.write("16000000#\"").await;
    until_refused(&server, &mut peer).await;
    assert_eq!(server.stats.refused(Refusal::FrameTimeout), 1);
}

/// Writes byte after byte until the server has enough.
async fn until_refused(server: &Running, peer: &mut Raw) {
    soon(async {
        while server.stats.refused(Refusal::FrameTimeout) == 0 {
            // The server may have closed already.
            let _ = peer.0.write_all(b"x").await;
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn idle_connection_that_has_spoken_stays_open() {
    let server = start_with(|limits| (limits.first_byte_timeout, limits.frame_timeout) = (SHORT, SHORT));
    let mut idle = server.connect().await;
    idle.request("echo", "1", "a").await;
    idle.receive().await;
    // A stray line end begins no frame.
    idle.write("\r\n").await;
    // The silent one is the clock: it is closed when the idle one has been idle for longer.
    server.connect().await.refusal().await;
    idle.request("echo", "2", "b").await;
    assert_eq!(idle.receive().await, r#"{"response":2,"isDisposed":true,"id":"b"}"#);
}

#[tokio::test]
async fn stranger_that_is_idle_is_closed_and_becomes_known_by_an_accepted_request() {
    let server = start_with(|limits| limits.first_byte_timeout = SHORT);
    let mut stranger = server.connect().await;
    for pattern in ["nobody", "err.unauthorized"] {
        stranger.request(pattern, "1", "a").await;
        stranger.receive().await;
    }
    let (code, message) = stranger.refusal().await;
    assert_eq!(code, ErrorCode::Timeout);
    assert!(message.contains("right credential"), "{message}");
    assert_eq!(server.stats.refused(Refusal::IdleStranger), 1);

    let mut late = server.connect().await;
    late.request("hold", "1", "a").await;
    until(|| server.handler.holding.load(Ordering::SeqCst) == 1).await;
    // The silent ones are the clock: the request in work keeps its connection for longer.
    for _ in 0..3 {
        server.connect().await.refusal().await;
    }
    server.handler.release();
    assert_eq!(late.receive().await, r#"{"response":1,"isDisposed":true,"id":"a"}"#);
    server.connect().await.refusal().await;
    late.request("echo", "2", "b").await;
    late.receive().await;
}

#[tokio::test]
async fn frame_over_the_limit_is_refused_at_its_header_with_limit_and_size() {
    let server = start_with(|limits| limits.max_frame_bytes = 1000);
    let mut peer = server.connect().await;
    peer.write("1001#").await;
    let (code, message) = peer.refusal().await;
    assert_eq!(code, ErrorCode::PayloadTooLarge);
    assert!(message.contains("1001") && message.contains("limit is 1000"), "{message}");
    assert_eq!(server.stats.refused(Refusal::FrameTooLarge), 1);
}

#[tokio::test]
async fn frame_at_the_limit_passes() {
    let text = r#"{"pattern":"undef","data":"","id":"a"}"#;
    let server = start_with(|limits| limits.max_frame_bytes = text.len());
    let mut peer = server.connect().await;
    peer.send(text).await;
    assert_eq!(peer.receive().await, r#"{"isDisposed":true,"id":"a"}"#);
}

#[tokio::test]
async fn peer_that_sends_a_whole_oversize_frame_before_it_reads_gets_the_refusal() {
    let server = start_with(|limits| limits.max_frame_bytes = 1000);
    let mut peer = server.connect().await;
    peer.request("echo", &format!("\"{}\"", "x".repeat(8 << 20)), "a").await;
    assert_eq!(peer.refusal().await.0, ErrorCode::PayloadTooLarge);
}

/// Whoever waits for an answer gets it, instead of waiting until its deadline.
#[tokio::test]
async fn refusal_of_a_large_request_carries_its_id_wherever_that_stands_and_that_of_an_event_none() {
    let server = start_with(|limits| limits.max_frame_bytes = 1000);
    let filler = "ю\\\"".repeat(20_000);
    let at_the_end = format!(r#"{{"pattern":"echo","data":"{filler},\"id\":\"no\"","id":{{"n":[1,"ю"]}}}}"#);
    let spaced = format!("{{\"data\":\"{filler}\",\n \"id\" : 7 \n}} ");
    let first = format!(r#"{{"id":"early","data":{{"id":"no","x":"{filler}"}}}}"#);
    let event = format!(r#"{{"pattern":"echo","data":{{"x":"{filler}","id":"no"}}}}"#);
    for (text, id) in [
        (&at_the_end, Some(r#"{"n":[1,"ю"]}"#)),
        (&spaced, Some("7")),
        (&first, Some(r#""early""#)),
        (&event, None),
    ] {
        let mut peer = server.connect().await;
        peer.send(text).await;
        let refusal = String::from_utf8(peer.rest().await).unwrap();
        assert!(refusal.contains("payload_too_large"), "{refusal}");
        let expected =
            id.map_or(r#""isDisposed":true}"#.to_owned(), |id| format!(r#""isDisposed":true,"id":{id}}}"#));
        assert!(refusal.ends_with(&expected), "{refusal}");
    }
}

#[tokio::test]
async fn refusal_of_a_large_request_carries_an_id_at_its_beginning_though_its_end_never_comes() {
    let server = start_with(|limits| limits.max_frame_bytes = 1000);
    let mut peer = server.connect().await;
    peer.write(r#"1000000#{"id":"early","data":"xxxx"#).await;
    let refusal = String::from_utf8(peer.rest().await).unwrap();
    assert!(refusal.ends_with(r#""isDisposed":true,"id":"early"}"#), "{refusal}");
}

#[tokio::test]
async fn client_is_told_that_its_request_was_too_large_for_the_server() {
    let server = start_with(|limits| limits.max_frame_bytes = 1000);
    let client = wire::Client::new("127.0.0.1", server.address.port(), wire::ClientConfig::default());
    match client.call::<_, String>("echo", &"x".repeat(3 << 20), PATIENCE).await {
        Err(wire::CallError::Remote(error)) => assert!(error.is(ErrorCode::PayloadTooLarge)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn other_protocols_are_refused_after_sixteen_bytes() {
    let server = start(config());
    let mut peer = server.connect().await;
    peer.write("GET / HTTP/1.1\r\nHost: conveyor\r\n\r\n").await;
    assert_eq!(peer.refusal().await.0, ErrorCode::PayloadTooLarge);
    assert_eq!(server.stats.refused(Refusal::HeaderTooLong), 1);
}

#[tokio::test]
async fn malformed_input_is_counted_and_closed_without_a_word() {
    let server = start(config());
    for bytes in ["abc#{}", "3#abc", "0#", "-5#{}", "2#{}{}#"] {
        let mut peer = server.connect().await;
        peer.write(bytes).await;
        assert_eq!(peer.rest().await, b"", "{bytes}");
    }
    assert_eq!(server.stats.refused(Refusal::Malformed), 5);
}

#[tokio::test]
async fn connections_over_the_cap_are_told_so() {
    let server = start_with(|limits| limits.max_connections = 1);
    let mut first = server.connect().await;
    first.request("echo", "1", "a").await;
    first.receive().await;
    let (code, message) = server.connect().await.refusal().await;
    assert_eq!(code, ErrorCode::Overloaded);
    assert!(message.contains("limit is 1"), "{message}");
    assert_eq!(server.stats.refused(Refusal::TooManyConnections), 1);
    drop(first);
    until(|| server.stats.open() == 0).await;
    let mut next = server.connect().await;
    next.request("echo", "1", "a").await;
    next.receive().await;
}

#[tokio::test]
async fn address_outside_the_allowlist_is_closed_before_it_is_read() {
    let mut config = config();
    config.allow = "10.0.0.0/8,::1".parse().unwrap();
    let server = start(config);
    let (code, message) = server.connect().await.refusal().await;
    assert_eq!(code, ErrorCode::ForbiddenAddress);
    assert!(message.contains("127.0.0.1"), "{message}");
    assert_eq!((server.stats.refused(Refusal::AddressNotAllowed), server.stats.open()), (1, 0));
}

#[tokio::test]
async fn peers_with_small_messages_go_on_while_the_byte_budget_is_exhausted() {
    let server = start_with(|limits| limits.max_buffered_bytes = 1 << 20);
    let part = |bytes| format!("4000000#\"{}", "x".repeat(bytes));
    let mut greedy = server.connect().await;
    greedy.write(part(2_000_000)).await;
    let (code, message) = greedy.refusal().await;
    assert_eq!(code, ErrorCode::Overloaded);
    assert!(message.contains("limit is 1048576"), "{message}");
    assert_eq!(server.stats.refused(Refusal::BufferBudget), 1);

    let mut stalled = server.connect().await;
    stalled.write(part(600_000)).await;
    until(|| server.stats.buffered_bytes() > 600_000).await;
    let mut small = server.connect().await;
    small.request("echo", "1", "a").await;
    assert_eq!(small.receive().await, r#"{"response":1,"isDisposed":true,"id":"a"}"#);
    drop(stalled);
    until(|| server.stats.buffered_bytes() == 0).await;
}

#[tokio::test]
async fn peer_that_does_not_take_its_replies_is_closed() {
    let server = start_with(|limits| limits.write_queue_bytes = 1 << 20);
    let mut peer = server.connect().await;
    for id in 0..64 {
        peer.request("large", "1000000", &id.to_string()).await;
    }
    until(|| server.stats.refused(Refusal::WriteQueue) > 0).await;
    until(|| server.stats.open() == 0).await;
    assert_eq!(server.stats.buffered_bytes(), 0);
}

/// A peer that never lets the reader wait must not keep it from seeing that the connection has ended.
#[tokio::test(flavor = "multi_thread")]
async fn peer_that_writes_without_a_pause_and_never_reads_is_closed() {
    let server = start_with(|limits| limits.write_queue_bytes = 1024 * 1024);
    let mut peer = server.connect().await;
    let id = "x".repeat(100_000);
    let frame = wire::codec::encode(&format!(r#"{{"pattern":"nobody","data":1,"id":"{id}"}}"#));
    soon(async { while peer.0.write_all(&frame).await.is_ok() {} }).await;
    assert_eq!(server.stats.refused(Refusal::WriteQueue), 1);
}
