//! Versions, quarantine and publication on behalf of a plugin (protocol sections 3 and 6).

use crate::support::{House, Plugin, Running, code, items, manifest};
use contract::{ErrorCode, Json, Millis, ProcessId};
use serde_json::{Value, json};

const ECHO: &str = "plugin.echo";

async fn two_versions(house: &House) -> (Running, Plugin) {
    let service = house.start(|settings| settings.enabled_by_default = true).await;
    let plugin = Plugin::new(&[ECHO]);
    for version in ["1.0.0", "2.0.0"] {
        service.publish(plugin.manifest("echo", version, &[ECHO])).await.unwrap();
    }
    (service, plugin)
}

fn version(version: &str) -> Value {
    json!({"pluginId": "echo", "publicationVersion": version})
}

async fn explained(service: &Running, workspace: &str) -> Value {
    service.ask("plugin.explain", json!({"nodeType": ECHO, "workspaceId": workspace})).await.unwrap()
}

#[tokio::test]
async fn a_yanked_version_has_no_new_use_and_its_pins_stay() {
    let house = House::new().await;
    let (service, _plugin) = two_versions(&house).await;
    service
        .ask(
            "plugin.pin",
            json!({"pluginId": "echo", "publicationVersion": "2.0.0", "workspaceId": "pinned"}),
        )
        .await
        .unwrap();
    assert_eq!(service.ask("plugin.yank", version("2.0.0")).await.unwrap()["changed"], true);
    assert_eq!(service.ask("plugin.yank", version("2.0.0")).await.unwrap()["changed"], false);
    assert_eq!(explained(&service, "other").await["subject"], "echo@1.0.0");
    assert_eq!(explained(&service, "pinned").await["subject"], "echo@2.0.0");
    assert_eq!(explained(&service, "pinned").await["allowed"], true);
    let handed = service.ask("manifest_request", json!({"nodeType": ECHO})).await.unwrap();
    assert_eq!(handed["manifest"]["publicationVersion"], "1.0.0");
    let exactly = json!({"pluginId": "echo", "publicationVersion": "2.0.0"});
    let handed = service.ask("manifest_request", exactly).await.unwrap();
    assert_eq!(handed["manifest"]["publicationVersion"], "2.0.0", "what runs on it keeps it");
    assert_eq!(code(service.ask("plugin.pin", version("2.0.0")).await), ErrorCode::Conflict);
    let versions = service.ask("plugin.versions", version("2.0.0")).await.unwrap();
    assert!(versions["versions"][0]["yankedAt"].is_number());
    service.ask("plugin.unyank", version("2.0.0")).await.unwrap();
    assert_eq!(explained(&service, "other").await["subject"], "echo@2.0.0");
}

#[tokio::test]
async fn a_yank_names_a_version_that_exists() {
    let house = House::new().await;
    let (service, _plugin) = two_versions(&house).await;
    assert_eq!(
        code(service.ask("plugin.yank", json!({"pluginId": "echo"})).await),
        ErrorCode::InvalidRequest
    );
    assert_eq!(code(service.ask("plugin.yank", version("9")).await), ErrorCode::PublicationMissing);
}

