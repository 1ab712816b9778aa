//! Plugins, palette, secrets and files.

use crate::world::{World, answer};
use contract::{Digest, Millis, pattern};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use storage::BlobRow;

fn plugin(digest: &str) -> Value {
    json!({
        "pluginId": "text-tools", "label": "Тексты", "description": "", "publicationVersion": "0.1.0",
        "publicationId": "01890000-0000-7000-8000-000000000000", "digest": digest.repeat(64), "publishedAt": 0,
        "nodeTypes": ["plugin.text-tools.count"], "endpoint": {"host": "127.0.0.1", "port": 1},
        "health": {"state": "online"}, "enabled": true, "quarantined": false, "removed": false,
    })
}

fn detail(digest: &str) -> Value {
    json!({
        "plugin": plugin(digest),
        "manifest": {"kind": "plugin_manifest_request_v2", "pluginId": "text-tools", "publicationVersion": "0.1.0",
            "pull": {"host": "127.0.0.1", "port": 1}},
        "items": [{"nodeType": "plugin.text-tools.count", "name": "Подсчёт слов",
            "inputs": [{"name": "text", "type": "textarea", "required": true}], "outputs": [{"name": "words", "type": "number"}]}],
    })
}

fn script(world: &World, digest: &str) {
    world.plugins.answer(pattern::PLUGIN_LIST.name, json!({"plugins": [plugin(digest)], "revision": 7}));
    world.plugins.answer(pattern::PLUGIN_GET.name, detail(digest));
    world.plugins.answer(pattern::PLUGIN_VERSIONS.name, json!({"versions": []}));
}

