//! A TypeScript example plugin as a process, and the processes that use one of its nodes.

use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use system_tests::{
    Solo,
    deployment::{CONTROL_PLANE_KEY, INGRESS_TOKEN},
};
use testkit::{Process, Program};

/// Long enough for a busy machine; nothing is asserted by it.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The built examples; `None` when they are not built and nobody promised them (`make test` builds
/// them and sets `CI_SERVERS=1`).
pub(crate) fn examples() -> Option<PathBuf> {
    let folder = system_tests::root().join("examples/plugins");
    let is_built = folder.join("node_modules").exists() && folder.join("research/dist/main.js").exists();
    let promised = std::env::var("CI_SERVERS").is_ok_and(|value| value == "1");
    assert!(is_built || !promised, "npm ci and npm run build were not run in {}", folder.display());
    is_built.then_some(folder)
}

/// Starts the plugin of this folder for the platform; `extra` variables win.
pub(crate) fn spawn(solo: &Solo, folder: &Path, script: &str, extra: &[(&str, &str)]) -> Process {
    of_platform(Program::new("node").arg(script).current_dir(folder), solo, extra).spawn().unwrap()
}

/// A plugin's program for the platform; `extra` variables win.
pub(crate) fn of_platform(program: Program, solo: &Solo, extra: &[(&str, &str)]) -> Program {
    program
        .without_env(&["CONVEYOR_", "PLUGIN_", "RUNTIME_", "EXECUTOR_", "PORT", "DISABLE_"])
        .env("CONVEYOR_BIND", "127.0.0.1")
        .env("PLUGIN_TCP_PORT", "0")
        .env("PLUGIN_MANAGER_RPC_PORT", solo.plugin_manager.to_string())
        .env("PLUGIN_MANAGER_INGRESS_TOKEN", INGRESS_TOKEN)
        .env("PLUGIN_MANAGER_MANIFEST_ON_INIT_RETRY_BASE_MS", "50")
        .env("RUNTIME_CONTROL_PLANE_TCP_PORT", solo.tcp_port.to_string())
        .env("PLUGIN_CONTROL_PLANE_KEY", CONTROL_PLANE_KEY)
        .envs(extra.iter().copied())
}

/// Starts an example that publishes itself, and waits until it has.
pub(crate) async fn published(solo: &Solo, name: &str, extra: &[(&str, &str)]) -> Process {
    let folder = system_tests::root().join("examples/plugins").join(name);
    let plugin = spawn(solo, &folder, "dist/main.js", extra);
    plugin.wait_for_line("plugin_wire_outbound_manifest_ok", LIMIT).await.unwrap();
    plugin
}

/// A process of one plugin node: the trigger's fields go into the node's ports of the same name, and
/// the node's outputs are the result. `settings` are set on the node itself.
pub(crate) fn process(node_type: &str, ports: &[&str], settings: &Value, outputs: &[&str]) -> Value {
    let field = |name: &&str| json!({"name": name, "type": "keyvalue"});
    let port = |name: &&str| json!({"name": name, "type": "keyvalue", "isPort": true});
    let edge = |from: &str, to: &str, name: &&str| json!({"id": format!("{to}-{name}"), "source": from, "sourceHandle": name, "target": to, "targetHandle": name});
    let settings = settings.as_object().cloned().unwrap_or_default().into_iter();
    let setting = |(name, value): (String, Value)| {
        let kind = if value.get("$secret").is_some() { "ref" } else { "keyvalue" };
        json!({"name": name, "type": kind, "static": true, "value": value})
    };
    let config: Vec<Value> = ports.iter().map(port).chain(settings.map(setting)).collect();
    let into = ports.iter().map(|name| edge("w-start", "w-node", name));
    let edges: Vec<Value> = into.chain(outputs.iter().map(|name| edge("w-node", "w-result", name))).collect();
    json!({
        "settings": {"name": node_type},
        "widgets": [
            {"id": "w-start", "label": "Start", "source": {"nodeType": "system.trigger.input"},
             "config": ports.iter().map(field).collect::<Vec<_>>(), "outputs": ports},
            {"id": "w-node", "label": "Node", "source": {"nodeType": node_type},
             "config": config, "outputs": outputs},
            {"id": "w-result", "label": "Result", "source": {"nodeType": "system.output"},
             "config": outputs.iter().map(port).collect::<Vec<_>>(), "outputs": []},
        ],
        "edges": edges,
    })
}

/// The same with another widget setting, such as `execution`.
pub(crate) fn with_widget(mut process: Value, key: &str, value: Value) -> Value {
    process["widgets"][1][key] = value;
    process
}

/// A run that has ended.
pub(crate) struct Ended {
    pub(crate) detail: Value,
    pub(crate) result: Value,
    pub(crate) history: Vec<Value>,
}

/// Waits for the end of a run.
pub(crate) async fn ended(solo: &Solo, process: &str, run: &str) -> Ended {
    let detail = solo.platform.finished(process, run).await;
    let path = format!("/flow/{process}/runs/{run}/result");
    let (_, result) = solo.platform.try_call(reqwest::Method::GET, &path, None).await;
    let history = solo.platform.history(process, run).await;
    Ended { detail, result: result["publicInputs"].clone(), history }
}

/// Runs a process with this payload from its trigger to its end.
pub(crate) async fn run(solo: &Solo, document: &Value, payload: &Value) -> Ended {
    let process = solo.platform.import(document).await;
    let run = solo.platform.start(&process, payload).await;
    ended(solo, &process, &run).await
}

impl Ended {
    /// The result of a run that finished.
    pub(crate) fn finished(&self) -> &Value {
        assert_eq!(self.detail["run"]["status"], "finished", "{:#}", self.detail);
        &self.result
    }

    /// The plugin's step.
    pub(crate) fn step(&self) -> &Value {
        let steps = self.detail["steps"].as_array().unwrap();
        steps.iter().find(|step| step["nodeId"] == "w-node").unwrap()
    }

    /// Kinds of the events of its history.
    pub(crate) fn kinds(&self) -> Vec<&str> {
        self.history.iter().filter_map(|event| event["kind"].as_str()).collect()
    }
}
