//! Bodies of the answers about plugins.

use crate::http::views::Moment;
use contract::{
    Digest, PublicationId,
    catalogue::{
        Asset, Health, HealthChange, HealthState, PluginDetail, PluginHealth, PluginSummary, PluginVersion,
    },
    manifest::{Endpoint, ExecutorItem, Manifest},
    signature::SignatureState,
};
use serde::Serialize;
use utoipa::ToSchema;

/// A plugin.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PluginHead {
    plugin_id: String,
    label: String,
    description: String,
    publication_version: String,
    #[schema(value_type = String)]
    publication_id: PublicationId,
    #[schema(value_type = String)]
    digest: Digest,
    published_at: Moment,
    node_types: Vec<String>,
    #[schema(value_type = Object)]
    endpoint: Endpoint,
    health: HealthView,
    enabled: bool,
    quarantined: bool,
    removed: bool,
    /// How many of its attempts may be under way at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned_version: Option<String>,
    /// `unsigned`, `signed` or `invalid`.
    #[schema(value_type = String)]
    signature: SignatureState,
}

/// A plugin's health.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HealthView {
    /// `unknown`, `online` or `offline`.
    #[schema(value_type = String)]
    state: HealthState,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checked_at: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

impl From<Health> for HealthView {
    fn from(health: Health) -> Self {
        Self {
            state: health.state,
            since: health.since.map(Moment::from),
            checked_at: health.checked_at.map(Moment::from),
            last_error: health.last_error,
        }
    }
}

impl From<PluginSummary> for PluginHead {
    fn from(plugin: PluginSummary) -> Self {
        Self {
            plugin_id: plugin.plugin_id,
            label: plugin.label,
            description: plugin.description,
            publication_version: plugin.publication_version,
            publication_id: plugin.publication_id,
            digest: plugin.digest,
            published_at: plugin.published_at.into(),
            node_types: plugin.node_types,
            endpoint: plugin.endpoint,
            health: plugin.health.into(),
            enabled: plugin.enabled,
            quarantined: plugin.quarantined,
            removed: plugin.removed,
            max_attempts: plugin.max_attempts,
            pinned_version: plugin.pinned_version,
            signature: plugin.signature,
        }
    }
}

/// All plugins, sorted by id.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PluginPage {
    pub(crate) plugins: Vec<PluginHead>,
    /// Grows with every change of the catalogue.
    pub(crate) revision: i64,
}

/// A plugin with what it published.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PluginFull {
    plugin: PluginHead,
    #[schema(value_type = Object)]
    manifest: Manifest,
    #[schema(value_type = Vec<Object>)]
    items: Vec<ExecutorItem>,
    /// What the plugin's forms and widgets are made of.
    assets: Vec<AssetView>,
    versions: Vec<PluginVersionView>,
}

/// A static asset of a plugin.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AssetView {
    key: String,
    media_type: String,
    /// Bytes.
    size: u64,
    /// Where it is; what is there never changes.
    path: String,
}

impl AssetView {
    fn new(plugin_id: &str, version: &str, asset: Asset) -> Self {
        let mut url = reqwest::Url::parse("http://api").ok();
        if let Some(url) = &mut url {
            if let Ok(mut path) = url.path_segments_mut() {
                path.clear().extend(["plugins", plugin_id, "assets", &asset.key]);
            }
            let digest = asset.digest.to_string();
            url.query_pairs_mut().append_pair("version", version).append_pair("digest", &digest);
        }
        let path = url.map(|url| format!("{}?{}", url.path(), url.query().unwrap_or_default()));
        Self {
            key: asset.key,
            media_type: asset.media_type,
            size: asset.size,
            path: path.unwrap_or_default(),
        }
    }
}

/// A publication.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PluginVersionView {
    publication_version: String,
    #[schema(value_type = String)]
    publication_id: PublicationId,
    #[schema(value_type = String)]
    digest: Digest,
    published_at: Moment,
    /// Since when nothing new uses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    yanked_at: Option<Moment>,
    /// `unsigned`, `signed` or `invalid`.
    #[schema(value_type = String)]
    signature: SignatureState,
    /// The key that it is signed with, or says to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_by: Option<String>,
}

impl From<PluginVersion> for PluginVersionView {
    fn from(version: PluginVersion) -> Self {
        Self {
            publication_version: version.publication_version,
            publication_id: version.publication_id,
            digest: version.digest,
            published_at: version.published_at.into(),
            yanked_at: version.yanked_at.map(Into::into),
            signature: version.signature,
            signed_by: version.signed_by,
        }
    }
}

/// All versions of a plugin, the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VersionPage {
    pub(crate) versions: Vec<PluginVersionView>,
}

impl PluginFull {
    pub(crate) fn new(detail: PluginDetail, versions: Vec<PluginVersion>) -> Self {
        let PluginDetail { plugin, manifest, items, assets } = detail;
        let (plugin_id, version) = (&plugin.plugin_id, &manifest.publication_version);
        let assets = assets.into_iter().map(|asset| AssetView::new(plugin_id, version, asset)).collect();
        let versions = versions.into_iter().map(PluginVersionView::from).collect();
        Self { plugin: plugin.into(), manifest, items, assets, versions }
    }
}

/// Answer to a change of the catalogue.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChangedView {
    /// False when it was so before.
    pub(crate) changed: bool,
    /// The catalogue's revision afterwards.
    pub(crate) revision: i64,
}

/// A plugin's health with its last changes.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PluginHealthView {
    plugin_id: String,
    #[schema(value_type = Object)]
    endpoint: Endpoint,
    health: HealthView,
    /// The last changes of the state, the newest first.
    history: Vec<HealthChangeView>,
}

/// A change of a plugin's state.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HealthChangeView {
    at: Moment,
    /// `unknown`, `online` or `offline`.
    #[schema(value_type = String)]
    state: HealthState,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl From<PluginHealth> for PluginHealthView {
    fn from(plugin: PluginHealth) -> Self {
        let change = |HealthChange { at, state, reason }| HealthChangeView { at: at.into(), state, reason };
        Self {
            plugin_id: plugin.plugin_id,
            endpoint: plugin.endpoint,
            health: plugin.health.into(),
            history: plugin.history.into_iter().map(change).collect(),
        }
    }
}

/// The health of all live plugins.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HealthPage {
    pub(crate) plugins: Vec<PluginHealthView>,
    /// The catalogue's revision.
    pub(crate) revision: i64,
}
