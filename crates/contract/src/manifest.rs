//! Plugin manifest v2, executor items and the batch pull (protocol section 3, facts sections 3, 4).

mod read;

pub use read::{read_items, read_manifest};

use crate::{Digest, canonical, param::Param, signature::Signature};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

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

    #[test]
    fn digest_ignores_addresses_and_the_signature_only() {
        let one = json!({
            "kind": MANIFEST_KIND, "pluginId": "office", "publicationVersion": "0.0.1", "label": "Офис",
            "executors": [{"nodeType": "system.office.csv.read"}], "pull": {"host": "10.0.0.7", "port": 9411}
        });
        let (one, _) = read_manifest(&one).unwrap();
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
