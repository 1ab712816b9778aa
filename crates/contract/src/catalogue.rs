//! Catalogue RPC: api, executor, engine and CLI to plugin-manager (protocol section 3), and the
//! facts that policy is decided on.

use crate::{
    Digest, Fault, Json, Millis, PublicationId,
    diff::Change,
    manifest::{Endpoint, ExecutorItem, Manifest},
    signature::SignatureState,
};
use serde::{Deserialize, Serialize};

/// Answer to a publication.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PublicationReply {
    /// Always true; errors are error replies.
    pub ok: bool,
    /// What became of it.
    pub status: PublicationStatus,
    /// The plugin.
    pub plugin_id: String,
    /// Its version.
    pub publication_version: String,
    /// The committed publication.
    pub publication_id: PublicationId,
    /// Its digest.
    pub digest: Digest,
    /// Remarks that did not refuse it.
    pub warnings: Vec<Fault>,
}

/// What became of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PublicationStatus {
    /// Stored now.
    Committed,
    /// The same version with the same digest was stored before; its endpoint was refreshed.
    Unchanged,
}

/// Health as the sweep sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthState {
    /// Not probed yet, or no sweep is on.
    #[default]
    Unknown,
    /// It answers.
    Online,
    /// It failed the threshold of probes.
    Offline,
}

impl HealthState {
    /// The name on the wire and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Online => "online",
            Self::Offline => "offline",
        }
    }
}

impl std::str::FromStr for HealthState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Unknown, Self::Online, Self::Offline]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no health state"))
    }
}

/// A plugin's health with its story.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// As of the last probe.
    pub state: HealthState,
    /// Since when it is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Millis>,
    /// When it was last probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_at: Option<Millis>,
    /// Why the last failed probe failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Failed probes in a row (successes reset it).
    #[serde(default)]
    pub failures: u32,
    /// Successful probes in a row (failures reset it).
    #[serde(default)]
    pub successes: u32,
}

/// One plugin as the catalogue lists it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginSummary {
    /// The plugin.
    pub plugin_id: String,
    /// Display name of the newest publication.
    pub label: String,
    /// Description of the newest publication.
    pub description: String,
    /// The newest committed version.
    pub publication_version: String,
    /// The newest committed publication.
    pub publication_id: PublicationId,
    /// Its digest.
    pub digest: Digest,
    /// When it was committed.
    pub published_at: Millis,
    /// Node types of the newest publication.
    pub node_types: Vec<String>,
    /// Where it is reached.
    pub endpoint: Endpoint,
    /// Its health.
    pub health: Health,
    /// In the asked workspace (and for the asked user).
    pub enabled: bool,
    /// Quarantined by an operator.
    pub quarantined: bool,
    /// A tombstone.
    pub removed: bool,
    /// How many of its attempts may be dispatched and unfinished at once; absent: as many as there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The version that the asked workspace is pinned to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_version: Option<String>,
    /// Of the newest publication.
    #[serde(default)]
    pub signature: SignatureState,
}

/// `plugin.list`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginListRequest {
    /// Enablement is told for this workspace.
    #[serde(default = "default_workspace")]
    pub workspace_id: String,
    /// Enablement is told for this user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// Also tombstones.
    #[serde(default)]
    pub include_removed: bool,
    /// The `tag` of an answer that the caller has: while it is still right, the answer is `notModified`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_none_match: Option<String>,
}

/// The one workspace of a single-machine start.
pub const DEFAULT_WORKSPACE: &str = "default";
/// The one user of a single-machine start.
pub const DEFAULT_USER: &str = "local";

fn default_workspace() -> String {
    DEFAULT_WORKSPACE.to_owned()
}

/// Answer to `plugin.list`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginList {
    /// Sorted by plugin id.
    #[serde(default)]
    pub plugins: Vec<PluginSummary>,
    /// The catalogue's revision: it grows with every change.
    pub revision: i64,
    /// Stands for this answer to this request: whoever has one with the same tag has the same plugins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The caller has the plugins already (`ifNoneMatch`); they are left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_modified: bool,
}

/// `plugin.get`, `plugin.versions`, `plugin.enable`, `plugin.disable`, `plugin.remove`, `plugin.pin`,
/// `plugin.unpin`, `plugin.yank`, `plugin.unyank`, `plugin.quarantine`, `plugin.release`, `plugin.limit`:
/// names one plugin in one workspace.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginRef {
    /// The plugin.
    pub plugin_id: String,
    /// The workspace that is meant.
    #[serde(default = "default_workspace")]
    pub workspace_id: String,
    /// Enable and disable: only for this user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// Pin: to this version. Yank, unyank: this version. Get: this version instead of the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publication_version: Option<String>,
    /// Limit: so many attempts at once, from 1 up; absent: as many as there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Remove: although processes use it.
    #[serde(default)]
    pub force: bool,
}

