//! Starts that are not refused, and what is said about them.

use crate::PATIENCE;
use contract::Json;
use serde_json::json;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use system_tests::{
    Servers, Solo, binary,
    deployment::{CONFIGURED, CONTROL_PLANE_KEY, SERVING},
    servers,
};
use testkit::{Process, Program};
use wire::{CallError, Client, ClientConfig};

/// The HTTP status with which a heartbeat of nobody is answered on this address.
async fn status_at(address: SocketAddr) -> u16 {
    let url = format!("http://{address}/internal/steps/heartbeat");
    let request =
        reqwest::Client::new().post(url).bearer_auth(CONTROL_PLANE_KEY).body("{}").timeout(PATIENCE);
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_allowlist_lets_both_families_in() {
    let solo = Solo::start(&binary("conveyor"), &[("CONVEYOR_BIND", "::")]).await;
    for address in [
        SocketAddr::from((Ipv4Addr::LOCALHOST, solo.http_port)),
        (Ipv6Addr::LOCALHOST, solo.http_port).into(),
    ] {
        assert_eq!(status_at(address).await, 400, "{address}: judged by its form, not by its address");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explicit_ipv4_allowlist_shuts_ipv6_out_and_the_log_says_so() {
    let extra = [("CONVEYOR_BIND", "::"), ("PLUGIN_CONTROL_PLANE_ALLOW_CIDRS", "0.0.0.0/0")];
    let solo = Solo::start(&binary("conveyor"), &extra).await;
    let said = solo.process.wait_for_line("allowlist_one_family", PATIENCE).await.unwrap();
    assert!(said.contains("IPv4"), "{said}");
    assert_eq!(status_at((Ipv4Addr::LOCALHOST, solo.http_port).into()).await, 400);
    assert_eq!(status_at((Ipv6Addr::LOCALHOST, solo.http_port).into()).await, 403);
    let refused = solo.process.wait_for_line("access_refused", PATIENCE).await.unwrap();
    assert!(refused.contains("::1") && refused.contains("forbidden_address"), "{refused}");
}

fn serve(
    service: &str,
    servers: &Servers,
    folder: &tempfile::TempDir,
    variables: &[(&str, &str)],
) -> Process {
    Program::new(binary("conveyor"))
        .args(["serve", service])
        .without_env(&CONFIGURED)
        .env("CONVEYOR_BIND", "127.0.0.1")
        .env("CONVEYOR_DATA_DIR", folder.path())
        .env("DATABASE_URL", &servers.database_url)
        .env("REDIS_URL", servers.redis.url())
        .envs(
            [
                "RUNTIME_CONTROL_PLANE_HTTP_PORT",
                "RUNTIME_CONTROL_PLANE_TCP_PORT",
                "PLUGIN_MANAGER_TCP_PORT",
                "PLUGIN_MANAGER_HEALTH_PORT",
            ]
            .map(|port| (port, "0")),
        )
        .envs(variables.iter().copied())
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_insecure_start_without_key_or_token_warns_every_time() {
    let Some(servers) = servers().await else { return };
    let folder = tempfile::tempdir().unwrap();
    for (service, variable) in [
        ("runtime-control-plane", "PLUGIN_CONTROL_PLANE_KEY"),
        ("plugin-manager", "PLUGIN_MANAGER_INGRESS_TOKEN"),
    ] {
        for _ in 0..2 {
            let process = serve(service, &servers, &folder, &[("CONVEYOR_INSECURE_DEV", "true")]);
            process.wait_for_line(SERVING, PATIENCE).await.unwrap();
            let said = process.wait_for_line("insecure_dev", PATIENCE).await.unwrap();
            assert!(said.contains("WARN") && said.contains(variable), "{said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_that_would_take_gzip_gets_a_page_that_parses() {
    let solo = Solo::start(&binary("conveyor"), &[]).await;
    for path in ["/metrics", "/metrics/self"] {
        let url = format!("http://127.0.0.1:{}{path}", solo.http_port);
        let request = reqwest::Client::new().get(url).header("accept-encoding", "gzip").timeout(PATIENCE);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        assert!(response.headers().get("content-encoding").is_none(), "{path} is what its headers say");
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        let page = response.text().await.unwrap();
        assert_eq!(
            kind.starts_with("application/openmetrics-text"),
            page.ends_with("# EOF\n"),
            "{path}: {kind}"
        );
        let samples = page.lines().filter(|line| !line.starts_with("# ")).inspect(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{path}: {line}"));
            assert!(name.starts_with("conveyor_") && value.parse::<f64>().is_ok(), "{path}: {line}");
        });
        assert!(samples.count() > 0, "{path} is not empty");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_replicas_that_start_together_on_an_empty_database_all_listen() {
    let Some(servers) = servers().await else { return };
    let folders: [_; 5] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let key = [("PLUGIN_CONTROL_PLANE_KEY", CONTROL_PLANE_KEY)];
    let replicas: Vec<_> =
        folders.iter().map(|folder| serve("runtime-control-plane", &servers, folder, &key)).collect();
    for replica in replicas {
        replica.wait_for_line(SERVING, PATIENCE).await.unwrap();
        assert!(replica.stop(PATIENCE).await.unwrap().success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_is_counted_and_the_log_names_the_address_without_being_flooded() {
    const STRANGERS: usize = 100;
    let solo = Solo::start(&binary("conveyor"), &[]).await;
    let http = reqwest::Client::new();
    let tcp = Client::new("127.0.0.1", solo.tcp_port, ClientConfig::default());
    for _ in 0..STRANGERS {
        let url = format!("http://127.0.0.1:{}/internal/steps/ack", solo.http_port);
        let request = http.post(url).bearer_auth("guessed").body("{}").timeout(PATIENCE);
        assert_eq!(request.send().await.unwrap().status(), 401);
        let body = Json::from(json!({"key": "guessed"}));
        let told = tcp.request("plugin.executor.step_ack", &body, PATIENCE).await;
        assert!(
            matches!(told, Err(CallError::Remote(error)) if error.code.as_deref() == Some("unauthorized"))
        );
    }
    let url = format!("http://127.0.0.1:{}/metrics/self", solo.http_port);
    let page = http.get(url).timeout(PATIENCE).send().await.unwrap().text().await.unwrap();
    for door in ["http", "tcp"] {
        let line = format!(
            r#"conveyor_control_plane_refusals_total{{door="{door}",reason="unauthorized"}} {STRANGERS}"#
        );
        assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
    }
    let said = solo.process.wait_for_line("access_refused", PATIENCE).await.unwrap();
    assert!(
        said.contains("127.0.0.1") && said.contains("unauthorized") && !said.contains("guessed"),
        "{said}"
    );
    let logged = solo.process.lines().iter().filter(|line| line.text.contains("access_refused")).count();
    assert!(logged < STRANGERS, "{logged} lines for {} refusals", 2 * STRANGERS);
}

#[tokio::test]
async fn an_address_that_is_not_allowed_is_refused_counted_and_logged_at_both_doors() {
    let refused_here = [("PLUGIN_CONTROL_PLANE_ALLOW_CIDRS", "203.0.113.0/24")];
    let solo = Solo::start(&binary("conveyor"), &refused_here).await;
    let url = format!("http://127.0.0.1:{}/internal/steps/ack", solo.http_port);
    let request = reqwest::Client::new().post(url).bearer_auth(CONTROL_PLANE_KEY).timeout(PATIENCE);
    assert_eq!(request.send().await.unwrap().status(), 403);
    let tcp = Client::new("127.0.0.1", solo.tcp_port, ClientConfig::default());
    let body = Json::from(json!({"key": CONTROL_PLANE_KEY}));
    assert!(tcp.request("plugin.executor.step_ack", &body, PATIENCE).await.is_err());
    for (event, reason) in
        [("access_refused", "forbidden_address"), ("connection_refused", "address_not_allowed")]
    {
        let said = solo.process.wait_for_line(reason, PATIENCE).await.unwrap();
        assert!(said.contains(event) && said.contains("127.0.0.1"), "{said}");
    }
}
