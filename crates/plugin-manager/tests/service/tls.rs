//! TLS at the door and towards plugins.

use crate::support::{House, Plugin, code, items, manifest};
use contract::ErrorCode;
use serde_json::json;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use wire::{
    CallError, Client, ClientConfig, Reply, Request, Server, ServerConfig, TlsClient, TlsServer,
    tls::Identity,
};

/// A certificate for 127.0.0.1 that is its own authority: a door, and who trusts it.
fn pair() -> (TlsServer, TlsClient) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let identity = Identity { certificates: made.cert.pem(), key: made.signing_key.serialize_pem().into() };
    (TlsServer::new(&identity, None).unwrap(), TlsClient::new(&identity.certificates, None).unwrap())
}

#[tokio::test]
async fn plugins_publish_over_tls_and_are_pulled_over_tls() {
    let (door, trust) = pair();
    let house = House::new().await;
    let mut service = house
        .start(|settings| {
            settings.tls = Some(door.clone());
            settings.plugin_tls = Some(trust.clone());
        })
        .await;
    let plain = service.raw("plugin.list", json!({})).await;
    assert!(matches!(plain, Err(CallError::Closed { .. } | CallError::Connect { .. })), "{plain:?}");
    let config = ClientConfig { tls: Some(trust), ..ClientConfig::default() };
    service.client = Client::new("127.0.0.1", service.tcp.port(), config);

    let answer = |request: Request| async move {
        match request.pattern.as_str() {
            "executor_batch_pull" => Reply::Value(json!({ "items": items(&["plugin.echo"]) }).into()),
            _ => Reply::NoHandler,
        }
    };
    let config =
        ServerConfig { tls: Some(door), ..ServerConfig::new("plugin", "127.0.0.1:0".parse().unwrap()) };
    let plugin = Server::bind(config, Arc::new(answer)).unwrap();
    let (address, stop) = (plugin.local_addr(), CancellationToken::new());
    tokio::spawn(plugin.run(stop.clone(), stop.clone()));
    let reply = service.publish(manifest("echo", "1.0.0", &["plugin.echo"], address)).await.unwrap();
    assert_eq!(reply["status"], "committed");

    let plain = Plugin::new(&["plugin.plain"]);
    let refused = service.publish(plain.manifest("plain", "1.0.0", &["plugin.plain"])).await;
    assert_eq!(code(refused), ErrorCode::BatchPullFailed);
    assert_eq!(plain.asked("executor_batch_pull"), [json!(null); 0]);
    stop.cancel();
    service.stop().await;
}
