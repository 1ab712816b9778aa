//! Every variable of the two doors' services with a value that is wrong: the start is refused, and the
//! refusal names variable, value and remedy (protocol section 9, failure matrix row 15).

use crate::{CONFIGURED, PATIENCE};
use serde_json::Value;
use std::{collections::BTreeSet, process::Output};
use system_tests::binary;
use tokio::process::Command;

/// What the services need to start, where nothing else is wrong.
const GOOD: [(&str, &str); 4] = [
    ("DATABASE_URL", "postgres://127.0.0.1:1/none"),
    ("REDIS_URL", "redis://127.0.0.1:1"),
    ("PLUGIN_CONTROL_PLANE_KEY", "a-key-that-nobody-may-see"),
    ("PLUGIN_MANAGER_INGRESS_TOKEN", "a-token-that-nobody-may-see"),
];

/// Runs the program to its end, with nothing of this machine's configuration.
async fn conveyor(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary("conveyor"));
    for (name, _) in
        std::env::vars().filter(|(name, _)| CONFIGURED.iter().any(|begin| name.starts_with(begin)))
    {
        command.env_remove(name);
    }
    command.args(arguments).envs(variables.iter().copied()).current_dir(folder.path()).kill_on_drop(true);
    tokio::time::timeout(PATIENCE, command.output()).await.expect("it ends by itself").unwrap()
}

/// Exit code and standard error of a service that is started so.
async fn refused(service: &str, variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let output = conveyor(&["serve", service], variables).await;
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// The variables that the program declares for a service: name and kind.
async fn declared(service: &str) -> Vec<(String, String)> {
    let output = conveyor(&["config", service, "--json"], &GOOD).await;
    assert!(output.status.success());
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let variables = shown["variables"].as_array().unwrap();
    variables.iter().map(|entry| (text(&entry["name"]), text(&entry["kind"]))).collect()
}

/// Values that are wrong for a kind of variable; none for those that take any text.
fn wrong_values(name: &str, kind: &str) -> &'static [&'static str] {
    match kind {
        "port" => &["http", "65536", "-1", "30 00"],
        "milliseconds" => &["5s", "-1", "1.5"],
        "flag" => &["perhaps", "yes"],
        "CIDR list" if name.ends_with("ALLOW_CIDRS") => {
            &["", " ", "10.0.0.0/33", "10.0.0.0/8,,::1", "localhost", "10.0.0"]
        }
        "CIDR list" => &["perhaps", "10.0.0.0/8,fd00::/129"],
        "URL" => &["file-service", "ftp://files:21", "http://"],
        "address" => &["localhost", "1.2.3"],
        "host:port" => &["secret-manager", ":3000", "secret-manager:port", "tcp://secret-manager:3000"],
        "disabled or enabled" | "choice" => &["maybe"],
        // Signing keys.
        "list" => &["release x"],
        "ratio" => &["2", "-0.1", "half"],
        "bytes" | "connections" | "tasks" | "count" | "number" => &["many", "-1", "1.5"],
        "secret" | "text" => &[],
        _ => panic!("{name}: what is wrong for a {kind}?"),
    }
}

/// Tries every wrong value of every variable, one start each.
async fn every_wrong_value_is_refused(service: &str) {
    let mut tried = BTreeSet::new();
    for (name, kind) in declared(service).await {
        for value in wrong_values(&name, &kind) {
            let mut variables = GOOD.to_vec();
            variables.push((&name, value));
            let (code, said) = refused(service, &variables).await;
            assert_eq!(code, Some(2), "{name}={value:?}: {said}");
            let shown = value.trim();
            let fault =
                said.lines().find(|line| line.trim_start().starts_with(&format!("{name}={shown:?}: ")));
            let remedy = fault.and_then(|line| line.split_once("\": ")).map(|(_, remedy)| remedy.trim());
            assert!(remedy.is_some_and(|remedy| remedy.len() > 10), "{name}={value:?}: {said}");
            assert!(!said.contains("nobody-may-see"), "{said}");
            tried.insert(name.clone());
        }
    }
    assert!(tried.len() >= 15, "{tried:?}");
}

#[tokio::test]
async fn every_wrong_variable_of_the_control_plane_refuses_the_start_with_name_value_and_remedy() {
    every_wrong_value_is_refused("runtime-control-plane").await;
}

#[tokio::test]
async fn every_wrong_variable_of_plugin_manager_refuses_the_start_with_name_value_and_remedy() {
    every_wrong_value_is_refused("plugin-manager").await;
}

#[tokio::test]
async fn a_typo_in_an_allowlist_refuses_the_start_and_names_the_entry() {
    for (service, list) in [
        ("runtime-control-plane", "PLUGIN_CONTROL_PLANE_ALLOW_CIDRS"),
        ("plugin-manager", "PLUGIN_MANAGER_ALLOW_CIDRS"),
    ] {
        let mut variables = GOOD.to_vec();
        variables.push((list, "10.0.0.0/8,192.168.O.0/16"));
        let (code, said) = refused(service, &variables).await;
        assert_eq!(code, Some(2));
        assert!(said.contains(list) && said.contains("`192.168.O.0/16`"), "{said}");
    }
}

#[tokio::test]
async fn an_allowlist_that_is_an_empty_file_refuses_the_start_too() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    for (service, list, from_file) in [
        (
            "runtime-control-plane",
            "PLUGIN_CONTROL_PLANE_ALLOW_CIDRS",
            "PLUGIN_CONTROL_PLANE_ALLOW_CIDRS_FILE",
        ),
        ("plugin-manager", "PLUGIN_MANAGER_ALLOW_CIDRS", "PLUGIN_MANAGER_ALLOW_CIDRS_FILE"),
    ] {
        let mut variables = GOOD.to_vec();
        variables.push((from_file, path));
        let (code, said) = refused(service, &variables).await;
        assert!(code == Some(2) && said.contains(list) && said.contains("set but empty"), "{said}");
    }
}

#[tokio::test]
async fn a_missing_key_or_token_refuses_the_start_and_names_its_variable() {
    for (service, missing) in [
        ("runtime-control-plane", "PLUGIN_CONTROL_PLANE_KEY"),
        ("plugin-manager", "PLUGIN_MANAGER_INGRESS_TOKEN"),
    ] {
        for given in [None, Some("")] {
            let mut variables: Vec<_> = GOOD.into_iter().filter(|(name, _)| *name != missing).collect();
            variables.extend(given.map(|empty| (missing, empty)));
            let (code, said) = refused(service, &variables).await;
            assert_eq!(code, Some(2), "{said}");
            assert!(said.contains(&format!("{missing}: is not set; set it to")), "{said}");
        }
    }
}

#[tokio::test]
async fn all_wrong_variables_are_named_in_one_refusal() {
    let mut variables = GOOD.to_vec();
    let wrong = [
        ("RUNTIME_CONTROL_PLANE_HTTP_PORT", "x"),
        ("PLUGIN_CONTROL_PLANE_TRUST_PROXY", "perhaps"),
        ("API_BASE_URL", "api"),
    ];
    variables.extend(wrong);
    let (code, said) = refused("runtime-control-plane", &variables).await;
    assert_eq!(code, Some(2));
    assert!(wrong.iter().all(|(name, _)| said.contains(name)), "{said}");
}
