//! For operators: health, quarantine, and why a node may not be dispatched.

use super::{
    change, of,
    views::{ChangedView, HealthPage, PluginHealthView},
};
use crate::{
    app::App,
    http::{
        extract::{Asked, Caller, Named},
        problem::{Answer, ErrorBody, Problem, json},
    },
};
use axum::{extract::State, http::StatusCode, response::Response};
use contract::{
    ErrorCode, PublicationId,
    catalogue::{ExplainRequest, PluginHealthList, PluginListRequest, PluginRef},
    pattern,
    policy::Decision,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use storage::users::Principal;
use utoipa::{IntoParams, ToSchema};

/// Keeps new tasks from a plugin, in all workspaces. What was dispatched finishes.
#[utoipa::path(post, path = "/plugins/{id}/quarantine", tag = "plugins", params(("id" = String, Path)),
    responses((status = 200, body = ChangedView), (status = 404, body = ErrorBody)))]
pub(crate) async fn quarantine(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Named(id): Named<String>,
) -> Answer<Response> {
    change(&app, pattern::PLUGIN_QUARANTINE, of(&caller, id)).await
}

/// Lifts a quarantine.
#[utoipa::path(post, path = "/plugins/{id}/release", tag = "plugins", params(("id" = String, Path)),
    responses((status = 200, body = ChangedView), (status = 404, body = ErrorBody)))]
pub(crate) async fn release(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Named(id): Named<String>,
) -> Answer<Response> {
    change(&app, pattern::PLUGIN_RELEASE, of(&caller, id)).await
}

#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct AtOnce {
    /// So many at once, from 1 up; absent: as many as there are.
    attempts: Option<u32>,
}

/// Limits how many attempts of a plugin are dispatched and unfinished at once, in all workspaces and over
/// all control planes. What goes beyond it waits.
#[utoipa::path(post, path = "/plugins/{id}/limit", tag = "plugins", params(("id" = String, Path), AtOnce),
    responses((status = 200, body = ChangedView), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(crate) async fn limit(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Named(id): Named<String>,
    Asked(AtOnce { attempts }): Asked<AtOnce>,
) -> Answer<Response> {
    change(&app, pattern::PLUGIN_LIMIT, PluginRef { max_attempts: attempts, ..of(&caller, id) }).await
}

/// The health of all live plugins: state, since when, last error and last changes.
#[utoipa::path(get, path = "/plugin-health", tag = "plugins",
    responses((status = 200, body = HealthPage), (status = 503, body = ErrorBody)))]
pub(crate) async fn health(State(app): State<Arc<App>>, Caller(caller): Caller) -> Answer<Response> {
    let found = all(&app, &caller).await?;
    let plugins = found.plugins.into_iter().map(PluginHealthView::from).collect();
    Ok(json(StatusCode::OK, &HealthPage { plugins, revision: found.revision }))
}

/// The health of one live plugin.
#[utoipa::path(get, path = "/plugins/{id}/health", tag = "plugins", params(("id" = String, Path)),
    responses((status = 200, body = PluginHealthView), (status = 404, body = ErrorBody)))]
pub(crate) async fn health_of(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Named(id): Named<String>,
) -> Answer<Response> {
    let found = all(&app, &caller).await?.plugins.into_iter().find(|plugin| plugin.plugin_id == id);
    let plugin = found.ok_or_else(|| {
        let message = format!("the catalogue has no live plugin {id:?}; GET /plugins lists them");
        Problem::new(ErrorCode::PluginUnknown, message)
    })?;
    Ok(json(StatusCode::OK, &PluginHealthView::from(plugin)))
}

async fn all(app: &App, caller: &Principal) -> Answer<PluginHealthList> {
    let request =
        PluginListRequest { workspace_id: caller.workspace_id.clone(), ..PluginListRequest::default() };
    Ok(app.plugins.call(pattern::PLUGIN_HEALTH, &request).await?)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OfNode {
    /// The node type.
    node_type: String,
    /// For this user instead of the caller.
    user_id: Option<String>,
    /// Of a run that is pinned to this publication.
    #[param(value_type = Option<String>)]
    publication_id: Option<PublicationId>,
}

/// A decision with each rule's verdict.
#[derive(Debug, Serialize, ToSchema)]
#[serde(transparent)]
pub(crate) struct Explained {
    #[schema(value_type = Object, example = json!({
        "allowed": false, "refusal": {"code": "plugin_disabled", "message": "…"}, "subject": "text-tools@1.2.0",
        "signature": "unsigned", "verdicts": [{"rule": "plugin_known", "passed": true}]
    }))]
    decision: Decision,
}

/// May a node be dispatched now? The verdict of every rule, as the control plane would decide.
#[utoipa::path(get, path = "/explain", tag = "plugins", params(OfNode),
    responses((status = 200, body = Explained), (status = 503, body = ErrorBody)))]
pub(crate) async fn explain(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Asked(OfNode { node_type, user_id, publication_id }): Asked<OfNode>,
) -> Answer<Response> {
    let request = ExplainRequest {
        workspace_id: caller.workspace_id,
        user_id: user_id.unwrap_or(caller.user_id),
        node_type,
        publication_id,
    };
    let decision = app.plugins.call(pattern::PLUGIN_EXPLAIN, &request).await?;
    Ok(json(StatusCode::OK, &Explained { decision }))
}
