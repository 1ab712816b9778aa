//! The HTTP door: routes, their description, and what they take and answer.

mod builtin;
mod events;
mod extract;
mod files;
mod observe;
mod plugins;
mod problem;
mod processes;
mod runs;
mod secrets;
mod system;
mod views;

use crate::app::App;
use axum::{
    Router,
    http::StatusCode,
    middleware::{from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::get,
};
use contract::{ErrorCode, RpcError};
use problem::{ErrorBody, Problem, json};
use std::{any::Any, sync::Arc};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::{
    Modify, OpenApi,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};
use utoipa_axum::{router::OpenApiRouter, routes};

/// All routes. Each handler's own declaration holds its path and method, so that the description
/// and the router cannot differ.
pub(crate) fn router(app: Arc<App>) -> Router {
    let guarded = guarded().route_layer(from_fn_with_state(Arc::clone(&app), extract::require_token));
    let (router, _) = OpenApiRouter::new().merge(guarded).merge(public()).split_for_parts();
    router
        .route("/", get(system::page))
        .route("/openapi.json", get(system::description))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn(observe::observe))
        .with_state(app)
}

/// What needs a token.
fn guarded() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(processes::list, processes::create))
        .routes(routes!(processes::import_document))
        .routes(routes!(processes::get, processes::replace, processes::delete))
        .routes(routes!(runs::webhook))
        .routes(routes!(runs::run_now))
        .routes(routes!(runs::list))
        .routes(routes!(runs::list_all))
        .routes(routes!(runs::find))
        .routes(routes!(runs::get))
        .routes(routes!(runs::result))
        .routes(routes!(runs::history))
        .routes(routes!(events::events))
        .routes(routes!(runs::cancel))
        .routes(routes!(runs::retry))
        .routes(routes!(runs::confirm))
        .routes(routes!(plugins::list, plugins::versions::publish))
        .routes(routes!(plugins::get, plugins::remove))
        .routes(routes!(plugins::enable))
        .routes(routes!(plugins::disable))
        .routes(routes!(plugins::versions::versions))
        .routes(routes!(plugins::versions::pin))
        .routes(routes!(plugins::versions::unpin))
        .routes(routes!(plugins::versions::yank))
        .routes(routes!(plugins::versions::unyank))
        .routes(routes!(plugins::versions::diff))
        .routes(routes!(plugins::operations::limit))
        .routes(routes!(plugins::operations::quarantine))
        .routes(routes!(plugins::operations::release))
        .routes(routes!(plugins::operations::health))
        .routes(routes!(plugins::operations::health_of))
        .routes(routes!(plugins::operations::explain))
        .routes(routes!(plugins::asset))
        .routes(routes!(plugins::palette::palette))
        .routes(routes!(secrets::list))
        .routes(routes!(secrets::get, secrets::put, secrets::delete))
        .routes(routes!(files::upload))
        .routes(routes!(files::download))
}

/// What needs none.
fn public() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(system::health)).routes(routes!(system::ready))
}

async fn no_route() -> Problem {
    Problem::new(ErrorCode::UnknownPattern, "there is no such route; GET /openapi.json lists them all")
}

async fn wrong_method() -> Response {
    let error = RpcError::new(ErrorCode::InvalidRequest, "the route exists, but not with this method");
    json(StatusCode::METHOD_NOT_ALLOWED, &ErrorBody { error })
}

/// A bug of ours costs its caller one answer, not the connection.
fn panicked(_reason: Box<dyn Any + Send>) -> Response {
    tracing::error!(event = "handler_panicked", "a request handler panicked");
    Problem::new(ErrorCode::Internal, "the api failed; its log holds the details").into_response()
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Conveyor", description = "Workflow automation: processes, runs, plugins, secrets and files."),
    modifiers(&BearerToken),
    security(("token" = [])),
    tags(
        (name = "processes", description = "Process documents"),
        (name = "runs", description = "Starting, watching and ending runs"),
        (name = "plugins", description = "The plugin catalogue"),
        (name = "secrets", description = "Names of secrets; values never come back"),
        (name = "files", description = "Files that nodes work on"),
        (name = "system", description = "Health of the service"),
    )
)]
struct Description;

struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        openapi.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

/// The `OpenAPI` description of every route.
pub fn openapi() -> utoipa::openapi::OpenApi {
    OpenApiRouter::with_openapi(Description::openapi()).merge(guarded()).merge(public()).into_openapi()
}
