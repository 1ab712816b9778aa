//! Catalogue calls: api and CLI ask and change (protocol sections 3 and 6).

use super::Door;
use contract::{
    ErrorCode, Millis, RpcError,
    catalogue::{
        Asset, AssetRequest, Changed, ExplainRequest, PluginDetail, PluginHealth, PluginHealthList,
        PluginList, PluginListRequest, PluginRef, PluginVersion, PluginVersions,
    },
    policy::{self, Decision},
};
use std::sync::Arc;
use storage::catalogue::{Change, PluginRow, PublicationRow, Snapshot};

impl Door {
    pub(super) async fn list(&self, request: &PluginListRequest) -> Result<PluginList, RpcError> {
        let snapshot = self.view.fresh().await?;
        // What is shown follows from the revision and from what plugins are by default, which a restart
        // may change.
        let (revision, by_default) = (snapshot.revision, if self.enabled_by_default { "on" } else { "off" });
        let tag = Some(format!("{revision}-{by_default}"));
        if request.if_none_match == tag {
            return Ok(PluginList { plugins: Vec::new(), revision, tag, not_modified: true });
        }
        let shown =
            snapshot.plugins.values().filter(|row| request.include_removed || row.removed_at.is_none());
        let plugins = shown
            .filter_map(|row| {
                let user = request.user_id.as_deref();
                snapshot.summary(&row.plugin_id, &request.workspace_id, user, self.enabled_by_default)
            })
            .collect();
        Ok(PluginList { plugins, revision, tag, not_modified: false })
    }

    pub(super) async fn get(&self, request: &PluginRef) -> Result<PluginDetail, RpcError> {
        let snapshot = self.view.fresh().await?;
        let row = known(&snapshot, &request.plugin_id)?;
        let publication = chosen(row, request.publication_version.as_deref())?;
        let stored = self.documents.of(publication).await?;
        let unreadable = |what: &str, error: &serde_json::Error| {
            let subject = format!("{}@{}", row.plugin_id, publication.version);
            tracing::error!(
                event = "publication_unreadable",
                publication = subject,
                what,
                error = %error,
                "a stored publication cannot be read"
            );
            RpcError::new(ErrorCode::Internal, format!("the stored {what} of {subject} cannot be read"))
        };
        let user = request.user_id.as_deref();
        let summary = snapshot.summary(&row.plugin_id, &request.workspace_id, user, self.enabled_by_default);
        Ok(PluginDetail {
            plugin: summary.ok_or_else(|| unknown(&request.plugin_id))?,
            manifest: stored.manifest.read().map_err(|error| unreadable("manifest", &error))?,
            assets: stored.assets.clone(),
            items: stored.items.read().map_err(|error| unreadable("executors", &error))?,
        })
    }

    pub(super) async fn versions(&self, request: &PluginRef) -> Result<PluginVersions, RpcError> {
        let snapshot = self.view.fresh().await?;
        let row = known(&snapshot, &request.plugin_id)?;
        let version = |row: &PublicationRow| PluginVersion {
            yanked_at: row.yanked_at,
            signature: row.seal.state,
            signed_by: row.seal.key_id.clone(),
            publication_version: row.version.clone(),
            publication_id: row.publication_id,
            digest: row.digest,
            published_at: row.published_at,
        };
        Ok(PluginVersions { versions: row.publications.iter().map(version).collect() })
    }

    pub(super) async fn set_enabled(&self, request: &PluginRef, enabled: bool) -> Result<Changed, RpcError> {
        let snapshot = self.view.fresh().await?;
        let row = known(&snapshot, &request.plugin_id)?;
        if enabled {
            not_removed(row)?;
        }
        let (workspace_id, user_id) = (&request.workspace_id, request.user_id.as_deref());
        let at = self.now().await?;
        let catalogue = self.storage.catalogue();
        let change = catalogue.set_enabled(workspace_id, user_id, &row.plugin_id, enabled, at).await;
        let changed = self.changed(change).await?;
        tracing::info!(
            event = if enabled { "plugin_enabled" } else { "plugin_disabled" },
            plugin_id = row.plugin_id,
            workspace_id,
            user_id,
            changed = changed.changed,
            "enablement of a plugin was set"
        );
        Ok(changed)
    }

    pub(super) async fn remove(&self, request: &PluginRef) -> Result<Changed, RpcError> {
        let snapshot = self.view.fresh().await?;
        let row = known(&snapshot, &request.plugin_id)?;
        if !request.force {
            self.not_in_use(&snapshot, row).await?;
        }
        let at = self.now().await?;
        let changed = self.changed(self.storage.catalogue().remove(&row.plugin_id, at).await).await?;
        tracing::info!(
            event = "plugin_removed",
            plugin_id = row.plugin_id,
            forced = request.force,
            changed = changed.changed,
            "plugin is a tombstone; what runs finishes"
        );
        Ok(changed)
    }

