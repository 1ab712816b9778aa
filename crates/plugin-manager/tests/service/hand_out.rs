//! Hand-out (protocol section 3).

use crate::support::{House, Plugin, TOKEN, code};
use contract::ErrorCode;
use futures::{future::join_all, poll};
use serde_json::json;
use std::{pin::pin, time::Duration};
use wire::CallError;

const LOADS: &str = "conveyor_plugin_manager_hand_out_loads_total";

#[tokio::test]
async fn a_manifest_is_handed_out_by_node_type_and_by_plugin() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    let published = service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    for request in [
        json!({"nodeType": "plugin.echo"}),
        json!({"pluginId": "echo"}),
        json!({"pluginId": "echo", "publicationVersion": "1.0.0"}),
    ] {
        let answer = service.ask("manifest_request", request).await.unwrap();
        assert_eq!(
            (&answer["publicationId"], &answer["digest"]),
            (&published["publicationId"], &published["digest"])
        );
        assert_eq!(
            (&answer["manifest"]["pluginId"], &answer["items"][0]["nodeType"]),
            (&json!("echo"), &json!("plugin.echo"))
        );
        assert_eq!(answer["health"]["state"], "online");
    }
    let same = service
        .ask("manifest_request", json!({"pluginId": "echo", "ifNoneMatch": published["digest"]}))
        .await
        .unwrap();
    assert_eq!(same, json!({"notModified": true}));
}

#[tokio::test]
async fn an_exact_version_never_moves_to_another() {
    let house = House::new().await;
    let service = house.start(|settings| settings.executor_pull_timeout = Duration::from_millis(100)).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    for version in ["1.0.0", "2.0.0"] {
        service.publish(plugin.manifest("echo", version, &["plugin.echo"])).await.unwrap();
    }
    let version = async |request| {
        service
            .ask("manifest_request", request)
            .await
            .map(|answer| answer["manifest"]["publicationVersion"].clone())
    };
    assert_eq!(version(json!({"pluginId": "echo"})).await.unwrap(), "2.0.0");
    assert_eq!(
        version(json!({"nodeType": "plugin.echo", "publicationVersion": "1.0.0"})).await.unwrap(),
        "1.0.0"
    );
    assert_eq!(
        code(version(json!({"pluginId": "echo", "publicationVersion": "1.5.0"})).await),
        ErrorCode::ManifestTimeout
    );
    service.ask("plugin.remove", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(code(version(json!({"pluginId": "echo"})).await), ErrorCode::PluginRemoved);
    assert_eq!(version(json!({"pluginId": "echo", "publicationVersion": "1.0.0"})).await.unwrap(), "1.0.0");
}

#[tokio::test]
async fn a_plugin_that_is_not_there_is_waited_for() {
    let house = House::new().await;
    let service = house.start(|settings| settings.executor_pull_timeout = Duration::from_secs(15)).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    let (answer, published) = tokio::join!(
        service.ask("manifest_request", json!({"nodeType": "plugin.echo"})),
        service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])),
    );
    assert_eq!(answer.unwrap()["digest"], published.unwrap()["digest"]);
}

#[tokio::test]
async fn a_commit_of_another_replica_ends_the_wait() {
    let house = House::new().await;
    let patient =
        |settings: &mut plugin_manager::Settings| settings.executor_pull_timeout = Duration::from_secs(15);
    let (one, other) = (house.start(patient).await, house.start(patient).await);
    let plugin = Plugin::new(&["plugin.echo"]);
    let (answer, published) = tokio::join!(
        one.ask("manifest_request", json!({"pluginId": "echo"})),
        other.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])),
    );
    assert_eq!(answer.unwrap()["digest"], published.unwrap()["digest"]);
}

#[tokio::test]
async fn a_commit_that_nobody_gave_notice_of_is_found_by_polling() {
    let house = House::new().await;
    let service = house.start(|settings| settings.executor_pull_timeout = Duration::from_secs(15)).await;
    let unheard = house.start_unheard(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    let (answer, published) = tokio::join!(
        service.ask("manifest_request", json!({"pluginId": "echo"})),
        unheard.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])),
    );
    assert_eq!(answer.unwrap()["digest"], published.unwrap()["digest"]);
}

#[tokio::test]
async fn a_plugin_that_does_not_come_is_a_retryable_timeout() {
    let house = House::new().await;
    let service = house.start(|settings| settings.executor_pull_timeout = Duration::from_millis(50)).await;
    let error = service.ask("manifest_request", json!({"nodeType": "plugin.echo"})).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ManifestTimeout);
    assert!(
        error.retryable && error.message.contains("\"plugin.echo\"") && error.message.contains("50 ms"),
        "{error}"
    );
    assert_eq!(code(service.ask("manifest_request", json!({})).await), ErrorCode::InvalidRequest);
}

#[tokio::test]
async fn many_callers_for_one_plugin_cost_one_query() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    let answers =
        join_all((0..500).map(|_| service.ask("manifest_request", json!({"nodeType": "plugin.echo"})))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(service.metric(LOADS).await, 1);
}

#[tokio::test]
async fn waiting_callers_are_told_when_the_service_stops() {
    let house = House::new().await;
    let service = house.start(|settings| settings.executor_pull_timeout = Duration::from_secs(300)).await;
    service.ask("plugin.list", json!({})).await.unwrap();
    let client = service.client.clone();
    let request = json!({"token": TOKEN, "pluginId": "echo"}).into();
    let mut waiting = pin!(client.request("manifest_request", &request, Duration::from_secs(30)));
    assert!(poll!(&mut waiting).is_pending());
    // One connection is read in order: when this is answered, the waiting call was taken.
    service.ask("plugin.list", json!({})).await.unwrap();
    service.stop().await;
    match waiting.await {
        Err(CallError::Remote(error)) => assert!(error.is(ErrorCode::Unavailable) && error.retryable),
        other => panic!("{other:?}"),
    }
}
