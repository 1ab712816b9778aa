//! Answers of plugin-manager, for people.

use super::table::{Table, moment, or_dash};
use crate::document::printable;
use contract::{
    catalogue::{
        PluginDetail, PluginDiff, PluginHealth, PluginHealthList, PluginList, PluginSummary, PluginVersions,
        PublicationReply, PublicationStatus,
    },
    param::Param,
    policy::Decision,
};

pub(super) fn list(answer: &PluginList) -> String {
    let mut table =
        Table::new(&["PLUGIN", "VERSION", "STATE", "USE", "SIGNATURE", "NODES", "ENDPOINT", "LABEL"]);
    for plugin in &answer.plugins {
        table.row([
            plugin.plugin_id.clone(),
            version(plugin),
            plugin.health.state.as_str().to_owned(),
            usage(plugin).to_owned(),
            plugin.signature.as_str().to_owned(),
            plugin.node_types.len().to_string(),
            plugin.endpoint.to_string(),
            plugin.label.clone(),
        ]);
    }
    match answer.plugins.is_empty() {
        true => {
            "no plugins; start one so that it publishes itself, or `conveyor plugin publish`\n".to_owned()
        }
        false => table.to_string(),
    }
}

/// The version in use: a pin before the newest.
fn version(plugin: &PluginSummary) -> String {
    match &plugin.pinned_version {
        Some(pinned) if *pinned == plugin.publication_version => format!("{pinned} (pinned)"),
        Some(pinned) => format!("{pinned} (pinned, newest {})", plugin.publication_version),
        None => plugin.publication_version.clone(),
    }
}

fn usage(plugin: &PluginSummary) -> &'static str {
    match plugin {
        PluginSummary { removed: true, .. } => "removed",
        PluginSummary { quarantined: true, .. } => "quarantined",
        PluginSummary { enabled: true, .. } => "enabled",
        _ => "disabled",
    }
}

pub(super) fn detail(answer: &PluginDetail) -> String {
    let plugin = &answer.plugin;
    let mut out = Table::new(&[]);
    let mut fact = |name: &str, value: String| out.row([name.to_owned(), value]);
    fact("plugin", plugin.plugin_id.clone());
    fact("label", or_dash(Some(answer.manifest.label.clone())));
    fact("description", or_dash(Some(answer.manifest.description.clone())));
    fact("version", answer.manifest.publication_version.clone());
    fact("in use", version(plugin));
    fact("digest of the newest", plugin.digest.to_string());
    fact("signature", plugin.signature.as_str().to_owned());
    fact("published", moment(plugin.published_at));
    fact("endpoint", plugin.endpoint.to_string());
    fact("use", usage(plugin).to_owned());
    fact(
        "tasks at once",
        plugin.max_attempts.map_or("no limit".to_owned(), |most| format!("{most} at most")),
    );
    fact("health", plugin.health.state.as_str().to_owned());
    fact("since", or_dash(plugin.health.since.map(moment)));
    fact("last error", or_dash(plugin.health.last_error.clone()));
    for variable in &answer.manifest.variables {
        fact("variable", format!("{} {}", variable.key, variable.label));
    }
    let mut text = out.to_string().trim_start().to_owned();
    for item in &answer.items {
        text.push_str(&format!("\n{}\n", printable(&format!("{}  {}", item.node_type, item.name))));
        match &item.inputs {
            None => text.push_str("  in   any\n"),
            Some(inputs) => inputs.iter().for_each(|param| text.push_str(&port("in ", param))),
        }
        item.outputs.iter().for_each(|param| text.push_str(&port("out", param)));
    }
    text
}

fn port(side: &str, param: &Param) -> String {
    let kind = serde_json::to_value(param.kind).ok();
    let kind = kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or_default();
    let required = if param.required { ", required" } else { "" };
    format!("  {side}  {}\n", printable(&format!("{}: {kind}{required}", param.name)))
}

pub(super) fn versions(answer: &PluginVersions) -> String {
    let mut table = Table::new(&["VERSION", "PUBLISHED", "SIGNATURE", "KEY", "YANKED", "DIGEST"]);
    for row in &answer.versions {
        table.row([
            row.publication_version.clone(),
            moment(row.published_at),
            row.signature.as_str().to_owned(),
            or_dash(row.signed_by.clone()),
            or_dash(row.yanked_at.map(moment)),
            row.digest.to_string(),
        ]);
    }
    table.to_string()
}

pub(super) fn publication(answer: &PublicationReply) -> String {
    let PublicationReply { plugin_id, publication_version, digest, .. } = answer;
    let status = match answer.status {
        PublicationStatus::Committed => "is published",
        PublicationStatus::Unchanged => "is published already with the same content",
    };
    format!("{}\n", printable(&format!("{plugin_id}@{publication_version} {status} (digest {digest})")))
}

pub(super) fn diff(answer: &PluginDiff) -> String {
    if answer.changes.is_empty() {
        return "no changes in nodes and ports\n".to_owned();
    }
    let line = |change: &contract::diff::Change| {
        let mark = if change.breaking { "breaks" } else { "      " };
        format!("{mark}  {}\n", printable(&change.to_string()))
    };
    answer.changes.iter().map(line).collect()
}

pub(super) fn decision(answer: &Decision) -> String {
    let rule = |verdict: &contract::policy::Verdict| {
        let name = serde_json::to_value(verdict.rule).ok();
        let name = name.as_ref().and_then(|name| name.as_str()).unwrap_or_default().replace('_', " ");
        format!("  {} {name}\n", if verdict.passed { "✓" } else { "✗" })
    };
    let outcome = match &answer.refusal {
        None => "may be dispatched".to_owned(),
        Some(refusal) => format!("is refused: {} ({})", refusal.message, refusal.code),
    };
    let head = format!("{} ({}) {outcome}", answer.subject, answer.signature.as_str());
    let rules: String = answer.verdicts.iter().map(rule).collect();
    format!("{}\n{rules}", printable(&head))
}

pub(super) fn health(answer: &PluginHealthList, with_history: bool) -> String {
    let mut table = Table::new(&["PLUGIN", "STATE", "SINCE", "CHECKED", "ENDPOINT", "LAST ERROR"]);
    for PluginHealth { plugin_id, endpoint, health, .. } in &answer.plugins {
        table.row([
            plugin_id.clone(),
            health.state.as_str().to_owned(),
            or_dash(health.since.map(moment)),
            or_dash(health.checked_at.map(moment)),
            endpoint.to_string(),
            or_dash(health.last_error.clone()),
        ]);
    }
    let mut text = table.to_string();
    if with_history {
        for change in answer.plugins.iter().flat_map(|plugin| &plugin.history) {
            let reason = change.reason.as_deref().unwrap_or_default();
            let line = format!("  {}  {:<8}{reason}", moment(change.at), change.state.as_str());
            text.push_str(&printable(line.trim_end()));
            text.push('\n');
        }
    }
    text
}
