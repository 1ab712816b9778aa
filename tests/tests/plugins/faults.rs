//! Killed in the middle of publications, started five at once, away while a plugin works (failure
//! matrix rows 26, 28 and 36).

use crate::{Manager, ask, catalogue, client, manifest, plugin};
use contract::pattern;
use futures::future::join_all;
use serde_json::{Value, json};
use system_tests::{
    Deployment, Platform, StubPlugin,
    deployment::INGRESS_TOKEN,
    servers,
    stub::{PLUGIN_ID, wide_process},
};
use tokio::sync::watch;
use wire::Client;

const PUBLISHERS: usize = 12;
const VERSIONS: usize = 6;
/// Plugin-manager is killed after so many answers each time.
const KILLED_AFTER: [usize; 4] = [5, 20, 35, 55];
const REPLICAS: usize = 5;

/// A publisher that counts what it was answered.
fn publisher(
    n: usize,
    clients: Vec<Client>,
    address: std::net::SocketAddr,
    answered: watch::Sender<usize>,
) -> tokio::task::JoinHandle<(String, Vec<Value>)> {
    tokio::spawn(async move {
        let plugin_id = format!("p{n}");
        let mut replies = Vec::new();
        for version in 1..=VERSIONS {
            let manifest = manifest(&plugin_id, &version.to_string(), address);
            let told = clients.iter().map(|client| ask(client, "manifest_request_v2", &manifest));
            for reply in join_all(told).await {
                replies.push(reply);
                answered.send_modify(|count| *count += 1);
            }
        }
        (plugin_id, replies)
    })
}

