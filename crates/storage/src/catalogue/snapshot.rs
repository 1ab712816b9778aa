//! The catalogue in memory, for caches: everything but the manifests and items, with the questions
//! that control plane, engine and plugin-manager ask of it. Pure.

use super::Seal;
use contract::{
    Digest, Millis, PublicationId,
    catalogue::{Health, PluginSummary},
    manifest::Endpoint,
    policy::{Facts, PluginFacts},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// Whose setting says whether a plugin is enabled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnablementKey {
    /// The workspace.
    pub workspace_id: String,
    /// The user; `None`: the whole workspace.
    pub user_id: Option<String>,
    /// The plugin.
    pub plugin_id: String,
}

/// Who is pinned to a version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PinKey {
    /// The workspace.
    pub workspace_id: String,
    /// The plugin.
    pub plugin_id: String,
}

/// A publication without its documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicationRow {
    /// The publication.
    pub publication_id: PublicationId,
    /// Its version.
    pub version: String,
    /// Its digest.
    pub digest: Digest,
    /// The manifest's label.
    pub label: String,
    /// The manifest's description.
    pub description: String,
    /// When it was committed.
    pub published_at: Millis,
    /// Its node types, in the manifest's order.
    pub node_types: Vec<String>,
    /// Since when nothing new uses it.
    pub yanked_at: Option<Millis>,
    /// What was found about its signature.
    pub seal: Seal,
}

/// A plugin with its publications.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginRow {
    /// The plugin.
    pub plugin_id: String,
    /// When it was first published.
    pub created_at: Millis,
    /// When it was removed, if it is a tombstone.
    pub removed_at: Option<Millis>,
    /// Quarantined by an operator.
    pub quarantined: bool,
    /// How many attempts may be dispatched and unfinished at once; `None`: as many as there are.
    pub max_attempts: Option<u32>,
    /// As the last probe found it.
    pub health: Health,
    /// Its own listener.
    pub endpoint: Endpoint,
    /// Listeners of node types that differ from it.
    pub node_endpoints: BTreeMap<String, Endpoint>,
    /// All its publications, the newest first; never empty.
    pub publications: Vec<PublicationRow>,
}

impl PluginRow {
    /// The newest committed publication, yanked or not.
    pub fn newest(&self) -> Option<&PublicationRow> {
        self.publications.first()
    }

    /// What new use takes: the newest publication that is not yanked.
    pub fn usable(&self) -> Option<&PublicationRow> {
        self.publications.iter().find(|publication| publication.yanked_at.is_none())
    }

    /// What lists show: what new use takes, and the newest when everything is yanked.
    pub fn shown(&self) -> Option<&PublicationRow> {
        self.usable().or_else(|| self.newest())
    }

    /// The publication of a version.
    pub fn version(&self, version: &str) -> Option<&PublicationRow> {
        self.publications.iter().find(|publication| publication.version == version)
    }

    /// How good a claim of the plugin on a node type is; the least is the owner's. A yanked version
    /// that is newer than the usable one keeps its claim, so that the yank can be taken back.
    fn claim(&self, node_type: &str) -> Option<(bool, bool)> {
        let has =
            |publication: &PublicationRow| publication.node_types.iter().any(|known| known == node_type);
        let first = self.publications.iter().position(has)?;
        let usable = self.publications.iter().position(|publication| publication.yanked_at.is_none());
        Some((self.removed_at.is_some(), usable.is_some_and(|usable| first > usable)))
    }
}

/// The catalogue at one revision. Copies share what they have in common, so that the next revision
/// costs what has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Grows with every change.
    pub revision: i64,
    /// By plugin id.
    pub plugins: BTreeMap<String, Arc<PluginRow>>,
    /// Explicit settings; everything else follows the default.
    pub enablement: Arc<BTreeMap<EnablementKey, bool>>,
    /// Pinned versions.
    pub pins: Arc<BTreeMap<PinKey, String>>,
    index: Index,
}

/// The lookups of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Index {
    /// The plugins with a publication that has the node type, in their order; mostly one.
    claimants: Arc<HashMap<Arc<str>, Vec<Arc<str>>>>,
    /// Plugin and place of each publication.
    publications: Arc<HashMap<PublicationId, (Arc<str>, usize)>>,
}

/// What has changed since a snapshot.
#[derive(Debug, Default)]
pub(super) struct Delta {
    /// The revision that it leads to.
    pub(super) revision: i64,
    /// The plugins that something has changed about.
    pub(super) changed: BTreeSet<String>,
    /// These plugins as they are now, as far as they were published.
    pub(super) plugins: BTreeMap<String, PluginRow>,
    /// The settings about them.
    pub(super) enablement: BTreeMap<EnablementKey, bool>,
    /// The pins to them.
    pub(super) pins: BTreeMap<PinKey, String>,
}

