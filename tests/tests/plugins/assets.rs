//! Static assets, from the plugin through file-service to the browser.

use crate::{ask, catalogue, client, plugin};
use axum::{Router, extract::Path, http::header, routing::get};
use futures::future::join_all;
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use std::net::SocketAddr;
use system_tests::{Deployment, Platform, deployment::API_TOKEN, servers};
use tokio::{sync::watch, task::JoinHandle};

const FORM: &str = "ui.form.ask";
const WIDGET: &str = "ui.widget.survey";
const KEPT: &str = "private, max-age=31536000, immutable";
const NOT_KEPT: &str = "private, no-cache";

const PUBLISHERS: usize = 4;
const VERSIONS: usize = 5;
/// A service is killed after so many answers each time.
const KILLED_AFTER: [(&str, usize); 3] = [("plugin-manager", 3), ("file-service", 8), ("plugin-manager", 14)];

/// A plugin's HTTP server, which answers with the name that it is asked for.
async fn bundles() -> (String, JoinHandle<()>) {
    let bundle = async |Path(name): Path<String>| {
        ([(header::CONTENT_TYPE, "text/plain")], format!("export default '{name}'"))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/{name}", get(bundle));
    (url, tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }))
}

/// The manifest of a plugin with a form and the widget of its node.
fn manifest(plugin_id: &str, version: &str, address: SocketAddr, bundles: &str) -> Value {
    let mut manifest = crate::manifest(plugin_id, version, address);
    manifest["staticAssets"] = json!([
        {"key": FORM, "url": format!("{bundles}/form-{plugin_id}-{version}")},
        {"key": WIDGET, "url": format!("{bundles}/widget"), "mediaType": "text/css"},
    ]);
    manifest["ui"] = json!({"forms": [{"id": "ask", "label": "Ask"}]});
    manifest["executors"][0]["requiredTemplateKeys"] = json!([WIDGET]);
    manifest
}

/// The API as a browser uses it.
struct Browser {
    platform: Platform,
    http: reqwest::Client,
}

impl Browser {
    fn at(port: u16) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { platform: Platform::at(port), http }
    }

    async fn get(&self, path: &str, known: Option<&str>) -> Response {
        let mut request = self.http.get(self.platform.url(path)).bearer_auth(API_TOKEN);
        if let Some(tag) = known {
            request = request.header(header::IF_NONE_MATCH, tag);
        }
        request.send().await.unwrap()
    }
}

