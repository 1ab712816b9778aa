//! Publication (protocol section 3, failure matrix row 28).

use crate::support::{Files, House, PREVIOUS, Plugin, TOKEN, client, code, items, manifest, refusing};
use contract::{ErrorCode, catalogue::HealthState};
use futures::future::join_all;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::sync::Notify;
use wire::{CallError, Reply};

#[tokio::test]
async fn a_publication_is_committed_and_its_plugin_counts_as_online() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    let reply = service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    assert_eq!(reply["ok"], true);
    assert_eq!(
        (&reply["status"], &reply["pluginId"], &reply["publicationVersion"]),
        (&json!("committed"), &json!("echo"), &json!("1.0.0"))
    );
    assert_eq!(reply["warnings"], json!([]));
    let detail = service.ask("plugin.get", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(detail["plugin"]["health"]["state"], "online");
    assert!(detail["plugin"]["health"]["since"].is_number());
    assert_eq!(detail["plugin"]["digest"], reply["digest"]);
    assert_eq!(detail["items"][0]["pluginLabel"], "Plugin echo");
    let pulled = plugin.asked("executor_batch_pull");
    assert_eq!(
        pulled,
        [json!({
            "kind": "executor_batch_pull_v2", "token": TOKEN, "pluginId": "echo", "publicationVersion": "1.0.0",
            "nodeTypes": ["plugin.echo"], "cursor": null
        })]
    );
    service.stop().await;
}

#[tokio::test]
async fn every_spelling_of_the_publication_is_accepted() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    let patterns = [
        "manifest_request_v2",
        "plugin.manifest_request_v2",
        "plugin_manifest_request_v2",
        "manifest_request",
        "plugin.manifest_request",
    ];
    for (pattern, place) in patterns.into_iter().zip(["token", "ingressToken", "authToken", "auth", "token"])
    {
        let mut data = plugin.manifest("echo", "1.0.0", &["plugin.echo"]);
        data[place] = if place == "auth" { json!({"token": TOKEN}) } else { json!(TOKEN) };
        let reply = service.raw(pattern, data).await.unwrap();
        assert_eq!(reply["ok"], true, "{pattern}");
    }
    let detail = service.ask("plugin.get", json!({"pluginId": "echo"})).await.unwrap();
    assert!(!detail.to_string().contains(TOKEN), "the token must not be stored");
    assert_eq!(
        service.ask("plugin.versions", json!({"pluginId": "echo"})).await.unwrap()["versions"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn of_many_publishers_at_once_each_is_answered_for_its_own() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    // One in ten wants a node type that only one of them can have.
    let plugins: Vec<(String, Vec<String>)> = (0..40)
        .map(|number| {
            let name = format!("many-{number:02}");
            let shared = (number % 10 == 0).then(|| "plugin.shared".to_owned());
            (name.clone(), [format!("plugin.{name}")].into_iter().chain(shared).collect())
        })
        .collect();
    let publish = plugins.iter().map(async |(name, node_types)| {
        let node_types: Vec<&str> = node_types.iter().map(String::as_str).collect();
        let plugin = Plugin::new(&node_types);
        service.publish(plugin.manifest(name, "1.0.0", &node_types)).await
    });
    let replies = join_all(publish).await;
    let snapshot = house.storage.catalogue().snapshot().await.unwrap();
    let owner = snapshot.owner_of("plugin.shared").unwrap().plugin_id.clone();
    for ((name, node_types), reply) in plugins.iter().zip(replies) {
        match reply {
            Ok(reply) => {
                let plugin = &snapshot.plugins[name];
                assert_eq!((&reply["pluginId"], &reply["status"]), (&json!(name), &json!("committed")));
                assert_eq!(reply["publicationId"], json!(plugin.newest().unwrap().publication_id));
                assert_eq!(plugin.health.state, HealthState::Online, "{name}");
                assert!(node_types.len() == 1 || owner == *name);
            }
            Err(error) => {
                assert_eq!(error.code, ErrorCode::NodeTypeConflict);
                assert!(error.message.contains(&owner) && !snapshot.plugins.contains_key(name), "{error}");
            }
        }
    }
    assert_eq!(snapshot.plugins.len(), 37);
    service.stop().await;
}

#[tokio::test]
async fn the_same_publication_again_is_unchanged() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    let first = service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    let revision = house.storage.catalogue().revision().await.unwrap();
    let again = service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    assert_eq!(again["status"], "unchanged");
    assert_eq!((&again["publicationId"], &again["digest"]), (&first["publicationId"], &first["digest"]));
    assert_eq!(house.storage.catalogue().revision().await.unwrap(), revision);
}

