//! Publication: one pipeline, whether a plugin publishes itself or is pulled again at start
//! (protocol section 3).

pub(crate) mod assets;
mod breakage;
mod commits;
pub(crate) mod document;
mod locks;
mod outcome;
pub(crate) mod pull;
mod reach;
mod store;
pub(crate) mod trust;
mod usage;

use crate::{health::Ledger, metrics::Metrics, view::View};
use assets::Assets;
use commits::Commits;
use contract::{
    Digest, ErrorCode, Json, PublicationId, RpcError, Warning,
    catalogue::{Asset, PublicationReply, PublicationStatus, PublishRequest},
    manifest::{Endpoint, ExecutorItem, read_items},
};
use document::Document;
use locks::KeyedLocks;
use outcome::{out_of_time, subject};
use pull::{Puller, Wanted};
use secrecy::SecretString;
use std::sync::Arc;
use storage::{
    Storage,
    catalogue::{PublicationKey, StoredPublication},
};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};
use trust::SigningKeys;

/// Plugins that publish themselves at once; more wait.
const IN_WORK: usize = 64;
/// Publications at once that hold their static assets in memory.
const WITH_ASSETS: usize = 8;

/// What the pipeline needs.
#[derive(Debug)]
pub(crate) struct Publisher {
    storage: Storage,
    view: Arc<View>,
    ledger: Arc<Ledger>,
    metrics: Arc<Metrics>,
    puller: Puller,
    assets: Assets,
    rules: Rules,
    commits: Arc<Commits>,
    locks: KeyedLocks,
    in_work: Semaphore,
    with_assets: Semaphore,
}

/// What the operator allows.
#[derive(Debug)]
pub(crate) struct Rules {
    /// May a version be published again with other content?
    pub(crate) allow_republish: bool,
    /// Are only signed publications taken?
    pub(crate) require_signed: bool,
    /// The keys that count.
    pub(crate) keys: SigningKeys,
}

/// Where a publication's static assets come from.
enum AssetSource {
    /// From the plugin, by URL.
    Plugin,
    /// They are kept already.
    Kept(Vec<Asset>),
}

/// A publication on its way through the pipeline.
struct Draft {
    document: Document,
    /// Where the plugin is; for a stored manifest this may be another place than it says.
    endpoint: Endpoint,
    assets: AssetSource,
    tokens: Vec<SecretString>,
}

/// A plugin's executors, and what was remarked about them.
type Pulled = (Vec<ExecutorItem>, Vec<Warning>);

/// Where a plugin is, and its newest publication.
#[derive(PartialEq, Eq)]
struct Place {
    endpoint: Endpoint,
    publication_id: PublicationId,
    digest: Digest,
}

/// How the pull of a known plugin at start ended.
#[derive(Debug)]
pub(crate) enum Repulled {
    /// It offers what is stored, or what replaced it.
    Current,
    /// It was removed or never published.
    Gone,
    /// It published itself, was moved or removed during the pull, which therefore says nothing.
    Overtaken,
    /// It did not answer.
    Unanswered(RpcError),
    /// It answered, and what it offers was refused; the stored publication stays.
    Refused(RpcError),
}

impl Publisher {
    pub(crate) fn new(
        storage: Storage,
        view: Arc<View>,
        ledger: Arc<Ledger>,
        metrics: Arc<Metrics>,
        puller: Puller,
        assets: Assets,
        rules: Rules,
    ) -> Self {
        let (in_work, with_assets) = (Semaphore::new(IN_WORK), Semaphore::new(WITH_ASSETS));
        let commits = Commits::new(storage.clone(), Arc::clone(&view), Arc::clone(&ledger));
        Self {
            storage,
            view,
            ledger,
            metrics,
            puller,
            assets,
            rules,
            commits: Arc::new(commits),
            locks: KeyedLocks::default(),
            in_work,
            with_assets,
        }
    }

