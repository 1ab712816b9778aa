//! `conveyor plugin check` against plugins that keep the rules, and one that does not.

use crate::plugin::{LIMIT, examples};
use contract::{Json, pattern};
use serde_json::{Value, json};
use std::sync::Arc;
use system_tests::binary;
use testkit::{Process, Program, Stream};
use tokio_util::sync::CancellationToken;
use wire::{Reply, Request, Server, ServerConfig};

const TOKEN: &str = "check-token";
const KEY: &str = "check-key";
/// Less than the plugins' pause between heartbeats would be too short to be silent in.
const HEARTBEAT_MS: &str = "200";

fn check(arguments: &[&str]) -> Process {
    let program = Program::new(binary("conveyor")).args(["plugin", "check", "--json"]).args(arguments);
    let program = program.without_env(&["CONVEYOR_", "PLUGIN_"]);
    program.env("PLUGIN_MANAGER_INGRESS_TOKEN", TOKEN).env("PLUGIN_CONTROL_PLANE_KEY", KEY).spawn().unwrap()
}

/// Exit code and the line of JSON.
async fn said(check: &Process) -> (Option<i32>, Value) {
    let status = check.wait(LIMIT * 3).await.unwrap();
    let (out, err) = (check.text(Stream::Stdout), check.text(Stream::Stderr));
    let line = out.lines().last().unwrap_or_default();
    (status.code(), serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {out}{err}")))
}

/// Names of the rules with this verdict.
fn rules<'v>(said: &'v Value, verdict: &str) -> Vec<&'v str> {
    let all = said["rules"].as_array().unwrap().iter();
    all.filter(|rule| rule["verdict"] == verdict).filter_map(|rule| rule["rule"].as_str()).collect()
}

