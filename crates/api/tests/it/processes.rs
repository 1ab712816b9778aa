//! Process documents.

use crate::world::{LIMIT_BYTES, World, answer};
use contract::{ErrorCode, RpcError, pattern};
use reqwest::{Method, StatusCode};
use serde_json::json;

#[tokio::test]
async fn a_document_comes_back_as_it_was_saved() {
    let world = World::new().await;
    let document = r#"{"settings":{"name":"Пример 🙂","description":"","triggers":[]},"widgets":[{"id":"w","label":"","source":{"nodeType":"system.trigger.input","label":""},"config":[{"name":"n","type":"number","defaultValue":12345678901234567890.10}],"zeta":1,"alpha":2}],"edges":[],"extra":{"kept":true}}"#;
    let created = world.post("/flow", document).await;
    assert_eq!(created.status, StatusCode::CREATED);
    let id = created.json()["id"].as_str().unwrap().to_owned();
    let read = world.get(&format!("/flow/{id}")).await;
    assert!(read.text.contains(&format!(r#""document":{document}"#)), "{}", read.text);
    assert_eq!(read.json()["name"], "Пример 🙂");
    assert_eq!(read.headers["etag"], "\"1\"");
}

#[tokio::test]
async fn every_fault_is_named_with_its_path_and_nothing_is_stored() {
    let world = World::new().await;
    let document = json!({"diagrams": [
        {"widgets": [], "edges": []},
        {"widgets": [{"id": "a"}, {"id": "a", "source": {"nodeType": "x"}}], "edges": [{"source": "nobody"}]},
    ]});
    let answered = world.post("/flow/import", document.to_string()).await;
    assert_eq!(answered.refusal(), (400, "invalid_process".to_owned()));
    let faults = answered.json()["error"]["details"]["faults"].clone();
    let paths: Vec<_> =
        faults.as_array().unwrap().iter().map(|fault| fault["path"].as_str().unwrap()).collect();
    for path in [
        "$.diagrams[1].widgets[0].source",
        "$.diagrams[1].widgets[1].id",
        "$.diagrams[1].edges[0].sourceHandle",
    ] {
        assert!(paths.contains(&path), "{path}: {paths:?}");
    }
    assert_eq!(world.get("/flow").await.json(), json!({"processes": []}));
}

#[tokio::test]
async fn an_import_makes_a_process_of_each_diagram_and_warns_of_what_is_missing() {
    let world = World::new().await;
    world.plugins.answer(pattern::PLUGIN_LIST.name, json!({"plugins": [], "revision": 0}));
    let plugin = json!({"widgets": [{"id": "p", "source": {"nodeType": "plugin.x.y"}}], "edges": []});
    let preset = json!({"metadata": {"name": "Набор"}, "diagrams": [plugin, {"settings": {"name": "Второй"}, "widgets": []}]});
    let answered = world.post("/flow/import", preset.to_string()).await;
    assert_eq!(answered.status, StatusCode::CREATED, "{}", answered.text);
    let names: Vec<_> =
        answered.json()["processes"].as_array().unwrap().iter().map(|p| p["name"].clone()).collect();
    assert_eq!(names, ["Набор", "Второй"]);
    assert_eq!(answered.json()["warnings"][0]["code"], "unknown_node_type");
    assert_eq!(answered.json()["warnings"][0]["path"], "$.diagrams[0].widgets[0].source.nodeType");
}

#[tokio::test]
async fn a_document_can_be_saved_while_the_catalogue_is_away() {
    let world = World::new().await;
    world.plugins.refuse(pattern::PLUGIN_LIST.name, RpcError::new(ErrorCode::Unavailable, "away"));
    let answered = world.post("/flow", r#"{"widgets":[],"edges":[]}"#).await;
    assert_eq!(answered.status, StatusCode::CREATED);
    assert_eq!(answered.json()["warnings"][0]["code"], "catalogue_unavailable");
}

#[tokio::test]
async fn a_change_makes_a_revision_and_does_not_overwrite_a_newer_one() {
    let world = World::new().await;
    let id = world.process().await;
    let put = |etag: Option<&'static str>| {
        let request = world.request(Method::PUT, &format!("/flow/{id}")).body(r#"{"widgets":[],"edges":[]}"#);
        answer(match etag {
            Some(etag) => request.header("if-match", etag),
            None => request,
        })
    };
    assert_eq!(put(None).await.json()["revision"], 2);
    assert_eq!(put(Some("\"1\"")).await.refusal(), (409, "conflict".to_owned()));
    assert_eq!(put(Some("\"2\"")).await.json()["revision"], 3);
    // A document without a name keeps the process's.
    assert_eq!(world.get(&format!("/flow/{id}")).await.json()["name"], "Проба");
}

#[tokio::test]
async fn a_deleted_process_is_gone() {
    let world = World::new().await;
    let id = world.process().await;
    let delete = || answer(world.request(Method::DELETE, &format!("/flow/{id}")));
    assert_eq!(delete().await.status, StatusCode::NO_CONTENT);
    assert_eq!(delete().await.refusal(), (404, "not_found".to_owned()));
    assert_eq!(world.get(&format!("/flow/{id}")).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_list_goes_page_by_page() {
    let world = World::new().await;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(world.process().await);
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = world.get(&format!("/flow?limit=2{cursor}")).await.json();
        seen.extend(
            page["processes"].as_array().unwrap().iter().map(|p| p["id"].as_str().unwrap().to_owned()),
        );
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    made.sort_unstable();
    assert_eq!(seen, made);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_with_the_limit() {
    let world = World::new().await;
    let announced = world.post("/flow", "x".repeat(LIMIT_BYTES + 1)).await;
    assert_eq!(announced.refusal(), (413, "payload_too_large".to_owned()));
    assert!(announced.json()["error"]["message"].as_str().unwrap().contains(&LIMIT_BYTES.to_string()));
    let pieces = (0..=LIMIT_BYTES / 1024).map(|_| Ok::<_, std::io::Error>("x".repeat(1024)));
    let body = reqwest::Body::wrap_stream(futures::stream::iter(pieces));
    let streamed = answer(world.request(Method::POST, "/flow").body(body)).await;
    assert_eq!(streamed.refusal(), (413, "payload_too_large".to_owned()));
}

#[tokio::test]
async fn what_is_no_json_is_refused_with_the_place() {
    let world = World::new().await;
    let answered = world.post("/flow", "{\"widgets\": [}").await;
    assert_eq!(answered.refusal(), (400, "invalid_request".to_owned()));
    assert!(answered.json()["error"]["message"].as_str().unwrap().contains("line 1"));
    assert_eq!(world.get("/flow/not-an-id").await.refusal(), (404, "not_found".to_owned()));
}