/// Answer to `plugin.get`: the plugin with its manifest and executors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PluginDetail {
    /// The listed facts.
    pub plugin: PluginSummary,
    /// As published.
    pub manifest: Manifest,
    /// Its executors.
    pub items: Vec<ExecutorItem>,
    /// Its static assets as they are kept.
    #[serde(default)]
    pub assets: Vec<Asset>,
}

/// One committed publication, in `plugin.versions` (newest first).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginVersion {
    /// The version.
    pub publication_version: String,
    /// The publication.
    pub publication_id: PublicationId,
    /// Its digest.
    pub digest: Digest,
    /// When it was committed.
    pub published_at: Millis,
    /// Since when it is yanked: nothing new uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yanked_at: Option<Millis>,
    /// Its signature.
    #[serde(default)]
    pub signature: SignatureState,
    /// The key that it is signed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_by: Option<String>,
}

/// Answer to `plugin.versions`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PluginVersions {
    /// Newest first.
    pub versions: Vec<PluginVersion>,
}

/// Answer to calls that change the catalogue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Changed {
    /// False when it was so before.
    pub changed: bool,
    /// The catalogue's revision afterwards.
    pub revision: i64,
}

/// One plugin in the answer to `plugin.health`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginHealth {
    /// The plugin.
    pub plugin_id: String,
    /// Where it is probed.
    pub endpoint: Endpoint,
    /// What the probes found.
    pub health: Health,
    /// The last changes of its state, the newest first; at most [`HEALTH_HISTORY`].
    #[serde(default)]
    pub history: Vec<HealthChange>,
}

/// Changes of state that are kept of each plugin.
pub const HEALTH_HISTORY: usize = 20;

/// One change of a plugin's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthChange {
    /// When it changed.
    pub at: Millis,
    /// To what.
    pub state: HealthState,
    /// Why, where a probe failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Answer to `plugin.health` (asked with a [`PluginListRequest`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginHealthList {
    /// Sorted by plugin id.
    pub plugins: Vec<PluginHealth>,
    /// The catalogue's revision.
    pub revision: i64,
}

/// `plugin.publish`: a publication on behalf of a plugin, which is pulled as if it had published
/// itself. Names a manifest, or a known plugin whose newest stored manifest is taken: by its id, or with
/// nothing but `from` by where it listens.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PublishRequest {
    /// The manifest, raw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Json>,
    /// A known plugin, instead of a manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin_id: Option<String>,
    /// Where the plugin listens, instead of what the manifest or the catalogue says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Endpoint>,
}

/// `plugin.diff`: what changed between two versions of a plugin.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffRequest {
    /// The plugin.
    pub plugin_id: String,
    /// The older version.
    pub from: String,
    /// The newer version.
    pub to: String,
}

/// Answer to `plugin.diff`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginDiff {
    /// Does one of the changes break?
    pub breaking: bool,
    /// By node type.
    pub changes: Vec<Change>,
}

/// `plugin.asset`: where the cached bytes of a static asset are.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssetRequest {
    /// The plugin.
    pub plugin_id: String,
    /// The asset's key.
    pub key: String,
    /// A version instead of the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publication_version: Option<String>,
}

/// A static asset in file-service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asset {
    /// Its key in the manifest.
    pub key: String,
    /// File in file-service.
    pub file_id: String,
    /// Its media type.
    pub media_type: String,
    /// Bytes.
    pub size: u64,
    /// SHA-256 of its bytes: its `ETag`.
    pub digest: Digest,
}

/// Hand-out: `manifest_request` (executor, engine, api → plugin-manager).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandOutRequest {
    /// Either this …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_type: Option<String>,
    /// … or this names what is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin_id: Option<String>,
    /// Exactly this version; never moves to another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publication_version: Option<String>,
    /// Answer `notModified` when the digest is still this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_none_match: Option<Digest>,
}

/// Answer to a hand-out when the digest differs from `ifNoneMatch`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandOut {
    /// The publication.
    pub publication_id: PublicationId,
    /// Its digest.
    pub digest: Digest,
    /// As published, raw.
    pub manifest: Json,
    /// Its executor items, raw.
    pub items: Json,
    /// Its health.
    pub health: Health,
    /// The catalogue's revision.
    pub revision: i64,
}

/// `plugin.explain`: may this node type be dispatched for this user now?
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainRequest {
    /// The workspace.
    #[serde(default = "default_workspace")]
    pub workspace_id: String,
    /// The user.
    #[serde(default = "default_user")]
    pub user_id: String,
    /// The node type.
    pub node_type: String,
    /// The publication a run is pinned to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publication_id: Option<PublicationId>,
}

fn default_user() -> String {
    DEFAULT_USER.to_owned()
}
