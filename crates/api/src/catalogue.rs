//! What the catalogue knows of node types, asked of plugin-manager and kept by digest: listing is
//! one call, and a plugin's executors are asked for once per publication.

use crate::rpc::Neighbour;
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
        Self { plugins, known: Mutex::default() }
    }

    /// All live plugins as the principal sees them, with the catalogue's revision.
    ///
    /// # Errors
    /// What plugin-manager answers, or `unavailable`.
    pub(crate) async fn load(&self, principal: &Principal) -> Result<(Vec<Plugin>, i64), RpcError> {
        let request = PluginListRequest {
            workspace_id: principal.workspace_id.clone(),
            user_id: Some(principal.user_id.clone()),
            include_removed: false,
        };
        let list: PluginList = self.plugins.call(pattern::PLUGIN_LIST, &request).await?;
        let plugins: Vec<Plugin> = stream::iter(list.plugins)
            .map(|summary| self.with_items(summary, &principal.workspace_id))
            .buffered(PARALLEL)
            .try_collect()
            .await?;
        self.forget_all_but(&plugins);
        Ok((plugins, list.revision))
    }

    /// The node types by name, for validation.
    ///
    /// # Errors
    /// As [`Catalogue::load`].
    pub(crate) async fn node_types(
        &self,
        principal: &Principal,
    ) -> Result<BTreeMap<String, NodeType>, RpcError> {
        let (plugins, _) = self.load(principal).await?;
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