#[tokio::test]
async fn a_quarantined_plugin_gets_no_tasks_until_it_is_released() {
    let house = House::new().await;
    let (service, _plugin) = two_versions(&house).await;
    service.ask("plugin.quarantine", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(explained(&service, "w").await["refusal"]["code"], "plugin_quarantined");
    assert_eq!(service.ask("plugin.list", json!({})).await.unwrap()["plugins"][0]["quarantined"], true);
    service.ask("plugin.release", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(explained(&service, "w").await["allowed"], true);
    assert_eq!(
        code(service.ask("plugin.quarantine", json!({"pluginId": "nope"})).await),
        ErrorCode::PluginUnknown
    );
}

#[tokio::test]
async fn a_limit_of_attempts_is_set_shown_and_lifted() {
    let house = House::new().await;
    let (service, _plugin) = two_versions(&house).await;
    let limit = async |most: Value| {
        service.ask("plugin.limit", json!({"pluginId": "echo", "maxAttempts": most})).await
    };
    let shown =
        async || service.ask("plugin.list", json!({})).await.unwrap()["plugins"][0]["maxAttempts"].clone();
    assert_eq!(shown().await, Value::Null);
    assert_eq!(limit(json!(2)).await.unwrap()["changed"], true);
    assert_eq!(limit(json!(2)).await.unwrap()["changed"], false);
    assert_eq!(shown().await, json!(2));
    assert_eq!(code(limit(json!(0)).await), ErrorCode::InvalidRequest);
    assert_eq!(limit(Value::Null).await.unwrap()["changed"], true);
    assert_eq!(shown().await, Value::Null);
    let unknown = service.ask("plugin.limit", json!({"pluginId": "nope", "maxAttempts": 2})).await;
    assert_eq!(code(unknown), ErrorCode::PluginUnknown);
}

/// A plugin whose only node has these inputs.
fn with_inputs(inputs: &Value) -> Plugin {
    Plugin::answering(json!({"items": [{"nodeType": ECHO, "inputs": inputs, "outputs": []}]}))
}

#[tokio::test]
async fn a_diff_tells_what_changed_and_what_breaks() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let one = with_inputs(&json!([{"name": "text"}]));
    let two = with_inputs(&json!([{"name": "text"}, {"name": "more"}]));
    let three = with_inputs(&json!([{"name": "more"}]));
    for (plugin, version) in [(&one, "1"), (&two, "2"), (&three, "3")] {
        service.publish(plugin.manifest("echo", version, &[ECHO])).await.unwrap();
    }
    let diff = async |from: &str, to: &str| {
        service.ask("plugin.diff", json!({"pluginId": "echo", "from": from, "to": to})).await
    };
    let added = diff("1", "2").await.unwrap();
    assert_eq!((&added["breaking"], &added["changes"][0]["kind"]), (&json!(false), &json!("port_added")));
    let removed = diff("2", "3").await.unwrap();
    assert_eq!(removed["breaking"], true);
    let change = &removed["changes"][0];
    assert_eq!((&change["kind"], &change["port"]), (&json!("port_removed"), &json!("text")));
    assert_eq!(diff("1", "1").await.unwrap(), json!({"breaking": false, "changes": []}));
    assert_eq!(code(diff("1", "9").await), ErrorCode::PublicationMissing);
}

/// A stored process in the workspace, with one node `w` that gives the input `text` a value.
async fn process(house: &House, workspace: &str, name: &str) -> ProcessId {
    let process_id = ProcessId(uuid::Uuid::now_v7());
    let document = json!({
        "widgets": [{"id": "w", "label": "Echo it", "source": {"nodeType": ECHO},
                     "config": [{"name": "text", "value": "hello"}]}],
        "edges": [],
    });
    let draft = storage::processes::ProcessDraft {
        name: name.into(),
        document: Json::from(document),
        node_types: vec![ECHO.into()],
    };
    house.storage.processes().create(process_id, workspace, &draft, Millis(1)).await.unwrap();
    process_id
}

#[tokio::test]
async fn a_version_that_breaks_a_process_is_published_with_a_warning_that_names_process_and_node() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let process_id = process(&house, "default", "Monthly report").await;
    let before = with_inputs(&json!([{"name": "text"}, {"name": "unused"}]));
    service.publish(before.manifest("echo", "1.0.0", &[ECHO])).await.unwrap();
    let fits = with_inputs(&json!([{"name": "text"}, {"name": "unused"}, {"name": "more"}]));
    let reply = service.publish(fits.manifest("echo", "1.1.0", &[ECHO])).await.unwrap();
    assert_eq!(reply["warnings"], json!([]));
    let breaks = with_inputs(&json!([{"name": "more"}]));
    let reply = service.publish(breaks.manifest("echo", "2.0.0", &[ECHO])).await.unwrap();
    assert_eq!(reply["status"], "committed");
    let warning = &reply["warnings"][0];
    assert_eq!((&warning["path"], &warning["code"]), (&json!("$.executors[0]"), &json!("breaks_processes")));
    let message = warning["message"].as_str().unwrap();
    for named in ["Monthly report", &process_id.to_string(), "\"Echo it\" (w)", "\"text\"", "1.1.0"] {
        assert!(message.contains(named), "{message}");
    }
    assert!(!message.contains("\"unused\""), "nobody uses that input: {message}");
}

