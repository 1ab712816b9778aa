//! Catalogue calls (protocol sections 3 and 6, failure matrix rows 29 and 30).

use crate::support::{House, Plugin, Running, code};
use contract::{
    ErrorCode, Json, Millis, ProcessId,
    catalogue::{Health, HealthState},
};
use serde_json::{Value, json};

async fn published(house: &House) -> (Running, Plugin) {
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    (service, plugin)
}

async fn refusal(service: &Running, request: Value) -> Value {
    service.ask("plugin.explain", request).await.unwrap()["refusal"]["code"].clone()
}

#[tokio::test]
async fn every_call_wants_the_token() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let patterns = [
        "manifest_request",
        "plugin.list",
        "plugin.get",
        "plugin.versions",
        "plugin.enable",
        "plugin.disable",
        "plugin.remove",
        "plugin.pin",
        "plugin.unpin",
        "plugin.yank",
        "plugin.unyank",
        "plugin.quarantine",
        "plugin.release",
        "plugin.limit",
        "plugin.diff",
        "plugin.publish",
        "plugin.asset",
        "plugin.health",
        "plugin.explain",
    ];
    for pattern in patterns {
        match service.raw(pattern, json!({"pluginId": "echo"})).await {
            Err(wire::CallError::Remote(remote)) => assert!(remote.is(ErrorCode::Unauthorized), "{pattern}"),
            other => panic!("{pattern}: {other:?}"),
        }
    }
    assert!(matches!(service.raw("nobody.knows", json!({})).await, Err(wire::CallError::NoHandler)));
}

#[tokio::test]
async fn enablement_is_per_workspace_and_per_user() {
    let house = House::new().await;
    let (service, _plugin) = published(&house).await;
    let in_alpha = json!({"nodeType": "plugin.echo", "workspaceId": "alpha", "userId": "ann"});
    assert_eq!(refusal(&service, in_alpha.clone()).await, "plugin_disabled");
    let changed =
        service.ask("plugin.enable", json!({"pluginId": "echo", "workspaceId": "alpha"})).await.unwrap();
    assert_eq!(changed["changed"], true);
    assert_eq!(refusal(&service, in_alpha.clone()).await, Value::Null);
    assert_eq!(
        refusal(&service, json!({"nodeType": "plugin.echo", "workspaceId": "beta"})).await,
        "plugin_disabled"
    );
    service
        .ask("plugin.disable", json!({"pluginId": "echo", "workspaceId": "alpha", "userId": "ann"}))
        .await
        .unwrap();
    assert_eq!(refusal(&service, in_alpha).await, "plugin_disabled");
    assert_eq!(
        refusal(&service, json!({"nodeType": "plugin.echo", "workspaceId": "alpha", "userId": "bob"})).await,
        Value::Null
    );
    let again =
        service.ask("plugin.enable", json!({"pluginId": "echo", "workspaceId": "alpha"})).await.unwrap();
    assert_eq!(again["changed"], false);
    assert_eq!(
        code(service.ask("plugin.enable", json!({"pluginId": "nope"})).await),
        ErrorCode::PluginUnknown
    );
}

#[tokio::test]
async fn plugins_are_listed_with_enablement_of_the_asked_workspace() {
    let house = House::new().await;
    let (service, _plugin) = published(&house).await;
    service.ask("plugin.enable", json!({"pluginId": "echo", "workspaceId": "alpha"})).await.unwrap();
    let enabled = async |workspace: &str| {
        service.ask("plugin.list", json!({"workspaceId": workspace})).await.unwrap()["plugins"][0]["enabled"]
            .clone()
    };
    assert_eq!((enabled("alpha").await, enabled("beta").await), (json!(true), json!(false)));
}

#[tokio::test]
async fn explain_lists_each_rules_verdict() {
    let house = House::new().await;
    let (service, _plugin) = published(&house).await;
    let decision = service.ask("plugin.explain", json!({"nodeType": "plugin.echo"})).await.unwrap();
    assert_eq!(decision["allowed"], false);
    assert_eq!(decision["verdicts"].as_array().unwrap().len(), 5);
    assert!(decision["refusal"]["message"].as_str().unwrap().contains("echo@1.0.0"));
    assert_eq!(refusal(&service, json!({"nodeType": "plugin.nope"})).await, "plugin_unknown");
}

#[tokio::test]
async fn removal_is_refused_while_processes_use_the_plugin_unless_forced() {
    let house = House::new().await;
    let (service, _plugin) = published(&house).await;
    let process = ProcessId(uuid::Uuid::now_v7());
    let draft = storage::processes::ProcessDraft {
        name: "Nightly".into(),
        document: Json::null(),
        node_types: vec!["plugin.echo".into()],
    };
    house.storage.processes().create(process, "default", &draft, Millis(1)).await.unwrap();
    let error = service.ask("plugin.remove", json!({"pluginId": "echo"})).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::PluginInUse);
    assert!(error.message.contains("Nightly"), "{error}");
    assert_eq!(error.details.unwrap()["processes"][0]["id"], process.to_string());
    let removed = service.ask("plugin.remove", json!({"pluginId": "echo", "force": true})).await.unwrap();
    assert_eq!(removed["changed"], true);
    assert_eq!(refusal(&service, json!({"nodeType": "plugin.echo"})).await, "plugin_removed");
}