fn header_of(response: &Response, name: header::HeaderName) -> String {
    response.headers().get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_and_a_widget_are_served_by_the_api_when_the_plugin_is_gone() {
    let Some(servers) = servers().await else { return };
    let deployment = Deployment::start(&servers, &[]).await;
    let (address, plugin) = plugin();
    let (url, bundles) = bundles().await;
    let manager = client(deployment.ports.plugin_manager);
    let reply = ask(&manager, "manifest_request_v2", &manifest("survey", "1.0.0", address, &url)).await;
    assert_eq!((&reply["status"], &reply["warnings"]), (&json!("committed"), &json!([])), "{reply}");
    bundles.abort();
    drop(plugin);

    let browser = Browser::at(deployment.ports.api);
    let shown = browser.platform.call(reqwest::Method::GET, "/plugins/survey", None).await;
    assert_eq!(shown["manifest"]["ui"]["forms"][0]["id"], "ask");
    let assets = shown["assets"].as_array().unwrap();
    let expected = [
        (FORM, "application/javascript", "export default 'form-survey-1.0.0'"),
        (WIDGET, "text/css", "export default 'widget'"),
    ];
    assert_eq!(assets.len(), expected.len());
    for (asset, (key, media_type, text)) in assets.iter().zip(expected) {
        assert_eq!((&asset["key"], &asset["mediaType"]), (&json!(key), &json!(media_type)));
        let path = asset["path"].as_str().unwrap();
        let answer = browser.get(path, None).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(header_of(&answer, header::CONTENT_TYPE), media_type);
        assert_eq!(header_of(&answer, header::CACHE_CONTROL), KEPT);
        let tag = header_of(&answer, header::ETAG);
        assert!(tag.starts_with('"'), "a strong tag: {tag}");
        assert_eq!(answer.text().await.unwrap(), text);

        let again = browser.get(path, Some(&tag)).await;
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(
            (header_of(&again, header::CACHE_CONTROL).as_str(), header_of(&again, header::ETAG)),
            (KEPT, tag.clone())
        );
        assert!(again.bytes().await.unwrap().is_empty());
        let other = browser.get(path, Some("\"other\"")).await;
        assert_eq!(other.status(), StatusCode::OK);
        let newest = browser.get(&format!("/plugins/survey/assets/{key}"), Some(&tag)).await;
        assert_eq!(
            (newest.status(), header_of(&newest, header::CACHE_CONTROL).as_str()),
            (StatusCode::NOT_MODIFIED, NOT_KEPT)
        );
    }
    let missing = browser.get("/plugins/survey/assets/ui.form.other", None).await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publication_is_logged_under_the_platforms_names() {
    let Some(servers) = servers().await else { return };
    let deployment = Deployment::start(&servers, &[]).await;
    let (address, _plugin) = plugin();
    let (url, _bundles) = bundles().await;
    let manager = client(deployment.ports.plugin_manager);
    ask(&manager, "manifest_request_v2", &manifest("survey", "1.0.0", address, &url)).await;
    for event in ["plugin_publication_committed", "plugin_static_cached", "plugin_health_changed"] {
        deployment.prints("plugin-manager", event).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_versions_asset_stays_what_it_was_under_its_path() {
    let Some(servers) = servers().await else { return };
    let deployment = Deployment::start(&servers, &[]).await;
    let (address, _plugin) = plugin();
    let (url, _bundles) = bundles().await;
    let manager = client(deployment.ports.plugin_manager);
    let browser = Browser::at(deployment.ports.api);
    let publish = async |version: &str| {
        ask(&manager, "manifest_request_v2", &manifest("survey", version, address, &url)).await;
        let shown = browser.platform.call(reqwest::Method::GET, "/plugins/survey", None).await;
        shown["assets"][0]["path"].as_str().unwrap().to_owned()
    };
    let (older, newer) = (publish("1.0.0").await, publish("2.0.0").await);
    assert_ne!(older, newer);
    for (path, text) in [
        (older.as_str(), "export default 'form-survey-1.0.0'"),
        (newer.as_str(), "export default 'form-survey-2.0.0'"),
        ("/plugins/survey/assets/ui.form.ask", "export default 'form-survey-2.0.0'"),
        ("/plugins/survey/assets/ui.form.ask?version=1.0.0", "export default 'form-survey-1.0.0'"),
    ] {
        assert_eq!(browser.get(path, None).await.text().await.unwrap(), text, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn assets_of_what_was_answered_are_there_though_plugin_manager_and_file_service_were_killed() {
    let Some(servers) = servers().await else { return };
    let mut deployment = Deployment::start(&servers, &[]).await;
    let (address, _plugin) = plugin();
    let (url, _bundles) = bundles().await;
    let manager = client(deployment.ports.plugin_manager);
    let answered = watch::Sender::new(0_usize);
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|n| {
            let (manager, answered, url) = (manager.clone(), answered.clone(), url.clone());
            tokio::spawn(async move {
                for version in 1..=VERSIONS {
                    let manifest = manifest(&format!("p{n}"), &version.to_string(), address, &url);
                    ask(&manager, "manifest_request_v2", &manifest).await;
                    answered.send_modify(|count| *count += 1);
                }
            })
        })
        .collect();
    let mut progress = answered.subscribe();
    for (service, count) in KILLED_AFTER {
        progress.wait_for(|answered| *answered >= count).await.unwrap();
        deployment.kill(service).await;
        deployment.start_service(service).await;
    }
    for publisher in join_all(publishers).await {
        publisher.unwrap();
    }
    let browser = Browser::at(deployment.ports.api);
    for n in 0..PUBLISHERS {
        let stored = catalogue(&manager, "plugin.versions", json!({"pluginId": format!("p{n}")})).await;
        assert_eq!(stored["versions"].as_array().unwrap().len(), VERSIONS, "{stored}");
        for version in 1..=VERSIONS {
            let answer = browser.get(&format!("/plugins/p{n}/assets/{FORM}?version={version}"), None).await;
            let text = answer.error_for_status().unwrap().text().await.unwrap();
            assert_eq!(text, format!("export default 'form-p{n}-{version}'"));
        }
    }
}
