//! Publication: one pipeline, whether a plugin publishes itself or is pulled again at start
//! (protocol section 3).

pub(crate) mod assets;
pub(crate) mod document;
mod locks;
pub(crate) mod pull;

use crate::{health::Ledger, metrics::Metrics, view::View};
use assets::{Assets, Kept};
use contract::{
    Digest, ErrorCode, Json, PublicationId, RpcError, Warning,
    catalogue::{Asset, PublicationReply, PublicationStatus},
    manifest::{Endpoint, ExecutorItem, publication_digest, read_items},
};
use document::Document;
use locks::KeyedLocks;
use pull::{Puller, Wanted};
use secrecy::SecretString;
use std::{collections::BTreeMap, sync::Arc};
use storage::{
    Storage,
    catalogue::{Committed, NewPublication, PublicationKey, StoredPublication},
};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};
use uuid::Uuid;

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
    allow_republish: bool,
    locks: KeyedLocks,
    in_work: Semaphore,
    with_assets: Semaphore,
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
        allow_republish: bool,
    ) -> Self {
        let (in_work, with_assets) = (Semaphore::new(IN_WORK), Semaphore::new(WITH_ASSETS));
        Self {
            storage,
            view,
            ledger,
            metrics,
            puller,
            assets,
            allow_republish,
            locks: KeyedLocks::default(),
            in_work,
            with_assets,
        }
    }

    /// Takes a publication that a plugin sent. `tokens` are what the plugin may be pulled with.
    ///
    /// # Errors
    /// `invalid_manifest`, `batch_pull_failed`, `asset_fetch_failed`, `version_immutable`,
    /// `node_type_conflict`, `unavailable`.
    pub(crate) async fn publish(
        &self,
        body: &Json,
        tokens: Vec<SecretString>,
    ) -> Result<PublicationReply, RpcError> {
        let result = match document::read(body) {
            Ok(document) => {
                let _turn = self.locks.lock(&document.manifest.plugin_id).await;
                // Closed never: the semaphore lives as long as `self`.
                let _place = self.in_work.acquire().await;
                let endpoint = document.manifest.pull.clone();
                let draft = Draft { document, endpoint, assets: AssetSource::Plugin, tokens };
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
        let pulled =
            timeout_at(until, self.pull_items(&draft)).await.unwrap_or_else(|_| Err(out_of_time(&draft)));
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
                self.ledger.alive(plugin_id).await;
                Repulled::Refused(error)
            }
        })
    }

    /// Where a live plugin is now, and what of it is the newest.
    async fn place(&self, plugin_id: &str) -> Result<Option<Place>, RpcError> {
        let snapshot = self.view.fresh().await?;
        let plugin = snapshot.plugins.get(plugin_id).filter(|plugin| plugin.removed_at.is_none());
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

    /// From what the plugin said to a committed publication.
    async fn store(&self, draft: Draft, (items, remarks): Pulled) -> Result<PublicationReply, RpcError> {
        let Draft { mut document, endpoint, assets, .. } = draft;
        document.warnings.extend(remarks);
        let (digest, kept) = self.keep_assets(&document, &items, assets).await?;
        let new = self.new_publication(&document, &items, &endpoint, &kept, digest).await;
        let committed = match new {
            Ok(new) => self.storage.catalogue().commit(&new).await.map_err(|error| error.to_rpc()),
            Err(error) => Err(error),
        };
        let outcome = committed.and_then(|committed| accept(&document, committed));
        match &outcome {
            // The stored publication has its own files.
            Ok((Status::Unchanged, ..)) => self.assets.give_back(kept).await,
            Ok(_) => {}
            // Whether it is stored is unknown: its files must stay.
            Err(error) if error.code == ErrorCode::Unavailable => {}
            Err(_) => self.assets.give_back(kept).await,
        }
        let (status, publication_id, revision) = outcome?;
        self.settle(&document, status, publication_id, digest, revision).await;
        Ok(reply(document, status, publication_id, digest))
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

    /// The publication's digest, and its assets in file-service. Nothing is uploaded for a
    /// publication that the catalogue as it is now refuses.
    async fn keep_assets(
        &self,
        document: &Document,
        items: &[ExecutorItem],
        source: AssetSource,
    ) -> Result<(Digest, Kept), RpcError> {
        let manifest = &document.manifest;
        if let AssetSource::Kept(assets) = source {
            let hashes = assets.iter().map(|asset| (asset.key.clone(), asset.digest)).collect();
            return Ok((publication_digest(manifest, items, &hashes), Kept::all_known(assets)));
        }
        // Closed never, like the other one. Held until the bytes are stored.
        let _place = match manifest.static_assets.is_empty() {
            true => None,
            false => Some(self.with_assets.acquire().await),
        };
        let fetched = self.assets.fetch(&manifest.static_assets).await?;
        let hashes: BTreeMap<String, Digest> =
            fetched.iter().map(|asset| (asset.key.clone(), asset.digest)).collect();
        let digest = publication_digest(manifest, items, &hashes);
        let same_version =
            self.stored(PublicationKey::Version(&manifest.plugin_id, &manifest.publication_version)).await?;
        if let Some(stored) = same_version.as_ref().filter(|stored| stored.digest != digest)
            && !self.allow_republish
        {
            return Err(version_immutable(document, stored.digest));
        }
        let known = match same_version {
            Some(stored) => stored.assets,
            None if fetched.is_empty() => Vec::new(),
            None => {
                let newest = self.stored(PublicationKey::Newest(&manifest.plugin_id)).await?;
                newest.map(|stored| stored.assets).unwrap_or_default()
            }
        };
        let kept = self.assets.keep(&manifest.plugin_id, fetched, &known).await?;
        Ok((digest, kept))
    }

    async fn new_publication(
        &self,
        document: &Document,
        items: &[ExecutorItem],
        endpoint: &Endpoint,
        kept: &Kept,
        digest: Digest,
    ) -> Result<NewPublication, RpcError> {
        let manifest = &document.manifest;
        let unwritable = |error: serde_json::Error| {
            RpcError::new(
                ErrorCode::Internal,
                format!("the executors of {} cannot be written: {error}", subject(document)),
            )
        };
        Ok(NewPublication {
            publication_id: PublicationId(Uuid::now_v7()),
            plugin_id: manifest.plugin_id.clone(),
            version: manifest.publication_version.clone(),
            digest,
            manifest: document.raw.clone(),
            items: Json::of(items).map_err(unwritable)?,
            assets: kept.assets.clone(),
            node_types: manifest.executors.iter().map(|executor| executor.node_type.clone()).collect(),
            pull: endpoint.clone(),
            node_endpoints: document::own_endpoints(items, endpoint),
            at: self.storage.now().await.map_err(|error| error.to_rpc())?,
            allow_republish: self.allow_republish,
        })
    }

    /// Tells everyone about a committed publication, and that its plugin lives.
    async fn settle(
        &self,
        document: &Document,
        status: Status,
        publication_id: PublicationId,
        digest: Digest,
        revision: i64,
    ) {
        let manifest = &document.manifest;
        self.ledger.alive(&manifest.plugin_id).await;
        if revision > self.view.current().revision {
            self.view.announce(revision).await;
        }
        tracing::info!(
            event = status.event(),
            plugin_id = manifest.plugin_id,
            publication_version = manifest.publication_version,
            publication_id = %publication_id,
            digest = %digest,
            node_types = manifest.executors.len(),
            revision,
            "publication is in the catalogue"
        );
    }
}

/// What the store did with a publication that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Committed,
    Replaced,
    Unchanged,
}

