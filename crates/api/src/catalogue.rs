//! What the catalogue knows of node types, asked of plugin-manager and kept by digest: listing is
//! one call, and a plugin's executors are asked for once per publication.

use crate::{palettes::Palettes, rpc::Neighbour};
use contract::{
    Digest, RpcError,
    catalogue::{PluginDetail, PluginList, PluginListRequest, PluginRef, PluginSummary},
    manifest::ExecutorItem,
    pattern,
    process::NodeType,
};
use futures::{StreamExt, TryStreamExt, stream};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};
use storage::users::Principal;

/// How many plugins are asked for at once.
const PARALLEL: usize = 8;

/// Plugin, version that the workspace uses, digest of the newest publication.
type Key = (String, String, Digest);

/// The catalogue as the editor and validation need it.
#[derive(Debug)]
pub(crate) struct Catalogue {
    plugins: Neighbour,
    known: Mutex<HashMap<Key, Arc<Vec<ExecutorItem>>>>,
    /// The catalogue as the editor is shown it.
    pub(crate) palettes: Palettes,
}

/// A plugin with its executors, in the version that the workspace uses.
#[derive(Clone, Debug)]
pub(crate) struct Plugin {
    pub(crate) summary: PluginSummary,
    pub(crate) items: Arc<Vec<ExecutorItem>>,
}

impl Catalogue {
    /// Asks this plugin-manager.
    pub(crate) fn new(plugins: Neighbour) -> Self {
        Self { plugins, known: Mutex::default(), palettes: Palettes::default() }
    }

    /// The live plugins as the principal sees them; `not_modified` when `if_none_match` is the tag of that.
    ///
    /// # Errors
    /// What plugin-manager answers, or `unavailable`.
    pub(crate) async fn list(
        &self,
        principal: &Principal,
        if_none_match: Option<String>,
    ) -> Result<PluginList, RpcError> {
        let request = PluginListRequest {
            workspace_id: principal.workspace_id.clone(),
            user_id: Some(principal.user_id.clone()),
            include_removed: false,
            if_none_match,
        };
        self.plugins.call(pattern::PLUGIN_LIST, &request).await
    }

    /// The listed plugins with their executors.
    ///
    /// # Errors
    /// As [`Catalogue::list`].
    pub(crate) async fn with_executors(
        &self,
        listed: Vec<PluginSummary>,
        principal: &Principal,
    ) -> Result<Vec<Plugin>, RpcError> {
        let plugins: Vec<Plugin> = stream::iter(listed)
            .map(|summary| self.with_items(summary, &principal.workspace_id))
            .buffered(PARALLEL)
            .try_collect()
            .await?;
        self.forget_all_but(&plugins);
        Ok(plugins)
    }

    /// The node types by name, for validation.
    ///
    /// # Errors
    /// As [`Catalogue::list`].
    pub(crate) async fn node_types(
        &self,
        principal: &Principal,
    ) -> Result<BTreeMap<String, NodeType>, RpcError> {
        let listed = self.list(principal, None).await?.plugins;
        let plugins = self.with_executors(listed, principal).await?;
        let items = plugins.iter().flat_map(|plugin| plugin.items.iter());
        Ok(items
            .map(|item| {
                let node_type = NodeType { inputs: item.inputs.clone(), outputs: item.outputs.clone() };
                (item.node_type.clone(), node_type)
            })
            .collect())
    }

    async fn with_items(&self, summary: PluginSummary, workspace_id: &str) -> Result<Plugin, RpcError> {
        let key = key(&summary);
        if let Some(items) = self.lock().get(&key).cloned() {
            return Ok(Plugin { summary, items });
        }
        let request = PluginRef {
            plugin_id: key.0.clone(),
            workspace_id: workspace_id.to_owned(),
            publication_version: Some(key.1.clone()),
            ..PluginRef::default()
        };
        let detail: PluginDetail = self.plugins.call(pattern::PLUGIN_GET, &request).await?;
        let items = Arc::new(detail.items);
        self.lock().insert(key, Arc::clone(&items));
        Ok(Plugin { summary, items })
    }

    /// Keeps what the newest listing names, so that the memory follows the catalogue's size. Other
    /// workspaces' pinned versions are asked for again.
    fn forget_all_but(&self, plugins: &[Plugin]) {
        let mut known = self.lock();
        if known.len() > 2 * plugins.len() + 16 {
            let named: std::collections::HashSet<Key> =
                plugins.iter().map(|plugin| key(&plugin.summary)).collect();
            known.retain(|key, _| named.contains(key));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Arc<Vec<ExecutorItem>>>> {
        // A panic elsewhere leaves a whole map behind: every change is one call.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(summary: &PluginSummary) -> Key {
    let version = summary.pinned_version.as_ref().unwrap_or(&summary.publication_version);
    (summary.plugin_id.clone(), version.clone(), summary.digest)
}
