//! The HTTP door.

mod download;
mod error;
mod range;
mod run_files;
mod upload;

use crate::disk::Disk;
use axum::{
    Router,
    extract::{DefaultBodyLimit, Path, Request, State},
    http::{StatusCode, header},
    middleware::{self, Next},
    response::Response,
    routing::{delete, get, post},
};
use contract::{ErrorCode, RpcError};
use error::HttpError;
use std::{sync::Arc, time::Duration};
use storage::Storage;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use wire::{Credentials, HttpListener};

/// How long transfers may take after the stop.
const DRAIN: Duration = Duration::from_secs(30);
/// Uploads at once; more are told to come back.
const MAX_UPLOADS: usize = 64;

/// What all requests share.
#[derive(Clone, Debug)]
pub(crate) struct Files(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    disk: Disk,
    storage: Storage,
    max_file_bytes: u64,
    token: Option<Credentials>,
    uploads: Semaphore,
}

impl Files {
    pub(crate) fn new(disk: Disk, storage: Storage, max_file_bytes: u64, token: Option<Credentials>) -> Self {
        Self(Arc::new(Inner { disk, storage, max_file_bytes, token, uploads: Semaphore::new(MAX_UPLOADS) }))
    }
}

/// Serves until `stop`, then lets transfers end for a while.
pub(crate) async fn serve(listener: HttpListener, files: Files, stop: CancellationToken) {
    let cut = CancellationToken::new();
    let limit = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN).await;
        tracing::warn!(event = "transfers_cut", "transfers were cut: they took too long to end");
        cut.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = listener.run(router(files), stop.clone(), cut.clone()) => {}
        () = limit => {}
    }
}

fn router(files: Files) -> Router {
    Router::new()
        .route("/internal/files", post(upload::upload))
        .route("/internal/runs/{runId}/files", post(run_files::upload))
        .route("/internal/runs/{runId}/files/{id}", get(run_files::download))
        .route("/internal/files/{id}", delete(remove))
        .route("/files/{id}", get(download::download))
        .layer(DefaultBodyLimit::disable())
        .route_layer(middleware::from_fn_with_state(files.clone(), authorize))
        .route("/health", get(StatusCode::OK))
        .fallback(async || HttpError(RpcError::new(ErrorCode::NotFound, "no such route")))
        .with_state(files)
}

async fn authorize(State(files): State<Files>, request: Request, next: Next) -> Result<Response, HttpError> {
    let Some(token) = &files.0.token else { return Ok(next.run(request).await) };
    let presented = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let presented = presented.and_then(|value| value.split_once(' '));
    match presented {
        Some((scheme, presented))
            if scheme.eq_ignore_ascii_case("bearer") && token.check(presented.trim()).is_right() =>
        {
            Ok(next.run(request).await)
        }
        _ => Err(HttpError(RpcError::new(ErrorCode::Unauthorized, "unauthorized"))),
    }
}

async fn remove(State(files): State<Files>, Path(id): Path<String>) -> Result<StatusCode, HttpError> {
    let id = file_id(&id)?;
    // The entry goes first: what has an entry has its bytes.
    let existed = files.0.storage.blobs().delete(&id.to_string()).await?;
    files.0.disk.remove(id).await.map_err(|error| HttpError::disk("removed", &error))?;
    if !existed {
        return Err(not_found(&id.to_string()));
    }
    tracing::info!(event = "file_removed", file_id = %id, "file removed");
    Ok(StatusCode::NO_CONTENT)
}

fn file_id(text: &str) -> Result<Uuid, HttpError> {
    Uuid::parse_str(text).map_err(|_| not_found(text))
}

fn not_found(id: &str) -> HttpError {
    HttpError(RpcError::new(ErrorCode::NotFound, format!("there is no file {id:?}")))
}
