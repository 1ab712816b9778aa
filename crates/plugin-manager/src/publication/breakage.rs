//! Which saved processes a new version breaks: warnings in the reply to its publication.

use super::{
    document::Document,
    usage::{Versions, hit},
};
use contract::{
    ProcessId, RpcError, Warning,
    diff::{Change, diff},
    manifest::ExecutorItem,
    process::Process,
};
use std::collections::BTreeMap;
use storage::{
    Storage,
    catalogue::{Snapshot, StoredPublication},
    processes::StoredProcess,
};

/// Processes that are looked into, at a time and together.
const PAGE: u32 = 50;
const MAX_PROCESSES: usize = 1_000;
/// Processes and nodes of each that one warning names.
const NAMED: usize = 5;

/// The publication that the new one takes the place of.
#[derive(Debug)]
pub(super) struct Older {
    pub(super) publication: StoredPublication,
    pub(super) items: Vec<ExecutorItem>,
}

/// A process with the nodes that break.
struct Broken {
    id: ProcessId,
    name: String,
    nodes: Vec<String>,
}

/// What is found about a node type: the changes that hit somebody, and whom.
#[derive(Default)]
struct Found {
    changes: Vec<Change>,
    processes: Vec<Broken>,
}

/// Warns about the processes that use what the newer items break. Processes of workspaces that are
/// pinned to a version stay on it and do not count.
///
/// # Errors
/// `unavailable` when the database is away.
pub(super) async fn warnings(
    storage: &Storage,
    snapshot: &Snapshot,
    older: &Older,
    document: &Document,
    newer: &[ExecutorItem],
) -> Result<Vec<Warning>, RpcError> {
    let mut breaking: BTreeMap<String, Vec<Change>> = BTreeMap::new();
    for change in diff(&older.items, newer).into_iter().filter(|change| change.breaking) {
        breaking.entry(change.node_type.clone()).or_default().push(change);
    }
    let node_types: Vec<String> = breaking.keys().cloned().collect();
    let mut found: BTreeMap<&str, Found> = BTreeMap::new();
    let (mut after, mut seen) = (None, 0);
    let all = loop {
        let page = storage.processes().documents_using(&node_types, after, PAGE).await;
        let page = page.map_err(|error| error.to_rpc())?;
        for stored in &page {
            if snapshot.pinned_version(&document.manifest.plugin_id, &stored.process.workspace_id).is_none() {
                look_into(stored, &breaking, older, newer, &mut found);
            }
        }
        seen += page.len();
        after = page.last().map(|stored| stored.process.process_id);
        match page.len() < PAGE as usize {
            true => break true,
            false if seen >= MAX_PROCESSES => break false,
            false => {}
        }
    };
    let mut warnings: Vec<Warning> = found
        .into_iter()
        .map(|(node_type, found)| Warning {
            path: path(document, node_type),
            code: "breaks_processes".to_owned(),
            message: found.message(&older.publication.version),
        })
        .collect();
    if !all {
        warnings.push(Warning {
            path: "$.executors".to_owned(),
            code: "breakage_unchecked".to_owned(),
            message: format!(
                "more than {MAX_PROCESSES} processes use node types that this version breaks; only the first \
                 {seen} were looked into"
            ),
        });
    }
    Ok(warnings)
}

/// Notes what of the process breaks.
fn look_into<'c>(
    stored: &StoredProcess,
    breaking: &'c BTreeMap<String, Vec<Change>>,
    older: &Older,
    newer: &[ExecutorItem],
    found: &mut BTreeMap<&'c str, Found>,
) {
    // What cannot be read was not checked when it was saved, so nothing vouches for it.
    let process = stored.document.read::<Process>().ok();
    for (node_type, changes) in breaking {
        let named =
            |items: &'_ [ExecutorItem]| items.iter().find(|item| item.node_type == *node_type).cloned();
        let (before, now) = (named(&older.items), named(newer));
        let versions = Versions { older: before.as_ref(), newer: now.as_ref() };
        let mut nodes = Vec::new();
        for change in changes {
            let hit = match &process {
                Some(process) => hit(process, change, versions),
                None => vec!["nodes that cannot be read".to_owned()],
            };
            if hit.is_empty() {
                continue;
            }
            let found = found.entry(node_type).or_default();
            if !found.changes.contains(change) {
                found.changes.push(change.clone());
            }
            nodes.extend(hit);
        }
        nodes.sort_unstable();
        nodes.dedup();
        if let Some(found) = found.get_mut(node_type.as_str()).filter(|_| !nodes.is_empty()) {
            let (id, name) = (stored.process.process_id, stored.process.name.clone());
            found.processes.push(Broken { id, name, nodes });
        }
    }
}

impl Found {
    fn message(&self, older: &str) -> String {
        let told: Vec<String> = self.changes.iter().map(Change::to_string).collect();
        let processes: Vec<String> = self.processes.iter().map(Broken::to_string).collect();
        format!(
            "{}; used by the processes {}: change them, or pin their workspaces to {older}",
            told.join("; "),
            some(&processes, "; ")
        )
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} ({}) in {}", self.name, self.id, some(&self.nodes, ", "))
    }
}

/// The first few, and how many more there are.
fn some(names: &[String], between: &str) -> String {
    let shown = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(between);
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn path(document: &Document, node_type: &str) -> String {
    let place = document.manifest.executors.iter().position(|executor| executor.node_type == node_type);
    place.map_or_else(|| "$.executors".to_owned(), |place| format!("$.executors[{place}]"))
}