/// Lets this plugin publish itself to the check and report there.
async fn as_the_platform(plugin: Program, node: &str, inputs: &[&str]) -> (Option<i32>, Value) {
    let mut arguments = vec!["--listen", "0:0", "--quiet", "2", "--node", node];
    arguments.extend(inputs.iter().flat_map(|input| ["--input", *input]));
    let check = check(&arguments);
    let line = check.wait_for_line("start the plugin now", LIMIT).await.unwrap();
    let addresses = line.split_whitespace().filter_map(|word| word.split_once('='));
    let _plugin = plugin
        .without_env(&["CONVEYOR_", "PLUGIN_", "RUNTIME_", "EXECUTOR_", "DISABLE_"])
        .env("CONVEYOR_BIND", "127.0.0.1")
        .env("PLUGIN_TCP_PORT", "0")
        .env("PLUGIN_MANAGER_INGRESS_TOKEN", TOKEN)
        .env("PLUGIN_CONTROL_PLANE_KEY", KEY)
        .env("PLUGIN_MANAGER_MANIFEST_ON_INIT_RETRY_BASE_MS", "50")
        .env("PLUGIN_HEARTBEAT_MS", HEARTBEAT_MS)
        .envs(addresses)
        .spawn()
        .unwrap();
    said(&check).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rust_plugin_keeps_every_rule() {
    let plugin = Program::new(binary("text-tools"));
    let (code, said) = as_the_platform(plugin, "plugin.text-tools.slow", &["milliseconds=1500"]).await;
    assert_eq!(code, Some(0), "{said:#}");
    assert_eq!(rules(&said, "skipped"), ["missing_inputs"], "{said:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_typescript_plugin_keeps_every_rule() {
    let Some(folder) = examples() else { return };
    let plugin = Program::new("node").arg("dist/main.js").current_dir(folder.join("research"));
    let inputs = ["question=rust", r#"sources=["rust","b","c"]"#, "pauseMs=500"];
    let (code, said) = as_the_platform(plugin, "plugin.research.survey", &inputs).await;
    assert_eq!(code, Some(0), "{said:#}");
    assert_eq!(rules(&said, "skipped"), [""; 0], "{said:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_in_python_made_from_the_page_of_the_wire_keeps_every_rule() {
    let Some(_) = examples() else { return };
    let folder = system_tests::root().join("examples/plugins/python-minimal");
    let plugin = Program::new("python3").arg("plugin.py").current_dir(folder);
    let inputs = ["text=a b c", "pauseMs=500"];
    let (code, said) = as_the_platform(plugin, "plugin.python-minimal.count", &inputs).await;
    assert_eq!(code, Some(0), "{said:#}");
    assert_eq!(rules(&said, "skipped"), [""; 0], "{said:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_plugin_is_checked_where_it_listens() {
    let Some(folder) = examples() else { return };
    let port = testkit::free_port().unwrap().to_string();
    let plugin = Program::new("node")
        .arg("dist/main.js")
        .current_dir(folder.join("example"))
        .without_env(&["CONVEYOR_", "PLUGIN_", "RUNTIME_"])
        .env("CONVEYOR_BIND", "127.0.0.1")
        .env("PLUGIN_TCP_PORT", &port)
        .env("PLUGIN_MANAGER_INGRESS_TOKEN", TOKEN)
        .env("PLUGIN_CONTROL_PLANE_KEY", KEY)
        .env("PLUGIN_MANAGER_MANIFEST_ON_INIT_DISABLED", "true")
        .spawn()
        .unwrap();
    let port: u16 = port.parse().unwrap();
    let client = wire::Client::new("127.0.0.1", port, wire::ClientConfig::default());
    // Asked until it listens; its log may change its words.
    while let Err(wire::CallError::Connect { .. }) = client.request("nobody", &Json::null(), LIMIT).await {
        assert!(plugin.status().is_none(), "{}", plugin.text(Stream::Stderr));
    }
    let place = format!("127.0.0.1:{port}");
    let (code, kept) = said(&check(&[&place, "--node", "plugin.example.echo", "--input", "text=hi"])).await;
    assert_eq!((code, rules(&kept, "failed")), (Some(0), vec![]), "{kept:#}");
    let (code, wrong) = said(&check(&[&place, "--token", "another"])).await;
    assert_eq!((code, rules(&wrong, "failed")), (Some(1), vec!["batch_pull"]), "{wrong:#}");
}

/// Heeds no token, answers what nobody serves, takes what it cannot do and declares a broken param.
async fn careless(request: Request) -> Reply {
    match pattern::find(&request.pattern) {
        Some(pattern::EXECUTOR_BATCH_PULL) => Reply::Value(Json::from(json!({"items": [
            {"nodeType": "plugin.careless.a", "inputs": [{"name": "n", "type": "nothing"}], "outputs": []},
            {"nodeType": "plugin.careless.b", "inputs": null, "outputs": []},
        ]}))),
        _ => Reply::Value(Json::from(json!({"status": "ok"}))),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_broken_rule_is_named_with_what_is_wrong_and_the_remedy() {
    let server =
        Server::bind(ServerConfig::new("careless", "127.0.0.1:0".parse().unwrap()), Arc::new(careless))
            .unwrap();
    let place = server.local_addr().to_string();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.run(stop.clone(), stop.clone()));
    let (code, said) = said(&check(&[&place])).await;
    assert_eq!(code, Some(1), "{said:#}");
    let broken = rules(&said, "failed");
    for rule in ["batch_pull_token", "batch_pull_items", "unknown_pattern", "unknown_node_type"] {
        assert!(broken.contains(&rule), "{rule}: {said:#}");
    }
    let items =
        said["rules"].as_array().unwrap().iter().find(|rule| rule["rule"] == "batch_pull_items").unwrap();
    assert!(items["detail"].as_str().unwrap().contains("$.items[0].inputs[0].type"), "{items:#}");
    assert!(!items["remedy"].as_str().unwrap().is_empty());
    stop.cancel();
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_plugin_there_is_nothing_to_check() {
    let nobody = format!("127.0.0.1:{}", testkit::free_port().unwrap());
    for arguments in [vec![nobody.as_str()], vec!["--listen", "0:0", "--wait", "1"], vec![]] {
        let check = check(&arguments);
        assert_eq!(check.wait(LIMIT).await.unwrap().code(), Some(2), "{arguments:?}");
    }
}