#[tokio::test]
async fn a_removed_plugin_is_a_tombstone_that_publishing_revives() {
    let house = House::new().await;
    let (service, plugin) = published(&house).await;
    service.ask("plugin.remove", json!({"pluginId": "echo"})).await.unwrap();
    let count = async |request: Value| {
        service.ask("plugin.list", request).await.unwrap()["plugins"].as_array().unwrap().len()
    };
    assert_eq!((count(json!({})).await, count(json!({"includeRemoved": true})).await), (0, 1));
    assert_eq!(
        code(service.ask("plugin.enable", json!({"pluginId": "echo"})).await),
        ErrorCode::PluginRemoved
    );
    let again = service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    assert_eq!(again["status"], "unchanged");
    assert_eq!(count(json!({})).await, 1);
}

#[tokio::test]
async fn a_pin_names_a_version_that_exists_and_never_moves() {
    let house = House::new().await;
    let (service, plugin) = published(&house).await;
    let pin = |version: &str| json!({"pluginId": "echo", "publicationVersion": version});
    assert_eq!(code(service.ask("plugin.pin", json!({"pluginId": "echo"})).await), ErrorCode::InvalidRequest);
    assert_eq!(code(service.ask("plugin.pin", pin("9.9.9")).await), ErrorCode::PublicationMissing);
    service.ask("plugin.pin", pin("1.0.0")).await.unwrap();
    service.publish(plugin.manifest("echo", "2.0.0", &["plugin.echo"])).await.unwrap();
    let summary = async || service.ask("plugin.list", json!({})).await.unwrap()["plugins"][0].clone();
    let pinned = summary().await;
    assert_eq!((&pinned["pinnedVersion"], &pinned["publicationVersion"]), (&json!("1.0.0"), &json!("2.0.0")));
    service.ask("plugin.unpin", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(summary().await["pinnedVersion"], Value::Null);
    let versions = service.ask("plugin.versions", json!({"pluginId": "echo"})).await.unwrap();
    let versions: Vec<_> = versions["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["publicationVersion"].clone())
        .collect();
    assert_eq!(versions, ["2.0.0", "1.0.0"]);
}

#[tokio::test]
async fn a_version_can_be_looked_at() {
    let house = House::new().await;
    let (service, plugin) = published(&house).await;
    service.publish(plugin.manifest("echo", "2.0.0", &["plugin.echo"])).await.unwrap();
    let detail =
        service.ask("plugin.get", json!({"pluginId": "echo", "publicationVersion": "1.0.0"})).await.unwrap();
    assert_eq!(detail["manifest"]["publicationVersion"], "1.0.0");
    let missing = service.ask("plugin.asset", json!({"pluginId": "echo", "key": "ui.form.x"})).await;
    assert_eq!(code(missing), ErrorCode::NotFound);
}

#[tokio::test]
async fn visibility_enablement_and_health_are_three_facts() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    let mut manifest = plugin.manifest("echo", "1.0.0", &["plugin.echo"]);
    manifest["variables"] =
        json!([{"key": "llmModel", "label": "Model", "description": "Shown on the card"}]);
    service.publish(manifest).await.unwrap();
    let facts = async || {
        let list = service.ask("plugin.list", json!({})).await.unwrap();
        let plugin = &list["plugins"][0];
        json!([plugin["pluginId"], plugin["enabled"], plugin["health"]["state"], plugin["quarantined"]])
    };
    assert_eq!(facts().await, json!(["echo", false, "online", false]));
    service.ask("plugin.enable", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(facts().await, json!(["echo", true, "online", false]));
    let offline = Health { state: HealthState::Offline, since: Some(Millis(9)), ..Health::default() };
    house.storage.catalogue().record_health("echo", &offline).await.unwrap();
    service.ask("plugin.quarantine", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(facts().await, json!(["echo", true, "offline", true]));
    let detail = service.ask("plugin.get", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(detail["manifest"]["variables"][0]["key"], "llmModel", "shown, whatever else holds");
    service.ask("plugin.remove", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(service.ask("plugin.list", json!({})).await.unwrap()["plugins"], json!([]));
    let all = service.ask("plugin.list", json!({"includeRemoved": true})).await.unwrap();
    assert_eq!((&all["plugins"][0]["removed"], &all["plugins"][0]["enabled"]), (&json!(true), &json!(true)));
    service.stop().await;
}

#[tokio::test]
async fn a_list_that_the_caller_has_is_not_sent_again() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    let list = async |service: &Running, tag: &Value| {
        service.ask("plugin.list", json!({ "ifNoneMatch": tag })).await.unwrap()
    };
    let first = list(&service, &Value::Null).await;
    let tag = &first["tag"];
    assert!(tag.is_string() && first["plugins"].as_array().unwrap().len() == 1);
    let again = list(&service, tag).await;
    assert_eq!(again, json!({"plugins": [], "revision": first["revision"], "tag": tag, "notModified": true}));
    service.ask("plugin.enable", json!({"pluginId": "echo"})).await.unwrap();
    let changed = list(&service, tag).await;
    assert_eq!(
        (changed["plugins"][0]["enabled"].clone(), changed["notModified"].clone()),
        (json!(true), Value::Null)
    );
    service.stop().await;
    // What plugins are by default is the operator's word, and no revision.
    let service = house.start(|settings| settings.enabled_by_default = true).await;
    let restarted = list(&service, &changed["tag"]).await;
    assert!(
        restarted["revision"] == changed["revision"] && restarted["tag"] != changed["tag"],
        "{restarted}"
    );
    service.stop().await;
}