#[tokio::test]
async fn a_version_warns_about_no_process_that_does_not_use_what_it_removes() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    process(&house, "default", "Monthly report").await;
    let before = with_inputs(&json!([{"name": "text"}, {"name": "unused"}]));
    service.publish(before.manifest("echo", "1.0.0", &[ECHO])).await.unwrap();
    let without = with_inputs(&json!([{"name": "text"}]));
    let reply = service.publish(without.manifest("echo", "2.0.0", &[ECHO])).await.unwrap();
    assert_eq!((&reply["status"], &reply["warnings"]), (&json!("committed"), &json!([])));
}

#[tokio::test]
async fn a_version_warns_about_no_process_of_a_workspace_that_is_pinned() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    process(&house, "careful", "Monthly report").await;
    let before = with_inputs(&json!([{"name": "text"}]));
    service.publish(before.manifest("echo", "1.0.0", &[ECHO])).await.unwrap();
    let pin = json!({"pluginId": "echo", "workspaceId": "careful", "publicationVersion": "1.0.0"});
    service.ask("plugin.pin", pin).await.unwrap();
    let breaks = with_inputs(&json!([]));
    let reply = service.publish(breaks.manifest("echo", "2.0.0", &[ECHO])).await.unwrap();
    assert_eq!((&reply["status"], &reply["warnings"]), (&json!("committed"), &json!([])));
}

#[tokio::test]
async fn a_plugin_is_published_on_its_behalf_by_the_same_pipeline() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&[ECHO]);
    let nowhere = "127.0.0.1:1".parse().unwrap();
    let place = json!({"host": "127.0.0.1", "port": plugin.address.port()});
    let request = json!({"manifest": manifest("echo", "1.0.0", &[ECHO], nowhere), "from": place});
    let reply = service.ask("plugin.publish", request.clone()).await.unwrap();
    assert_eq!(reply["status"], "committed");
    let itself = service.publish(plugin.manifest("echo", "1.0.0", &[ECHO])).await.unwrap();
    assert_eq!((&itself["status"], &itself["digest"]), (&json!("unchanged"), &reply["digest"]));
    let detail = service.ask("plugin.get", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(detail["plugin"]["endpoint"], place);
    let mut broken = request;
    broken["manifest"]["executors"] = json!(5);
    assert_eq!(code(service.ask("plugin.publish", broken).await), ErrorCode::InvalidManifest);
}

#[tokio::test]
async fn a_known_plugin_is_pulled_again_from_where_it_is_now() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let (old, new) = (Plugin::new(&[ECHO]), Plugin::new(&[ECHO]));
    service.publish(old.manifest("echo", "1.0.0", &[ECHO])).await.unwrap();
    old.stop();
    let place = json!({"host": "127.0.0.1", "port": new.address.port()});
    let moved =
        service.ask("plugin.publish", json!({"pluginId": "echo", "from": place.clone()})).await.unwrap();
    assert_eq!(moved["status"], "unchanged");
    let again = service.ask("plugin.publish", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(again["status"], "unchanged");
    let detail = service.ask("plugin.get", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(detail["plugin"]["endpoint"], place);
    assert_eq!(
        code(service.ask("plugin.publish", json!({"pluginId": "nope"})).await),
        ErrorCode::PluginUnknown
    );
    assert_eq!(code(service.ask("plugin.publish", json!({})).await), ErrorCode::InvalidRequest);
    // The place alone stands for the plugin that listens there.
    let there = service.ask("plugin.publish", json!({ "from": place })).await.unwrap();
    assert_eq!((&there["pluginId"], &there["status"]), (&json!("echo"), &json!("unchanged")));
    let nobody =
        service.ask("plugin.publish", json!({"from": {"host": "127.0.0.1", "port": 1}})).await.unwrap_err();
    assert_eq!(nobody.code, ErrorCode::PluginUnknown);
    assert!(nobody.message.contains("127.0.0.1:1") && nobody.message.contains("manifest"), "{nobody}");
    // The same version with other nodes is another content, however it is published.
    let other = Plugin::answering(json!({"items": items(&[ECHO]), "extra": 1}));
    let changed = with_inputs(&json!([{"name": "text"}]));
    let from = |plugin: &Plugin| json!({"pluginId": "echo", "from": {"host": "127.0.0.1", "port": plugin.address.port()}});
    assert_eq!(service.ask("plugin.publish", from(&other)).await.unwrap()["status"], "unchanged");
    assert_eq!(code(service.ask("plugin.publish", from(&changed)).await), ErrorCode::VersionImmutable);
}
