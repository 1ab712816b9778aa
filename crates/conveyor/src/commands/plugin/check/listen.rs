//! The check as the plugin's plugin-manager and control plane: publication first, then its listener,
//! then what it reports.

use super::{
    Check, Expected, Tls,
    door::{Plugin, listed},
    findings::{self as rule, Findings},
    stage::{Heard, Stage},
    steps::Script,
    wanted,
};
use crate::failure::Failure;
use contract::{
    ErrorCode, Json, RpcError,
    manifest::{self, Manifest},
    pattern,
};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;
use wire::Reply;

/// Waits for a plugin and checks it.
pub(super) async fn check(
    args: &Check,
    (plugin_manager, control_plane): (u16, u16),
    expected: Expected,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let Tls { plugin_manager: manager_tls, control_plane: plane_tls, .. } = &expected.tls;
    let doors = [(plugin_manager, manager_tls.clone()), (control_plane, plane_tls.clone())];
    let mut stage = Stage::open(args.bind, doors).map_err(Failure::invalid)?;
    eprintln!(
        "listening; start the plugin now with PLUGIN_MANAGER_RPC_HOST={host} PLUGIN_MANAGER_RPC_PORT={} \
         CONTROL_PLANE_TCP_HOST={host} RUNTIME_CONTROL_PLANE_TCP_PORT={}",
        stage.plugin_manager.port(),
        stage.control_plane.port(),
        host = args.bind,
    );
    let Some(first) = publication(&mut stage, expected.wait).await else {
        return Err(Failure::invalid(format!(
            "no plugin published itself within {} s; give it these addresses, or wait longer with --wait",
            expected.wait.as_secs()
        )));
    };
    let Some(manifest) = check_manifest(&first.data, &expected, findings) else {
        first.answer(Reply::Error(RpcError::new(ErrorCode::InvalidManifest, "the manifest is not valid")));
        return Ok(());
    };
    first.answer(Reply::Error(RpcError::new(ErrorCode::Unavailable, "the check refuses the first try")));
    let again = publication(&mut stage, expected.wait).await;
    let outcome = match &again {
        Some(_) => Ok(()),
        None => Err(format!("it did not come again within {} s", expected.wait.as_secs())),
    };
    findings.note(rule::PUBLICATION_RETRY, outcome);
    let client = expected.client(&manifest.pull);
    let committed = committed(&manifest);
    let mut plugin = Plugin { client, token: expected.token.clone(), manifest: Some(manifest) };
    // As plugin-manager does: the batch is pulled while the plugin waits for its answer.
    let items = plugin.check_pull(findings).await;
    if let Some(again) = again {
        again.answer(Reply::Value(committed));
    }
    plugin.check_packets(findings).await;
    let quiet = Duration::from_secs(args.quiet);
    let mut script = Script::new(stage, &plugin, expected.key, expected.wait, quiet);
    script.check_unknown_node_type(findings).await;
    match wanted(args, &items) {
        Some(task) => {
            let item = items.iter().find(|item| item.node_type == task.node_type);
            script.check_steps(&task, item, findings).await;
        }
        None => Script::skip_steps(findings, "name a node with --node and its --input"),
    }
    script.finish(findings);
    Ok(())
}

/// The next publication; whatever else is heard meanwhile is told to come later.
async fn publication(stage: &mut Stage, limit: Duration) -> Option<Heard> {
    loop {
        let heard = stage.next(limit).await?;
        if [pattern::MANIFEST_REQUEST_V2, pattern::MANIFEST_REQUEST].contains(&heard.pattern) {
            return Some(heard);
        }
        heard.answer(Reply::Error(RpcError::new(ErrorCode::Unavailable, "not yet")));
    }
}

/// Checks what was published; the manifest when it can be used.
fn check_manifest(data: &Json, expected: &Expected, findings: &mut Findings) -> Option<Manifest> {
    let mut value = data.value().unwrap_or_default();
    let token = ["token", "ingressToken", "authToken"].iter().find_map(|key| value.get(*key)?.as_str());
    let nested = value.pointer("/auth/token").and_then(Value::as_str);
    let outcome = match token.or(nested) {
        None => Err("there is no token".to_owned()),
        Some(token) if token != expected.token.expose_secret() => {
            Err("it is another one than --token or PLUGIN_MANAGER_INGRESS_TOKEN of the check".to_owned())
        }
        Some(_) => Ok(()),
    };
    findings.note(rule::PUBLICATION_TOKEN, outcome);
    if let Some(object) = value.as_object_mut() {
        object.retain(|key, _| !["token", "ingressToken", "authToken", "auth"].contains(&key.as_str()));
    }
    match manifest::read_manifest(&value) {
        Ok((manifest, _)) => {
            findings.pass(rule::MANIFEST);
            Some(manifest)
        }
        Err(faults) => {
            findings.fail(rule::MANIFEST, listed(&faults));
            None
        }
    }
}

/// Plugin-manager's answer.
fn committed(manifest: &Manifest) -> Json {
    Json::from(json!({
        "ok": true, "status": "committed", "pluginId": manifest.plugin_id,
        "publicationVersion": manifest.publication_version, "publicationId": Uuid::now_v7().to_string(),
        "digest": "0".repeat(64), "warnings": [],
    }))
}