#[tokio::test]
async fn moving_to_another_host_is_unchanged_and_moves_the_endpoint() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let (one, other) = (Plugin::new(&["plugin.echo"]), Plugin::new(&["plugin.echo"]));
    service.publish(one.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    let moved = service.publish(other.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    assert_eq!(moved["status"], "unchanged");
    let detail = service.ask("plugin.get", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(detail["plugin"]["endpoint"]["port"], other.address.port());
}

#[tokio::test]
async fn other_content_under_the_same_version_is_refused_and_the_stored_one_stays() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    let first = service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    let mut other = plugin.manifest("echo", "1.0.0", &["plugin.echo"]);
    other["label"] = json!("Other");
    let error = service.publish(other.clone()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::VersionImmutable);
    assert_eq!(error.details.unwrap()["digest"], first["digest"]);
    let detail = service.ask("plugin.get", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(detail["plugin"]["label"], "Plugin echo");
    other["publicationVersion"] = json!("1.0.1");
    assert_eq!(service.publish(other).await.unwrap()["status"], "committed");
}

#[tokio::test]
async fn other_content_replaces_the_version_where_that_is_allowed() {
    let house = House::new().await;
    let service = house.start(|settings| settings.allow_republish = true).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    let mut other = plugin.manifest("echo", "1.0.0", &["plugin.echo"]);
    other["label"] = json!("Other");
    assert_eq!(service.publish(other).await.unwrap()["status"], "committed");
    let detail = service.ask("plugin.get", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(
        (&detail["plugin"]["label"], &detail["manifest"]["label"]),
        (&json!("Other"), &json!("Other"))
    );
}

#[tokio::test]
async fn a_node_type_belongs_to_one_live_plugin() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    let error = service.publish(plugin.manifest("parrot", "1.0.0", &["plugin.echo"])).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NodeTypeConflict);
    assert!(error.message.contains("\"plugin.echo\"") && error.message.contains("\"echo\""), "{error}");
    service.ask("plugin.remove", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(
        service.publish(plugin.manifest("parrot", "1.0.0", &["plugin.echo"])).await.unwrap()["status"],
        "committed"
    );
}

#[tokio::test]
async fn an_invalid_manifest_is_refused_with_every_fault_and_nothing_is_pulled() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let error = service
        .publish(json!({"kind": "plugin_manifest_request_v2", "pluginId": 5, "executors": [{}], "pull": {"host": "h", "port": 0}}))
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidManifest);
    let details = error.details.unwrap();
    let paths: Vec<&str> =
        details["faults"].as_array().unwrap().iter().map(|fault| fault["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["$.pluginId", "$.publicationVersion", "$.executors[0].nodeType", "$.pull.port"]);
}

#[tokio::test]
async fn unknown_fields_are_kept_and_warned_about() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    let mut data = plugin.manifest("echo", "1.0.0", &["plugin.echo"]);
    data["future"] = json!({"x": 1});
    let reply = service.publish(data).await.unwrap();
    assert_eq!(reply["warnings"][0]["path"], "$.future");
    let detail = service.ask("plugin.get", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(detail["manifest"]["future"], json!({"x": 1}));
}

#[tokio::test]
async fn an_unreachable_plugin_is_named_with_address_and_remedy() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let address = refusing().await;
    let error = service.publish(manifest("echo", "1.0.0", &["plugin.echo"], address)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::BatchPullFailed);
    assert!(error.retryable);
    for part in [address.to_string().as_str(), "echo@1.0.0", "PLUGIN_PULL_ADVERTISED_HOST"] {
        assert!(error.message.contains(part), "{error}");
    }
    assert_eq!(code(service.ask("plugin.get", json!({"pluginId": "echo"})).await), ErrorCode::PluginUnknown);
}

#[tokio::test]
async fn a_plugin_that_accepts_and_stays_silent_fails_the_pull_in_its_time() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let error =
        service.publish(Plugin::half_alive().manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::BatchPullFailed);
    assert!(error.message.contains("did not answer within 500 ms"), "{error}");
}

