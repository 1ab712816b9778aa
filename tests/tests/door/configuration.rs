//! Every variable of every service with a value that is wrong: the start is refused, and the refusal
//! names variable, value and remedy (protocol section 9, failure matrix row 15).

use crate::PATIENCE;
use futures::{StreamExt, stream};
use serde_json::Value;
use std::{collections::BTreeSet, process::Output};
use system_tests::{
    binary,
    deployment::{CONFIGURED, SERVICES},
};
use tokio::process::Command;

/// What the services need to start, where nothing else is wrong.
const GOOD: [(&str, &str); 8] = [
    ("DATABASE_URL", "postgres://127.0.0.1:1/none"),
    ("REDIS_URL", "redis://127.0.0.1:1"),
    ("PLUGIN_CONTROL_PLANE_KEY", "a-key-that-nobody-may-see"),
    ("PLUGIN_MANAGER_INGRESS_TOKEN", "a-token-that-nobody-may-see"),
    ("CONVEYOR_API_TOKEN", "an-api-token-that-nobody-may-see"),
    ("SECRET_MANAGER_TOKEN", "a-secret-token-that-nobody-may-see"),
    ("FILE_SERVICE_TOKEN", "a-file-token-that-nobody-may-see"),
    ("SECRET_MANAGER_MASTER_KEY", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
];

/// Starts at once: each takes some hundredths of a second of a processor.
const AT_ONCE: usize = 4;

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

/// Values that are wrong for a variable; none for those that take any text. A new variable of a kind
/// that is not here, and a text or secret that nobody has thought about, fails.
fn wrong_values(name: &str, kind: &str) -> &'static [&'static str] {
    match (name, kind) {
        (_, "port") => &["http", "65536", "-1", "30 00"],
        (_, "milliseconds" | "hours") => &["5s", "-1", "1.5"],
        (_, "flag") => &["perhaps", "yes"],
        (_, "CIDR list") if name.ends_with("ALLOW_CIDRS") => {
            &["", " ", "10.0.0.0/33", "10.0.0.0/8,,::1", "localhost", "10.0.0"]
        }
        (_, "CIDR list") => &["perhaps", "10.0.0.0/8,fd00::/129"],
        (_, "URL") => &["file-service", "ftp://files:21", "http://", "http://a b"],
        (_, "address") => &["localhost", "1.2.3"],
        (_, "host") => &["http://host", "host:3000", "a host", "user@host"],
        (_, "host:port") => &["secret-manager", ":3000", "secret-manager:port", "tcp://secret-manager:3000"],
        (_, "choice") => &["maybe"],
        (_, "prefix") => &["a b", "ключи"],
        ("PLUGIN_MANAGER_SIGNING_KEYS", _) => &["release x"],
        (_, "ratio") => &["2", "-0.1", "half"],
        (
            _,
            "bytes" | "connections" | "tasks" | "count" | "number" | "steps" | "streams" | "MiB" | "runs",
        ) => &["many", "-1", "1.5"],
        ("DATABASE_URL", _) => &["mysql://u:unseen@h/n", "postgres://u:unseen@h:port/n", "conveyor.db"],
        ("REDIS_URL", _) => &["http://:unseen@h", "redis://:unseen@h:port", "redis"],
        ("SECRET_MANAGER_MASTER_KEY" | "SECRET_MANAGER_MASTER_KEY_PREVIOUS", _) => &["unseen", "dW5zZWVu"],
        _ if PEM.iter().any(|end| name.ends_with(end)) => &["unseen"],
        // Of use only with authorities, and then any name is one.
        _ if name.ends_with("_TLS_SERVER_NAME") => &["unseen"],
        (_, "secret") if is_credential(name) => &[],
        ("CONVEYOR_DATA_DIR" | "FILE_SERVICE_DIR" | "REDIS_USERNAME", _) => &[],
        _ => panic!("{name}: what is wrong for a {kind}? Add a row"),
    }
}

/// Ends of the names of certificates, keys and authorities.
const PEM: [&str; 6] =
    ["_TLS_CERT", "_TLS_KEY", "_TLS_CA", "_TLS_CLIENT_CA", "_TLS_CLIENT_CERT", "_TLS_CLIENT_KEY"];

/// Any text can be a key, token or password.
fn is_credential(name: &str) -> bool {
    ["_TOKEN", "_TOKEN_PREVIOUS", "_KEY", "_KEY_PREVIOUS", "_PASSWORD"].iter().any(|end| name.ends_with(end))
}

/// One start with one wrong value.
async fn is_refused(service: &str, name: &str, kind: &str, value: &str) {
    let mut variables: Vec<_> = GOOD.into_iter().filter(|(good, _)| *good != name).collect();
    variables.push((name, value));
    let (code, said) = refused(service, &variables).await;
    assert_eq!(code, Some(2), "{service}: {name}={value:?}: {said}");
    // A secret is named without its value.
    let begin = match kind {
        "secret" => format!("{name}: "),
        _ if name.ends_with("_TLS_SERVER_NAME") => format!("{name}: "),
        _ => format!("{name}={:?}: ", value.trim()),
    };
    let remedy = said.lines().find_map(|line| line.trim_start().strip_prefix(&begin)).map(str::trim);
    assert!(remedy.is_some_and(|remedy| remedy.len() > 10), "{service}: {name}={value:?}: {said}");
    assert!(!said.contains("nobody-may-see") && !said.contains("unseen"), "{said}");
}

/// Tries every wrong value of every variable, one start each. What the whole platform reads is tried with
/// the first service.
#[tokio::test(flavor = "multi_thread")]
async fn every_wrong_variable_of_every_service_refuses_the_start_with_name_value_and_remedy() {
    let mut rows = Vec::new();
    let mut seen = BTreeSet::new();
    for service in SERVICES {
        for (name, kind) in declared(service).await {
            let is_platforms =
                ["DATABASE_", "REDIS_", "CONVEYOR_DATA_"].iter().any(|begin| name.starts_with(begin));
            if seen.insert((if is_platforms { "" } else { service }, name.clone())) {
                let wrong = wrong_values(&name, &kind).iter();
                rows.extend(wrong.map(|value| (service, name.clone(), kind.clone(), *value)));
            }
        }
    }
    assert!(seen.len() > 120 && rows.len() > 300, "{} variables, {} rows", seen.len(), rows.len());
    stream::iter(rows)
        .for_each_concurrent(AT_ONCE, |(service, name, kind, value)| async move {
            is_refused(service, &name, &kind, value).await;
        })
        .await;
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
