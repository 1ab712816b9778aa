//! `conveyor up`: one process, its credentials, its end.

use crate::command::{BINARY, CONFIGURED};
use std::{path::Path, time::Duration};
use testkit::{Process, Program, Signal, Stream};

/// No time is asserted: these only bound a test that hangs.
const LIMIT: Duration = Duration::from_secs(60);

fn start(data: &Path) -> Process {
    let ports = [
        "API_HTTP_PORT",
        "RUNTIME_CONTROL_PLANE_HTTP_PORT",
        "RUNTIME_CONTROL_PLANE_TCP_PORT",
        "PLUGIN_MANAGER_TCP_PORT",
        "PLUGIN_MANAGER_HEALTH_PORT",
    ];
    Program::new(BINARY)
        .without_env(&CONFIGURED)
        .envs(ports.map(|name| (name, "0")))
        .args(["up", "--data"])
        .arg(data)
        .spawn()
        .unwrap()
}

/// What the announcement says behind a title.
async fn told(process: &Process, title: &str) -> String {
    let line = process.wait_for_line(&format!("  {title} "), LIMIT).await.unwrap();
    line.trim_start().strip_prefix(title).unwrap().trim().to_owned()
}

async fn status(url: &str, token: &str) -> u16 {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    client.get(url).bearer_auth(token).send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_fresh_folder_gets_credentials_that_stay() {
    let folder = tempfile::tempdir().unwrap();
    let process = start(folder.path());
    let (url, token) = (told(&process, "API").await, told(&process, "API token").await);
    for (path, presented, expected) in [
        ("/ready", "", 200),
        ("/flow", "wrong", 401),
        ("/flow", &token, 200),
        ("/plugins", &token, 200),
        ("/secrets", &token, 200),
    ] {
        assert_eq!(status(&format!("{url}{path}"), presented).await, expected, "{path}");
    }
    assert!(process.stop(LIMIT).await.unwrap().success(), "{:?}", process.lines());
    #[cfg(unix)]
    for name in ["credentials.json", "secret-master.key"] {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let again = start(folder.path());
    assert_eq!(told(&again, "API token").await, token);
}

#[tokio::test]
async fn secrets_of_the_process_reach_no_log() {
    let folder = tempfile::tempdir().unwrap();
    let process = start(folder.path());
    told(&process, "Data folder").await;
    process.signal(Signal::TERM);
    process.wait(LIMIT).await.unwrap();
    let log = process.text(Stream::Stderr);
    assert!(log.contains("api listens"), "{log}");
    let kept = std::fs::read_to_string(folder.path().join("credentials.json")).unwrap();
    let kept: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&kept).unwrap();
    for (name, secret) in kept {
        assert!(!log.contains(secret.as_str().unwrap()), "{name} is in the log");
    }
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_and_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let process = Program::new(BINARY)
        .without_env(&CONFIGURED)
        .env("PLUGIN_MANAGER_TCP_PORT", &port)
        .env("API_HTTP_PORT", "0")
        .args(["up", "--data"])
        .arg(folder.path())
        .spawn()
        .unwrap();
    assert_eq!(process.wait(LIMIT).await.unwrap().code(), Some(1));
    let error = process.text(Stream::Stderr);
    assert!(error.contains("plugin-manager cannot start") && error.contains(&port), "{error}");
}