#[tokio::test]
async fn the_batch_must_cover_the_declared_node_types() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    let error =
        service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo", "plugin.more"])).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidManifest);
    assert!(error.message.contains("\"plugin.more\"") && error.message.contains("not_covered"), "{error}");
    let odd = Plugin::answering(json!("nothing"));
    let error = service.publish(odd.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap_err();
    assert_eq!(error.details.unwrap()["faults"][0]["code"], "wrong_type");
}

#[tokio::test]
async fn a_batch_may_come_as_a_bare_array_in_pages_or_under_the_alias() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let bare = Plugin::answering(items(&["plugin.bare"]));
    service.publish(bare.manifest("bare", "1", &["plugin.bare"])).await.unwrap();
    let paged = Plugin::scripted(async |request| {
        let data = request.data.value().unwrap();
        Reply::Value(match data["cursor"].as_u64() {
            None => json!({"items": items(&["plugin.one"]), "nextCursor": 1}).into(),
            Some(_) => json!({"items": items(&["plugin.two"])}).into(),
        })
    });
    service.publish(paged.manifest("paged", "1", &["plugin.one", "plugin.two"])).await.unwrap();
    let alias = Plugin::scripted(async |request| match request.pattern.as_str() {
        "plugin.executor_batch_pull" => Reply::Value(items(&["plugin.alias"]).into()),
        _ => Reply::NoHandler,
    });
    service.publish(alias.manifest("alias", "1", &["plugin.alias"])).await.unwrap();
    assert_eq!(alias.asked("executor_batch_pull").len(), 1);
}

#[tokio::test]
async fn a_batch_without_end_is_refused() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let stuck = Plugin::answering(json!({"items": [], "nextCursor": "same"}));
    let error = service.publish(stuck.manifest("stuck", "1", &["plugin.x"])).await.unwrap_err();
    assert_eq!((error.code, stuck.asked("executor_batch_pull").len()), (ErrorCode::BatchPullFailed, 2));
    let endless = Plugin::scripted(async |request| {
        let next = request.data.value().unwrap()["cursor"].as_u64().unwrap_or(0) + 1;
        Reply::Value(json!({"items": [], "nextCursor": next}).into())
    });
    let error = service.publish(endless.manifest("endless", "1", &["plugin.x"])).await.unwrap_err();
    assert_eq!((error.code, endless.asked("executor_batch_pull").len()), (ErrorCode::BatchPullFailed, 64));
}

#[tokio::test]
async fn a_wrong_token_is_unauthorized_and_nothing_is_pulled() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    for token in [json!("wrong"), Value::Null] {
        let mut data = plugin.manifest("echo", "1.0.0", &["plugin.echo"]);
        data["token"] = token;
        match service.raw("manifest_request_v2", data).await {
            Err(CallError::Remote(remote)) => assert!(remote.is(ErrorCode::Unauthorized)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(plugin.asked("executor_batch_pull").len(), 0);
}

#[tokio::test]
async fn the_previous_token_is_accepted_counted_and_used_for_the_pull() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    let mut data = plugin.manifest("echo", "1.0.0", &["plugin.echo"]);
    data["token"] = json!(PREVIOUS);
    service.raw("manifest_request_v2", data).await.unwrap();
    assert_eq!(plugin.asked("executor_batch_pull")[0]["token"], PREVIOUS);
    assert_eq!(service.metric("conveyor_plugin_manager_previous_token_uses_total").await, 1);
}

#[tokio::test]
async fn publishers_of_one_version_at_once_have_one_winner() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    let results = join_all((0..8).map(|index| {
        let mut data = plugin.manifest("echo", "1.0.0", &["plugin.echo"]);
        data["label"] = json!(format!("Label {}", index % 2));
        service.publish(data)
    }))
    .await;
    let committed = results
        .iter()
        .filter(|result| result.as_ref().is_ok_and(|reply| reply["status"] == "committed"))
        .count();
    let unchanged = results
        .iter()
        .filter(|result| result.as_ref().is_ok_and(|reply| reply["status"] == "unchanged"))
        .count();
    let refused = results
        .iter()
        .filter(|result| result.as_ref().is_err_and(|error| error.code == ErrorCode::VersionImmutable))
        .count();
    assert_eq!((committed, unchanged, refused), (1, 3, 4));
}

