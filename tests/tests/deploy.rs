//! The files in `deploy/` against the real program: they name only metrics, variables and services that
//! exist.

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

use contract::Json;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use system_tests::{
    Solo, binary,
    deployment::{CONTROL_PLANE_KEY, SERVICES},
    root,
    stub::wide_process,
};
use testkit::{Program, Stream};
use wire::{Client, ClientConfig};

const LIMIT: Duration = Duration::from_secs(60);

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join("deploy").join(path)).unwrap()
}

/// All words that begin like a metric of ours.
fn metrics_in(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("conveyor_"))
        .map(str::to_owned)
        .collect()
}

/// Both pages of a control plane that has taken, refused and dispatched something.
async fn pages() -> String {
    let solo = Solo::start(&binary("conveyor"), &[]).await;
    let plugin = solo.plugin().await;
    let process = solo.platform.import(&wide_process(1)).await;
    let run = solo.platform.start(&process, &json!({"go": "go"})).await;
    let attempt = plugin.next().await;
    let client = Client::new("127.0.0.1", solo.tcp_port, ClientConfig::default());
    let report = |key: &str| {
        Json::from(json!({"key": key, "executionId": attempt.execution_id, "outputs": {"text": "done"}}))
    };
    let result = "plugin.executor.step_result";
    assert!(client.request(result, &report("wrong"), LIMIT).await.is_err());
    client.request(result, &report(CONTROL_PLANE_KEY), LIMIT).await.unwrap();
    let detail = solo.platform.finished(&process, &run).await;
    assert_eq!(detail["run"]["status"], "finished", "{detail:#}");
    let mut pages = String::new();
    for path in ["metrics", "metrics/self"] {
        let url = format!("http://127.0.0.1:{}/{path}", solo.http_port);
        pages += &reqwest::get(url).await.unwrap().text().await.unwrap();
    }
    pages
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_of_the_dashboard_and_the_alerts_is_on_the_real_pages() {
    let dashboard: Value = serde_json::from_str(&read("grafana/conveyor.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let expressions = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let expressions: String =
        expressions.map(|target| target["expr"].as_str().unwrap().to_owned() + "\n").collect();
    let alerts = read("prometheus/alerts.yml");
    let alerted: String = alerts.lines().filter(|line| !line.contains("action:")).collect();
    let named: BTreeSet<String> =
        [metrics_in(&expressions), metrics_in(&alerted)].into_iter().flatten().collect();
    assert!(named.len() > 20, "{named:?}");

    let pages = pages().await;
    let samples = pages.lines().filter(|line| !line.starts_with('#'));
    // A gauge of something that is not there now has a type and no sample.
    let gauges = pages.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" gauge"));
    let there: BTreeSet<&str> =
        samples.filter_map(|line| line.split(['{', ' ']).next()).chain(gauges).collect();
    let missing: Vec<_> = named.iter().filter(|name| !there.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?} are not on the pages:\n{pages}");
}

#[test]
fn every_alert_tells_what_is_wrong_and_what_to_do() {
    let alerts = read("prometheus/alerts.yml");
    let rules: Vec<&str> = alerts.split("- alert: ").skip(1).collect();
    assert!(rules.len() > 10);
    for rule in rules {
        let name = rule.lines().next().unwrap();
        for part in ["expr: ", "severity: ", "summary: ", "action: "] {
            assert_eq!(rule.matches(part).count(), 1, "{name} needs one `{part}`");
        }
    }
}

/// The services of the Compose file with their variables, the common ones first. Only as much YAML as
/// that file uses.
fn compose_services() -> BTreeMap<String, BTreeMap<String, String>> {
    let text = read("compose/compose.yaml");
    let (mut section, mut service) = ("", String::new());
    let mut common = BTreeMap::new();
    let mut services: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#') && !line.is_empty()) {
        let indent = line.len() - line.trim_start().len();
        let (name, value) = line.trim().split_once(':').unwrap_or((line.trim(), ""));
        let is_variable = name.len() > 3 && name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        match indent {
            0 => section = name,
            2 if section == "services" => {
                service = name.to_owned();
                services.entry(service.clone()).or_default();
            }
            2 if section == "x-environment" => drop(common.insert(name.to_owned(), value.trim().to_owned())),
            6 if section == "services" && is_variable => {
                services.get_mut(&service).unwrap().insert(name.to_owned(), value.trim().to_owned());
            }
            _ => {}
        }
    }
    services.retain(|name, _| !["postgres", "redis"].contains(&name.as_str()));
    for variables in services.values_mut() {
        variables.extend(common.clone());
    }
    services
}

#[tokio::test(flavor = "multi_thread")]
async fn every_service_of_the_compose_file_accepts_its_settings() {
    let services = compose_services();
    assert_eq!(services.keys().map(String::as_str).collect::<BTreeSet<_>>(), BTreeSet::from(SERVICES));
    let secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    for (service, variables) in services {
        let variables = variables.into_iter().map(|(name, value)| match value.contains("${") {
            true if name == "DATABASE_URL" => {
                (name, value.replace("${POSTGRES_PASSWORD:?set it in .env}", "x"))
            }
            true => (name, secret.to_owned()),
            false => (name, value),
        });
        let check = Program::new(binary("conveyor"))
            .args(["config", &service])
            .without_env(&["CONVEYOR_", "DATABASE_", "REDIS_", "PLUGIN_", "RUNTIME_", "SECRET", "FILE_"])
            .envs(variables)
            .spawn()
            .unwrap();
        let status = check.wait(LIMIT).await.unwrap();
        assert!(status.success(), "{service}: {}", check.text(Stream::Stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_variable_of_the_files_is_one_that_the_program_knows() {
    let docs = Program::new(binary("conveyor")).args(["docs", "configuration"]).spawn().unwrap();
    assert!(docs.wait(LIMIT).await.unwrap().success());
    let known = docs.text(Stream::Stdout);
    let mut named: BTreeSet<String> =
        compose_services().into_values().flat_map(BTreeMap::into_keys).collect();
    for unit in ["systemd/conveyor.service", "systemd/conveyor@.service"] {
        let text = read(unit);
        let set = text.lines().filter_map(|line| line.strip_prefix("Environment=")?.split_once('='));
        named.extend(set.map(|(name, _)| name.to_owned()));
    }
    for name in named {
        assert!(known.contains(&format!("`{name}`")), "{name} is no variable of the program");
    }
}
