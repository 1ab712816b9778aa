//! Secrets of steps in the memory of the services that handle them: looked for in the real processes,
//! freed memory included, once their steps are over (protocol section 1, "Secrets in frames").

use crate::PATIENCE;
use contract::{Json, pattern};
use reqwest::Method;
use serde_json::{Value, json};
use std::{net::Ipv4Addr, sync::Arc, time::Duration};
use system_tests::{
    Deployment, Platform,
    deployment::{CONTROL_PLANE_KEY, INGRESS_TOKEN},
    servers,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wire::{Client, ClientConfig, Reply, Request, Server, ServerConfig};

const PLUGIN_ID: &str = "keeper";
const NODE_TYPE: &str = "plugin.keeper.work";

/// Everybody through whose hands a secret goes, but for api, which is given it.
const HANDS: [&str; 3] = ["secret-manager", "runtime-control-plane", "executor"];

/// Pause before the memory is looked at again: what a service still holds it may be about to wipe.
const PACE: Duration = Duration::from_millis(200);
const LOOKS: u32 = 25;

/// A secret with escapes in its JSON, and the part of it that is looked for: the beginning of a freed
/// block belongs to the allocator.
struct Secret {
    value: String,
    part: String,
}

impl Secret {
    fn new(seed: u32) -> Self {
        let part: String =
            (0..64u32).map(|at| char::from(b'a' + ((at * at + at * seed) % 26) as u8)).collect();
        Self { value: format!("-----BEGIN \"KEY\" {seed}-----\n{part}"), part }
    }
}

/// A plugin that answers with its result, and shows the key that it was given.
fn plugin() -> (u16, mpsc::UnboundedReceiver<Value>, CancellationToken) {
    let (seen, keys) = mpsc::unbounded_channel();
    let handler = move |request: Request| {
        let seen = seen.clone();
        async move {
            match pattern::find(&request.pattern) {
                Some(pattern::EXECUTOR_BATCH_PULL) => Reply::Value(Json::from(json!({"items": [
                    {"nodeType": NODE_TYPE, "name": "Work",
                     "inputs": [{"name": "key", "type": "ref", "label": "Key"},
                                {"name": "go", "type": "string", "label": "Go", "isPort": true}],
                     "outputs": [{"name": "text", "type": "string", "label": "Text"}]}
                ]}))),
                Some(pattern::EXECUTOR_TASK) => {
                    let _ = seen.send(request.data.value().unwrap()["inputs"]["key"].clone());
                    Reply::Value(Json::from(json!({"status": "ok", "outputs": {"text": "done"}})))
                }
                _ => Reply::NoHandler,
            }
        }
    };
    let config = ServerConfig::new("keeper", (Ipv4Addr::LOCALHOST, 0).into());
    let server = Server::bind(config, Arc::new(handler)).unwrap();
    let (port, stop) = (server.local_addr().port(), CancellationToken::new());
    tokio::spawn(server.run(stop.clone(), stop.clone()));
    (port, keys, stop)
}

/// A node of the plugin with a secret, then one of the executor with another. The latter's request is
/// never sent: what the HTTP client keeps of one is out of reach.
fn process() -> Value {
    let secret =
        |name: &str, secret: &str| json!({"name": name, "type": "ref", "value": {"$secret": secret}});
    json!({"settings": {"name": "keeper"}, "widgets": [
        {"id": "start", "source": {"nodeType": "system.trigger.input"}, "config": [{"name": "url", "type": "string"}]},
        {"id": "work", "source": {"nodeType": NODE_TYPE},
         "config": [secret("key", "of-plugin"), {"name": "go", "type": "string", "isPort": true}], "outputs": ["text"]},
        {"id": "call", "source": {"nodeType": "system.http.request"}, "execution": {"onError": "continue"},
         "config": [{"name": "url", "type": "string", "value": "https://127.0.0.1/"},
                    {"name": "errorStatuses", "type": "string", "isPort": true},
                    secret("bearerToken", "of-executor"), secret("header.X-Key", "of-executor")],
         "outputs": ["status"]},
        {"id": "end", "source": {"nodeType": "system.output"}, "config": [{"name": "text", "type": "string"}]}
    ], "edges": [
        {"source": "start", "sourceHandle": "url", "target": "work", "targetHandle": "go"},
        {"source": "work", "sourceHandle": "text", "target": "call", "targetHandle": "errorStatuses"},
        {"source": "work", "sourceHandle": "text", "target": "end", "targetHandle": "text"}
    ]})
}

/// Nothing of the secret is left in the service, now or soon.
async fn forgets(deployment: &Deployment, service: &str, secret: &Secret) -> bool {
    for _ in 0..LOOKS {
        if !deployment.memory_holds(service, secret.part.as_bytes()) {
            return true;
        }
        tokio::time::sleep(PACE).await;
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn no_service_keeps_a_copy_of_a_secret_once_its_step_is_over() {
    let Some(servers) = servers().await else { return };
    let deployment = Deployment::start(&servers, &[]).await;
    let (port, mut keys, _stop) = plugin();
    let manager = Client::new("127.0.0.1", deployment.ports.plugin_manager, ClientConfig::default());
    let manifest = json!({
        "kind": contract::manifest::MANIFEST_KIND, "token": INGRESS_TOKEN, "pluginId": PLUGIN_ID,
        "publicationVersion": "1.0.0", "label": "Keeper", "executors": [{"nodeType": NODE_TYPE}],
        "pull": {"host": "127.0.0.1", "port": port},
    });
    manager.request("manifest_request_v2", &Json::from(manifest), PATIENCE).await.unwrap();
    let platform = Platform::at(deployment.ports.api);
    platform.wait_for_plugin(PLUGIN_ID).await;
    let (of_plugin, of_executor) = (Secret::new(3), Secret::new(7));
    for (name, secret) in [("of-plugin", &of_plugin), ("of-executor", &of_executor)] {
        let value = json!({"value": secret.value});
        platform.call(Method::PUT, &format!("/secrets/{name}"), Some(&value)).await;
    }
    let process = platform.import(&process()).await;

    // Several times, so that buffers are filled, grown and used again.
    for _ in 0..3 {
        let run = platform.start(&process, &json!({"url": "x"})).await;
        let detail = platform.finished(&process, &run).await;
        assert_eq!(detail["run"]["status"], "finished", "{detail:#}");
        assert_eq!(keys.recv().await.unwrap(), json!(of_plugin.value), "the plugin gets it whole");
        let failed = detail.to_string();
        // A header with a line break: the node found its secret and refused it before anything was sent.
        assert!(failed.contains("no header may have"), "{detail:#}");
        assert!(!failed.contains(&of_executor.part), "{detail:#}");
    }
    assert!(
        deployment.memory_holds("runtime-control-plane", CONTROL_PLANE_KEY.as_bytes()),
        "what is held is found"
    );
    for service in HANDS {
        for (secret, whose) in [(&of_plugin, "the plugin's"), (&of_executor, "the executor's")] {
            assert!(forgets(&deployment, service, secret).await, "{service} keeps {whose} secret");
        }
    }
}
