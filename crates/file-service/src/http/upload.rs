//! `POST /internal/files?name=&workspaceId=`: the raw bytes are the body.

use super::{Files, HttpError};
use crate::disk::{Draft, Written};
use axum::{
    Json,
    body::Body,
    extract::{Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
};
use contract::{Digest, ErrorCode, RpcError, catalogue::DEFAULT_WORKSPACE};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use storage::BlobRow;
use tokio::time::timeout;
use uuid::Uuid;

/// The longest wait for the next bytes of an upload.
const STALL: Duration = Duration::from_secs(30);
/// Bytes of a name, workspace or media type.
const MAX_TEXT_BYTES: usize = 1024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Named {
    name: Option<String>,
    workspace_id: Option<String>,
}

/// What a caller is told of a stored file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stored {
    file_id: Uuid,
    size: u64,
    digest: Digest,
    media_type: String,
}

/// What is said of a file beside its bytes.
pub(super) struct Described {
    name: String,
    workspace_id: String,
    media_type: String,
}

impl Stored {
    pub(super) fn of(id: Uuid, row: BlobRow) -> Self {
        Self { file_id: id, size: row.size, digest: row.digest, media_type: row.media_type }
    }
}

/// Stores the body as a new file.
pub(super) async fn upload(
    State(files): State<Files>,
    Query(named): Query<Named>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Stored>), HttpError> {
    let (described, draft) = files.accept(named, &headers, body).await?;
    let id = Uuid::now_v7();
    let row = files.keep(id, described, draft).await?;
    if let Err(error) = files.0.storage.blobs().put(&row).await {
        // Bytes without an entry are only lost room, should this fail too.
        let _ = files.0.disk.remove(id).await;
        return Err(error.into());
    }
    tracing::info!(event = "file_stored", file_id = %id, workspace_id = row.workspace_id, size_bytes = row.size, "file stored");
    Ok((StatusCode::CREATED, Json(Stored::of(id, row))))
}

impl Files {
    /// Takes the bytes of an upload.
    pub(super) async fn accept(
        &self,
        named: Named,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(Described, Draft), HttpError> {
        let Ok(_room) = self.0.uploads.try_acquire() else {
            return Err(refused(ErrorCode::Overloaded, "too many uploads are under way; come back later"));
        };
        let sent = |header| headers.get(header).and_then(|value: &HeaderValue| value.to_str().ok());
        let described = Described {
            name: text("name", named.name, "file")?,
            workspace_id: text("workspaceId", named.workspace_id, DEFAULT_WORKSPACE)?,
            media_type: text(
                "Content-Type",
                sent(header::CONTENT_TYPE).map(str::to_owned),
                "application/octet-stream",
            )?,
        };
        let announced = sent(header::CONTENT_LENGTH).and_then(|text| text.parse().ok());
        self.check_size(announced.unwrap_or(0))?;
        Ok((described, self.receive(body).await?))
    }

    /// Makes the draft the file of this id. Its entry is still to be stored.
    pub(super) async fn keep(
        &self,
        id: Uuid,
        described: Described,
        draft: Draft,
    ) -> Result<BlobRow, HttpError> {
        let Written { size, digest } =
            self.0.disk.keep(draft, id).await.map_err(|error| HttpError::disk("stored", &error))?;
        let Described { name, workspace_id, media_type } = described;
        let created_at = self.0.storage.now().await?;
        Ok(BlobRow { file_id: id.to_string(), workspace_id, name, media_type, size, digest, created_at })
    }

    async fn receive(&self, body: Body) -> Result<Draft, HttpError> {
        let mut draft = self.0.disk.draft().await.map_err(|error| HttpError::disk("stored", &error))?;
        let mut chunks = body.into_data_stream();
        loop {
            let chunk = match timeout(STALL, chunks.next()).await {
                Ok(None) => return Ok(draft),
                Ok(Some(Ok(chunk))) => chunk,
                Ok(Some(Err(_))) => {
                    return Err(refused(ErrorCode::InvalidRequest, "the body broke off; send it again"));
                }
                Err(_) => {
                    return Err(refused(
                        ErrorCode::Timeout,
                        format!("no bytes came for {} s; send the file again", STALL.as_secs()),
                    ));
                }
            };
            self.check_size(draft.size() + chunk.len() as u64)?;
            draft.write(&chunk).await.map_err(|error| HttpError::disk("stored", &error))?;
        }
    }

    fn check_size(&self, bytes: u64) -> Result<(), HttpError> {
        let limit = self.0.max_file_bytes;
        if bytes <= limit {
            return Ok(());
        }
        Err(refused(
            ErrorCode::PayloadTooLarge,
            format!("the file has {bytes} bytes or more, the limit is {limit} (FILE_MAX_SIZE_MB)"),
        ))
    }
}

fn text(what: &str, given: Option<String>, default: &str) -> Result<String, HttpError> {
    let text = given.filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned());
    if text.len() > MAX_TEXT_BYTES || text.chars().any(char::is_control) {
        let message = format!("{what} must have at most {MAX_TEXT_BYTES} bytes and no control characters");
        return Err(refused(ErrorCode::InvalidRequest, message));
    }
    Ok(text)
}

fn refused(code: ErrorCode, message: impl Into<String>) -> HttpError {
    HttpError(RpcError::new(code, message))
}