    /// Refuses when a process uses a node type that the plugin owns.
    async fn not_in_use(&self, snapshot: &Snapshot, row: &PluginRow) -> Result<(), RpcError> {
        let mut node_types: Vec<String> =
            row.publications.iter().flat_map(|publication| publication.node_types.iter().cloned()).collect();
        node_types.sort_unstable();
        node_types.dedup();
        node_types.retain(|node_type| {
            snapshot.owner_of(node_type).is_some_and(|owner| owner.plugin_id == row.plugin_id)
        });
        let processes = self.storage.processes().using(&node_types).await.map_err(|error| error.to_rpc())?;
        if processes.is_empty() {
            return Ok(());
        }
        let shown: Vec<String> =
            processes.iter().take(5).map(|(id, name)| format!("{name:?} ({id})")).collect();
        let more = match processes.len().saturating_sub(shown.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named: Vec<_> =
            processes.iter().map(|(id, name)| serde_json::json!({ "id": id, "name": name })).collect();
        Err(RpcError::new(
            ErrorCode::PluginInUse,
            format!(
                "plugin {:?} is used by the processes {}{more}; change or delete them first, or force the \
                 removal",
                row.plugin_id,
                shown.join(", ")
            ),
        )
        .with_details(serde_json::json!({ "processes": named })))
    }

    pub(super) async fn asset(&self, request: &AssetRequest) -> Result<Asset, RpcError> {
        let snapshot = self.view.fresh().await?;
        let row = known(&snapshot, &request.plugin_id)?;
        let publication = chosen(row, request.publication_version.as_deref())?;
        let stored = self.documents.of(publication).await?;
        stored.assets.iter().find(|asset| asset.key == request.key).cloned().ok_or_else(|| {
            RpcError::new(
                ErrorCode::NotFound,
                format!("{}@{} has no static asset {:?}", row.plugin_id, publication.version, request.key),
            )
        })
    }

    /// Read from the database and not from the snapshot, which counts of probes do not renew.
    pub(super) async fn health(&self, request: &PluginListRequest) -> Result<PluginHealthList, RpcError> {
        let catalogue = self.storage.catalogue();
        let snapshot = self.view.fresh().await?;
        let mut newest = catalogue.health().await.map_err(|error| error.to_rpc())?;
        let mut history = catalogue.health_history().await.map_err(|error| error.to_rpc())?;
        let shown =
            snapshot.plugins.values().filter(|row| request.include_removed || row.removed_at.is_none());
        let health = |row: &Arc<PluginRow>| PluginHealth {
            plugin_id: row.plugin_id.clone(),
            endpoint: row.endpoint.clone(),
            health: newest.remove(&row.plugin_id).unwrap_or_default(),
            history: history.remove(&row.plugin_id).unwrap_or_default(),
        };
        Ok(PluginHealthList { plugins: shown.map(health).collect(), revision: snapshot.revision })
    }

    pub(super) async fn explain(&self, request: &ExplainRequest) -> Result<Decision, RpcError> {
        let ExplainRequest { workspace_id, user_id, node_type, publication_id } = request;
        let snapshot = self.view.fresh().await?;
        let facts =
            snapshot.facts(node_type, *publication_id, workspace_id, user_id, self.enabled_by_default);
        Ok(policy::decide(node_type, workspace_id, user_id, &facts))
    }

    pub(super) async fn now(&self) -> Result<Millis, RpcError> {
        self.storage.now().await.map_err(|error| error.to_rpc())
    }

    /// A change as it is answered, after everyone was told.
    pub(super) async fn changed(&self, change: storage::Result<Change>) -> Result<Changed, RpcError> {
        let Change { changed, revision } = change.map_err(|error| error.to_rpc())?;
        if changed {
            self.view.announce(revision).await;
        }
        Ok(Changed { changed, revision })
    }
}

pub(super) fn known<'s>(snapshot: &'s Arc<Snapshot>, plugin_id: &str) -> Result<&'s PluginRow, RpcError> {
    snapshot.plugin(plugin_id).ok_or_else(|| unknown(plugin_id))
}

fn unknown(plugin_id: &str) -> RpcError {
    RpcError::new(
        ErrorCode::PluginUnknown,
        format!("the catalogue has no plugin {plugin_id:?}; start it so that it publishes itself"),
    )
}

pub(super) fn not_removed(row: &PluginRow) -> Result<(), RpcError> {
    match row.removed_at {
        None => Ok(()),
        Some(_) => Err(RpcError::new(
            ErrorCode::PluginRemoved,
            format!("plugin {:?} was removed; publish it again first", row.plugin_id),
        )),
    }
}

/// Exactly the named version, or the one that new use takes.
pub(super) fn chosen<'r>(row: &'r PluginRow, version: Option<&str>) -> Result<&'r PublicationRow, RpcError> {
    let publication = match version {
        Some(version) => row.version(version),
        None => row.shown(),
    };
    publication.ok_or_else(|| {
        RpcError::new(
            ErrorCode::PublicationMissing,
            format!("{}@{} is not published; see its versions", row.plugin_id, version.unwrap_or("?")),
        )
    })
}
