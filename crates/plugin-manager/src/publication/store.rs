//! From what a plugin said to a committed publication: content, signature, commit, warnings.

use super::{
    AssetSource, Draft, Publisher, Pulled,
    assets::Kept,
    breakage::{self, Older},
    document::{self, Document},
    outcome::{Status, accept, reply, signature_required, subject, version_immutable},
};
use contract::{
    Digest, ErrorCode, Json, PublicationId, RpcError,
    catalogue::PublicationReply,
    manifest::{Endpoint, ExecutorItem, publication_digest},
    signature::SignatureState,
};
use std::collections::BTreeMap;
use storage::catalogue::{NewPublication, PublicationKey, Seal};
use uuid::Uuid;

/// What a publication consists of besides its documents.
struct Content {
    digest: Digest,
    kept: Kept,
    seal: Seal,
}

impl Publisher {
    /// From what the plugin said to a committed publication.
    pub(super) async fn store(
        &self,
        draft: Draft,
        (items, remarks): Pulled,
    ) -> Result<PublicationReply, RpcError> {
        let Draft { mut document, endpoint, assets, .. } = draft;
        document.warnings.extend(remarks);
        let content = self.content(&mut document, &items, assets).await?;
        let digest = content.digest;
        let older = self.older(&document, digest).await;
        let new = self.new_publication(&document, &items, &endpoint, &content).await;
        let committed = match new {
            Ok(new) => self.commits.commit(new).await,
            Err(error) => Err(error),
        };
        let outcome = committed.and_then(|committed| accept(&document, committed));
        match &outcome {
            // The stored publication has its own files.
            Ok((Status::Unchanged, ..)) => self.assets.give_back(content.kept).await,
            Ok(_) => {}
            // Whether it is stored is unknown: its files must stay.
            Err(error) if error.code == ErrorCode::Unavailable => {}
            Err(_) => self.assets.give_back(content.kept).await,
        }
        let (status, publication_id, revision) = outcome?;
        log_stored(&document, status, publication_id, digest, revision);
        if status != Status::Unchanged {
            self.warn_of_breakage(older.as_ref(), &mut document, &items).await;
        }
        Ok(reply(document, status, publication_id, digest))
    }

    /// The publication that new use takes so far, if the one with this digest will take its place.
    async fn older(&self, document: &Document, digest: Digest) -> Option<Older> {
        let snapshot = self.view.current();
        let usable = snapshot.plugin(&document.manifest.plugin_id)?.usable()?;
        if usable.digest == digest {
            return None;
        }
        // Only warnings come of it: a database that fails now fails the commit too.
        let publication = self.stored(PublicationKey::Id(usable.publication_id)).await.ok().flatten()?;
        let items = publication.items.read().ok()?;
        Some(Older { publication, items })
    }

    async fn warn_of_breakage(&self, older: Option<&Older>, document: &mut Document, items: &[ExecutorItem]) {
        let Some(older) = older else { return };
        let snapshot = self.view.current();
        match breakage::warnings(&self.storage, &snapshot, older, document, items).await {
            Ok(warnings) => {
                for warning in &warnings {
                    tracing::warn!(
                        event = "plugin_publication_breaks_processes",
                        plugin_id = document.manifest.plugin_id,
                        publication_version = document.manifest.publication_version,
                        reason = warning.message,
                        "a new version may break processes"
                    );
                }
                document.warnings.extend(warnings);
            }
            Err(error) => tracing::warn!(
                event = "plugin_publication_unchecked",
                plugin_id = document.manifest.plugin_id,
                reason = error.message,
                "whether a new version breaks processes could not be found out"
            ),
        }
    }

    /// The publication's digest, signature and assets in file-service. Nothing is uploaded for a
    /// publication that the catalogue as it is now, or the operator's rules, refuse.
    async fn content(
        &self,
        document: &mut Document,
        items: &[ExecutorItem],
        source: AssetSource,
    ) -> Result<Content, RpcError> {
        if let AssetSource::Kept(assets) = source {
            let hashes = assets.iter().map(|asset| (asset.key.clone(), asset.digest)).collect();
            let digest = publication_digest(&document.manifest, items, &hashes);
            let seal = self.seal(document, digest)?;
            return Ok(Content { digest, kept: Kept::all_known(assets), seal });
        }
        // Closed never, like the other one. Held until the bytes are stored.
        let _place = match document.manifest.static_assets.is_empty() {
            true => None,
            false => Some(self.with_assets.acquire().await),
        };
        let fetched = self.assets.fetch(&document.manifest.static_assets).await?;
        let hashes: BTreeMap<String, Digest> =
            fetched.iter().map(|asset| (asset.key.clone(), asset.digest)).collect();
        let digest = publication_digest(&document.manifest, items, &hashes);
        let seal = self.seal(document, digest)?;
        if fetched.is_empty() {
            // The commit refuses what has to be refused.
            return Ok(Content { digest, kept: Kept::default(), seal });
        }
        let manifest = &document.manifest;
        let same_version =
            self.stored(PublicationKey::Version(&manifest.plugin_id, &manifest.publication_version)).await?;
        if let Some(stored) = same_version.as_ref().filter(|stored| stored.digest != digest)
            && !self.rules.allow_republish
        {
            return Err(version_immutable(document, stored.digest));
        }
        let known = match same_version {
            Some(stored) => stored.assets,
            None => {
                let newest = self.stored(PublicationKey::Newest(&manifest.plugin_id)).await?;
                newest.map(|stored| stored.assets).unwrap_or_default()
            }
        };
        let kept = self.assets.keep(&manifest.plugin_id, fetched, &known).await?;
        Ok(Content { digest, kept, seal })
    }

    /// What is known of the publication's signature. Content that was signed once stays signed, also
    /// when the plugin itself knows nothing of it.
    fn seal(&self, document: &mut Document, digest: Digest) -> Result<Seal, RpcError> {
        let manifest = &document.manifest;
        let snapshot = self.view.current();
        let stored = snapshot.plugin(&manifest.plugin_id);
        let stored = stored.and_then(|plugin| plugin.version(&manifest.publication_version));
        if let Some(stored) = stored.filter(|stored| stored.digest == digest)
            && stored.seal.state == SignatureState::Signed
        {
            return Ok(stored.seal.clone());
        }
        let (seal, warning) = self.rules.keys.judge(manifest.signature.as_ref(), digest);
        if self.rules.require_signed && seal.state != SignatureState::Signed {
            let reason = match &warning {
                Some(warning) => format!("has an invalid signature ({})", warning.message),
                None => "is not signed".to_owned(),
            };
            return Err(signature_required(document, digest, &reason));
        }
        document.warnings.extend(warning);
        Ok(seal)
    }

    async fn new_publication(
        &self,
        document: &Document,
        items: &[ExecutorItem],
        endpoint: &Endpoint,
        content: &Content,
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
            digest: content.digest,
            manifest: document.raw.clone(),
            items: Json::of(items).map_err(unwritable)?,
            assets: content.kept.assets.clone(),
            node_types: manifest.executors.iter().map(|executor| executor.node_type.clone()).collect(),
            pull: endpoint.clone(),
            node_endpoints: document::own_endpoints(items, endpoint),
            at: self.storage.now().await.map_err(|error| error.to_rpc())?,
            allow_republish: self.rules.allow_republish,
            seal: content.seal.clone(),
        })
    }
}

fn log_stored(
    document: &Document,
    status: Status,
    publication_id: PublicationId,
    digest: Digest,
    revision: i64,
) {
    let manifest = &document.manifest;
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
