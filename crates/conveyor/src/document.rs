//! Process documents from files: reading, choosing a diagram, checking against a catalogue.

use crate::{failure::Failure, platform::PlatformSettings, source::CommandSource};
use ::config::Reader;
use contract::{
    Fault, Warning,
    catalogue::DEFAULT_WORKSPACE,
    manifest::ExecutorItem,
    process::{NodeType, Process, Strictness, import, validate},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, path::Path};
use storage::{Storage, catalogue::PublicationKey};

/// The largest document, bytes.
pub(crate) const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Why a document cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// It cannot be read at all.
    Unreadable(String),
    /// It can be read; every fault of it.
    Faulty(Vec<Fault>),
}

/// One diagram of a document.
#[derive(Clone, Debug)]
pub(crate) struct Diagram {
    /// Its JSON path in the document.
    pub(crate) path: String,
    /// Its name.
    pub(crate) name: String,
    /// As it was written.
    pub(crate) value: Value,
}

/// The diagrams of a file.
///
/// # Errors
/// [`Unusable`]
pub(crate) fn read(file: &Path) -> Result<Vec<Diagram>, Unusable> {
    let unreadable = |reason: String| Unusable::Unreadable(format!("{}: {reason}", file.display()));
    let size = fs::metadata(file).map_err(|error| unreadable(error.to_string()))?.len();
    if size > MAX_BYTES {
        return Err(unreadable(format!("has {size} bytes, the limit is {MAX_BYTES}")));
    }
    let text = fs::read_to_string(file).map_err(|error| unreadable(error.to_string()))?;
    let document: Value =
        serde_json::from_str(&text).map_err(|error| unreadable(format!("is no JSON: {error}")))?;
    let stem = file.file_stem().map_or_else(|| "process".into(), |stem| stem.to_string_lossy());
    let named = |(path, value): (String, Value)| {
        let name = value.pointer("/settings/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        Diagram { path, name, value }
    };
    Ok(import(&document, &stem).map_err(Unusable::Faulty)?.into_iter().map(named).collect())
}

/// The one diagram that is meant.
///
/// # Errors
/// [`Unusable::Unreadable`] that lists the names to choose from.
pub(crate) fn choose(mut diagrams: Vec<Diagram>, name: Option<&str>) -> Result<Diagram, Unusable> {
    let names =
        || diagrams.iter().map(|diagram| format!("{:?}", diagram.name)).collect::<Vec<_>>().join(", ");
    let chosen = match name {
        None if diagrams.len() == 1 => 0,
        None => {
            return Err(Unusable::Unreadable(format!(
                "the document holds several diagrams; choose one with --diagram: {}",
                names()
            )));
        }
        Some(name) => match diagrams.iter().position(|diagram| diagram.name == name) {
            Some(place) => place,
            None => {
                return Err(Unusable::Unreadable(format!(
                    "the document holds no diagram {name:?}; it has: {}",
                    names()
                )));
            }
        },
    };
    Ok(diagrams.swap_remove(chosen))
}

/// Checks a diagram.
///
/// # Errors
/// Every fault, with its path in the document.
pub(crate) fn check(
    diagram: &Diagram,
    catalogue: &BTreeMap<String, NodeType>,
    strictness: Strictness,
) -> Result<(Process, Vec<Warning>), Vec<Fault>> {
    let valid = validate(&diagram.value, &diagram.path, catalogue, strictness)?;
    Ok((valid.process, valid.warnings))
}

/// What the catalogue of a data folder knows; nothing when there is none.
///
/// # Errors
/// When the folder's database cannot be read.
pub(crate) async fn catalogue(data_dir: Option<&Path>) -> Result<BTreeMap<String, NodeType>, Failure> {
    let Some(data_dir) = data_dir.filter(|folder| folder.join("conveyor.db").exists()) else {
        return Ok(BTreeMap::new());
    };
    let source = CommandSource::embedded(data_dir);
    let mut reader = Reader::new(&source);
    let settings = PlatformSettings::read(&mut reader);
    reader.finish().map_err(Failure::invalid)?;
    let storage = Storage::open(&settings.storage()).await?;
    let node_types = load(&storage).await;
    storage.close().await;
    node_types
}

async fn load(storage: &Storage) -> Result<BTreeMap<String, NodeType>, Failure> {
    let catalogue = storage.catalogue();
    let snapshot = catalogue.snapshot().await?;
    let mut node_types = BTreeMap::new();
    for (plugin_id, plugin) in snapshot.plugins.iter().filter(|(_, plugin)| plugin.removed_at.is_none()) {
        let key = match snapshot.pinned_version(plugin_id, DEFAULT_WORKSPACE) {
            Some(version) => PublicationKey::Version(plugin_id, version),
            None => PublicationKey::Newest(plugin_id),
        };
        let Some(publication) = catalogue.publication(key).await? else { continue };
        let items: Vec<ExecutorItem> = publication.items.read()?;
        tracing::debug!(plugin_id = plugin.plugin_id, items = items.len(), "plugin read from the catalogue");
        node_types.extend(
            items
                .into_iter()
                .map(|item| (item.node_type, NodeType { inputs: item.inputs, outputs: item.outputs })),
        );
    }
    Ok(node_types)
}

/// Says what is wrong with `what`: each fault on a line of standard error, or all as JSON on standard
/// output.
pub(crate) fn refuse(what: impl std::fmt::Display, unusable: Unusable, as_json: bool) -> Failure {
    let faults = match unusable {
        Unusable::Unreadable(message) if as_json => {
            vec![Fault { path: "$".to_owned(), code: "unreadable".to_owned(), message }]
        }
        Unusable::Unreadable(message) => return Failure::Invalid(message),
        Unusable::Faulty(faults) => faults,
    };
    if as_json {
        println!("{}", json!({ "valid": false, "faults": faults }));
        return Failure::ToldInvalid;
    }
    eprintln!("conveyor: {what} is not valid, {} fault(s):", faults.len());
    for fault in faults {
        eprintln!("  {}", printable(&fault.to_string()));
    }
    Failure::ToldInvalid
}

/// Text of a document for a terminal: control characters could move the cursor or worse.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagrams(names: &[&str]) -> Vec<Diagram> {
        names
            .iter()
            .map(|name| Diagram { path: "$".into(), name: (*name).into(), value: Value::Null })
            .collect()
    }

    #[test]
    fn the_only_diagram_needs_no_name() {
        assert_eq!(choose(diagrams(&["a"]), None).unwrap().name, "a");
        assert_eq!(choose(diagrams(&["a", "b"]), Some("b")).unwrap().name, "b");
    }

    #[test]
    fn several_diagrams_are_listed_to_choose_from() {
        for name in [None, Some("c")] {
            let Err(Unusable::Unreadable(message)) = choose(diagrams(&["a", "b"]), name) else {
                panic!("chosen")
            };
            assert!(message.contains("\"a\", \"b\""), "{message}");
        }
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a [2Jb ");
    }
}