/// Whatever was answered is stored, once and whole.
async fn holds_what_was_answered(client: &Client, told: Vec<(String, Vec<Value>)>) {
    let list = catalogue(client, "plugin.list", json!({})).await;
    assert_eq!(list["plugins"].as_array().unwrap().len(), told.len());
    for (plugin_id, replies) in told {
        let stored = catalogue(client, "plugin.versions", json!({"pluginId": plugin_id})).await;
        let stored = stored["versions"].as_array().unwrap().clone();
        assert_eq!(stored.len(), VERSIONS, "one row for each version: {stored:?}");
        for reply in replies {
            let found = stored.iter().find(|row| row["publicationVersion"] == reply["publicationVersion"]);
            let row = found.unwrap_or_else(|| panic!("{plugin_id}: {reply} was answered and is lost"));
            assert_eq!(
                (&row["publicationId"], &row["digest"]),
                (&reply["publicationId"], &reply["digest"]),
                "what was answered is what is stored"
            );
            let exactly = json!({"pluginId": plugin_id, "publicationVersion": row["publicationVersion"]});
            let handed = catalogue(client, "manifest_request", exactly).await;
            assert_eq!(handed["items"].as_array().unwrap().len(), 2, "whole: {handed}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn publications_survive_a_plugin_manager_that_is_killed_in_the_middle_of_them() {
    let Some(servers) = servers().await else { return };
    let mut manager = Manager::start(&servers).await;
    let (address, _plugin) = plugin();
    let answered = watch::Sender::new(0_usize);
    let publishers: Vec<_> =
        (0..PUBLISHERS).map(|n| publisher(n, vec![manager.client()], address, answered.clone())).collect();
    let mut progress = answered.subscribe();
    for count in KILLED_AFTER {
        progress.wait_for(|answered| *answered >= count).await.unwrap();
        manager.kill_and_restart().await;
    }
    let told = join_all(publishers).await.into_iter().map(Result::unwrap).collect();
    holds_what_was_answered(&manager.client(), told).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_replicas_that_take_the_same_publications_one_may_die_at_any_point() {
    let Some(servers) = servers().await else { return };
    let (mut dying, staying) = (Manager::start(&servers).await, Manager::start(&servers).await);
    let (address, _plugin) = plugin();
    let answered = watch::Sender::new(0_usize);
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|n| publisher(n, vec![dying.client(), staying.client()], address, answered.clone()))
        .collect();
    let mut progress = answered.subscribe();
    for count in KILLED_AFTER {
        progress.wait_for(|answered| *answered >= 2 * count).await.unwrap();
        dying.kill_and_restart().await;
    }
    let told: Vec<_> = join_all(publishers).await.into_iter().map(Result::unwrap).collect();
    for client in [dying.client(), staying.client()] {
        holds_what_was_answered(&client, told.clone()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_replicas_that_start_at_once_are_all_ready_and_agree_on_every_version() {
    let Some(servers) = servers().await else { return };
    // On a fresh database: one of them migrates, the others find it done.
    let managers = join_all((0..REPLICAS).map(|_| Manager::start(&servers))).await;
    let (address, _plugin) = plugin();
    let clients: Vec<Client> = managers.iter().map(Manager::client).collect();
    let manifest = manifest("shared", "1.0.0", address);
    let replies = join_all(clients.iter().map(|client| ask(client, "manifest_request_v2", &manifest))).await;
    let committed = replies.iter().filter(|reply| reply["status"] == "committed").count();
    assert_eq!(committed, 1, "one winner: {replies:?}");
    for reply in &replies {
        assert_eq!(
            (&reply["publicationId"], &reply["digest"]),
            (&replies[0]["publicationId"], &replies[0]["digest"])
        );
    }
    for client in &clients {
        let stored = catalogue(client, "plugin.versions", json!({"pluginId": "shared"})).await;
        assert_eq!(stored["versions"].as_array().unwrap().len(), 1);
    }
    // A change through one is seen through all.
    catalogue(&clients[0], "plugin.quarantine", json!({"pluginId": "shared"})).await;
    for client in &clients {
        let list = catalogue(client, "plugin.list", json!({})).await;
        assert_eq!(list["plugins"][0]["quarantined"], true);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_a_killed_plugin_manager_nor_a_removal_touches_what_runs() {
    let Some(servers) = servers().await else { return };
    let mut deployment = Deployment::start(&servers, &[]).await;
    let plugin = StubPlugin::start(deployment.ports.plugin_manager, INGRESS_TOKEN).await;
    let platform = Platform::at(deployment.ports.api);
    let process = platform.import(&wide_process(1)).await;
    let run = platform.start(&process, &json!({"go": "1"})).await;
    let attempt = plugin.next().await;

    let (status, refused) =
        platform.try_call(reqwest::Method::DELETE, &format!("/plugins/{PLUGIN_ID}"), None).await;
    assert_eq!((status.as_u16(), &refused["error"]["code"]), (409, &json!("plugin_in_use")), "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("wide"), "{refused}");
    platform.call(reqwest::Method::DELETE, &format!("/plugins/{PLUGIN_ID}?force=true"), None).await;
    deployment.kill("plugin-manager").await;

    let report = json!({
        "key": system_tests::deployment::CONTROL_PLANE_KEY, "executionId": attempt.execution_id,
        "runId": attempt.run_id, "status": "ok", "outputs": {"text": "done"},
    });
    let reported = ask(&client(deployment.ports.control_plane_tcp), pattern::STEP_RESULT.name, &report).await;
    assert_eq!(reported["status"], "applied", "{reported}");
    let detail = platform.finished(&process, &run).await;
    assert_eq!(detail["run"]["status"], "finished", "{detail:#}");

    // A new dispatch fails once and names what was removed.
    deployment.start_service("plugin-manager").await;
    let run = platform.start(&process, &json!({"go": "1"})).await;
    let detail = platform.finished(&process, &run).await;
    assert_eq!(detail["run"]["status"], "failed", "{detail:#}");
    let text = detail.to_string();
    assert!(text.contains("plugin_removed") && text.contains("stub@1.0.0"), "{detail:#}");
}
