//! A server with a test handler, and a raw peer.

use contract::{ErrorCode, Json, RpcError};
use futures::{StreamExt, stream};
use std::{
    future::Future,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use wire::{Handler, Limits, Reply, Request, Server, ServerConfig, Stats, codec};

/// What no healthy test takes: a hanging one fails instead.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("the test hangs")
}

/// Waits until `condition` holds, letting the runtime work.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    soon(async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

/// Answers the patterns of the vectors and some more.
#[derive(Debug)]
pub(crate) struct TestHandler {
    /// `hold` waits for one permit; `release` adds one.
    gate: Semaphore,
    pub(crate) holding: AtomicUsize,
    pub(crate) events: AtomicUsize,
}

impl Default for TestHandler {
    fn default() -> Self {
        Self { gate: Semaphore::new(0), holding: AtomicUsize::new(0), events: AtomicUsize::new(0) }
    }
}

impl TestHandler {
    pub(crate) fn release(&self) {
        self.gate.add_permits(1);
    }

    async fn hold(&self) {
        self.holding.fetch_add(1, Ordering::SeqCst);
        self.gate.acquire().await.unwrap().forget();
        self.holding.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Handler for TestHandler {
    async fn call(&self, request: Request) -> Reply {
        if request.is_event {
            self.events.fetch_add(1, Ordering::SeqCst);
        }
        match request.pattern.as_str() {
            "echo" => Reply::Value(request.data),
            "sum" => {
                Reply::Value(Json::of(&request.data.read::<Vec<i64>>().unwrap().iter().sum::<i64>()).unwrap())
            }
            "err.rpc.str" => Reply::Exception(json(r#"{"status":"error","message":"Плохой токен"}"#)),
            "err.rpc.obj" => Reply::Exception(json(r#"{"code":401,"message":"bad token","extra":{"a":1}}"#)),
            "err.error" => Reply::Exception(json(r#"{"status":"error","message":"Internal server error"}"#)),
            "err.unauthorized" => {
                Reply::Error(RpcError::new(ErrorCode::Unauthorized, "the key is missing or wrong"))
            }
            "err.ours" => Reply::Error(RpcError::new(ErrorCode::EngineUnavailable, "the engine is away")),
            "obs.sync3" => Reply::Stream(stream::iter(["1", "2", "3"]).map(|n| Ok(json(n))).boxed()),
            "obs.err" => Reply::Stream(
                stream::iter([
                    Ok(json("1")),
                    Ok(json("2")),
                    Err(json(r#"{"status":"error","message":"mid"}"#)),
                ])
                .boxed(),
            ),
            "obs.late" => Reply::Stream(
                stream::iter([1, 2])
                    .then(|n| async move {
                        tokio::task::yield_now().await;
                        Ok(Json::of(&n).unwrap())
                    })
                    .chain(stream::once(tokio::task::yield_now()).filter_map(|()| async { None }))
                    .boxed(),
            ),
            "obs.large" => {
                let value = Json::of(&"x".repeat(1_000_000)).unwrap();
                Reply::Stream(stream::iter(vec![Ok(value); request.data.read().unwrap()]).boxed())
            }
            "undef" | "evt" => Reply::Empty,
            "nullv" => Reply::Value(Json::null()),
            "hold" => {
                self.hold().await;
                Reply::Value(request.data)
            }
            "release" => {
                self.release();
                Reply::Empty
            }
            "large" => Reply::Value(Json::of(&"x".repeat(request.data.read().unwrap())).unwrap()),
            "peer" => Reply::Value(Json::of(&request.peer.address).unwrap()),
            "panic" => panic!("as asked"),
            _ => Reply::NoHandler,
        }
    }
}

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stats: Arc<Stats>,
    pub(crate) handler: Arc<TestHandler>,
    pub(crate) accept_stop: CancellationToken,
    pub(crate) connections_stop: CancellationToken,
    pub(crate) task: JoinHandle<()>,
}

pub(crate) fn config() -> ServerConfig {
    ServerConfig::new("test", (Ipv4Addr::LOCALHOST, 0).into())
}

pub(crate) fn start(config: ServerConfig) -> Running {
    let handler = Arc::new(TestHandler::default());
    let server = Server::bind(config, Arc::clone(&handler)).unwrap();
    let (accept_stop, connections_stop) = (CancellationToken::new(), CancellationToken::new());
    Running {
        address: server.local_addr(),
        stats: server.stats(),
        handler,
        accept_stop: accept_stop.clone(),
        connections_stop: connections_stop.clone(),
        task: tokio::spawn(server.run(accept_stop, connections_stop)),
    }
}

pub(crate) fn start_with(change: impl FnOnce(&mut Limits)) -> Running {
    let mut config = config();
    change(&mut config.limits);
    start(config)
}

impl Running {
    pub(crate) async fn connect(&self) -> Raw {
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Raw(stream)
    }
}

/// A peer that writes and reads bytes.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        soon(self.0.write_all(bytes.as_ref())).await.unwrap();
    }

    pub(crate) async fn send(&mut self, json: &str) {
        self.write(codec::encode(json)).await;
    }

    pub(crate) async fn request(&mut self, pattern: &str, data: &str, id: &str) {
        self.send(&format!(r#"{{"pattern":"{pattern}","data":{data},"id":"{id}"}}"#)).await;
    }

    pub(crate) async fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        soon(self.0.read_exact(&mut bytes)).await.unwrap();
        bytes
    }

    /// One frame's JSON text.
    pub(crate) async fn receive(&mut self) -> String {
        let mut header = String::new();
        loop {
            match self.read_bytes(1).await[0] {
                b'#' => break,
                digit => header.push(char::from(digit)),
            }
        }
        let units: usize = header.parse().unwrap();
        let mut bytes = self.read_bytes(units).await;
        loop {
            // Characters of several bytes: units are fewer than bytes.
            let read = String::from_utf8_lossy(&bytes).trim_end_matches('\u{fffd}').encode_utf16().count();
            match std::str::from_utf8(&bytes) {
                Ok(text) if read == units => return text.to_owned(),
                _ => bytes.extend(self.read_bytes(1).await),
            }
        }
    }

    /// What still comes before the server closes.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        soon(self.0.read_to_end(&mut bytes)).await.unwrap();
        bytes
    }

    /// The refusal with which the server closes: its code and message.
    pub(crate) async fn refusal(&mut self) -> (ErrorCode, String) {
        #[derive(serde::Deserialize)]
        struct Packet {
            err: RpcError,
        }
        let text = String::from_utf8(self.rest().await).unwrap();
        let (_, packet) = text.split_once('#').unwrap_or_else(|| panic!("no refusal but {text:?}"));
        let Packet { err } = serde_json::from_str(packet).unwrap();
        (err.code, err.message)
    }
}