#[tokio::test]
async fn the_palette_holds_built_in_nodes_and_those_of_plugins() {
    let world = World::new().await;
    script(&world, "a");
    let palette = world.get("/palette").await.json();
    let nodes = palette["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), contract::builtin::ALL.len() + 1);
    let node = nodes.iter().find(|node| node["nodeType"] == "plugin.text-tools.count").unwrap();
    assert_eq!((&node["name"], &node["plugin"]["enabled"]), (&json!("Подсчёт слов"), &json!(true)));
    assert_eq!((&node["inputs"][0]["name"], &palette["revision"]), (&json!("text"), &json!(7)));
}

#[tokio::test]
async fn a_palette_is_drawn_once_per_state_of_the_catalogue() {
    let world = World::new().await;
    let state = |tag: &str, digest: &str| {
        script(&world, digest);
        let list = json!({"plugins": [plugin(digest)], "revision": 7, "tag": tag});
        world.plugins.answer(pattern::PLUGIN_LIST.name, list);
    };
    let asked = |etag: &str| {
        let (etag, request) = (etag.to_owned(), world.request(Method::GET, "/palette"));
        async move { answer(request.header("if-none-match", etag)).await }
    };
    state("7-on", "a");
    let first = world.get("/palette").await;
    let etag = first.headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(first.headers["cache-control"], "private, no-cache");

    // The catalogue is as it was: plugin-manager says so, and nobody draws anything.
    let same = json!({"plugins": [], "revision": 7, "tag": "7-on", "notModified": true});
    world.plugins.answer(pattern::PLUGIN_LIST.name, same);
    let again = world.get("/palette").await;
    assert_eq!((again.status, again.text), (StatusCode::OK, first.text));
    let known = asked(&format!("\"other\", W/{etag}")).await;
    assert_eq!((known.status, known.text.as_str()), (StatusCode::NOT_MODIFIED, ""));
    assert_eq!(known.headers["etag"], *etag);
    let lists = world.plugins.asked(pattern::PLUGIN_LIST.name);
    let told: Vec<_> = lists.iter().map(|list| list.value().unwrap()["ifNoneMatch"].clone()).collect();
    assert_eq!(told, [Value::Null, json!("7-on"), json!("7-on")]);
    assert_eq!(world.plugins.asked(pattern::PLUGIN_GET.name).len(), 1);

    state("8-on", "b");
    world.plugins.answer(pattern::PLUGIN_GET.name, {
        let mut detail = detail("b");
        detail["items"][0]["name"] = json!("Слова");
        detail
    });
    let other = asked(&etag).await;
    assert!(other.status == StatusCode::OK && other.text.contains("Слова") && other.headers["etag"] != *etag);
}

#[tokio::test]
async fn a_plugins_nodes_are_asked_for_once_per_publication() {
    let world = World::new().await;
    for digest in ["a", "a", "b"] {
        script(&world, digest);
        world.get("/palette").await;
    }
    assert_eq!(world.plugins.asked(pattern::PLUGIN_GET.name).len(), 2);
}

#[tokio::test]
async fn documents_are_checked_against_the_catalogue() {
    let world = World::new().await;
    script(&world, "a");
    let document = json!({
        "widgets": [{"id": "a", "source": {"nodeType": "plugin.text-tools.count"}}, {"id": "o", "source": {"nodeType": "system.output"}, "config": [{"name": "r"}]}],
        "edges": [{"source": "a", "sourceHandle": "wrods", "target": "o", "targetHandle": "r"}],
    });
    let answered = world.post("/flow", document.to_string()).await;
    assert_eq!(answered.refusal(), (400, "invalid_process".to_owned()));
    assert_eq!(answered.json()["error"]["details"]["faults"][0]["path"], "$.edges[0].sourceHandle");
}

#[tokio::test]
async fn plugins_are_listed_shown_and_changed_in_the_callers_workspace() {
    let world = World::new().await;
    script(&world, "a");
    let list = world.get("/plugins").await.json();
    assert_eq!(list["plugins"][0]["publishedAt"], "1970-01-01T00:00:00.000Z");
    assert_eq!(world.get("/plugins/text-tools").await.json()["plugin"]["pluginId"], "text-tools");
    let (enable, remove) = (pattern::PLUGIN_ENABLE.name, pattern::PLUGIN_REMOVE.name);
    world.plugins.answer(enable, json!({"changed": true, "revision": 8}));
    world.plugins.answer(remove, json!({"changed": true, "revision": 9}));
    let answered = world.post("/plugins/text-tools/enable?userId=anna", "").await;
    assert_eq!(answered.json(), json!({"changed": true, "revision": 8}));
    let asked = world.plugins.asked_once(enable);
    assert_eq!((&asked["workspaceId"], &asked["userId"]), (&json!("default"), &json!("anna")));
    answer(world.request(Method::DELETE, "/plugins/text-tools?force=true")).await;
    assert_eq!(world.plugins.asked_once(remove)["force"], true);
}

#[tokio::test]
async fn versions_are_published_listed_compared_pinned_and_yanked() {
    let world = World::new().await;
    let version = json!({"publicationVersion": "1.2.0", "publicationId": "01890000-0000-7000-8000-000000000000",
        "digest": "a".repeat(64), "publishedAt": 0, "yankedAt": 1, "signature": "signed", "signedBy": "release"});
    world.plugins.answer(pattern::PLUGIN_VERSIONS.name, json!({"versions": [version]}));
    let listed = world.get("/plugins/text-tools/versions").await.json();
    assert_eq!(listed["versions"][0]["yankedAt"], "1970-01-01T00:00:00.001Z");
    assert_eq!(listed["versions"][0]["signedBy"], "release");
    for (path, pattern, asked_version) in [
        ("pin?version=1.2.0", pattern::PLUGIN_PIN.name, json!("1.2.0")),
        ("unpin", pattern::PLUGIN_UNPIN.name, Value::Null),
        ("yank?version=1.2.0", pattern::PLUGIN_YANK.name, json!("1.2.0")),
        ("unyank?version=1.2.0", pattern::PLUGIN_UNYANK.name, json!("1.2.0")),
        ("quarantine", pattern::PLUGIN_QUARANTINE.name, Value::Null),
        ("release", pattern::PLUGIN_RELEASE.name, Value::Null),
    ] {
        world.plugins.answer(pattern, json!({"changed": true, "revision": 8}));
        let answered = world.post(&format!("/plugins/text-tools/{path}"), "").await;
        assert_eq!(answered.json(), json!({"changed": true, "revision": 8}), "{path}");
        let asked = world.plugins.asked_once(pattern);
        assert_eq!((&asked["pluginId"], &asked["workspaceId"]), (&json!("text-tools"), &json!("default")));
        assert_eq!(asked["publicationVersion"], asked_version, "{path}");
    }
    let limit = pattern::PLUGIN_LIMIT.name;
    world.plugins.answer(limit, json!({"changed": true, "revision": 9}));
    assert_eq!(world.post("/plugins/text-tools/limit?attempts=2", "").await.status, StatusCode::OK);
    assert_eq!(world.plugins.asked_once(limit)["maxAttempts"], 2);
    let unnamed = world.post("/plugins/text-tools/pin", "").await;
    assert_eq!(unnamed.refusal(), (400, "invalid_request".to_owned()));
    let diff = json!({"breaking": false, "changes": []});
    world.plugins.answer(pattern::PLUGIN_DIFF.name, diff.clone());
    assert_eq!(world.get("/plugins/text-tools/diff?from=1&to=2").await.json(), diff);
    let asked = world.plugins.asked_once(pattern::PLUGIN_DIFF.name);
    assert_eq!((&asked["from"], &asked["to"]), (&json!("1"), &json!("2")));
    let reply = json!({"ok": true, "status": "committed", "pluginId": "text-tools", "publicationVersion": "1.2.0",
        "publicationId": "01890000-0000-7000-8000-000000000000", "digest": "a".repeat(64), "warnings": []});
    world.plugins.answer(pattern::PLUGIN_PUBLISH.name, reply.clone());
    let body = json!({"pluginId": "text-tools", "from": {"host": "10.0.0.7", "port": 4100}});
    assert_eq!(world.post("/plugins", body.to_string()).await.json(), reply);
    let asked = world.plugins.asked_once(pattern::PLUGIN_PUBLISH.name);
    assert_eq!((&asked["pluginId"], &asked["from"]), (&body["pluginId"], &body["from"]));
}

#[tokio::test]
async fn health_and_the_verdicts_of_policy_are_shown() {
    let world = World::new().await;
    let health = json!({"plugins": [{"pluginId": "text-tools", "endpoint": {"host": "h", "port": 1},
        "health": {"state": "offline", "since": 0, "lastError": "refused", "failures": 3, "successes": 0},
        "history": [{"at": 0, "state": "offline", "reason": "refused"}]}], "revision": 7});
    world.plugins.answer(pattern::PLUGIN_HEALTH.name, health);
    let all = world.get("/plugin-health").await.json();
    assert_eq!((&all["revision"], all["plugins"].as_array().unwrap().len()), (&json!(7), 1));
    let one = world.get("/plugins/text-tools/health").await.json();
    assert_eq!(one, all["plugins"][0]);
    assert_eq!(one["history"][0]["at"], "1970-01-01T00:00:00.000Z");
    assert_eq!(world.get("/plugins/other/health").await.refusal(), (404, "plugin_unknown".to_owned()));
    let decision = json!({"allowed": true, "verdicts": [{"rule": "plugin_known", "passed": true}],
        "subject": "text-tools@1", "signature": "unsigned"});
    world.plugins.answer(pattern::PLUGIN_EXPLAIN.name, decision.clone());
    let path = "/explain?nodeType=plugin.text-tools.count&userId=anna";
    assert_eq!(world.get(path).await.json(), decision);
    let asked = world.plugins.asked_once(pattern::PLUGIN_EXPLAIN.name);
    assert_eq!((&asked["userId"], &asked["workspaceId"]), (&json!("anna"), &json!("default")));
}

#[tokio::test]
async fn an_asset_is_streamed_with_its_type_and_cannot_run_as_this_origin() {
    let world = World::new().await;
    let asset = json!({"key": "form", "fileId": "f/../9", "mediaType": "application/javascript", "size": 3, "digest": "a".repeat(64)});
    world.plugins.answer(pattern::PLUGIN_ASSET.name, asset);
    world.files.hold("f/../9", "text/plain", b"abc");
    let answered = world.get("/plugins/text-tools/assets/form").await;
    assert_eq!((answered.status, answered.text.as_str()), (StatusCode::OK, "abc"));
    assert_eq!(answered.headers["content-type"], "application/javascript");
    assert_eq!(answered.headers["x-content-type-options"], "nosniff");
    assert!(answered.headers["content-security-policy"].to_str().unwrap().contains("sandbox"));
}

#[tokio::test]
async fn an_asset_may_be_kept_for_ever_only_under_its_digest() {
    let world = World::new().await;
    let (digest, other) = ("a".repeat(64), "b".repeat(64));
    let asset = json!({"key": "form", "fileId": "f-9", "mediaType": "text/css", "size": 3, "digest": digest});
    world.plugins.answer(pattern::PLUGIN_ASSET.name, asset);
    world.files.hold("f-9", "text/plain", b"abc");
    for (query, caching) in [
        ("".to_owned(), "private, no-cache"),
        ("?version=1".to_owned(), "private, no-cache"),
        (format!("?digest={other}"), "private, no-cache"),
        (format!("?digest={digest}"), "private, max-age=31536000, immutable"),
    ] {
        let answered = world.get(&format!("/plugins/text-tools/assets/form{query}")).await;
        assert_eq!(answered.headers["cache-control"], caching, "{query}");
    }
}

#[tokio::test]
async fn a_secrets_value_goes_in_and_never_comes_back() {
    let world = World::new().await;
    let (put, list) = (pattern::SECRET_PUT.name, pattern::SECRET_LIST.name);
    world.secrets.answer(put, json!(null));
    world.secrets.answer(list, json!({"secrets": [{"name": "jira", "kind": "token", "updatedAt": 0}]}));
    let request = world.request(Method::PUT, "/secrets/jira").body(r#"{"value":"s3cret","kind":"token"}"#);
    assert_eq!(answer(request).await.status, StatusCode::NO_CONTENT);
    let asked = world.secrets.asked_once(put);
    assert_eq!(
        (&asked["workspaceId"], &asked["name"], &asked["value"]),
        (&json!("default"), &json!("jira"), &json!("s3cret"))
    );
    for path in ["/secrets", "/secrets/jira"] {
        let answered = world.get(path).await;
        assert!(answered.status.is_success() && !answered.text.contains("s3cret"), "{}", answered.text);
    }
    assert_eq!(world.get("/secrets/other").await.refusal(), (404, "not_found".to_owned()));
}

#[tokio::test]
async fn a_secret_that_is_too_long_or_has_no_value_is_refused_here() {
    let world = World::with(|settings| settings.payload_limit_bytes = 1024 * 1024).await;
    let put = |body: String| answer(world.request(Method::PUT, "/secrets/jira").body(body));
    let long = json!({"value": "x".repeat(contract::secret::MAX_SECRET_BYTES + 1)});
    assert_eq!(put(long.to_string()).await.refusal(), (413, "payload_too_large".to_owned()));
    assert_eq!(put("{}".into()).await.refusal(), (400, "invalid_request".to_owned()));
    assert_eq!(world.secrets.asked(pattern::SECRET_PUT.name), []);
}

#[tokio::test]
async fn a_file_goes_in_as_base64_and_comes_out_as_bytes_in_its_workspace_only() {
    let world = World::new().await;
    let id = world.process().await;
    let body = json!({"name": "письмо.txt", "mediaType": "text/plain", "data": "0L/RgNC40LLQtdGC"});
    let answered = world.post(&format!("/internal/diagram/{id}/files"), body.to_string()).await;
    assert_eq!((answered.status, &answered.json()["fileId"]), (StatusCode::CREATED, &json!("f-1")));
    let (query, media_type, bytes) = world.files.held("f-1");
    assert_eq!((query["name"].as_str(), query["workspaceId"].as_str()), ("письмо.txt", "default"));
    assert_eq!((media_type.as_str(), &bytes[..]), ("text/plain", "привет".as_bytes()));
    assert_eq!(world.get("/files/f-1").await.refusal(), (404, "not_found".to_owned()));
    for (workspace, status) in [("other", StatusCode::NOT_FOUND), ("default", StatusCode::OK)] {
        let row = BlobRow {
            file_id: "f-1".into(),
            workspace_id: workspace.into(),
            name: String::new(),
            media_type: "text/plain".into(),
            size: 12,
            digest: Digest([0; 32]),
            created_at: Millis(0),
        };
        world.storage.blobs().put(&row).await.unwrap();
        assert_eq!(world.get("/files/f-1").await.status, status, "{workspace}");
    }
    assert_eq!(world.get("/files/f-1").await.text, "привет");
}
