//! Health, readiness and metrics over HTTP.

use crate::support::{House, Plugin, TOKEN};
use serde_json::{Value, json};

#[tokio::test]
async fn health_says_that_the_service_lives() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    assert_eq!(service.get("/health", None).await, (200, r#"{"status":"ok"}"#.to_owned()));
}

#[tokio::test]
async fn ready_follows_the_database_and_shows_details_to_token_holders_only() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    assert_eq!(service.get("/ready", None).await, (200, r#"{"status":"ready"}"#.to_owned()));
    assert_eq!(service.get("/ready", Some("wrong")).await.1, r#"{"status":"ready"}"#);
    let (_, body) = service.get("/ready", Some(TOKEN)).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&body["details"]["database"], &body["details"]["plugins"]["echo"]),
        (&json!("ok"), &json!("online"))
    );
    house.storage.close().await;
    let (status, body) = service.get("/ready", None).await;
    assert_eq!(status, 503);
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&body["error"]["code"], &body["details"]), (&json!("unavailable"), &Value::Null));
}

#[tokio::test]
async fn metrics_count_calls_by_pattern_and_outcome() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    service.ask("plugin.list", json!({})).await.unwrap();
    service.raw("plugin.list", json!({})).await.unwrap_err();
    for (outcome, count) in [("ok", 1), ("unauthorized", 1)] {
        let name =
            format!("conveyor_plugin_manager_calls_total{{pattern=\"plugin.list\",outcome=\"{outcome}\"}}");
        assert_eq!(service.metric(&name).await, count, "{name}");
    }
    let (_, text) = service.get("/metrics", None).await;
    assert!(
        text.ends_with("# EOF\n") && text.contains("conveyor_plugin_manager_plugins{state=\"online\"} 0"),
        "{text}"
    );
    assert_eq!(service.get("/nothing", None).await.0, 404);
}

#[tokio::test]
async fn what_the_health_port_refuses_is_counted_by_reason() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let mut stranger = tokio::net::TcpStream::connect(service.health).await.unwrap();
    stranger.write_all(b"no HTTP at all\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // The answer's end: by then the refusal is counted.
    let _ = stranger.read_to_end(&mut answer).await;
    let (_, text) = service.get("/metrics", None).await;
    let refused: u64 = text
        .lines()
        .filter(|line| line.starts_with("conveyor_plugin_manager_connections_refused_total{door=\"health\""))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(refused, 1, "{text}");
}

#[tokio::test]
async fn every_metric_of_the_page_is_in_the_manual() {
    let manual = include_str!("../../../../docs/metrics.md");
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let (_, text) = service.get("/metrics", None).await;
    let shown: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(shown.len() >= 8, "{text}");
    for name in &shown {
        assert!(manual.contains(&format!("| `{name}` |")), "docs/metrics.md does not know {name}");
    }
}

#[tokio::test]
async fn an_address_outside_the_allowlist_is_turned_away() {
    let house = House::new().await;
    let service = house.start(|settings| settings.allow = "10.0.0.0/8".parse().unwrap()).await;
    assert!(service.raw("plugin.list", json!({})).await.is_err());
    assert_eq!(
        service.metric("conveyor_plugin_manager_connections_refused_total{door=\"tcp\",reason=\"address_not_allowed\"}").await,
        1
    );
    assert_eq!(service.tcp.ip(), service.health.ip());
}

#[tokio::test]
async fn health_shows_the_plugins_to_token_holders_only() {
    let house = House::new().await;
    let service = house.start(|_| ()).await;
    let plugin = Plugin::new(&["plugin.echo"]);
    service.publish(plugin.manifest("echo", "1.0.0", &["plugin.echo"])).await.unwrap();
    for stranger in [None, Some("wrong")] {
        assert_eq!(service.get("/health", stranger).await.1, "{\"status\":\"ok\"}");
    }
    let (_, text) = service.get("/health", Some(TOKEN)).await;
    let body: serde_json::Value = serde_json::from_str(&text).unwrap();
    let echo = &body["details"]["plugins"]["echo"];
    assert_eq!((&echo["state"], &echo["quarantined"]), (&json!("online"), &json!(false)));
    assert!(echo["since"].is_number());
}
