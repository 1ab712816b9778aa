//! `NestJS` 10, 11 and 12, as npm ships them, against our wire: their client to our server, our
//! client to their server; each in plain TCP and in TLS with certificates on both sides.

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

use contract::{ErrorCode, Json, RpcError};
use futures::{StreamExt, stream};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use testkit::{Process, Program};
use tokio_util::sync::CancellationToken;
use wire::{
    CallError, Client, ClientConfig, Handler, Reply, Request, Server, ServerConfig, TlsClient, TlsServer,
    tls::Identity,
};

const LIMIT: Duration = Duration::from_secs(60);

/// The folder of a version's node modules; `None` when they are not installed and nobody promised
/// them (`make test` installs them and sets `CI_SERVERS=1`).
fn nest(version: u32) -> Option<PathBuf> {
    let folder = system_tests::root().join(format!("tests/interop/nest{version}"));
    let is_installed = folder.join("node_modules/@nestjs/microservices").exists();
    let promised = std::env::var("CI_SERVERS").is_ok_and(|value| value == "1");
    assert!(is_installed || !promised, "npm ci was not run in {}", folder.display());
    is_installed.then_some(folder)
}

fn peer(folder: &Path, args: &[String], certificates: Option<&Certificates>) -> Process {
    let script = system_tests::root().join("tests/interop/peer.js");
    let mut program = Program::new("node").arg(script).args(args).current_dir(folder);
    if let Some(certificates) = certificates {
        program = program.env("TLS_FOLDER", certificates.folder.path().to_str().unwrap());
    }
    program.spawn().unwrap()
}

/// An authority, a certificate of ours and one for the peer, whose files lie in a folder.
struct Certificates {
    folder: tempfile::TempDir,
    ca: String,
    ours: Identity,
}

impl Certificates {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let sign = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            (params.signed_by(&key, &authority).unwrap().pem(), key.serialize_pem())
        };
        let ((certificates, key), (peer, peer_key)) = (sign("ours"), sign("peer"));
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("ca.pem", &authority.pem()), ("peer.pem", &peer), ("peer-key.pem", &peer_key)] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self { folder, ca: authority.pem(), ours: Identity { certificates, key: key.into() } }
    }

    fn server(&self) -> TlsServer {
        TlsServer::new(&self.ours, Some(&self.ca)).unwrap()
    }

    fn client(&self) -> TlsClient {
        TlsClient::new(&self.ca, Some(&self.ours)).unwrap()
    }
}

/// The handlers that `peer.js client` asks for.
#[derive(Default)]
struct Handlers {
    events: AtomicU64,
}

impl Handler for Handlers {
    async fn call(&self, request: Request) -> Reply {
        match request.pattern.as_str() {
            "echo" => Reply::Value(request.data),
            r#"{"cmd":"sum"}"# | "sum" => {
                let numbers: Vec<i64> = request.data.read().unwrap();
                Reply::Value(Json::from(json!(numbers.iter().sum::<i64>())))
            }
            "nullv" => Reply::Value(Json::null()),
            "undef" => Reply::Empty,
            "obs.sync3" => Reply::Stream(stream::iter([1, 2, 3]).map(|n| Ok(Json::from(json!(n)))).boxed()),
            "err.rpc.obj" => {
                Reply::Exception(Json::from(json!({"code": 401, "message": "bad token", "extra": {"a": 1}})))
            }
            "err.platform" => Reply::Error(RpcError::new(ErrorCode::Unauthorized, "wrong key")),
            r#"{"b":2,"evt":"obj"}"# => {
                self.events.fetch_add(1, Ordering::SeqCst);
                Reply::Empty
            }
            "events" => Reply::Value(Json::from(json!(self.events.load(Ordering::SeqCst)))),
            _ => Reply::NoHandler,
        }
    }
}

async fn client_of(version: u32, certificates: Option<Certificates>) {
    let Some(folder) = nest(version) else { return };
    let config = ServerConfig {
        tls: certificates.as_ref().map(Certificates::server),
        ..ServerConfig::new("interop", "127.0.0.1:0".parse().unwrap())
    };
    let server = Server::bind(config, Arc::new(Handlers::default())).unwrap();
    let port = server.local_addr().port();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.run(stop.clone(), stop.clone()));
    let args = ["client".into(), "127.0.0.1".into(), port.to_string()];
    let client = peer(&folder, &args, certificates.as_ref());
    let status = client.wait(LIMIT).await.unwrap();
    let output = client.text(testkit::Stream::Stdout);
    assert!(status.success(), "{output}{}", client.text(testkit::Stream::Stderr));
    let cases: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(cases.len() >= 13, "{output}");
    let failed: Vec<_> = cases.iter().filter(|case| case["passed"] != true).collect();
    assert!(failed.is_empty(), "NestJS {version}: {failed:#?}");
    stop.cancel();
    serving.await.unwrap();
}