impl Status {
    fn event(self) -> &'static str {
        match self {
            Self::Committed => "plugin_publication_committed",
            Self::Replaced => "plugin_publication_replaced",
            Self::Unchanged => "plugin_publication_unchanged",
        }
    }
}

/// The store's answer as success or refusal.
fn accept(document: &Document, committed: Committed) -> Result<(Status, PublicationId, i64), RpcError> {
    match committed {
        Committed::Committed { publication_id, revision } => {
            Ok((Status::Committed, publication_id, revision))
        }
        Committed::Replaced { publication_id, revision } => Ok((Status::Replaced, publication_id, revision)),
        Committed::Unchanged { publication_id, revision } => {
            Ok((Status::Unchanged, publication_id, revision))
        }
        Committed::VersionImmutable { stored } => Err(version_immutable(document, stored)),
        Committed::NodeTypeConflict { node_type, owner } => Err(RpcError::new(
            ErrorCode::NodeTypeConflict,
            format!(
                "{} declares the node type {node_type:?}, which belongs to plugin {owner:?}; rename it, or \
                 remove {owner:?} first",
                subject(document)
            ),
        )
        .with_details(serde_json::json!({ "nodeType": node_type, "owner": owner }))),
    }
}

fn out_of_time(draft: &Draft) -> RpcError {
    RpcError::new(
        ErrorCode::BatchPullFailed,
        format!(
            "{} at {} did not answer within the time for all pulls at start \
             (PLUGIN_MANAGER_STARTUP_PULL_TIMEOUT_MS)",
            subject(&draft.document),
            draft.endpoint
        ),
    )
}

fn version_immutable(document: &Document, stored: Digest) -> RpcError {
    RpcError::new(
        ErrorCode::VersionImmutable,
        format!(
            "{} is published already with other content (digest {stored}); raise publicationVersion, or set \
             PLUGIN_MANAGER_ALLOW_REPUBLISH=true for development",
            subject(document)
        ),
    )
    .with_details(serde_json::json!({ "digest": stored }))
}

fn subject(document: &Document) -> String {
    format!("{}@{}", document.manifest.plugin_id, document.manifest.publication_version)
}

fn reply(
    document: Document,
    status: Status,
    publication_id: PublicationId,
    digest: Digest,
) -> PublicationReply {
    PublicationReply {
        ok: true,
        status: match status {
            Status::Committed | Status::Replaced => PublicationStatus::Committed,
            Status::Unchanged => PublicationStatus::Unchanged,
        },
        plugin_id: document.manifest.plugin_id,
        publication_version: document.manifest.publication_version,
        publication_id,
        digest,
        warnings: document.warnings,
    }
}
