//! Calls about single versions and about what operators hold back (protocol sections 3 and 6).

use super::{
    Door,
    catalogue::{chosen, known, not_removed},
};
use contract::{
    ErrorCode, RpcError,
    catalogue::{Changed, DiffRequest, PluginDiff, PluginRef},
    diff::diff,
    manifest::ExecutorItem,
};
use storage::catalogue::PluginRow;

impl Door {
    pub(super) async fn pin(&self, request: &PluginRef) -> Result<Changed, RpcError> {
        let snapshot = self.view.fresh().await?;
        let row = known(&snapshot, &request.plugin_id)?;
        not_removed(row)?;
        let version = named_version(request, "a pin")?;
        if chosen(row, Some(version))?.yanked_at.is_some() {
            return Err(RpcError::new(
                ErrorCode::Conflict,
                format!(
                    "{}@{version} is yanked, so nothing new is pinned to it; pin another version, or take \
                     the yank back",
                    row.plugin_id
                ),
            ));
        }
        let change = self.storage.catalogue().pin(&request.workspace_id, &row.plugin_id, version).await;
        let changed = self.changed(change).await?;
        tracing::info!(
            event = "plugin_pinned",
            plugin_id = row.plugin_id,
            workspace_id = request.workspace_id,
            version,
            "a workspace is pinned to a version"
        );
        Ok(changed)
    }

    pub(super) async fn unpin(&self, request: &PluginRef) -> Result<Changed, RpcError> {
        let snapshot = self.view.fresh().await?;
        let row = known(&snapshot, &request.plugin_id)?;
        let change = self.storage.catalogue().unpin(&request.workspace_id, &row.plugin_id).await;
        let changed = self.changed(change).await?;
        tracing::info!(
            event = "plugin_unpinned",
            plugin_id = row.plugin_id,
            workspace_id = request.workspace_id,
            "a workspace follows the newest version again"
        );
        Ok(changed)
    }

    /// Yanks a version or takes that back. What runs and what is pinned keeps it.
    pub(super) async fn set_yanked(&self, request: &PluginRef, yanked: bool) -> Result<Changed, RpcError> {
        let snapshot = self.view.fresh().await?;
        let row = known(&snapshot, &request.plugin_id)?;
        let version = named_version(request, "a yank")?;
        chosen(row, Some(version))?;
        let at = match yanked {
            true => Some(self.now().await?),
            false => None,
        };
        let change = self.storage.catalogue().set_yanked(&row.plugin_id, version, at).await;
        let changed = self.changed(change).await?;
        tracing::info!(
            event = if yanked { "plugin_yanked" } else { "plugin_unyanked" },
            plugin_id = row.plugin_id,
            version,
            changed = changed.changed,
            "the use of a version was changed"
        );
        Ok(changed)
    }

    /// Quarantines a plugin or lifts that. What was dispatched finishes.
    pub(super) async fn set_quarantined(
        &self,
        request: &PluginRef,
        quarantined: bool,
    ) -> Result<Changed, RpcError> {
        let snapshot = self.view.fresh().await?;
        let row = known(&snapshot, &request.plugin_id)?;
        let change = self.storage.catalogue().set_quarantined(&row.plugin_id, quarantined).await;
        let changed = self.changed(change).await?;
        tracing::warn!(
            event = if quarantined { "plugin_quarantined" } else { "plugin_released" },
            plugin_id = row.plugin_id,
            changed = changed.changed,
            "the quarantine of a plugin was set"
        );
        Ok(changed)
    }

    /// Limits how many attempts of a plugin are under way at once, or lifts that. What was dispatched
    /// finishes.
    pub(super) async fn limit(&self, request: &PluginRef) -> Result<Changed, RpcError> {
        if request.max_attempts == Some(0) {
            let message = "maxAttempts must be at least 1; to keep all tasks from a plugin, quarantine it";
            return Err(RpcError::new(ErrorCode::InvalidRequest, message));
        }
        let snapshot = self.view.fresh().await?;
        let row = known(&snapshot, &request.plugin_id)?;
        let change = self.storage.catalogue().set_max_attempts(&row.plugin_id, request.max_attempts).await;
        let changed = self.changed(change).await?;
        tracing::info!(
            event = "plugin_limited",
            plugin_id = row.plugin_id,
            max_attempts = request.max_attempts,
            changed = changed.changed,
            "the limit of a plugin was set"
        );
        Ok(changed)
    }

    /// What changed between two versions.
    pub(super) async fn diff(&self, request: &DiffRequest) -> Result<PluginDiff, RpcError> {
        let snapshot = self.view.fresh().await?;
        let row = known(&snapshot, &request.plugin_id)?;
        let (older, newer) = (self.items(row, &request.from).await?, self.items(row, &request.to).await?);
        let changes = diff(&older, &newer);
        Ok(PluginDiff { breaking: changes.iter().any(|change| change.breaking), changes })
    }

    async fn items(&self, row: &PluginRow, version: &str) -> Result<Vec<ExecutorItem>, RpcError> {
        let stored = self.documents.of(chosen(row, Some(version))?).await?;
        stored.items.read().map_err(|error| {
            let subject = format!("{}@{version}", row.plugin_id);
            tracing::error!(
                event = "publication_unreadable",
                publication = subject,
                error = %error,
                "a stored publication cannot be read"
            );
            RpcError::new(ErrorCode::Internal, format!("the stored executors of {subject} cannot be read"))
        })
    }
}

/// The version that a call must name.
fn named_version<'r>(request: &'r PluginRef, what: &str) -> Result<&'r str, RpcError> {
    request.publication_version.as_deref().ok_or_else(|| {
        RpcError::new(ErrorCode::InvalidRequest, format!("{what} names its version; give publicationVersion"))
    })
}