impl Index {
    fn add(&mut self, plugin: &PluginRow) {
        let (claimants, publications) =
            (Arc::make_mut(&mut self.claimants), Arc::make_mut(&mut self.publications));
        let id: Arc<str> = plugin.plugin_id.as_str().into();
        for (place, publication) in plugin.publications.iter().enumerate() {
            publications.insert(publication.publication_id, (Arc::clone(&id), place));
            for node_type in &publication.node_types {
                let plugins = match claimants.get_mut(node_type.as_str()) {
                    Some(plugins) => plugins,
                    None => claimants.entry(node_type.as_str().into()).or_default(),
                };
                if let Err(place) = plugins.binary_search(&id) {
                    plugins.insert(place, Arc::clone(&id));
                }
            }
        }
    }

    fn remove(&mut self, plugin: &PluginRow) {
        let (claimants, publications) =
            (Arc::make_mut(&mut self.claimants), Arc::make_mut(&mut self.publications));
        for publication in &plugin.publications {
            publications.remove(&publication.publication_id);
            for node_type in &publication.node_types {
                if let Some(plugins) = claimants.get_mut(node_type.as_str()) {
                    plugins.retain(|id| **id != *plugin.plugin_id);
                    if plugins.is_empty() {
                        claimants.remove(node_type.as_str());
                    }
                }
            }
        }
    }
}

/// Have both the same publications with the same node types?
fn same_index(one: &PluginRow, other: &PluginRow) -> bool {
    let named = |row: &PluginRow| -> Vec<_> {
        row.publications.iter().map(|row| (row.publication_id, row.node_types.clone())).collect()
    };
    named(one) == named(other)
}

impl Snapshot {
    /// Builds the catalogue with its lookups.
    pub fn new(
        revision: i64,
        plugins: BTreeMap<String, PluginRow>,
        enablement: BTreeMap<EnablementKey, bool>,
        pins: BTreeMap<PinKey, String>,
    ) -> Self {
        let mut index = Index::default();
        plugins.values().for_each(|plugin| index.add(plugin));
        let plugins = plugins.into_iter().map(|(id, plugin)| (id, Arc::new(plugin))).collect();
        Self { revision, plugins, enablement: enablement.into(), pins: pins.into(), index }
    }

    /// The catalogue after the changes.
    pub(super) fn after(&self, delta: Delta) -> Self {
        let Delta { revision, changed, mut plugins, enablement, pins } = delta;
        let mut next = Self { revision, ..self.clone() };
        for id in &changed {
            let (old, new) = (next.plugins.remove(id), plugins.remove(id));
            let moved = match (&old, &new) {
                (Some(old), Some(new)) => !same_index(old, new),
                _ => true,
            };
            if let Some(old) = old.filter(|_| moved) {
                next.index.remove(&old);
            }
            if let Some(new) = new {
                if moved {
                    next.index.add(&new);
                }
                next.plugins.insert(id.clone(), Arc::new(new));
            }
        }
        settle(&mut next.enablement, enablement, |key| changed.contains(&key.plugin_id));
        settle(&mut next.pins, pins, |key| changed.contains(&key.plugin_id));
        next
    }

    /// A plugin, also a removed one.
    pub fn plugin(&self, plugin_id: &str) -> Option<&PluginRow> {
        self.plugins.get(plugin_id).map(Arc::as_ref)
    }

    /// The plugin that a node type belongs to: the live one whose newest usable publication has it (or
    /// a yanked one that is newer still), else a live one with an older publication that has it (a
    /// workspace may be pinned to that), else a removed one.
    pub fn owner_of(&self, node_type: &str) -> Option<&PluginRow> {
        match self.index.claimants.get(node_type)?.as_slice() {
            [only] => self.plugin(only),
            several => {
                let claims = several.iter().filter_map(|id| {
                    let plugin = self.plugin(id)?;
                    Some((plugin.claim(node_type)?, plugin))
                });
                claims.min_by_key(|(claim, _)| *claim).map(|(_, plugin)| plugin)
            }
        }
    }

    /// The plugin and the row of a publication.
    pub fn publication(&self, publication_id: PublicationId) -> Option<(&PluginRow, &PublicationRow)> {
        let (plugin_id, place) = self.index.publications.get(&publication_id)?;
        let plugin = self.plugin(plugin_id)?;
        Some((plugin, plugin.publications.get(*place)?))
    }

    /// The plugin that gets a task, when it has a limit of attempts at once: that of the publication, or
    /// without one the owner of the node type.
    pub fn limited_plugin(
        &self,
        node_type: &str,
        publication_id: Option<PublicationId>,
    ) -> Option<&PluginRow> {
        let found = publication_id.and_then(|id| self.publication(id)).map(|(plugin, _)| plugin);
        found.or_else(|| self.owner_of(node_type)).filter(|plugin| plugin.max_attempts.is_some())
    }

    /// Has the plugin a limit of attempts at once?
    pub fn is_limited(&self, plugin_id: &str) -> bool {
        self.plugins.get(plugin_id).is_some_and(|plugin| plugin.max_attempts.is_some())
    }

    /// The version that a workspace is pinned to.
    pub fn pinned_version(&self, plugin_id: &str, workspace_id: &str) -> Option<&str> {
        let key = PinKey { workspace_id: workspace_id.to_owned(), plugin_id: plugin_id.to_owned() };
        self.pins.get(&key).map(String::as_str)
    }

