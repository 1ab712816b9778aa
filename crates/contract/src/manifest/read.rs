//! What plugins send, checked and read: every fault at once, with its path.

use super::{ExecutorItem, MANIFEST_KIND, Manifest};
use crate::{Fault, Warning, check::Checker, json::read_tree, param::read_params, signature};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashSet};

const MANIFEST_KEYS: [&str; 11] = [
    "kind",
    "pluginId",
    "publicationVersion",
    "label",
    "description",
    "variables",
    "staticAssets",
    "ui",
    "executors",
    "pull",
    "signature",
];
const ITEM_KEYS: [&str; 11] = [
    "nodeType",
    "name",
    "description",
    "help",
    "pluginId",
    "pluginLabel",
    "inputs",
    "outputs",
    "transport",
    "tags",
    "sectionPath",
];

/// Checks and reads a manifest; every fault is named with its path, unknown fields are warnings.
pub fn read_manifest(value: &Value) -> Result<(Manifest, Vec<Warning>), Vec<Fault>> {
    let mut check = Checker::default();
    if let Some(object) = check.object(value, "$") {
        check_manifest_head(object, &mut check);
        check_declarations(object, &mut check);
        check_endpoint(object.get("pull"), "$.pull", &mut check);
        signature::check(object.get("signature"), &mut check);
        check.unknown_keys(object, &MANIFEST_KEYS, "$");
    }
    read_checked(value, check)
}

fn check_manifest_head(object: &Map<String, Value>, check: &mut Checker) {
    if let Some(kind) = check.text(object, "kind", "$")
        && kind != MANIFEST_KIND
    {
        check.fault("$.kind", "unknown_kind", format!("{kind:?} is not {MANIFEST_KIND:?}"));
    }
    check.text(object, "pluginId", "$");
    check.text(object, "publicationVersion", "$");
    check.optional_text(object, "label", "$");
    check.optional_text(object, "description", "$");
    for (path, variable) in check.list(object, "variables", "$", false) {
        if let Some(variable) = check.object(variable, &path) {
            check.text(variable, "key", &path);
        }
    }
}

fn check_declarations(object: &Map<String, Value>, check: &mut Checker) {
    let mut keys = HashSet::new();
    for (path, asset) in check.list(object, "staticAssets", "$", false) {
        let Some(asset) = check.object(asset, &path) else { continue };
        if let Some(key) = check.text(asset, "key", &path)
            && !keys.insert(key.to_owned())
        {
            check.fault(format!("{path}.key"), "duplicate", format!("asset {key:?} is declared twice"));
        }
        check.optional_text(asset, "mediaType", &path);
        if let Some(url) = check.text(asset, "url", &path)
            && !(url.starts_with("http://") || url.starts_with("https://"))
        {
            check.fault(
                format!("{path}.url"),
                "invalid_url",
                format!("{url:?} must begin with http:// or https://"),
            );
        }
    }
    let mut types = HashSet::new();
    for (path, executor) in check.list(object, "executors", "$", true) {
        let Some(executor) = check.object(executor, &path) else { continue };
        if let Some(node_type) = check.text(executor, "nodeType", &path) {
            if !types.insert(node_type.to_owned()) {
                check.fault(
                    format!("{path}.nodeType"),
                    "duplicate",
                    format!("{node_type:?} is declared twice"),
                );
            }
            if crate::builtin::is_builtin(node_type) {
                check.fault(
                    format!("{path}.nodeType"),
                    "reserved",
                    format!("{node_type:?} is built in; choose another name"),
                );
            }
        }
        for (path, key) in check.list(executor, "requiredTemplateKeys", &path, false) {
            match key.as_str() {
                Some(key) if keys.contains(key) => {}
                Some(key) => {
                    check.fault(path, "unknown_asset", format!("no static asset has the key {key:?}"));
                }
                None => check.wrong_type(&path, "a string", key),
            }
        }
    }
}

fn check_endpoint(value: Option<&Value>, path: &str, check: &mut Checker) {
    let Some(value) = value else {
        return check.fault(
            path,
            "missing",
            "is required: {host, port} where plugin-manager reaches the plugin",
        );
    };
    let Some(object) = check.object(value, path) else { return };
    check.text(object, "host", path);
    match object.get("port") {
        Some(port) if port.as_u64().is_some_and(|port| (1..=65_535).contains(&port)) => {}
        Some(port) => {
            check.fault(format!("{path}.port"), "invalid_port", format!("{port} is no port from 1 to 65535"));
        }
        None => check.fault(format!("{path}.port"), "missing", "is required"),
    }
}

fn read_checked<T: serde::de::DeserializeOwned>(
    value: &Value,
    mut check: Checker,
) -> Result<(T, Vec<Warning>), Vec<Fault>> {
    if !check.faults.is_empty() {
        return Err(check.faults);
    }
    let read = read_tree(value).map_err(|error| check.fault("$", "malformed", error.to_string())).ok();
    check.finish(read)
}

