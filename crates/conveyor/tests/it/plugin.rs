//! `conveyor plugin`: the catalogue from the command line.

use crate::command::{BINARY, CONFIGURED, Said, conveyor, conveyor_in, document};
use contract::{Json, pattern};
use serde_json::{Value, json};
use std::{path::Path, sync::Arc, time::Duration};
use testkit::{Process, Program};
use tokio_util::sync::{CancellationToken, DropGuard};
use wire::{Reply, Request, Server, ServerConfig};

/// No time is asserted: this only bounds a test that hangs.
const LIMIT: Duration = Duration::from_secs(60);
/// Where `up` listens without an offset.
const DEFAULT_PORT: u16 = 4016;

/// A `conveyor up`, and how the commands reach its plugin-manager.
struct Up {
    folder: tempfile::TempDir,
    port: u16,
    _process: Process,
}

impl Up {
    async fn start() -> Self {
        let (folder, port) = (tempfile::tempdir().unwrap(), testkit::free_port().unwrap());
        let free = [
            "API_HTTP_PORT",
            "RUNTIME_CONTROL_PLANE_HTTP_PORT",
            "RUNTIME_CONTROL_PLANE_TCP_PORT",
            "PLUGIN_MANAGER_HEALTH_PORT",
        ];
        let process = Program::new(BINARY)
            .without_env(&CONFIGURED)
            .envs(free.map(|name| (name, "0")))
            .env("PLUGIN_MANAGER_TCP_PORT", port.to_string())
            .args(["up", "--data"])
            .arg(folder.path())
            .spawn()
            .unwrap();
        process.wait_for_line("  API token ", LIMIT).await.unwrap();
        Self { folder, port, _process: process }
    }

    fn token(&self) -> String {
        let kept = std::fs::read_to_string(self.folder.path().join("credentials.json")).unwrap();
        serde_json::from_str::<Value>(&kept).unwrap()["ingressToken"].as_str().unwrap().to_owned()
    }

    /// Runs `conveyor plugin` as an operator of a split deployment does.
    fn plugin(&self, arguments: &[&str]) -> Said {
        let (port, token) = (self.port.to_string(), self.token());
        let variables = [
            ("PLUGIN_MANAGER_RPC_HOST", "127.0.0.1"),
            ("PLUGIN_MANAGER_RPC_PORT", &port),
            ("PLUGIN_MANAGER_INGRESS_TOKEN", &token),
        ];
        conveyor(&[&["plugin"], arguments].concat(), &variables)
    }

