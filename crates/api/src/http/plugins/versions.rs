//! Versions of plugins: publish, list, compare, pin and yank.

use super::{
    change, of,
    views::{ChangedView, PluginVersionView, VersionPage},
};
use crate::{
    app::App,
    http::{
        extract::{Asked, Caller, Named, Payload},
        problem::{Answer, ErrorBody, json},
    },
};
use axum::{extract::State, http::StatusCode, response::Response};
use contract::{
    Json,
    catalogue::{DiffRequest, PluginDiff, PluginRef, PluginVersions, PublicationReply, PublishRequest},
    manifest::Endpoint,
    pattern,
};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use utoipa::{IntoParams, ToSchema};

/// The pull of a plugin's nodes and the fetch of its assets have limits of their own below this.
const PUBLICATION_DEADLINE: Duration = Duration::from_secs(120);

/// What to publish: a manifest, or a plugin that the catalogue knows.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewPublication {
    /// The manifest of a plugin that listens.
    #[schema(value_type = Option<Object>)]
    manifest: Option<Json>,
    /// A known plugin: its stored manifest counts.
    plugin_id: Option<String>,
    /// `{host, port}`: where it listens, as plugin-manager reaches it; otherwise where it is known to be.
    #[schema(value_type = Option<Object>)]
    from: Option<Endpoint>,
}

/// What became of a publication.
#[derive(Debug, Serialize, ToSchema)]
#[serde(transparent)]
pub(crate) struct Published {
    #[schema(value_type = Object, example = json!({
        "ok": true, "status": "committed", "pluginId": "text-tools", "publicationVersion": "1.2.0",
        "publicationId": "018f…", "digest": "…", "warnings": []
    }))]
    reply: PublicationReply,
}

/// Publishes a plugin that listens: its nodes are pulled from it, as when it publishes itself. Holds for
/// all workspaces.
#[utoipa::path(post, path = "/plugins", tag = "plugins", request_body = NewPublication,
    responses((status = 200, body = Published), (status = 400, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "`version_immutable`, `node_type_conflict`")))]
pub(crate) async fn publish(State(app): State<Arc<App>>, payload: Payload) -> Answer<Response> {
    let NewPublication { manifest, plugin_id, from } = payload.read()?;
    let request = PublishRequest { manifest, plugin_id, from };
    let reply = app.plugins.call_within(pattern::PLUGIN_PUBLISH, &request, PUBLICATION_DEADLINE).await?;
    Ok(json(StatusCode::OK, &Published { reply }))
}

/// All published versions of a plugin, the newest first.
#[utoipa::path(get, path = "/plugins/{id}/versions", tag = "plugins", params(("id" = String, Path)),
    responses((status = 200, body = VersionPage), (status = 404, body = ErrorBody)))]
pub(crate) async fn versions(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Named(id): Named<String>,
) -> Answer<Response> {
    let found: PluginVersions = app.plugins.call(pattern::PLUGIN_VERSIONS, &of(&caller, id)).await?;
    let versions = found.versions.into_iter().map(PluginVersionView::from).collect();
    Ok(json(StatusCode::OK, &VersionPage { versions }))
}

#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct ThisVersion {
    /// The version that is meant.
    version: String,
}

/// Keeps the workspace on one version of a plugin.
#[utoipa::path(post, path = "/plugins/{id}/pin", tag = "plugins", params(("id" = String, Path), ThisVersion),
    responses((status = 200, body = ChangedView), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "`conflict`: the version is yanked")))]
pub(crate) async fn pin(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Named(id): Named<String>,
    Asked(ThisVersion { version }): Asked<ThisVersion>,
) -> Answer<Response> {
    let request = PluginRef { publication_version: Some(version), ..of(&caller, id) };
    change(&app, pattern::PLUGIN_PIN, request).await
}

/// Lets the workspace follow the newest version again.
#[utoipa::path(post, path = "/plugins/{id}/unpin", tag = "plugins", params(("id" = String, Path)),
    responses((status = 200, body = ChangedView), (status = 404, body = ErrorBody)))]
pub(crate) async fn unpin(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Named(id): Named<String>,
) -> Answer<Response> {
    change(&app, pattern::PLUGIN_UNPIN, of(&caller, id)).await
}

/// Lets nothing new use a version, in all workspaces. What runs on it or is pinned to it keeps it.
#[utoipa::path(post, path = "/plugins/{id}/yank", tag = "plugins", params(("id" = String, Path), ThisVersion),
    responses((status = 200, body = ChangedView), (status = 404, body = ErrorBody)))]
pub(crate) async fn yank(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Named(id): Named<String>,
    Asked(ThisVersion { version }): Asked<ThisVersion>,
) -> Answer<Response> {
    let request = PluginRef { publication_version: Some(version), ..of(&caller, id) };
    change(&app, pattern::PLUGIN_YANK, request).await
}

/// Takes a yank back.
#[utoipa::path(post, path = "/plugins/{id}/unyank", tag = "plugins", params(("id" = String, Path), ThisVersion),
    responses((status = 200, body = ChangedView), (status = 404, body = ErrorBody)))]
pub(crate) async fn unyank(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Named(id): Named<String>,
    Asked(ThisVersion { version }): Asked<ThisVersion>,
) -> Answer<Response> {
    let request = PluginRef { publication_version: Some(version), ..of(&caller, id) };
    change(&app, pattern::PLUGIN_UNYANK, request).await
}

#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct Between {
    /// The older version.
    from: String,
    /// The newer version.
    to: String,
}

/// What changed between two versions.
#[derive(Debug, Serialize, ToSchema)]
#[serde(transparent)]
pub(crate) struct DiffView {
    #[schema(value_type = Object, example = json!({
        "breaking": true, "changes": [{
            "kind": "port_removed", "nodeType": "plugin.text.upper", "side": "input", "port": "text",
            "breaking": true, "detail": "was removed"
        }]
    }))]
    diff: PluginDiff,
}

/// What changed between two versions, in nodes and ports; breaking changes are marked.
#[utoipa::path(get, path = "/plugins/{id}/diff", tag = "plugins", params(("id" = String, Path), Between),
    responses((status = 200, body = DiffView), (status = 404, body = ErrorBody)))]
pub(crate) async fn diff(
    State(app): State<Arc<App>>,
    Named(plugin_id): Named<String>,
    Asked(Between { from, to }): Asked<Between>,
) -> Answer<Response> {
    let request = DiffRequest { plugin_id, from, to };
    let diff = app.plugins.call(pattern::PLUGIN_DIFF, &request).await?;
    Ok(json(StatusCode::OK, &DiffView { diff }))
}
