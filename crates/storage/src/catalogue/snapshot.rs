//! The catalogue in memory, for caches: everything but the manifests and items, with the questions
//! that control plane, engine and plugin-manager ask of it. Pure.

use super::Seal;
use contract::{
    Digest, Millis, PublicationId,
    catalogue::{Health, PluginSummary},
    manifest::Endpoint,
    policy::{Facts, PluginFacts},
};
use std::collections::{BTreeMap, HashMap};

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

/// The catalogue at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Grows with every change.
    pub revision: i64,
    /// By plugin id.
    pub plugins: BTreeMap<String, PluginRow>,
    /// Explicit settings; everything else follows the default.
    pub enablement: BTreeMap<EnablementKey, bool>,
    /// Pinned versions.
    pub pins: BTreeMap<PinKey, String>,
    /// Owner of each node type that some publication has.
    owners: HashMap<String, String>,
    /// Plugin and place of each publication.
    publications: HashMap<PublicationId, (String, usize)>,
}

impl Snapshot {
    /// Builds the catalogue with its lookups.
    pub fn new(
        revision: i64,
        plugins: BTreeMap<String, PluginRow>,
        enablement: BTreeMap<EnablementKey, bool>,
        pins: BTreeMap<PinKey, String>,
    ) -> Self {
        let mut claims: HashMap<&str, ((bool, bool), &str)> = HashMap::new();
        let mut publications = HashMap::new();
        for plugin in plugins.values() {
            for (place, publication) in plugin.publications.iter().enumerate() {
                publications.insert(publication.publication_id, (plugin.plugin_id.clone(), place));
                for node_type in &publication.node_types {
                    let Some(claim) = plugin.claim(node_type) else { continue };
                    let best = claims.entry(node_type).or_insert((claim, &plugin.plugin_id));
                    if claim < best.0 {
                        *best = (claim, &plugin.plugin_id);
                    }
                }
            }
        }
        let owners = claims
            .into_iter()
            .map(|(node_type, (_, plugin_id))| (node_type.to_owned(), plugin_id.to_owned()))
            .collect();
        Self { revision, plugins, enablement, pins, owners, publications }
    }

    /// The plugin that a node type belongs to: the live one whose newest usable publication has it (or
    /// a yanked one that is newer still), else a live one with an older publication that has it (a
    /// workspace may be pinned to that), else a removed one.
    pub fn owner_of(&self, node_type: &str) -> Option<&PluginRow> {
        self.plugins.get(self.owners.get(node_type)?)
    }

    /// The plugin and the row of a publication.
    pub fn publication(&self, publication_id: PublicationId) -> Option<(&PluginRow, &PublicationRow)> {
        let (plugin_id, place) = self.publications.get(&publication_id)?;
        let plugin = self.plugins.get(plugin_id)?;
        Some((plugin, plugin.publications.get(*place)?))
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
        let plugin = self.plugins.get(plugin_id)?;
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
        let plugin = self.plugins.get(plugin_id)?;
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
            pinned_version: self.pinned_version(plugin_id, workspace_id).map(str::to_owned),
            signature: newest.seal.state,
        })
    }
}
