//! Static assets: fetched from the plugin at publication, kept in file-service, so that the UI
//! does not depend on the plugin being up (protocol section 3).

use super::reach::AssetReach;
use crate::{
    error::Error,
    settings::{AssetLimits, Settings},
};
use contract::{
    Digest, ErrorCode, RpcError,
    catalogue::{Asset, DEFAULT_WORKSPACE},
    manifest::StaticAsset,
};
use futures::{StreamExt, TryStreamExt, stream};
use reqwest::{Client, Url, header, redirect};
use run_files::{FileService, NewFile};
use sha2::Digest as _;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::timeout;

/// Fetches and uploads of one publication at once.
const PARALLEL: usize = 4;

/// Fetches assets and keeps them in file-service.
#[derive(Debug)]
pub(crate) struct Assets {
    /// To the plugins, under the rule about addresses.
    plugins: Client,
    files: FileService,
    limits: AssetLimits,
}

/// An asset in memory.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) key: String,
    media_type: String,
    bytes: Vec<u8>,
    pub(crate) digest: Digest,
}

/// What is kept: every asset of the publication, and which files are new.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) assets: Vec<Asset>,
    new_files: Vec<String>,
}

impl Kept {
    /// Assets that were kept before.
    pub(crate) fn all_known(assets: Vec<Asset>) -> Self {
        Self { assets, new_files: Vec::new() }
    }
}

/// A client that follows no redirect: it would lead around the rule about addresses.
fn builder(limits: AssetLimits) -> reqwest::ClientBuilder {
    Client::builder()
        .redirect(redirect::Policy::none())
        // Plugins are neighbours: what the environment says about the way to the outside does not hold.
        .no_proxy()
        .timeout(limits.timeout)
}

fn reach(limits: AssetLimits) -> AssetReach {
    AssetReach::new(limits.allow_private)
}

impl Assets {
    /// # Errors
    /// [`Error::HttpClient`] when the system offers no usable TLS, [`Error::Files`] when file-service
    /// cannot be reached as the settings say.
    pub(crate) fn new(settings: &Settings) -> Result<Self, Error> {
        Ok(Self {
            plugins: builder(settings.assets).dns_resolver(reach(settings.assets)).build()?,
            files: FileService::new(&settings.files)?,
            limits: settings.assets,
        })
    }

    /// Fetches all assets, in their order.
    ///
    /// # Errors
    /// `asset_fetch_failed`, which names the asset, its URL and the limit or cause.
    pub(crate) async fn fetch(&self, assets: &[StaticAsset]) -> Result<Vec<Fetched>, RpcError> {
        if assets.len() > self.limits.max_count {
            return Err(beyond(format!("{} static assets", assets.len()), self.limits.max_count, "assets"));
        }
        let total = AtomicU64::new(0);
        let fetches: Vec<_> = assets.iter().map(|asset| self.fetch_one(asset, &total)).collect();
        stream::iter(fetches).buffered(PARALLEL).try_collect().await
    }

