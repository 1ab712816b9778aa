//! `/plugins` and `/palette`: the catalogue, for people and the editor.

pub(crate) mod operations;
pub(crate) mod palette;
pub(crate) mod versions;
mod views;

use crate::{
    app::App,
    http::{
        extract::{Asked, Caller, Named},
        files::relay,
        problem::{Answer, ErrorBody, json},
    },
};
use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use contract::{
    catalogue::{Asset, AssetRequest, Changed, PluginDetail, PluginRef, PluginVersions},
    pattern::{self, Pattern},
};
use serde::Deserialize;
use std::sync::Arc;
use storage::users::Principal;
use utoipa::IntoParams;
use views::{ChangedView, PluginFull, PluginHead, PluginPage};

/// All plugins, with enablement as the caller sees it.
#[utoipa::path(get, path = "/plugins", tag = "plugins",
    responses((status = 200, body = PluginPage), (status = 503, body = ErrorBody)))]
pub(crate) async fn list(State(app): State<Arc<App>>, Caller(caller): Caller) -> Answer<Response> {
    let list = app.catalogue.list(&caller, None).await?;
    let plugins = list.plugins.into_iter().map(PluginHead::from).collect();
    Ok(json(StatusCode::OK, &PluginPage { plugins, revision: list.revision }))
}

#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct OfVersion {
    /// This version instead of the newest.
    version: Option<String>,
}

/// One plugin with its manifest, executors and versions.
#[utoipa::path(get, path = "/plugins/{id}", tag = "plugins", params(("id" = String, Path), OfVersion),
    responses((status = 200, body = PluginFull), (status = 404, body = ErrorBody)))]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Named(id): Named<String>,
    Asked(query): Asked<OfVersion>,
) -> Answer<Response> {
    let request = PluginRef {
        user_id: Some(caller.user_id.clone()),
        publication_version: query.version,
        ..of(&caller, id)
    };
    let detail: PluginDetail = app.plugins.call(pattern::PLUGIN_GET, &request).await?;
    let versions: PluginVersions = app.plugins.call(pattern::PLUGIN_VERSIONS, &request).await?;
    Ok(json(StatusCode::OK, &PluginFull::new(detail, versions.versions)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Whom {
    /// Only for this user instead of the whole workspace.
    user_id: Option<String>,
}

/// Enables a plugin in the workspace, or for one user.
#[utoipa::path(post, path = "/plugins/{id}/enable", tag = "plugins", params(("id" = String, Path), Whom),
    responses((status = 200, body = ChangedView), (status = 404, body = ErrorBody)))]
pub(crate) async fn enable(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Named(id): Named<String>,
    Asked(whom): Asked<Whom>,
) -> Answer<Response> {
    change(&app, pattern::PLUGIN_ENABLE, PluginRef { user_id: whom.user_id, ..of(&caller, id) }).await
}

/// Disables a plugin in the workspace, or for one user. What was dispatched finishes.
#[utoipa::path(post, path = "/plugins/{id}/disable", tag = "plugins", params(("id" = String, Path), Whom),
    responses((status = 200, body = ChangedView), (status = 404, body = ErrorBody)))]
pub(crate) async fn disable(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Named(id): Named<String>,
    Asked(whom): Asked<Whom>,
) -> Answer<Response> {
    change(&app, pattern::PLUGIN_DISABLE, PluginRef { user_id: whom.user_id, ..of(&caller, id) }).await
}

#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct Force {
    /// Remove it although processes use it.
    #[serde(default)]
    force: bool,
}

/// Removes a plugin; refused while processes use it, unless forced.
#[utoipa::path(delete, path = "/plugins/{id}", tag = "plugins", params(("id" = String, Path), Force),
    responses((status = 200, body = ChangedView), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "`plugin_in_use`")))]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Named(id): Named<String>,
    Asked(Force { force }): Asked<Force>,
) -> Answer<Response> {
    change(&app, pattern::PLUGIN_REMOVE, PluginRef { force, ..of(&caller, id) }).await
}

async fn change(app: &App, pattern: Pattern, request: PluginRef) -> Answer<Response> {
    let changed: Changed = app.plugins.call(pattern, &request).await?;
    tracing::info!(
        event = "plugin_changed",
        plugin_id = request.plugin_id,
        change = pattern.name,
        "plugin changed"
    );
    Ok(json(StatusCode::OK, &ChangedView { changed: changed.changed, revision: changed.revision }))
}

fn of(caller: &Principal, plugin_id: String) -> PluginRef {
    PluginRef { plugin_id, workspace_id: caller.workspace_id.clone(), ..PluginRef::default() }
}

#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct OfAsset {
    /// Of this version instead of the newest.
    version: Option<String>,
    /// The digest that the caller expects: the answer may then be kept for ever.
    #[param(value_type = Option<String>)]
    digest: Option<String>,
}

/// A static asset of a plugin, as it was at publication. What `GET /plugins/{id}` calls its `path`
/// never changes; without the digest a browser asks again and is told when nothing changed.
#[utoipa::path(get, path = "/plugins/{id}/assets/{key}", tag = "plugins",
    params(("id" = String, Path), ("key" = String, Path), OfAsset),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"), (status = 404, body = ErrorBody)))]
pub(crate) async fn asset(
    State(app): State<Arc<App>>,
    Named((plugin_id, key)): Named<(String, String)>,
    Asked(query): Asked<OfAsset>,
    headers: HeaderMap,
) -> Answer<Response> {
    let request = AssetRequest { plugin_id, key, publication_version: query.version };
    let asset: Asset = app.plugins.call(pattern::PLUGIN_ASSET, &request).await?;
    let mut response = relay(app.files.open(&asset.file_id, &headers).await?, Some(&asset.media_type));
    let never_changes = query.digest.is_some_and(|digest| digest == asset.digest.to_string());
    // The file behind another name than its digest changes with the next publication.
    let caching = if never_changes { "private, max-age=31536000, immutable" } else { "private, no-cache" };
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    Ok(response)
}
