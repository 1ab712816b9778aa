//! Who is let in, and what is said to those who are not.

use crate::world::{TOKEN, World, answer, nowhere};
use contract::{Millis, pattern};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use storage::users::NewToken;

/// Every described operation: method and path.
fn operations() -> Vec<(Method, String)> {
    let description = serde_json::to_value(api::openapi()).unwrap();
    let paths = description["paths"].as_object().unwrap().clone();
    let methods = |(path, item): (String, Value)| {
        let names: Vec<String> = item.as_object().unwrap().keys().cloned().collect();
        names.into_iter().map(move |name| (name.to_uppercase().parse().unwrap(), path.clone()))
    };
    paths.into_iter().flat_map(methods).collect()
}

#[tokio::test]
async fn every_route_but_the_public_ones_needs_a_token() {
    let world = World::new().await;
    for (method, path) in operations() {
        let path = path.replace("{id}", "01890000-0000-7000-8000-000000000000").replace(['{', '}'], "");
        let answered = answer(world.anonymous(method.clone(), &path)).await;
        if ["/health", "/ready"].contains(&path.as_str()) {
            assert_eq!(answered.status, StatusCode::OK, "{path}");
        } else {
            assert_eq!(answered.refusal(), (401, "unauthorized".to_owned()), "{method} {path}");
            assert_eq!(answered.headers["www-authenticate"], "Bearer");
        }
    }
    for path in ["/", "/openapi.json"] {
        assert_eq!(answer(world.anonymous(Method::GET, path)).await.status, StatusCode::OK, "{path}");
    }
}

#[test]
fn the_description_holds_every_route_of_the_protocol() {
    let described: Vec<_> =
        operations().into_iter().map(|(method, path)| format!("{method} {path}")).collect();
    let run = "/flow/{id}/runs/{runId}";
    let wanted = [
        "POST /flow/{id}/webhook".to_owned(),
        "POST /flow/{id}/run".to_owned(),
        "GET /flow/{id}/runs".to_owned(),
        format!("GET {run}"),
        format!("GET {run}/result"),
        format!("GET {run}/history"),
        format!("GET {run}/events"),
        format!("POST {run}/cancel"),
        format!("POST {run}/retry"),
        format!("POST {run}/steps/{{nodePath}}/confirm"),
        "GET /runs".to_owned(),
        "GET /runs/{runId}".to_owned(),
        "GET /flow".to_owned(),
        "POST /flow".to_owned(),
        "GET /flow/{id}".to_owned(),
        "PUT /flow/{id}".to_owned(),
        "DELETE /flow/{id}".to_owned(),
        "POST /flow/import".to_owned(),
        "GET /plugins".to_owned(),
        "GET /plugins/{id}".to_owned(),
        "POST /plugins/{id}/enable".to_owned(),
        "POST /plugins/{id}/disable".to_owned(),
        "DELETE /plugins/{id}".to_owned(),
        "GET /plugins/{id}/assets/{key}".to_owned(),
        "GET /palette".to_owned(),
        "GET /secrets/{name}".to_owned(),
        "PUT /secrets/{name}".to_owned(),
        "DELETE /secrets/{name}".to_owned(),
        "POST /internal/diagram/{id}/files".to_owned(),
        "GET /files/{id}".to_owned(),
    ];
    for operation in wanted {
        assert!(described.contains(&operation), "{operation} is not in {described:?}");
    }
}

#[tokio::test]
async fn wrong_tokens_and_other_schemes_are_refused() {
    let world = World::new().await;
    for value in ["Bearer wrong", "Bearer ", &format!("Basic {TOKEN}"), TOKEN] {
        let request = world.anonymous(Method::GET, "/flow").header("authorization", value);
        assert_eq!(answer(request).await.status, StatusCode::UNAUTHORIZED, "{value}");
    }
    let request = world.anonymous(Method::GET, "/flow").header("authorization", format!("bearer  {TOKEN}"));
    assert_eq!(answer(request).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_stored_token_sees_only_its_workspace_until_it_is_revoked() {
    let world = World::new().await;
    let id = world.process().await;
    let hash = api::token_hash("theirs");
    let token = NewToken {
        hash,
        user_id: "anna".into(),
        workspace_id: "other".into(),
        label: String::new(),
        at: Millis(0),
    };
    world.storage.users().put_token(&token).await.unwrap();
    let get = |path: String| answer(world.anonymous(Method::GET, &path).bearer_auth("theirs"));
    assert_eq!(get("/flow".into()).await.json(), json!({"processes": []}));
    assert_eq!(get(format!("/flow/{id}")).await.refusal(), (404, "not_found".to_owned()));
    world.storage.users().revoke(&hash, Millis(1)).await.unwrap();
    assert_eq!(get("/flow".into()).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_neighbour_that_is_away_is_named_and_the_call_may_be_repeated() {
    let world = World::with(|settings| {
        settings.engine = nowhere();
        settings.plugin_manager = nowhere();
    })
    .await;
    let id = world.process().await;
    let answered = world.post(&format!("/flow/{id}/webhook"), "{}").await;
    assert_eq!(answered.refusal(), (503, "engine_unavailable".to_owned()));
    assert_eq!(answered.headers["retry-after"], "1");
    let answered = world.get("/plugins").await;
    assert_eq!(answered.refusal(), (503, "unavailable".to_owned()));
    assert!(answered.json()["error"]["message"].as_str().unwrap().contains("plugin-manager"));
}

#[tokio::test]
async fn a_neighbour_that_refuses_our_credential_does_not_look_like_the_callers_fault() {
    let world = World::with(|settings| settings.engine_token = None).await;
    world.engine.answer(pattern::RUNTIME_RUN_START.name, json!(null));
    let id = world.process().await;
    let answered = world.post(&format!("/flow/{id}/webhook"), "{}").await;
    assert_eq!(answered.refusal(), (503, "unavailable".to_owned()));
}

#[tokio::test]
async fn a_neighbour_of_another_version_is_no_missing_route() {
    let world = World::new().await;
    let answered = world.get("/secrets").await;
    assert_eq!(answered.refusal(), (503, "unavailable".to_owned()));
    assert!(answered.json()["error"]["message"].as_str().unwrap().contains("one version"));
}

#[tokio::test]
async fn unknown_routes_and_methods_are_errors_like_any_other() {
    let world = World::new().await;
    assert_eq!(world.get("/nothing").await.refusal(), (404, "unknown_pattern".to_owned()));
    assert_eq!(world.post("/palette", "").await.refusal(), (405, "invalid_request".to_owned()));
}
