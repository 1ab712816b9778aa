//! The fetcher against a plugin and a file-service that the test plays.

use super::*;
use axum::{
    Router,
    body::Bytes,
    extract::{Query, State},
    http::{HeaderMap, StatusCode},
    response::Redirect,
    routing::{delete, get, post},
};
use parking_lot::Mutex;
use run_files::RunFilesSettings;
use std::{collections::HashMap, sync::Arc, time::Duration};

/// What file-service was asked, in order.
#[derive(Debug, Default)]
struct Log(Mutex<Vec<String>>);

async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

async fn plugin() -> String {
    serve(
        Router::new()
            .route("/assets/a", get(async || "export default 1"))
            .route("/assets/b", get(async || "export default 2"))
            .route("/assets/page", get(async || axum::response::Html("<!doctype html>")))
            .route("/assets/big", get(async || "x".repeat(10_000)))
            .route("/assets/silent", get(async || std::future::pending::<()>().await))
            .route("/assets/elsewhere", get(async || Redirect::temporary("/assets/a"))),
    )
    .await
}

async fn upload(
    State(log): State<Arc<Log>>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let header = |name: &str| headers.get(name).map_or("none", |value| value.to_str().unwrap()).to_owned();
    let (name, token) = (&query["name"], header("authorization"));
    log.0.lock().push(format!("put {name} {} {} {token}", query["workspaceId"], header("content-type")));
    if name.ends_with("/refused") {
        return (StatusCode::INSUFFICIENT_STORAGE, String::new());
    }
    let digest = Digest(sha2::Sha256::digest(&body).into());
    let answer = serde_json::json!({"fileId": format!("file-of-{name}"), "size": body.len(), "digest": digest, "mediaType": ""});
    (StatusCode::CREATED, answer.to_string())
}

async fn file_service(log: &Arc<Log>) -> String {
    let deleted = async |State(log): State<Arc<Log>>, path: axum::extract::Path<String>| {
        log.0.lock().push(format!("delete {}", path.0));
        StatusCode::NO_CONTENT
    };
    serve(
        Router::new()
            .route("/internal/files", post(upload))
            .route("/internal/files/{*id}", delete(deleted))
            .with_state(Arc::clone(log)),
    )
    .await
}

fn assets(file_service: &str, limits: AssetLimits) -> Assets {
    let settings = RunFilesSettings { url: file_service.to_owned(), token: Some("files".into()), tls: None };
    Assets {
        plugins: builder(limits).dns_resolver(reach(limits)).build().unwrap(),
        files: FileService::new(&settings).unwrap(),
        limits,
    }
}

fn declared(plugin: &str, keys: &[&str]) -> Vec<StaticAsset> {
    let asset = |key: &&str| StaticAsset {
        key: (*key).to_owned(),
        url: format!("{plugin}/assets/{key}"),
        media_type: "application/javascript".to_owned(),
        extra: serde_json::Map::new(),
    };
    keys.iter().map(asset).collect()
}

fn refusal(result: Result<Vec<Fetched>, RpcError>) -> RpcError {
    let error = result.unwrap_err();
    assert_eq!(error.code, ErrorCode::AssetFetchFailed);
    error
}

#[tokio::test]
async fn assets_are_fetched_and_kept_with_their_digests() {
    let log = Arc::new(Log::default());
    let assets = assets(&file_service(&log).await, AssetLimits::default());
    let fetched = assets.fetch(&declared(&plugin().await, &["a", "b"])).await.unwrap();
    let kept = assets.keep("echo", fetched, &[]).await.unwrap();
    let facts: Vec<_> =
        kept.assets.iter().map(|asset| (asset.key.as_str(), asset.file_id.as_str(), asset.size)).collect();
    assert_eq!(facts, [("a", "file-of-echo/a", 16), ("b", "file-of-echo/b", 16)]);
    assert_eq!(kept.assets[0].digest, Digest(sha2::Sha256::digest(b"export default 1").into()));
    let mut asked = log.0.lock().clone();
    asked.sort();
    assert_eq!(asked[0], "put echo/a default application/javascript Bearer files");
}

