//! The client against the server and against peers that misbehave.

use crate::common::{PATIENCE, Running, config, json, soon, start, start_with, until};
use contract::{ErrorCode, Json, RpcError};
use futures::future::join_all;
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::Ordering,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use wire::{CallError, Client, ClientConfig, ServerConfig, codec};

const SHORT: Duration = Duration::from_millis(200);

fn client_with(address: SocketAddr, change: impl FnOnce(&mut ClientConfig)) -> Client {
    let mut config = ClientConfig::default();
    change(&mut config);
    Client::new(address.ip().to_string(), address.port(), config)
}

fn client(server: &Running) -> Client {
    client_with(server.address, |_| ())
}

/// A listener whose first connection is handed to `behave`.
async fn peer<F>(behave: impl FnOnce(tokio::net::TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        behave(stream).await;
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_share_one_connection_and_each_gets_its_own_reply() {
    let server = start(config());
    let client = client(&server);
    let calls = (0..500u32).map(|n| {
        let client = client.clone();
        async move { assert_eq!(client.call::<_, u32>("echo", &n, PATIENCE).await.unwrap(), n) }
    });
    join_all(calls).await;
    assert_eq!(server.stats.accepted(), 1);
}

#[tokio::test]
async fn pool_uses_its_connections_in_turn() {
    let server = start(config());
    let client = client_with(server.address, |config| config.connections = 3);
    for n in 0..6u32 {
        client.call::<_, u32>("echo", &n, PATIENCE).await.unwrap();
    }
    assert_eq!(server.stats.accepted(), 3);
}

#[tokio::test]
async fn replies_come_in_any_order() {
    let server = start(config());
    let client = client(&server);
    let (one, two) = (json("1"), json("2"));
    let slow = client.request("hold", &one, PATIENCE);
    let fast = async {
        assert_eq!(client.request("echo", &two, PATIENCE).await.unwrap(), two);
        client.request("release", &two, PATIENCE).await.unwrap();
    };
    let (slow, ()) = tokio::join!(slow, fast);
    assert_eq!(slow.unwrap(), one);
}

#[tokio::test]
async fn value_of_a_reply_is_its_last_one_or_null() {
    let server = start(config());
    let client = client(&server);
    for (pattern, wanted) in [("obs.sync3", "3"), ("obs.late", "2"), ("undef", "null"), ("nullv", "null")] {
        assert_eq!(client.request(pattern, &json("1"), PATIENCE).await.unwrap().text(), wanted, "{pattern}");
    }
}

#[tokio::test]
async fn text_passes_unchanged() {
    let server = start(config());
    let data = json(r#"{"b":"Привет 😀","a":12345678901234567890123,"c":"\ud800","d":1.0}"#);
    assert_eq!(client(&server).request("echo", &data, PATIENCE).await.unwrap(), data);
}

#[tokio::test]
async fn errors_keep_their_shape() {
    let server = start(config());
    let client = client(&server);
    let call = async |pattern: &str| client.request(pattern, &Json::null(), PATIENCE).await.unwrap_err();

    let ours = call("err.ours").await;
    assert!(ours.retryable());
    assert_eq!(
        ours.to_rpc(ErrorCode::Unavailable, "the server"),
        RpcError::new(ErrorCode::EngineUnavailable, "the engine is away")
    );
    let foreign = call("err.rpc.obj").await;
    assert!(!foreign.retryable());
    match &foreign {
        CallError::Remote(error) => {
            assert_eq!((error.code.as_deref(), error.message.as_str()), (Some("401"), "bad token"));
        }
        other => panic!("{other:?}"),
    }
    let rpc = foreign.to_rpc(ErrorCode::Unavailable, "the plugin");
    assert!(rpc.message.contains("the plugin") && rpc.message.contains("bad token"), "{rpc}");
    match call("obs.err").await {
        CallError::Remote(error) => assert_eq!(error.message, "mid"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(call("nope").await, CallError::NoHandler));
}

#[tokio::test]
async fn server_that_is_away_is_named_and_found_again_when_it_is_back() {
    let first = start(config());
    let client = client(&first);
    client.request("echo", &json("1"), PATIENCE).await.unwrap();
    first.connections_stop.cancel();
    soon(first.task).await.unwrap();

    // The end of the connection may still be unread; the call after that finds nobody.
    let mut error = client.request("echo", &json("1"), PATIENCE).await.unwrap_err();
    while let CallError::Closed { .. } = error {
        error = client.request("echo", &json("1"), PATIENCE).await.unwrap_err();
    }
    assert!(
        matches!(&error, CallError::Connect { address, .. } if *address == first.address.to_string()),
        "{error}"
    );
    assert!(error.retryable());
    assert_eq!(error.to_rpc(ErrorCode::EngineUnavailable, "the engine").code, ErrorCode::EngineUnavailable);

    let second = start(ServerConfig::new("test", first.address));
    assert_eq!(client.request("echo", &json("2"), PATIENCE).await.unwrap().text(), "2");
    assert_eq!(second.stats.requests(), 1);
}

#[tokio::test]
async fn deadline_passes_while_the_connection_stands() {
    let server = start(config());
    let client = client(&server);
    let error = client.request("hold", &json("1"), SHORT).await.unwrap_err();
    assert!(matches!(error, CallError::Timeout { written: true, alive: true }), "{error}");
    // The late reply is ignored, the connection goes on.
    server.handler.release();
    assert_eq!(client.request("echo", &json("2"), PATIENCE).await.unwrap().text(), "2");
    assert_eq!(server.stats.accepted(), 1);
}

#[tokio::test]
async fn request_that_the_peer_does_not_read_is_not_written() {
    let (keep, kept) = tokio::sync::oneshot::channel::<()>();
    let address = peer(|stream| async move {
        let _ = kept.await;
        drop(stream);
    })
    .await;
    let client = client_with(address, |_| ());
    let large = Json::of(&"x".repeat(15 << 20)).unwrap();
    let error = client.request("echo", &large, SHORT).await.unwrap_err();
    assert!(matches!(error, CallError::Timeout { written: false, alive: true }), "{error}");
    let error = client.emit("echo", &json("1"), SHORT).await.unwrap_err();
    assert!(matches!(error, CallError::Timeout { written: false, alive: true }), "{error}");
    drop(keep);
}

#[tokio::test]
async fn connection_closed_in_flight_tells_whether_the_request_was_written() {
    let address = peer(|mut stream| async move {
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
    })
    .await;
    let error = client_with(address, |_| ()).request("echo", &json("1"), PATIENCE).await.unwrap_err();
    assert!(matches!(error, CallError::Closed { written: true }), "{error}");
    assert!(error.retryable());

    let address = peer(|mut stream| async move {
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
    })
    .await;
    let large = Json::of(&"x".repeat(15 << 20)).unwrap();
    let error = client_with(address, |_| ()).request("echo", &large, PATIENCE).await.unwrap_err();
    assert!(matches!(error, CallError::Closed { written: false }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_frames_both_ways_at_once_do_not_lock() {
    let server = start(config());
    let client = client(&server);
    let data = Json::of(&"x".repeat(2 << 20)).unwrap();
    let calls =
        (0..12).map(|_| async { client.request("echo", &data, PATIENCE).await.unwrap().text().len() });
    assert!(join_all(calls).await.into_iter().all(|length| length == data.text().len()));
}

#[tokio::test]
async fn request_over_the_limit_is_not_sent() {
    let server = start(config());
    let client = client_with(server.address, |config| config.max_frame_bytes = 100);
    let error = client.request("echo", &Json::of(&"x".repeat(98)).unwrap(), PATIENCE).await.unwrap_err();
    assert!(
        matches!(error, CallError::TooLarge { what: "request", limit: 100, actual } if actual > 100),
        "{error}"
    );
    assert_eq!(error.to_rpc(ErrorCode::Unavailable, "x").code, ErrorCode::PayloadTooLarge);
    assert_eq!(server.stats.requests(), 0);
}

#[tokio::test]
async fn reply_over_the_limit_fails_its_call_and_the_next_one_connects_again() {
    let server = start(config());
    let client = client_with(server.address, |config| config.max_frame_bytes = 1000);
    let error = client.request("large", &json("2000"), PATIENCE).await.unwrap_err();
    assert!(matches!(error, CallError::TooLarge { what: "reply", limit: 1000, .. }), "{error}");
    assert_eq!(client.request("echo", &json("1"), PATIENCE).await.unwrap().text(), "1");
}

#[tokio::test]
async fn refusal_of_the_connection_is_the_answer_of_its_only_call() {
    let server = start_with(|limits| limits.max_frame_bytes = 1000);
    let error =
        client(&server).request("echo", &Json::of(&"x".repeat(2000)).unwrap(), PATIENCE).await.unwrap_err();
    assert_eq!(error.to_rpc(ErrorCode::Unavailable, "x").code, ErrorCode::PayloadTooLarge, "{error}");
    assert!(!error.retryable());
}

#[tokio::test]
async fn calls_over_the_bound_wait_and_are_refused_at_their_deadline() {
    let server = start(config());
    let client = client_with(server.address, |config| config.max_in_flight = 1);
    let one = json("1");
    let first = client.request("hold", &one, PATIENCE);
    let second = async {
        until(|| server.handler.holding.load(Ordering::SeqCst) == 1).await;
        let error = client.request("echo", &one, SHORT).await.unwrap_err();
        assert!(matches!(error, CallError::Overloaded), "{error}");
        server.handler.release();
    };
    let (first, ()) = tokio::join!(first, second);
    first.unwrap();
    client.request("echo", &one, PATIENCE).await.unwrap();
}

#[tokio::test]
async fn dropped_call_frees_its_place() {
    let server = start(config());
    let client = client_with(server.address, |config| config.max_in_flight = 1);
    let one = json("1");
    tokio::select! {
        _ = client.request("hold", &one, PATIENCE) => panic!("nobody released it"),
        () = until(|| server.handler.holding.load(Ordering::SeqCst) == 1) => {}
    }
    assert_eq!(client.request("echo", &one, PATIENCE).await.unwrap(), one);
}

#[tokio::test]
async fn event_is_done_when_it_is_written() {
    let server = start(config());
    let client = client(&server);
    client.emit("evt", &json("1"), PATIENCE).await.unwrap();
    until(|| server.handler.events.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn dropped_client_closes_its_connections() {
    let server = start(config());
    let client = client(&server);
    client.request("echo", &json("1"), PATIENCE).await.unwrap();
    assert_eq!(server.stats.open(), 1);
    drop(client);
    until(|| server.stats.open() == 0).await;
}

#[tokio::test]
async fn foreign_reply_forms_are_accepted() {
    for (reply, wanted) in [
        (r#"{"id":"1","isDisposed":true,"response":7,"traceId":"x"}"#, "7"),
        (r#"{"id":"9","response":8,"isDisposed":true}"#, "late"),
        (r#"{"err":"","response":7,"isDisposed":true,"id":"1"}"#, "7"),
        (r#"[1]"#, "late"),
    ] {
        let address = peer(move |mut stream| async move {
            let mut buffer = [0; 256];
            let _ = stream.read(&mut buffer).await.unwrap();
            let last = codec::encode(r#"{"response":"late","isDisposed":true,"id":"1"}"#);
            stream.write_all(&[codec::encode(reply), last].concat()).await.unwrap();
            let _ = stream.read(&mut buffer).await;
        })
        .await;
        let value = client_with(address, |_| ()).request("x", &Json::null(), PATIENCE).await.unwrap();
        assert_eq!(value.text().trim_matches('"'), wanted, "{reply}");
    }
}

#[tokio::test]
async fn reply_that_is_no_frame_closes_the_connection() {
    let address = peer(|mut stream| async move {
        let mut buffer = [0; 256];
        let _ = stream.read(&mut buffer).await.unwrap();
        stream.write_all(b"abc#{}").await.unwrap();
        let _ = stream.read(&mut buffer).await;
    })
    .await;
    let error = client_with(address, |_| ()).request("x", &Json::null(), PATIENCE).await.unwrap_err();
    assert!(matches!(error, CallError::Closed { written: true }), "{error}");
}

#[tokio::test]
async fn sent_request_is_delivered_before_its_reply_comes() {
    let server = start(config());
    let client = client(&server);
    let mut sent = client.send("hold", &json("1"), PATIENCE).await.unwrap();
    until(|| server.handler.holding.load(Ordering::SeqCst) == 1).await;
    server.handler.release();
    assert_eq!(soon(sent.reply()).await.unwrap().text(), "1");

    let mut sent = client.send("hold", &json("1"), PATIENCE).await.unwrap();
    server.connections_stop.cancel();
    assert!(matches!(soon(sent.reply()).await, Err(CallError::Closed { written: true })));
}

#[tokio::test]
async fn end_of_the_connection_of_an_event_is_noticed() {
    let server = start(config());
    let link = client(&server).send_event("evt", &json("1"), PATIENCE).await;
    // The client is gone, and its connections with it.
    soon(link.unwrap().closed()).await;

    let client = client(&server);
    let link = client.send_event("evt", &json("1"), PATIENCE).await.unwrap();
    server.connections_stop.cancel();
    soon(link.closed()).await;
}