async fn server_of(version: u32, certificates: Option<Certificates>) {
    let Some(folder) = nest(version) else { return };
    let port = testkit::free_port().unwrap();
    let server = peer(&folder, &["server".into(), port.to_string()], certificates.as_ref());
    server.wait_for_line("listening", LIMIT).await.unwrap();
    let tls = certificates.as_ref().map(Certificates::client);
    let client = Client::new("127.0.0.1", port, ClientConfig { tls, ..ClientConfig::default() });
    let ask = |pattern: &'static str, data: Value| {
        let client = client.clone();
        async move { client.request(pattern, &Json::from(data), LIMIT).await }
    };

    let text = "Привет, 😀 мир \u{2028} \u{1} \"\\/";
    assert_eq!(ask("echo", json!(text)).await.unwrap().value().unwrap(), json!(text));
    assert_eq!(ask(r#"{"cmd":"sum"}"#, json!([1, 2, 3])).await.unwrap().text(), "6");
    assert!(ask("nullv", json!(1)).await.unwrap().is_null());
    assert!(ask("undef", json!(1)).await.unwrap().is_null());
    let large = text.repeat(100_000);
    assert_eq!(ask("echo", json!(large)).await.unwrap().value().unwrap(), json!(large));

    assert!(matches!(ask("nope", json!(1)).await, Err(CallError::NoHandler)));
    let remote = |result: Result<Json, CallError>| match result {
        Err(CallError::Remote(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(remote(ask("err.rpc.str", json!(1)).await).message, "Плохой токен");
    let object = remote(ask("err.rpc.obj", json!(1)).await);
    assert_eq!((object.code.as_deref(), object.message.as_str()), (Some("401"), "bad token"));
    assert_eq!(remote(ask("err.error", json!(1)).await).message, "Internal server error");

    // Of a reply of several values the last one counts; the others take nothing from other calls.
    assert_eq!(ask("obs.sync3", json!(1)).await.unwrap().text(), "3");
    assert_eq!(remote(ask("obs.err", json!(1)).await).message, "mid");

    let answers = futures::future::join_all((0..300).map(|n| ask("late", json!(n % 20)))).await;
    for (n, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.unwrap().text(), (n % 20).to_string());
    }

    client.emit("evt", &Json::from(json!(7)), LIMIT).await.unwrap();
    assert_eq!(ask("events", json!(1)).await.unwrap().text(), "1");
}

/// A door with TLS has nothing to say to a plain client, nor to one without a certificate.
async fn strangers_at(version: u32) {
    let Some(folder) = nest(version) else { return };
    let (certificates, port) = (Certificates::new(), testkit::free_port().unwrap());
    let server = peer(&folder, &["server".into(), port.to_string()], Some(&certificates));
    server.wait_for_line("listening", LIMIT).await.unwrap();
    for tls in [None, Some(TlsClient::new(&certificates.ca, None).unwrap())] {
        let client = Client::new("127.0.0.1", port, ClientConfig { tls, ..ClientConfig::default() });
        let refused = client.request("echo", &Json::null(), LIMIT).await;
        assert!(matches!(refused, Err(CallError::Closed { .. } | CallError::Connect { .. })), "{refused:?}");
    }
}

macro_rules! versions {
    ($($version:literal: $client:ident $server:ident $tls_client:ident $tls_server:ident $strangers:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $client() {
            client_of($version, None).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn $server() {
            server_of($version, None).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn $tls_client() {
            client_of($version, Some(Certificates::new())).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn $tls_server() {
            server_of($version, Some(Certificates::new())).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn $strangers() {
            strangers_at($version).await;
        }
    )*};
}

versions! {
    10: nest_10_client_understands_our_server our_client_understands_a_nest_10_server
        nest_10_client_understands_our_tls_server our_client_understands_a_nest_10_tls_server
        nest_10_tls_server_refuses_us_without_a_certificate;
    11: nest_11_client_understands_our_server our_client_understands_a_nest_11_server
        nest_11_client_understands_our_tls_server our_client_understands_a_nest_11_tls_server
        nest_11_tls_server_refuses_us_without_a_certificate;
    12: nest_12_client_understands_our_server our_client_understands_a_nest_12_server
        nest_12_client_understands_our_tls_server our_client_understands_a_nest_12_tls_server
        nest_12_tls_server_refuses_us_without_a_certificate;
}
