//! Documents of plugin authors and process designers. The input is the JSON text.

use contract::{
    Fault,
    manifest::{publication_digest, read_items, read_manifest},
    process::{NodeType, Strictness, import, validate},
};
use serde_json::Value;
use std::collections::BTreeMap;

/// `{"manifest": ..., "items": ...}`, or a manifest alone: what is accepted has the same digest when it
/// is written and read again; what is refused names its faults, each with a path.
pub(super) fn manifest(input: &[u8]) -> String {
    let Ok(document) = serde_json::from_slice::<Value>(input) else { return "not JSON".to_owned() };
    let manifest = match read_manifest(document.get("manifest").unwrap_or(&document)) {
        Ok((manifest, _)) => manifest,
        Err(faults) => return refused(&faults),
    };
    let items = match read_items(document.get("items").unwrap_or(&Value::Null), "$.items", &manifest) {
        Ok((items, _)) => items,
        Err(faults) => return format!("manifest accepted; {}", refused(&faults)),
    };
    let digest = publication_digest(&manifest, &items, &BTreeMap::new());
    let written = serde_json::to_value(&manifest).unwrap_or_default();
    let (again, _) = read_manifest(&written)
        .unwrap_or_else(|faults| panic!("an accepted manifest is refused: {faults:?}"));
    assert_eq!(digest, publication_digest(&again, &items, &BTreeMap::new()), "the digest changes in storage");
    format!("accepted with {} items", ["no", "some"][items.len().min(1)])
}

/// A process: import and validation end, name their faults each with a path, and say the same twice;
/// what may run may be saved.
pub(super) fn process(input: &[u8]) -> String {
    let Ok(document) = serde_json::from_slice::<Value>(input) else { return "not JSON".to_owned() };
    let diagrams = match import(&document, "fuzz") {
        Ok(diagrams) => diagrams,
        Err(faults) => return refused(&faults),
    };
    let catalogue: BTreeMap<String, NodeType> = BTreeMap::new();
    let mut told = Vec::new();
    for (path, diagram) in diagrams.iter().take(4) {
        let run = validate(diagram, path, &catalogue, Strictness::Run);
        let save = validate(diagram, path, &catalogue, Strictness::Save);
        assert!(run.is_err() || save.is_ok(), "a process that may run may not be saved");
        told.push(match &save {
            Ok(valid) => {
                assert!(valid.plugin_node_types.is_sorted(), "node types are not sorted");
                format!("accepted, {}", codes(&valid.warnings))
            }
            Err(faults) => {
                let again = validate(diagram, path, &catalogue, Strictness::Save).err();
                assert_eq!(again.as_ref(), Some(faults), "the same process has other faults");
                refused(faults)
            }
        });
    }
    told.join("; ")
}

fn refused(faults: &[Fault]) -> String {
    assert!(!faults.is_empty(), "refused without a fault");
    for fault in faults {
        assert!(fault.path.starts_with('$') && !fault.message.is_empty(), "{fault:?} tells nothing");
    }
    format!("refused: {}", codes(faults))
}

fn codes(faults: &[Fault]) -> String {
    let mut codes: Vec<&str> = faults.iter().map(|fault| fault.code.as_str()).collect();
    codes.sort_unstable();
    codes.dedup();
    codes.join(" ")
}