    /// Runs it, expecting success.
    fn done(&self, arguments: &[&str]) -> String {
        let said = self.plugin(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {}{}", said.out, said.err);
        said.out
    }
}

/// A plugin whose node `plugin.echo` has this input, and its manifest with the port 1.
fn echo(input: &str) -> (u16, DropGuard) {
    let items = json!({"items": [{
        "nodeType": "plugin.echo", "name": "Echo", "inputs": [{"name": input, "required": true}],
        "outputs": [{"name": "text", "type": "string"}],
    }]});
    let answer = move |request: Request| {
        let items = items.clone();
        async move {
            match pattern::find(&request.pattern) {
                Some(pattern::EXECUTOR_BATCH_PULL) => Reply::Value(Json::from(items)),
                _ => Reply::NoHandler,
            }
        }
    };
    let address = ([127, 0, 0, 1], 0).into();
    let server = Server::bind(ServerConfig::new("plugin", address), Arc::new(answer)).unwrap();
    let (port, stop) = (server.local_addr().port(), CancellationToken::new());
    tokio::spawn(server.run(stop.clone(), stop.clone()));
    (port, stop.drop_guard())
}

fn manifest(version: &str) -> Value {
    json!({
        "kind": "plugin_manifest_request_v2", "pluginId": "echo", "publicationVersion": version,
        "label": "Эхо", "executors": [{"nodeType": "plugin.echo"}], "pull": {"host": "127.0.0.1", "port": 1},
    })
}

fn json_of(text: &str) -> Value {
    assert_eq!(text.lines().count(), 1, "one line: {text}");
    serde_json::from_str(text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalogue_is_worked_with_from_the_command_line() {
    let up = Up::start().await;
    assert!(up.done(&["list"]).contains("no plugins"));
    let ((one, _one), (two, _two)) = (echo("text"), echo("words"));
    for (version, port) in [("1.0.0", one), ("2.0.0", two)] {
        let (_file, path) = document(&manifest(version));
        let from = format!("127.0.0.1:{port}");
        let said = up.done(&["publish", "--manifest", &path, "--from", &from]);
        assert!(said.contains(&format!("echo@{version} is published (digest ")), "{said}");
    }
    let list = up.done(&["list"]);
    let row = list.lines().nth(1).unwrap();
    for cell in ["echo", "2.0.0", "online", "enabled", "unsigned", "Эхо"] {
        assert!(row.contains(cell), "{list}");
    }
    assert_eq!(json_of(&up.done(&["list", "--json"]))["plugins"][0]["pluginId"], "echo");
    let shown = up.done(&["show", "echo"]);
    assert!(
        shown.contains("\nplugin.echo  Echo\n  in   words: string, required\n  out  text: string"),
        "{shown}"
    );
    assert!(up.done(&["show", "echo", "--version", "1.0.0"]).contains("in   text: string"));

    let diff = up.plugin(&["diff", "echo", "1.0.0", "2.0.0"]);
    assert_eq!(diff.code, Some(1), "a change breaks");
    assert!(diff.out.contains("breaks  plugin.echo input \"text\": was removed"), "{}", diff.out);
    assert_eq!(up.plugin(&["diff", "echo", "1.0.0", "1.0.0"]).code, Some(0));

    assert!(up.done(&["yank", "echo", "2.0.0"]).contains("echo@2.0.0 is yanked"));
    assert!(up.done(&["explain", "plugin.echo"]).contains("echo@1.0.0 (unsigned) may be dispatched"));
    assert!(up.done(&["yank", "echo", "2.0.0", "--undo"]).contains("is not yanked"));
    assert!(up.done(&["pin", "echo", "1.0.0", "--workspace", "sales"]).contains("echo@1.0.0 is pinned"));
    let pinned = up.done(&["list", "--workspace", "sales"]);
    assert!(pinned.contains("1.0.0 (pinned, newest 2.0.0)"), "{pinned}");
    assert!(up.done(&["unpin", "echo", "--workspace", "sales"]).contains("follows the newest"));

    up.done(&["disable", "echo", "--user", "ann"]);
    let refused = up.plugin(&["explain", "plugin.echo", "--user", "ann"]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.out.contains("plugin_disabled") && refused.out.contains("✗ enabled for user"),
        "{}",
        refused.out
    );
    up.done(&["enable", "echo", "--user", "ann"]);
    up.done(&["quarantine", "echo"]);
    assert_eq!(up.plugin(&["explain", "plugin.echo"]).code, Some(1));
    up.done(&["release", "echo"]);
    assert!(up.done(&["limit", "echo", "2"]).contains("gets 2 tasks at once at most"));
    assert!(up.done(&["show", "echo"]).contains("2 at most"));
    assert!(up.done(&["limit", "echo", "--off"]).contains("as many tasks at once as there are"));
    assert_eq!(up.plugin(&["limit", "echo"]).code, Some(2));
    let versions = up.done(&["versions", "echo"]);
    let order: Vec<_> = versions.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(order, ["VERSION", "2.0.0", "1.0.0"]);
    let health = up.done(&["health", "echo"]);
    assert!(health.contains("online"), "{health}");
    assert!(up.done(&["publish", "echo"]).contains("published already"));
    assert!(up.done(&["remove", "echo"]).contains("echo is removed"));
    assert!(up.done(&["list", "--all"]).contains("removed"));

    // The deployment of a data folder needs no variable.
    let (folder, offset) = (up.folder.path().to_str().unwrap(), (up.port - DEFAULT_PORT).to_string());
    let said = conveyor(&["plugin", "list", "--all", "--data", folder, "--port-offset", &offset], &[]);
    assert_eq!(said.code, Some(0), "{}", said.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_name_the_fault_and_the_remedy() {
    let up = Up::start().await;
    let unknown = up.plugin(&["show", "nope"]);
    assert_eq!(unknown.code, Some(1));
    assert!(
        unknown.err.contains("plugin_unknown") && unknown.err.contains("publishes itself"),
        "{}",
        unknown.err
    );
    let as_json = up.plugin(&["show", "nope", "--json"]);
    assert_eq!((as_json.code, &as_json.json()["error"]["code"]), (Some(1), &json!("plugin_unknown")));
    let (_file, path) = document(&json!({"kind": "v1"}));
    let invalid = up.plugin(&["publish", "--manifest", &path]);
    assert_eq!(invalid.code, Some(2));
    assert!(invalid.err.contains("$.pluginId") && invalid.err.contains("$.pull"), "{}", invalid.err);
    let (_file, path) = document(&manifest("1.0.0"));
    let unreachable = up.plugin(&["publish", "--manifest", &path, "--from", "127.0.0.1:1"]);
    assert_eq!(unreachable.code, Some(1));
    assert!(
        unreachable.err.contains("127.0.0.1:1") && unreachable.err.contains("check that the plugin listens")
    );

    let port = up.port.to_string();
    let wrong = [
        ("PLUGIN_MANAGER_RPC_HOST", "127.0.0.1"),
        ("PLUGIN_MANAGER_RPC_PORT", port.as_str()),
        ("PLUGIN_MANAGER_INGRESS_TOKEN", "wrong"),
    ];
    let said = conveyor(&["plugin", "list"], &wrong);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("set PLUGIN_MANAGER_INGRESS_TOKEN"), "{}", said.err);
    assert!(!said.err.contains(&up.token()));
}

#[test]
fn without_a_plugin_manager_the_way_to_one_is_named() {
    let nothing = conveyor(&["plugin", "list"], &[]);
    assert_eq!(nothing.code, Some(2));
    assert!(
        nothing.err.contains("--data") && nothing.err.contains("PLUGIN_MANAGER_RPC_HOST"),
        "{}",
        nothing.err
    );
    let no_token = conveyor(&["plugin", "list"], &[("PLUGIN_MANAGER_RPC_HOST", "127.0.0.1")]);
    assert_eq!(no_token.code, Some(2));
    assert!(no_token.err.contains("PLUGIN_MANAGER_INGRESS_TOKEN"), "{}", no_token.err);
    let away = [
        ("PLUGIN_MANAGER_RPC_HOST", "127.0.0.1"),
        ("PLUGIN_MANAGER_RPC_PORT", "1"),
        ("PLUGIN_MANAGER_INGRESS_TOKEN", "t"),
    ];
    let said = conveyor(&["plugin", "list"], &away);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("127.0.0.1:1") && said.err.contains("conveyor up"), "{}", said.err);
}

#[test]
fn credentials_are_only_read_and_never_made() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(conveyor_in(folder.path(), &["plugin", "list", "--data", "."], &[]).code, Some(2));
    assert_eq!(std::fs::read_dir(Path::new(folder.path())).unwrap().count(), 0);
}
