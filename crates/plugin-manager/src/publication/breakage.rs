//! Which saved processes a new version may break: warnings in the reply to its publication.

use super::document::Document;
use contract::{
    RpcError, Warning,
    diff::{Change, diff},
    manifest::ExecutorItem,
};
use std::collections::BTreeMap;
use storage::{Storage, catalogue::StoredPublication};

/// Node types that are looked into; a version that breaks more is told about by these.
const MAX_NODE_TYPES: usize = 50;
/// Processes that one warning names.
const NAMED: usize = 5;

/// Warns about the processes that use a node type which the newer items break.
///
/// # Errors
/// `unavailable` when the database is away.
pub(super) async fn warnings(
    storage: &Storage,
    older: &StoredPublication,
    document: &Document,
    newer: &[ExecutorItem],
) -> Result<Vec<Warning>, RpcError> {
    let Ok(items) = older.items.read::<Vec<ExecutorItem>>() else { return Ok(Vec::new()) };
    let mut breaking: BTreeMap<String, Vec<Change>> = BTreeMap::new();
    for change in diff(&items, newer).into_iter().filter(|change| change.breaking) {
        breaking.entry(change.node_type.clone()).or_default().push(change);
    }
    let mut warnings = Vec::new();
    for (node_type, changes) in breaking.into_iter().take(MAX_NODE_TYPES) {
        let using = storage.processes().using(std::slice::from_ref(&node_type)).await;
        let processes = using.map_err(|error| error.to_rpc())?;
        if processes.is_empty() {
            continue;
        }
        let told: Vec<String> = changes.iter().map(Change::to_string).collect();
        let named: Vec<String> =
            processes.iter().take(NAMED).map(|(id, name)| format!("{name:?} ({id})")).collect();
        let more = match processes.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        warnings.push(Warning {
            path: path(document, &node_type),
            code: "breaks_processes".to_owned(),
            message: format!(
                "{}; used by the processes {}{more}: change them, or pin their workspaces to {}",
                told.join("; "),
                named.join(", "),
                older.version
            ),
        });
    }
    Ok(warnings)
}

fn path(document: &Document, node_type: &str) -> String {
    let place = document.manifest.executors.iter().position(|executor| executor.node_type == node_type);
    place.map_or_else(|| "$.executors".to_owned(), |place| format!("$.executors[{place}]"))
}
