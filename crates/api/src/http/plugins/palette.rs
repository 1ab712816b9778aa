//! `/palette`: everything that can be drawn in a process. It is large, it is asked for by every editor
//! that opens, and it changes only with the catalogue: it is drawn once per state of the catalogue.

use crate::{
    app::App,
    catalogue::Plugin,
    http::{
        builtin,
        extract::Caller,
        problem::{Answer, ErrorBody, Problem},
    },
    palettes::Drawn,
};
use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use contract::{ErrorCode, catalogue::HealthState, param::Param};
use serde::Serialize;
use std::sync::Arc;
use storage::users::Principal;
use utoipa::ToSchema;

/// What can be drawn in a process.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Palette {
    /// Built-in nodes first, then those of plugins.
    nodes: Vec<PaletteNode>,
    /// The catalogue's revision.
    revision: i64,
}

/// A node type.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PaletteNode {
    pub(crate) node_type: String,
    pub(crate) name: String,
    pub(crate) description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) help: Option<String>,
    /// The plugin that has it; absent for built-in nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plugin: Option<PalettePlugin>,
    /// Declared inputs; `null` accepts any.
    #[schema(value_type = Option<Vec<Object>>)]
    pub(crate) inputs: Option<Vec<Param>>,
    /// Declared outputs.
    #[schema(value_type = Vec<Object>)]
    pub(crate) outputs: Vec<Param>,
    pub(crate) tags: Vec<String>,
    pub(crate) section_path: Vec<String>,
}

/// The plugin of a node type.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PalettePlugin {
    plugin_id: String,
    label: String,
    publication_version: String,
    enabled: bool,
    /// `unknown`, `online` or `offline`.
    #[schema(value_type = String)]
    health: HealthState,
}

/// Everything that can be drawn in a process: built-in nodes and those of the workspace's plugins. The
/// answer has a strong `ETag`; `If-None-Match` with it is answered 304 while nothing has changed.
#[utoipa::path(get, path = "/palette", tag = "plugins",
    responses((status = 200, body = Palette), (status = 304, description = "as the caller has it"),
        (status = 503, body = ErrorBody)))]
pub(crate) async fn palette(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    headers: HeaderMap,
) -> Answer<Response> {
    let drawn = current(&app, &caller).await?;
    let mut response = match has(&headers, &drawn.etag) {
        true => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        }
        false => {
            let mut response = Response::new(Body::from(drawn.body.clone()));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::ETAG, drawn.etag.clone());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    Ok(response)
}

/// Does the caller have the answer with this tag? As RFC 9110 (13.1.2) compares.
fn has(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let tags = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut tags = tags.flat_map(|value| value.split(',')).map(str::trim);
    tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag).as_bytes() == etag.as_bytes())
}

/// The palette as it is now: plugin-manager is asked whether the one that is kept still holds.
async fn current(app: &App, caller: &Principal) -> Answer<Arc<Drawn>> {
    let palettes = &app.catalogue.palettes;
    let kept = palettes.of(caller);
    let list = app.catalogue.list(caller, kept.as_ref().and_then(|kept| kept.tag.clone())).await?;
    if let Some(kept) = kept.filter(|_| list.not_modified) {
        return Ok(kept);
    }
    // One is drawn at a time: those who come together get what the first of them has drawn.
    let _turn = palettes.turn.lock().await;
    if let Some(kept) = palettes.of(caller).filter(|kept| kept.tag.is_some() && kept.tag == list.tag) {
        return Ok(kept);
    }
    let plugins = app.catalogue.with_executors(list.plugins, caller).await?;
    let (tag, revision) = (list.tag, list.revision);
    // Megabytes of text: other requests go on meanwhile.
    let drawn = tokio::task::spawn_blocking(move || draw(&plugins, revision, tag)).await;
    match drawn {
        Ok(Ok(drawn)) => Ok(palettes.keep(caller, drawn)),
        Ok(Err(error)) => Err(undrawn(&error)),
        Err(error) => Err(undrawn(&error)),
    }
}

fn undrawn(error: &dyn std::error::Error) -> Problem {
    tracing::error!(event = "palette_undrawn", error = %error, "the palette cannot be written");
    Problem::new(ErrorCode::Internal, "the palette cannot be written; the api's log holds the details")
}

fn draw(plugins: &[Plugin], revision: i64, tag: Option<String>) -> serde_json::Result<Drawn> {
    let of_plugins = plugins.iter().flat_map(nodes_of);
    let nodes = builtin::nodes().into_iter().chain(of_plugins).collect();
    let body = serde_json::to_vec(&Palette { nodes, revision })?;
    Ok(Drawn::new(tag, body))
}

fn nodes_of(Plugin { summary, items }: &Plugin) -> impl Iterator<Item = PaletteNode> {
    let version = summary.pinned_version.as_ref().unwrap_or(&summary.publication_version);
    let plugin = PalettePlugin {
        plugin_id: summary.plugin_id.clone(),
        label: summary.label.clone(),
        publication_version: version.clone(),
        enabled: summary.enabled,
        health: summary.health.state,
    };
    items.iter().map(move |item| PaletteNode {
        node_type: item.node_type.clone(),
        name: item.name.clone(),
        description: item.description.clone(),
        help: item.help.clone(),
        plugin: Some(plugin.clone()),
        inputs: item.inputs.clone(),
        outputs: item.outputs.clone(),
        tags: item.tags.clone(),
        section_path: item.section_path.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_what_one_of_its_tags_names() {
        let etag = HeaderValue::from_static("\"a\"");
        let asked = |values: &[&'static str]| {
            let values = values.iter().map(|value| (header::IF_NONE_MATCH, HeaderValue::from_static(value)));
            has(&values.collect(), &etag)
        };
        for told in [&["\"a\""][..], &["W/\"a\""], &["\"b\", \"a\""], &["\"b\"", "\"a\""], &["*"]] {
            assert!(asked(told), "{told:?}");
        }
        for told in [&[][..], &["\"b\""], &["a"], &["\"ab\""]] {
            assert!(!asked(told), "{told:?}");
        }
    }
}