#[tokio::test]
async fn bytes_that_are_kept_already_are_not_uploaded_again() {
    let log = Arc::new(Log::default());
    let assets = assets(&file_service(&log).await, AssetLimits::default());
    let declared = declared(&plugin().await, &["a", "b"]);
    let known = assets.keep("echo", assets.fetch(&declared[..1]).await.unwrap(), &[]).await.unwrap();
    let kept = assets.keep("echo", assets.fetch(&declared).await.unwrap(), &known.assets).await.unwrap();
    assert_eq!(kept.assets[0], known.assets[0]);
    assert_eq!(kept.new_files, ["file-of-echo/b"]);
}

#[tokio::test]
async fn an_asset_over_a_limit_is_refused_and_the_limit_named() {
    let plugin = plugin().await;
    let limits = |change: fn(&mut AssetLimits)| {
        let mut limits = AssetLimits::default();
        change(&mut limits);
        assets("http://127.0.0.1:1", limits)
    };
    let big = limits(|limits| limits.max_bytes = 9_999).fetch(&declared(&plugin, &["big"])).await;
    let together = limits(|limits| limits.max_total_bytes = 31).fetch(&declared(&plugin, &["a", "b"])).await;
    let many = limits(|limits| limits.max_count = 1).fetch(&declared(&plugin, &["a", "b"])).await;
    for (result, limit) in [(big, "9999"), (together, "31"), (many, "1")] {
        let error = refusal(result);
        assert!(error.message.contains(&format!("limit of {limit} ")) && !error.retryable, "{error}");
    }
    let exactly = limits(|limits| (limits.max_bytes, limits.max_total_bytes) = (10_000, 10_000));
    assert_eq!(exactly.fetch(&declared(&plugin, &["big"])).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_silent_plugin_costs_the_time_limit_and_no_more() {
    let limits = AssetLimits { timeout: Duration::from_millis(50), ..AssetLimits::default() };
    let error =
        refusal(assets("http://127.0.0.1:1", limits).fetch(&declared(&plugin().await, &["silent"])).await);
    assert!(error.message.contains("it took too long") && error.retryable, "{error}");
}

#[tokio::test]
async fn redirects_and_missing_assets_are_refused_and_named() {
    let plugin = plugin().await;
    let assets = assets("http://127.0.0.1:1", AssetLimits::default());
    let elsewhere = refusal(assets.fetch(&declared(&plugin, &["elsewhere"])).await);
    assert!(elsewhere.message.contains("307"), "{elsewhere}");
    let missing = refusal(assets.fetch(&declared(&plugin, &["missing"])).await);
    assert!(missing.message.contains("\"missing\"") && missing.message.contains("404"), "{missing}");
}

#[tokio::test]
async fn a_page_in_place_of_a_bundle_is_refused_and_a_declared_page_is_taken() {
    let assets = assets("http://127.0.0.1:1", AssetLimits::default());
    let mut declared = declared(&plugin().await, &["page"]);
    let error = refusal(assets.fetch(&declared).await);
    assert!(
        error.message.contains("text/html") && error.message.contains("application/javascript"),
        "{error}"
    );
    declared[0].media_type = "text/html; charset=utf-8".to_owned();
    assert_eq!(assets.fetch(&declared).await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_was_uploaded_is_given_back_when_a_later_upload_fails() {
    let log = Arc::new(Log::default());
    let assets = assets(&file_service(&log).await, AssetLimits::default());
    let mut fetched = assets.fetch(&declared(&plugin().await, &["a", "b"])).await.unwrap();
    fetched[1].key = "refused".to_owned();
    let error = assets.keep("echo", fetched, &[]).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable);
    assert!(error.message.contains("PLUGIN_MANAGER_FILE_SERVICE_URL"), "{error}");
    assert_eq!(log.0.lock().last().unwrap(), "delete file-of-echo/a");
}

#[tokio::test]
async fn private_addresses_are_refused_where_the_operator_says_so() {
    let limits = AssetLimits { allow_private: false, ..AssetLimits::default() };
    let plugin = plugin().await;
    let port = plugin.rsplit(':').next().unwrap();
    for place in [plugin.clone(), format!("http://localhost:{port}")] {
        let error = refusal(assets("http://127.0.0.1:1", limits).fetch(&declared(&place, &["a"])).await);
        assert!(error.message.contains("PLUGIN_MANAGER_ASSET_ALLOW_PRIVATE"), "{error}");
        assert!(!error.message.contains("export default"), "{error}");
    }
}