    /// The publication that a run of the workspace takes for a node type now: the pinned version of
    /// the node type's owner, also when it is yanked, else its newest that is not. A pin never moves:
    /// a pinned version that does not exist is `None`, and so is a plugin with nothing but yanked ones.
    pub fn resolve(&self, node_type: &str, workspace_id: &str) -> Option<PublicationId> {
        let owner = self.owner_of(node_type)?;
        self.chosen(owner, workspace_id).map(|publication| publication.publication_id)
    }

    fn chosen<'a>(&self, plugin: &'a PluginRow, workspace_id: &str) -> Option<&'a PublicationRow> {
        match self.pinned_version(&plugin.plugin_id, workspace_id) {
            Some(version) => plugin.version(version),
            None => plugin.usable(),
        }
    }

    /// What policy decides on (protocol section 6): for the publication that a run is pinned to, or
    /// without one for what the workspace resolves to now.
    pub fn facts(
        &self,
        node_type: &str,
        publication_id: Option<PublicationId>,
        workspace_id: &str,
        user_id: &str,
        default_enabled: bool,
    ) -> Facts {
        let found = publication_id.and_then(|id| self.publication(id));
        let Some(plugin) = found.map(|(plugin, _)| plugin).or_else(|| self.owner_of(node_type)) else {
            return Facts { subject: node_type.to_owned(), ..Facts::default() };
        };
        let publication = match publication_id {
            Some(_) => found.map(|(_, publication)| publication),
            None => self.chosen(plugin, workspace_id),
        };
        let plugin_id = &plugin.plugin_id;
        let subject = match (publication, publication_id) {
            (Some(publication), _) => format!("{plugin_id}@{}", publication.version),
            (None, Some(id)) => format!("{plugin_id}@{id}"),
            (None, None) => {
                format!("{plugin_id}@{}", self.pinned_version(plugin_id, workspace_id).unwrap_or("?"))
            }
        };
        Facts {
            plugin: Some(PluginFacts {
                plugin_id: plugin_id.clone(),
                removed: plugin.removed_at.is_some(),
                enabled_in_workspace: self.setting(workspace_id, None, plugin_id).unwrap_or(default_enabled),
                enabled_for_user: self.setting(workspace_id, Some(user_id), plugin_id),
                quarantined: plugin.quarantined,
                health: plugin.health.state,
            }),
            publication: publication.map(|publication| publication.publication_id),
            subject,
            signature: publication.map(|publication| publication.seal.state).unwrap_or_default(),
            has_node_type: publication
                .is_some_and(|publication| publication.node_types.iter().any(|known| known == node_type)),
        }
    }

    /// An explicit setting of a workspace or a user.
    fn setting(&self, workspace_id: &str, user_id: Option<&str>, plugin_id: &str) -> Option<bool> {
        let key = EnablementKey {
            workspace_id: workspace_id.to_owned(),
            user_id: user_id.map(str::to_owned),
            plugin_id: plugin_id.to_owned(),
        };
        self.enablement.get(&key).copied()
    }

    /// Where the plugin takes tasks of a node type.
    pub fn endpoint_of(&self, plugin_id: &str, node_type: &str) -> Option<&Endpoint> {
        let plugin = self.plugin(plugin_id)?;
        Some(plugin.node_endpoints.get(node_type).unwrap_or(&plugin.endpoint))
    }

    /// The plugin as lists show it, with its enablement for a workspace (and a user there).
    pub fn summary(
        &self,
        plugin_id: &str,
        workspace_id: &str,
        user_id: Option<&str>,
        default_enabled: bool,
    ) -> Option<PluginSummary> {
        let plugin = self.plugin(plugin_id)?;
        let newest = plugin.shown()?;
        let in_workspace = self.setting(workspace_id, None, plugin_id).unwrap_or(default_enabled);
        let for_user = user_id.and_then(|user_id| self.setting(workspace_id, Some(user_id), plugin_id));
        Some(PluginSummary {
            plugin_id: plugin.plugin_id.clone(),
            label: newest.label.clone(),
            description: newest.description.clone(),
            publication_version: newest.version.clone(),
            publication_id: newest.publication_id,
            digest: newest.digest,
            published_at: newest.published_at,
            node_types: newest.node_types.clone(),
            endpoint: plugin.endpoint.clone(),
            health: plugin.health.clone(),
            enabled: in_workspace && for_user != Some(false),
            quarantined: plugin.quarantined,
            removed: plugin.removed_at.is_some(),
            max_attempts: plugin.max_attempts,
            pinned_version: self.pinned_version(plugin_id, workspace_id).map(str::to_owned),
            signature: newest.seal.state,
        })
    }
}

/// Puts the entries of changed plugins in place of those that were; nothing is copied where nothing
/// differs.
fn settle<K: Clone + Ord, V: Clone + PartialEq>(
    known: &mut Arc<BTreeMap<K, V>>,
    found: BTreeMap<K, V>,
    about_changed: impl Fn(&K) -> bool,
) {
    if known.iter().filter(|(key, _)| about_changed(key)).eq(&found) {
        return;
    }
    let known = Arc::make_mut(known);
    known.retain(|key, _| !about_changed(key));
    known.extend(found);
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