/// Checks and reads `items` of a batch pull answer and fills in what the plugin left out. `path` is
/// the path of the array. All declared node types must be covered; items that were not declared
/// are a warning and dropped.
pub fn read_items(
    items: &Value,
    path: &str,
    manifest: &Manifest,
) -> Result<(Vec<ExecutorItem>, Vec<Warning>), Vec<Fault>> {
    let mut check = Checker::default();
    let mut found: BTreeMap<String, ExecutorItem> = BTreeMap::new();
    let Some(list) = items.as_array() else {
        check.wrong_type(path, "an array of executor items", items);
        return Err(check.faults);
    };
    let declared: Vec<&str> = manifest.executors.iter().map(|e| e.node_type.as_str()).collect();
    for (index, item) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let Some(mut item) = read_item(item, &path, &mut check) else { continue };
        if !declared.contains(&item.node_type.as_str()) {
            check.warn(
                format!("{path}.nodeType"),
                "undeclared",
                format!("{:?} is not in the manifest; ignored", item.node_type),
            );
            continue;
        }
        if item.plugin_id.is_empty() {
            item.plugin_id.clone_from(&manifest.plugin_id);
        }
        if item.plugin_label.is_empty() {
            item.plugin_label.clone_from(&manifest.label);
        }
        let node_type = item.node_type.clone();
        if found.insert(node_type.clone(), item).is_some() {
            check.fault(format!("{path}.nodeType"), "duplicate", format!("{node_type:?} comes twice"));
        }
    }
    for node_type in &declared {
        if !found.contains_key(*node_type) {
            check.fault(
                path,
                "not_covered",
                format!("the batch has no item for the declared node type {node_type:?}"),
            );
        }
    }
    let ordered = declared.iter().filter_map(|node_type| found.remove(*node_type)).collect();
    check.finish(Some(ordered))
}

fn read_item(value: &Value, path: &str, check: &mut Checker) -> Option<ExecutorItem> {
    let object = check.object(value, path)?;
    let before = check.faults.len();
    check.text(object, "nodeType", path);
    for key in ["name", "description", "help", "pluginId", "pluginLabel"] {
        check.optional_text(object, key, path);
    }
    let inputs = match object.get("inputs") {
        None | Some(Value::Null) => None,
        Some(inputs) => Some(read_params(inputs, &format!("{path}.inputs"), check)),
    };
    let outputs = match object.get("outputs") {
        None | Some(Value::Null) => Vec::new(),
        Some(outputs) => read_params(outputs, &format!("{path}.outputs"), check),
    };
    if let Some(transport) = object.get("transport").filter(|transport| !transport.is_null()) {
        check_transport(transport, &format!("{path}.transport"), check);
    }
    for key in ["tags", "sectionPath"] {
        for (path, entry) in check.list(object, key, path, false) {
            if !entry.is_string() {
                check.wrong_type(&path, "a string", entry);
            }
        }
    }
    check.unknown_keys(object, &ITEM_KEYS, path);
    if check.faults.len() > before {
        return None;
    }
    let mut rest: Map<String, Value> =
        object.iter().filter(|(_, value)| !value.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect();
    rest.insert("inputs".to_owned(), Value::Null);
    rest.remove("outputs");
    match read_tree::<ExecutorItem>(&Value::Object(rest)) {
        Ok(item) => Some(ExecutorItem { inputs, outputs, ..item }),
        Err(error) => {
            check.fault(path, "malformed", error.to_string());
            None
        }
    }
}

fn check_transport(transport: &Value, path: &str, check: &mut Checker) {
    let Some(object) = check.object(transport, path) else { return };
    if let Some(kind) = check.text(object, "type", path)
        && kind != "tcp"
    {
        check.fault(
            format!("{path}.type"),
            "unknown_transport",
            format!("{kind:?} is not supported; use \"tcp\""),
        );
    }
    check_endpoint(object.get("params"), &format!("{path}.params"), check);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest() -> Value {
        json!({
            "kind": MANIFEST_KIND, "pluginId": "office", "publicationVersion": "0.0.1", "label": "Офис",
            "description": "", "variables": [], "staticAssets": [],
            "executors": [{"nodeType": "system.office.csv.read"}], "pull": {"host": "10.0.0.7", "port": 9411},
            "future": {"x": 1}
        })
    }

    #[test]
    fn manifest_keeps_unknown_fields_and_warns() {
        let (read, warnings) = read_manifest(&manifest()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), manifest());
        assert_eq!(warnings.iter().map(|w| w.path.as_str()).collect::<Vec<_>>(), ["$.future"]);
    }

    #[test]
    fn manifest_names_all_faults_at_once() {
        let faults = read_manifest(&json!({
            "kind": "v1", "pluginId": " ", "label": 5,
            "executors": [{"nodeType": "a"}, {"nodeType": "a", "requiredTemplateKeys": ["w"]}, {"nodeType": "system.output"}],
            "pull": {"host": "h", "port": 70000}
        }))
        .unwrap_err();
        let paths: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "$.kind",
                "$.pluginId",
                "$.publicationVersion",
                "$.label",
                "$.executors[1].nodeType",
                "$.executors[1].requiredTemplateKeys[0]",
                "$.executors[2].nodeType",
                "$.pull.port"
            ]
        );
    }

    #[test]
    fn batch_must_cover_every_declared_node_type() {
        let (manifest, _) = read_manifest(&manifest()).unwrap();
        let faults =
            read_items(&json!([{"nodeType": "other", "inputs": null, "outputs": []}]), "$.items", &manifest)
                .unwrap_err();
        assert_eq!(faults[0].code, "not_covered");
    }

    #[test]
    fn items_are_completed_from_the_manifest() {
        let (manifest, _) = read_manifest(&manifest()).unwrap();
        let (items, _) = read_items(&json!([{"nodeType": "system.office.csv.read", "inputs": null, "outputs": {"rows": {"type": "keyvalue"}}}]), "$.items", &manifest).unwrap();
        assert_eq!((items[0].plugin_id.as_str(), items[0].plugin_label.as_str()), ("office", "Офис"));
        assert_eq!(items[0].inputs, None);
        assert_eq!(items[0].outputs[0].name, "rows");
    }
}
