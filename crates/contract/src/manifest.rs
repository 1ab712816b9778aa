//! Plugin manifest v2, executor items and the batch pull (protocol section 3, facts sections 3, 4).

use crate::{
    Digest, Fault, Warning, canonical,
    check::Checker,
    json::read_tree,
    param::{Param, read_params},
    signature::{self, Signature},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashSet};

/// `kind` of a manifest.
pub const MANIFEST_KIND: &str = "plugin_manifest_request_v2";
/// `kind` of a batch pull request.
pub const BATCH_PULL_KIND: &str = "executor_batch_pull_v2";

/// Where the plugin's TCP listener is, as plugin-manager and control plane reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Endpoint {
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// What a plugin publishes about itself. Unknown fields are kept in `extra`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always [`MANIFEST_KIND`].
    pub kind: String,
    /// The plugin's name in the catalogue.
    pub plugin_id: String,
    /// Its version, semver-like.
    pub publication_version: String,
    /// Display name, any language.
    #[serde(default)]
    pub label: String,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// Variables shown on the plugin's card; never injected into tasks, never secrets.
    #[serde(default)]
    pub variables: Vec<Variable>,
    /// UI bundles that plugin-manager fetches at publication.
    #[serde(default)]
    pub static_assets: Vec<StaticAsset>,
    /// Forms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ui: Option<Value>,
    /// The node types; everything else about them comes by batch pull.
    #[serde(default)]
    pub executors: Vec<DeclaredExecutor>,
    /// Where plugin-manager pulls the batch.
    pub pull: Endpoint,
    /// A signature over the publication's digest, of which it is no part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A variable on the plugin's card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variable {
    /// Name.
    pub key: String,
    /// What people see.
    #[serde(default)]
    pub label: String,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A UI bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StaticAsset {
    /// Name by which forms and widgets refer to it, unique in the plugin.
    pub key: String,
    /// Where the plugin serves it.
    pub url: String,
    /// Its media type.
    #[serde(default = "javascript")]
    pub media_type: String,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

fn javascript() -> String {
    "application/javascript".to_owned()
}

/// A node type named in the manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredExecutor {
    /// The node type; need not begin with the plugin's id.
    pub node_type: String,
    /// Keys of the static assets of the node's canvas widget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_template_keys: Option<Vec<String>>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// How a plugin's executor is reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transport {
    /// Only `tcp`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The address.
    pub params: Endpoint,
}

/// One executor of a plugin: what the editor and the dispatcher know of a node type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutorItem {
    /// The node type, unique among live plugins.
    pub node_type: String,
    /// Display name.
    #[serde(default)]
    pub name: String,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// Markdown help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Owner; filled in from the manifest when the plugin leaves it out.
    #[serde(default)]
    pub plugin_id: String,
    /// Owner's display name; filled in likewise.
    #[serde(default)]
    pub plugin_label: String,
    /// Declared inputs; `None` (JSON `null`) means an open set: any input name is accepted.
    pub inputs: Option<Vec<Param>>,
    /// Declared outputs, each a port.
    #[serde(default)]
    pub outputs: Vec<Param>,
    /// How to reach it; `None` means the manifest's `pull` endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// Search words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Section of the palette.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub section_path: Vec<String>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What plugin-manager asks a plugin for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchPullRequest {
    /// Always [`BATCH_PULL_KIND`].
    pub kind: String,
    /// The ingress token, so that the plugin knows who asks. Never logged.
    pub token: String,
    /// Which plugin is meant.
    pub plugin_id: String,
    /// Which version is meant.
    pub publication_version: String,
    /// The wanted node types.
    pub node_types: Vec<String>,
    /// `nextCursor` of the answer before, `null` at first.
    pub cursor: Option<Value>,
}

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

/// The publication's digest: SHA-256 over the canonical JSON of manifest, items and asset hashes,
/// without addresses, so that moving a plugin to another host is no new publication, and without the
/// signature, which is made over it.
pub fn publication_digest(
    manifest: &Manifest,
    items: &[ExecutorItem],
    assets: &BTreeMap<String, Digest>,
) -> Digest {
    let mut manifest = manifest.clone();
    manifest.pull = Endpoint::default();
    manifest.signature = None;
    manifest.static_assets.iter_mut().for_each(|asset| asset.url = String::new());
    let mut items = items.to_vec();
    items.iter_mut().filter_map(|item| item.transport.as_mut()).for_each(|t| t.params = Endpoint::default());
    canonical::digest(&serde_json::json!({ "manifest": manifest, "items": items, "assets": assets }))
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

    #[test]
    fn digest_ignores_addresses_and_the_signature_only() {
        let (one, _) = read_manifest(&manifest()).unwrap();
        let mut moved = one.clone();
        moved.pull = Endpoint { host: "other".into(), port: 1 };
        let none = BTreeMap::new();
        assert_eq!(publication_digest(&one, &[], &none), publication_digest(&moved, &[], &none));
        moved.signature = Some(Signature { key_id: "k".into(), value: "v".into() });
        assert_eq!(publication_digest(&one, &[], &none), publication_digest(&moved, &[], &none));
        moved.label = "Other".into();
        assert_ne!(publication_digest(&one, &[], &none), publication_digest(&moved, &[], &none));
    }
}
