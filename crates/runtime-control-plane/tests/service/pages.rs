//! Health, readiness and metrics.

use crate::world::{KEY, Neighbour, PATIENCE, World, data, id, local};
use serde_json::json;
use std::collections::BTreeSet;
use wire::Reply;

async fn get(world: &World, path: &str) -> (u16, String, String) {
    let response = world.web.get(world.url(path)).header("accept-encoding", "gzip").send().await.unwrap();
    assert!(response.headers().get("content-encoding").is_none());
    let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
    (response.status().as_u16(), kind, response.text().await.unwrap())
}

/// Waits until the service's own metrics hold a line.
pub(crate) async fn until_metric(world: &World, line: &str) {
    let looking = async {
        while !get(world, "/metrics/self").await.2.lines().any(|found| found == line) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("{line} never came"));
}

/// Waits until the service has read the catalogue for the first time: what is published from then on it
/// learns with the first task that asks for it.
pub(crate) async fn until_ready(world: &World) {
    let looking = async {
        while get(world, "/ready").await.0 != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("the control plane is not ready");
}

#[tokio::test]
async fn metrics_of_the_engine_are_proxied_with_their_type_and_503_when_it_is_down() {
    let mut world = World::start().await;
    let (status, kind, page) = get(&world, "/metrics").await;
    assert_eq!((status, page.as_str()), (200, "engine_runs_total 5\n"));
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    world.stop_engine().await;
    let (status, _, page) = get(&world, "/metrics").await;
    assert_eq!(status, 503);
    assert!(page.contains("engine_unavailable"));
}

#[tokio::test]
async fn empty_page_of_the_engine_is_503_and_never_an_empty_200() {
    let engine = Neighbour::start(local(), |_| std::future::ready(Reply::Value(data(&json!("")))));
    let world = World::with(|settings| settings.engine = engine.endpoint()).await;
    let (status, _, page) = get(&world, "/metrics").await;
    assert_eq!(status, 503);
    assert!(page.contains("engine_unavailable"));
}

#[tokio::test]
async fn own_metrics_count_reports_refusals_and_uses_of_the_previous_key() {
    let world = World::with(|settings| settings.key_previous = Some("old".into())).await;
    world.post("/internal/steps/ack", &json!({"executionId": id()}).to_string()).await;
    let wrong = world.web.post(world.url("/internal/steps/ack")).bearer_auth("wrong").send().await.unwrap();
    assert_eq!(wrong.status().as_u16(), 401);
    let old = json!({"key": "old", "executionId": id()});
    world.tcp().request("step_ack", &crate::world::data(&old), PATIENCE).await.unwrap();
    let (status, kind, page) = get(&world, "/metrics/self").await;
    assert_eq!(status, 200);
    assert!(kind.starts_with("application/openmetrics-text"));
    for line in [
        r#"conveyor_control_plane_reports_total{door="http",kind="ack",outcome="applied"} 1"#,
        r#"conveyor_control_plane_reports_total{door="tcp",kind="ack",outcome="applied"} 1"#,
        r#"conveyor_control_plane_report_duration_seconds_count{door="tcp",kind="ack",outcome="applied"} 1"#,
        r#"conveyor_control_plane_refusals_total{door="http",reason="unauthorized"} 1"#,
        "conveyor_control_plane_previous_key_uses_total 1",
        r#"conveyor_control_plane_connections_refused_total{door="tcp",reason="malformed"} 0"#,
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
    }
    assert!(!page.contains(KEY));
}

#[tokio::test]
async fn health_says_only_alive_and_ready_needs_the_engine() {
    let mut world = World::with(|settings| settings.allow = "10.0.0.0/8".parse().unwrap()).await;
    // Readiness is asked for until the catalogue is loaded.
    let ready = async {
        while get(&world, "/ready").await.0 != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, ready).await.expect("never ready");
    assert_eq!(get(&world, "/health").await.2, r#"{"status":"ok"}"#);
    world.stop_engine().await;
    let unready = async {
        while get(&world, "/ready").await.0 != 503 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, unready).await.expect("still ready");
    assert_eq!(get(&world, "/health").await.0, 200);
}

#[tokio::test]
async fn unknown_routes_and_methods_answer_with_the_error_object() {
    let world = World::start().await;
    for path in ["/", "/internal/steps", "/internal/steps/result"] {
        let (status, _, body) = get(&world, path).await;
        // A known route without the key says nothing but that.
        assert!(matches!(status, 401 | 404), "{path}: {status}");
        assert!(body.contains("\"code\""), "{body}");
    }
}

#[tokio::test]
async fn every_metric_of_the_own_page_is_in_the_manual_and_the_manual_names_no_other() {
    let manual = include_str!("../../../../docs/metrics.md");
    let world = World::start().await;
    // Families without a sample are not on the page.
    world.post("/internal/steps/ack", &json!({"executionId": id()}).to_string()).await;
    world.post("/internal/steps/ack", "no report").await;
    world.queue.push(queue::Lane::Plugin, vec!["no task".to_owned()]).await.unwrap();
    until_metric(&world, r#"conveyor_control_plane_dispatches_total{outcome="unreadable",code=""} 1"#).await;
    let (_, _, page) = get(&world, "/metrics/self").await;
    let described: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .map(str::to_owned)
        .collect();
    let named: BTreeSet<_> = manual
        .lines()
        .filter_map(|line| line.strip_prefix("| `conveyor_control_plane_")?.split('`').next())
        .map(|name| format!("conveyor_control_plane_{name}"))
        .collect();
    assert_eq!(named, described);
}
