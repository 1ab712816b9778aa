//! TLS at the TCP door and towards plugins.

use crate::world::{KEY, NODE_TYPE, PATIENCE, World, id, local};
use contract::{Json, manifest::Endpoint, report::Dispatched};
use serde_json::json;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use wire::{
    CallError, Client, ClientConfig, Reply, Request, Server, ServerConfig, TlsClient, TlsServer,
    tls::Identity,
};

#[tokio::test]
async fn tasks_go_out_and_reports_come_in_over_tls() {
    // A certificate for 127.0.0.1 that is its own authority.
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let identity = Identity { certificates: made.cert.pem(), key: made.signing_key.serialize_pem().into() };
    let door = TlsServer::new(&identity, None).unwrap();
    let trust = TlsClient::new(&identity.certificates, None).unwrap();
    let mut world = World::with(|settings| {
        settings.tls = Some(door.clone());
        settings.plugin_tls = Some(trust.clone());
    })
    .await;

    let answer = |_: Request| async { Reply::Value(Json::from(json!({"ok": true}))) };
    let config = ServerConfig { tls: Some(door), ..ServerConfig::new("plugin", local()) };
    let plugin = Server::bind(config, Arc::new(answer)).unwrap();
    let (address, stop) = (plugin.local_addr(), CancellationToken::new());
    tokio::spawn(plugin.run(stop.clone(), stop.clone()));
    let endpoint = Endpoint { host: address.ip().to_string(), port: address.port() };
    world.publish("test", NODE_TYPE, endpoint).await;
    let task = world.queued(NODE_TYPE).await;
    assert_eq!(world.next_dispatched(task).await, Dispatched::Delivered { implicit: false });

    let report = Json::from(json!({"key": KEY, "executionId": id(), "outputs": {}}));
    let pattern = "plugin.executor.step_result";
    let plain = world.tcp().request(pattern, &report, PATIENCE).await;
    assert!(matches!(plain, Err(CallError::Closed { .. } | CallError::Connect { .. })), "{plain:?}");
    let config = ClientConfig { tls: Some(trust), ..ClientConfig::default() };
    let client = Client::new("127.0.0.1", world.tcp.port(), config);
    let reply = client.request(pattern, &report, PATIENCE).await.unwrap();
    assert_eq!(reply.value().unwrap()["status"], "applied");
    stop.cancel();
}