    async fn fetch_one(&self, asset: &StaticAsset, total: &AtomicU64) -> Result<Fetched, RpcError> {
        let failed = |reason: String| failed(asset, &reason);
        let url = Url::parse(&asset.url).map_err(|error| failed(error.to_string()))?;
        reach(self.limits).check(&url).map_err(|refused| failed(refused.to_string()))?;
        let mut response = self.plugins.get(url).send().await.map_err(|error| failed(cause(&error)))?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(failed(format!("it answered {}", response.status())));
        }
        if is_page_instead(&asset.media_type, response.headers()) {
            let declared = &asset.media_type;
            return Err(failed(format!("it answered a page (text/html) where the manifest says {declared}")));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failed(cause(&error)))? {
            let size = chunk.len() as u64;
            if bytes.len() as u64 + size > self.limits.max_bytes {
                return Err(beyond(format!("static asset {:?}", asset.key), self.limits.max_bytes, "bytes"));
            }
            if total.fetch_add(size, Ordering::Relaxed) + size > self.limits.max_total_bytes {
                return Err(beyond("the static assets together", self.limits.max_total_bytes, "bytes"));
            }
            bytes.extend_from_slice(&chunk);
        }
        let digest = Digest(sha2::Sha256::digest(&bytes).into());
        Ok(Fetched { key: asset.key.clone(), media_type: asset.media_type.clone(), bytes, digest })
    }

    /// Keeps the assets, in their order; what `known` has already is not uploaded again.
    ///
    /// # Errors
    /// `unavailable` when file-service does not take one; files uploaded before are given back.
    pub(crate) async fn keep(
        &self,
        plugin_id: &str,
        fetched: Vec<Fetched>,
        known: &[Asset],
    ) -> Result<Kept, RpcError> {
        let uploads: Vec<_> =
            fetched.into_iter().map(|asset| self.keep_one(plugin_id, asset, known)).collect();
        let mut results = stream::iter(uploads).buffered(PARALLEL);
        let mut kept = Kept::default();
        while let Some(result) = results.next().await {
            match result {
                Ok((asset, new)) => {
                    if new {
                        kept.new_files.push(asset.file_id.clone());
                    }
                    kept.assets.push(asset);
                }
                Err(error) => {
                    drop(results);
                    self.give_back(kept).await;
                    return Err(error);
                }
            }
        }
        Ok(kept)
    }

    /// The asset in file-service, and whether it is new there.
    async fn keep_one(
        &self,
        plugin_id: &str,
        asset: Fetched,
        known: &[Asset],
    ) -> Result<(Asset, bool), RpcError> {
        let same =
            known.iter().find(|known| known.digest == asset.digest && known.media_type == asset.media_type);
        match same {
            Some(known) => Ok((Asset { key: asset.key, ..known.clone() }, false)),
            None => self.upload(plugin_id, asset).await.map(|asset| (asset, true)),
        }
    }

    async fn upload(&self, plugin_id: &str, asset: Fetched) -> Result<Asset, RpcError> {
        let Fetched { key, media_type, bytes, digest } = asset;
        let failed = |reason: String| {
            RpcError::new(
                ErrorCode::Unavailable,
                format!(
                    "file-service does not keep static asset {key:?} of {plugin_id}: {reason}; check that it \
                     runs (PLUGIN_MANAGER_FILE_SERVICE_URL)"
                ),
            )
        };
        let name = format!("{plugin_id}/{key}");
        let file = NewFile { workspace_id: DEFAULT_WORKSPACE, name: &name, media_type: &media_type };
        let size = bytes.len() as u64;
        let uploaded = timeout(self.limits.timeout, self.files.store(file, bytes))
            .await
            .map_err(|_| failed("it took too long".to_owned()))?
            .map_err(|error| failed(error.message))?;
        if uploaded.digest != digest {
            return Err(failed(format!(
                "it stored other bytes (digest {} instead of {digest})",
                uploaded.digest
            )));
        }
        tracing::info!(
            event = "plugin_static_cached",
            plugin_id,
            key,
            size_bytes = size,
            digest = %digest,
            "static asset is cached"
        );
        Ok(Asset { key, file_id: uploaded.file_id, media_type, size, digest })
    }

    /// Deletes the files that were uploaded for a publication that was refused. One that stays
    /// behind costs space, nothing else.
    pub(crate) async fn give_back(&self, kept: Kept) {
        for file_id in kept.new_files {
            let removed = timeout(self.limits.timeout, self.files.remove(&file_id)).await;
            let reason = match removed {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.message,
                Err(_) => "it took too long".to_owned(),
            };
            tracing::warn!(
                event = "plugin_static_left",
                file_id,
                reason,
                "an unused static asset stays in file-service"
            );
        }
    }
}

/// Did the plugin answer a page where something else is declared? Servers of web pages do so with 200 for
/// whatever they do not have. Other differences are left to the manifest, which is what counts: many
/// servers name a module's type otherwise, or not at all.
fn is_page_instead(declared: &str, headers: &header::HeaderMap) -> bool {
    let essence = |text: &str| text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let served = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(essence);
    served.as_deref() == Some("text/html") && essence(declared) != "text/html"
}

fn failed(asset: &StaticAsset, reason: &str) -> RpcError {
    RpcError::new(
        ErrorCode::AssetFetchFailed,
        format!(
            "static asset {:?} cannot be fetched from {}: {reason}; check that the plugin serves it and that \
             plugin-manager can reach it",
            asset.key, asset.url
        ),
    )
}

/// A limit: the same publication will not pass later either.
fn beyond(what: impl std::fmt::Display, limit: impl std::fmt::Display, unit: &str) -> RpcError {
    let mut error = RpcError::new(
        ErrorCode::AssetFetchFailed,
        format!(
            "{what}: more than the limit of {limit} {unit}; publish less, or raise the limits of \
             plugin-manager (PLUGIN_MANAGER_ASSET…)"
        ),
    );
    error.retryable = false;
    error
}

/// The innermost cause, which says more than the client's own words.
fn cause(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    if error.is_timeout() { "it took too long".to_owned() } else { innermost.to_string() }
}

#[cfg(test)]
#[path = "assets_tests.rs"]
mod tests;
