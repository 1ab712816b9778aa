//! Hand-out of manifests to executors, engine and api (protocol section 3). A plugin that is not
//! there yet is waited for; many callers cost one query.

use crate::{documents::Documents, view::View};
use contract::{
    ErrorCode, Json, RpcError,
    catalogue::{HandOut, HandOutRequest, Health},
};
use std::{sync::Arc, time::Duration};
use storage::catalogue::{PluginRow, PublicationRow, Snapshot, StoredPublication};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// Hands out manifests.
#[derive(Debug)]
pub(crate) struct HandOuts {
    pub(crate) view: Arc<View>,
    pub(crate) documents: Arc<Documents>,
    /// Longest wait for a plugin that is not there yet.
    pub(crate) timeout: Duration,
    /// Waiting ends when the service stops.
    pub(crate) stop: CancellationToken,
}

/// What a snapshot says about a request.
#[derive(Debug)]
enum Found {
    /// This publication, of a plugin of this health.
    Here(PublicationRow, Health),
    /// Nothing yet; it may come.
    Missing,
    /// Waiting would not help.
    Refused(RpcError),
}

/// What a hand-out answers.
struct Ready {
    row: PublicationRow,
    health: Health,
    revision: i64,
    /// `None`: the caller has it already.
    stored: Option<Arc<StoredPublication>>,
}

impl HandOuts {
    /// Answers a hand-out.
    ///
    /// # Errors
    /// `invalid_request`, `plugin_removed`, `node_type_unknown`, `manifest_timeout`, `unavailable`.
    pub(crate) async fn hand_out(&self, request: &HandOutRequest) -> Result<Json, RpcError> {
        let find = self.find_documents(request);
        let Some(found) = self.stop.run_until_cancelled(find).await else {
            return Err(RpcError::new(ErrorCode::Unavailable, "plugin-manager stops; ask again"));
        };
        let Ready { row, health, revision, stored } = found?;
        let Some(stored) = stored else {
            return Ok(Json::from(serde_json::json!({ "notModified": true })));
        };
        let answer = HandOut {
            publication_id: row.publication_id,
            digest: row.digest,
            manifest: stored.manifest.clone(),
            items: stored.items.clone(),
            health,
            revision,
        };
        Json::of(&answer).map_err(|error| {
            RpcError::new(ErrorCode::Internal, format!("the manifest cannot be written: {error}"))
        })
    }

    /// Waits for the publication and reads its documents. When it is replaced between the two, it is
    /// looked for once more.
    async fn find_documents(&self, request: &HandOutRequest) -> Result<Ready, RpcError> {
        let mut again = true;
        loop {
            let (row, health, revision) = self.wait_for(request).await?;
            if request.if_none_match == Some(row.digest) {
                return Ok(Ready { row, health, revision, stored: None });
            }
            match self.documents.of(&row).await {
                Err(error) if error.code == ErrorCode::Conflict && again => {
                    again = false;
                    self.view.fresh().await?;
                }
                stored => return Ok(Ready { row, health, revision, stored: Some(stored?) }),
            }
        }
    }

    async fn wait_for(&self, request: &HandOutRequest) -> Result<(PublicationRow, Health, i64), RpcError> {
        let until = Instant::now() + self.timeout;
        let mut changes = self.view.subscribe();
        let mut looked = false;
        loop {
            let snapshot = Arc::clone(&changes.borrow_and_update());
            match find(&snapshot, request) {
                Found::Here(row, health) => return Ok((row, health, snapshot.revision)),
                // Before anyone waits or is refused, the database is asked: the snapshot may be a
                // moment old.
                Found::Missing | Found::Refused(_) if !looked => {
                    looked = true;
                    self.view.fresh().await?;
                }
                Found::Refused(error) => return Err(error),
                Found::Missing => match timeout_at(until, changes.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) | Err(_) => return Err(self.not_there(request)),
                },
            }
        }
    }

    fn not_there(&self, request: &HandOutRequest) -> RpcError {
        let version =
            request.publication_version.as_deref().map(|version| format!("@{version}")).unwrap_or_default();
        let wanted = match (&request.plugin_id, &request.node_type) {
            (Some(plugin_id), _) => format!("plugin {plugin_id}{version}"),
            (None, Some(node_type)) => format!("a plugin with the node type {node_type:?}{version}"),
            (None, None) => "nothing".to_owned(),
        };
        RpcError::new(
            ErrorCode::ManifestTimeout,
            format!(
                "{wanted} was not published within {} ms; start the plugin so that it publishes itself",
                self.timeout.as_millis()
            ),
        )
    }
}

fn find(snapshot: &Snapshot, request: &HandOutRequest) -> Found {
    let plugin = match (&request.plugin_id, &request.node_type) {
        (Some(plugin_id), _) => snapshot.plugin(plugin_id),
        (None, Some(node_type)) => snapshot.owner_of(node_type),
        (None, None) => {
            return Found::Refused(RpcError::new(
                ErrorCode::InvalidRequest,
                "a hand-out names a nodeType or a pluginId; give one of them",
            ));
        }
    };
    let Some(plugin) = plugin else { return Found::Missing };
    let node_type = request.node_type.as_deref();
    match &request.publication_version {
        Some(version) => exactly(plugin, version, node_type),
        None if plugin.removed_at.is_some() => Found::Refused(RpcError::new(
            ErrorCode::PluginRemoved,
            format!("plugin {:?} was removed; publish it again to use it", plugin.plugin_id),
        )),
        None => {
            let mut usable = plugin.publications.iter().filter(|row| row.yanked_at.is_none());
            let newest = usable.find(|row| node_type.is_none_or(|wanted| has(row, wanted)));
            newest.map_or(Found::Missing, |row| Found::Here(row.clone(), plugin.health.clone()))
        }
    }
}

/// Exactly this version, also a yanked one or that of a removed plugin: what runs finishes under it.
fn exactly(plugin: &PluginRow, version: &str, node_type: Option<&str>) -> Found {
    match (plugin.version(version), node_type) {
        (None, _) => Found::Missing,
        (Some(row), Some(node_type)) if !has(row, node_type) => Found::Refused(RpcError::new(
            ErrorCode::NodeTypeUnknown,
            format!("{}@{version} has no node type {node_type:?}", plugin.plugin_id),
        )),
        (Some(row), _) => Found::Here(row.clone(), plugin.health.clone()),
    }
}

fn has(row: &PublicationRow, node_type: &str) -> bool {
    row.node_types.iter().any(|known| known == node_type)
}