#[tokio::test]
async fn replicas_that_publish_at_once_agree_on_one_winner() {
    let house = House::new().await;
    let (one, other) = (house.start(|_| ()).await, house.start(|_| ()).await);
    let plugin = Plugin::new(&["plugin.echo"]);
    let mut different = plugin.manifest("echo", "1.0.0", &["plugin.echo"]);
    different["label"] = json!("Other");
    let (first, second) = tokio::join!(
        one.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])),
        other.publish(different)
    );
    assert!(first.is_ok() != second.is_ok());
    let refused = first.and(second).unwrap_err();
    assert_eq!(refused.code, ErrorCode::VersionImmutable);
}

#[tokio::test]
async fn executors_may_listen_elsewhere_than_the_plugin() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let mut offered = items(&["plugin.here", "plugin.there"]);
    offered[1]["transport"] = json!({"type": "tcp", "params": {"host": "10.0.0.9", "port": 9400}});
    let plugin = Plugin::answering(json!({ "items": offered }));
    service.publish(plugin.manifest("echo", "1.0.0", &["plugin.here", "plugin.there"])).await.unwrap();
    let snapshot = house.storage.catalogue().snapshot().await.unwrap();
    let port = |node_type| snapshot.endpoint_of("echo", node_type).map(|endpoint| endpoint.port);
    assert_eq!((port("plugin.here"), port("plugin.there")), (Some(plugin.address.port()), Some(9400)));
}

#[tokio::test]
async fn static_assets_are_cached_once_and_belong_to_the_content() {
    let house = House::new().await;
    let files = Files::start().await;
    let service = house.start(|settings| settings.files.url.clone_from(&files.url)).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    let mut data = plugin.manifest("echo", "1.0.0", &["plugin.echo"]);
    data["staticAssets"] = json!([{"key": "ui.form.x", "url": format!("{}/bundle", files.url)}]);
    service.publish(data.clone()).await.unwrap();
    assert_eq!(service.publish(data.clone()).await.unwrap()["status"], "unchanged");
    assert_eq!(files.uploads(), ["export default 1"]);
    let asset = service.ask("plugin.asset", json!({"pluginId": "echo", "key": "ui.form.x"})).await.unwrap();
    assert_eq!((&asset["fileId"], &asset["size"]), (&json!("file-1"), &json!(16)));
    files.bundle("export default 2");
    assert_eq!(code(service.publish(data.clone()).await), ErrorCode::VersionImmutable);
    assert_eq!(files.uploads().len(), 1, "nothing is uploaded for a publication that is refused");
    data["publicationVersion"] = json!("1.0.1");
    service.publish(data.clone()).await.unwrap();
    assert_eq!(files.uploads().len(), 2);
    data["staticAssets"][0]["url"] = json!(format!("{}/nothing", files.url));
    data["publicationVersion"] = json!("1.0.2");
    assert_eq!(code(service.publish(data).await), ErrorCode::AssetFetchFailed);
}

#[tokio::test]
async fn a_plugin_that_hangs_up_is_published_all_the_same() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let (asked, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let script = (Arc::clone(&asked), Arc::clone(&gate));
    let plugin = Plugin::scripted(move |_| {
        let (asked, gate) = script.clone();
        async move {
            asked.notify_one();
            gate.notified().await;
            Reply::Value(items(&["plugin.echo"]).into())
        }
    });
    let mut data = plugin.manifest("echo", "1.0.0", &["plugin.echo"]);
    data["token"] = json!(TOKEN);
    {
        let publisher = client(service.tcp);
        let data = data.into();
        tokio::select! {
            reply = publisher.request("manifest_request_v2", &data, Duration::from_secs(10)) => panic!("{reply:?}"),
            () = asked.notified() => {}
        }
    }
    gate.notify_one();
    house
        .until(|snapshot| {
            snapshot.plugins.get("echo").is_some_and(|row| row.health.state == HealthState::Online)
        })
        .await;
}

#[tokio::test]
async fn five_replicas_that_start_together_keep_one_catalogue() {
    let house = House::new().await;
    let services = join_all((0..5).map(|_| house.start(|settings| settings.startup_reconcile = true))).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    let publications =
        services.iter().map(|service| service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])));
    let replies: Vec<Value> = join_all(publications).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(replies.iter().filter(|reply| reply["status"] == "committed").count(), 1);
    assert!(replies.iter().all(|reply| reply["publicationId"] == replies[0]["publicationId"]));
    for service in &services {
        let list = service.ask("plugin.list", json!({})).await.unwrap();
        assert_eq!(list["plugins"].as_array().unwrap().len(), 1);
    }
}