    /// Takes a publication that a plugin sent. `tokens` are what the plugin may be pulled with.
    ///
    /// # Errors
    /// `invalid_manifest`, `batch_pull_failed`, `asset_fetch_failed`, `version_immutable`,
    /// `node_type_conflict`, `signature_required`, `unavailable`.
    pub(crate) async fn publish(
        &self,
        body: &Json,
        tokens: Vec<SecretString>,
    ) -> Result<PublicationReply, RpcError> {
        let draft = document::read(body).map(|document| {
            let endpoint = document.manifest.pull.clone();
            Draft { document, endpoint, assets: AssetSource::Plugin, tokens }
        });
        self.take(draft).await
    }

    /// Publishes on behalf of a plugin: with a manifest, or a known plugin with its stored one.
    ///
    /// # Errors
    /// As [`Publisher::publish`]; `invalid_request`, `plugin_unknown`.
    pub(crate) async fn publish_for(
        &self,
        request: PublishRequest,
        tokens: Vec<SecretString>,
    ) -> Result<PublicationReply, RpcError> {
        let plugin_id = match (&request.manifest, request.plugin_id, &request.from) {
            (None, None, Some(place)) => self.plugin_at(place).await.map(Some),
            (_, plugin_id, _) => Ok(plugin_id),
        };
        let draft = match (request.manifest, plugin_id) {
            (_, Err(error)) => Err(error),
            (Some(manifest), Ok(None)) => {
                document::read_from(&manifest, request.from.as_ref()).map(|document| {
                    let endpoint = document.manifest.pull.clone();
                    Draft { document, endpoint, assets: AssetSource::Plugin, tokens }
                })
            }
            (None, Ok(Some(plugin_id))) => self.known_plugin(&plugin_id, request.from, tokens).await,
            _ => Err(RpcError::new(
                ErrorCode::InvalidRequest,
                "a publication names either a manifest or a plugin that is known, by its pluginId or by where \
                 it listens; give one of them",
            )),
        };
        self.take(draft).await
    }

    /// The live plugin that listens there.
    async fn plugin_at(&self, place: &Endpoint) -> Result<String, RpcError> {
        let snapshot = self.view.fresh().await?;
        let live = snapshot.plugins.values().filter(|plugin| plugin.removed_at.is_none());
        let here: Vec<&str> =
            live.filter(|plugin| plugin.endpoint == *place).map(|plugin| plugin.plugin_id.as_str()).collect();
        let (code, message) = match here.as_slice() {
            [only] => return Ok((*only).to_owned()),
            [] => (
                ErrorCode::PluginUnknown,
                format!(
                    "no plugin of the catalogue listens at {place}; give its manifest, or its name if it moved"
                ),
            ),
            several => (
                ErrorCode::InvalidRequest,
                format!("{} listen at {place}; give the name of one", several.join(", ")),
            ),
        };
        Err(RpcError::new(code, message))
    }

    /// The stored publication that new use takes, from `from` or from where the plugin is now.
    async fn known_plugin(
        &self,
        plugin_id: &str,
        from: Option<Endpoint>,
        tokens: Vec<SecretString>,
    ) -> Result<Draft, RpcError> {
        let snapshot = self.view.fresh().await?;
        let shown = snapshot.plugin(plugin_id).and_then(|plugin| Some((plugin, plugin.shown()?)));
        let unknown = || {
            RpcError::new(
                ErrorCode::PluginUnknown,
                format!("the catalogue has no plugin {plugin_id:?}; publish it with its manifest"),
            )
        };
        let (plugin, shown) = shown.ok_or_else(unknown)?;
        let place = Place {
            endpoint: from.unwrap_or_else(|| plugin.endpoint.clone()),
            publication_id: shown.publication_id,
            digest: shown.digest,
        };
        self.known(&place, tokens).await?.ok_or_else(unknown)
    }

    /// From a draft to a committed publication, one of a plugin at a time.
    async fn take(&self, draft: Result<Draft, RpcError>) -> Result<PublicationReply, RpcError> {
        let result = match draft {
            Ok(draft) => {
                let _turn = self.locks.lock(&draft.document.manifest.plugin_id).await;
                // Closed never: the semaphore lives as long as `self`.
                let _place = self.in_work.acquire().await;
                match self.pull_items(&draft).await {
                    Ok(items) => self.store(draft, items).await,
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        };
        match &result {
            Ok(reply) if reply.status == PublicationStatus::Unchanged => self.metrics.published("unchanged"),
            Ok(_) => self.metrics.published("committed"),
            Err(error) => {
                self.metrics.published(error.code.as_str());
                tracing::warn!(
                    event = "plugin_publication_refused",
                    code = error.code.as_str(),
                    reason = error.message,
                    "a publication was refused"
                );
            }
        }
        result
    }

    /// Pulls a known plugin again and compares with what is stored. A publication that the plugin
    /// sends meanwhile is not held up and has precedence. The pull ends at `until` at the latest.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn repull(
        &self,
        plugin_id: &str,
        tokens: Vec<SecretString>,
        until: Instant,
    ) -> Result<Repulled, RpcError> {
        let heard = self.ledger.last(plugin_id).await;
        let Some(place) = self.place(plugin_id).await? else { return Ok(Repulled::Gone) };
        let Some(draft) = self.known(&place, tokens).await? else { return Ok(Repulled::Gone) };
        let pulled = timeout_at(until, self.pull_items(&draft))
            .await
            .unwrap_or_else(|_| Err(out_of_time(&draft.document, &draft.endpoint)));
        let _turn = self.locks.lock(plugin_id).await;
        if self.ledger.last(plugin_id).await != heard || self.place(plugin_id).await? != Some(place) {
            return Ok(Repulled::Overtaken);
        }
        let stored = match pulled {
            Ok(items) => self.store(draft, items).await,
            Err(error) => Err(error),
        };
        Ok(match stored {
            Ok(_) => Repulled::Current,
            Err(error) if error.code == ErrorCode::BatchPullFailed => {
                self.ledger.unanswered(plugin_id, &error.message).await;
                Repulled::Unanswered(error)
            }
            // Says nothing about the plugin.
            Err(error) if error.code == ErrorCode::Unavailable => return Err(error),
            Err(error) => {
                self.ledger.alive(&[plugin_id]).await;
                Repulled::Refused(error)
            }
        })
    }

    /// Where a live plugin is now, and what of it is the newest.
    async fn place(&self, plugin_id: &str) -> Result<Option<Place>, RpcError> {
        let snapshot = self.view.fresh().await?;
        let plugin = snapshot.plugin(plugin_id).filter(|plugin| plugin.removed_at.is_none());
        Ok(plugin.and_then(|plugin| {
            let newest = plugin.newest()?;
            Some(Place {
                endpoint: plugin.endpoint.clone(),
                publication_id: newest.publication_id,
                digest: newest.digest,
            })
        }))
    }

    /// What is stored, as a publication from where the plugin is now.
    async fn known(&self, place: &Place, tokens: Vec<SecretString>) -> Result<Option<Draft>, RpcError> {
        let Some(stored) = self.stored(PublicationKey::Id(place.publication_id)).await? else {
            return Ok(None);
        };
        Ok(Some(Draft {
            document: document::read(&stored.manifest)?,
            endpoint: place.endpoint.clone(),
            assets: AssetSource::Kept(stored.assets),
            tokens,
        }))
    }

    async fn stored(&self, key: PublicationKey<'_>) -> Result<Option<StoredPublication>, RpcError> {
        self.storage.catalogue().publication(key).await.map_err(|error| error.to_rpc())
    }

    async fn pull_items(&self, draft: &Draft) -> Result<Pulled, RpcError> {
        let manifest = &draft.document.manifest;
        let batch = self
            .puller
            .pull(&Wanted {
                endpoint: &draft.endpoint,
                plugin_id: &manifest.plugin_id,
                version: &manifest.publication_version,
                node_types: manifest.executors.iter().map(|executor| executor.node_type.clone()).collect(),
                tokens: &draft.tokens,
            })
            .await?;
        read_items(&batch, "$.items", manifest).map_err(|faults| {
            let what = format!("the executor batch of {}", subject(&draft.document));
            RpcError::of_faults(ErrorCode::InvalidManifest, &what, &faults)
        })
    }
}
