//! Files that belong to runs.

use crate::{
    Error, FileService, RunFilesSettings,
    service::{NewFile, away},
};
use contract::{Digest, ErrorCode, RpcError, RunId, file::FileRef};
use reqwest::Body;
use sha2::{Digest as _, Sha256};

/// The files of runs in file-service. Cloning shares its connections.
#[derive(Clone, Debug)]
pub struct RunFiles(FileService);

impl RunFiles {
    /// A client; it connects at the first call.
    ///
    /// # Errors
    /// Those of [`FileService::new`].
    pub fn new(settings: &RunFilesSettings) -> Result<Self, Error> {
        FileService::new(settings).map(Self)
    }

    /// Stores a file of the run. The same bytes again are the same file.
    ///
    /// # Errors
    /// `payload_too_large` beyond file-service's limit, `unavailable` (retryable) when it does not
    /// answer or refuses the token.
    pub async fn put(
        &self,
        run_id: RunId,
        (workspace_id, name): (&str, &str),
        content_type: &str,
        body: impl Into<Body> + Send,
    ) -> Result<FileRef, RpcError> {
        let run_id = run_id.to_string();
        let file = NewFile { workspace_id, name, media_type: content_type };
        let stored = self.0.put(&["internal", "runs", &run_id, "files"], file, body).await?;
        Ok(FileRef {
            id: stored.file_id,
            size: stored.size,
            content_type: stored.media_type,
            sha256: stored.digest,
        })
    }

    /// The text of a file of the run.
    ///
    /// # Errors
    /// `not_found` when the run has no such file, `payload_too_large` beyond `limit` bytes,
    /// `internal` when the bytes are not those that the reference names, `unavailable` (retryable)
    /// when file-service does not answer.
    pub async fn text(&self, run_id: RunId, file: &FileRef, limit: u64) -> Result<String, RpcError> {
        if file.size > limit {
            let message = format!("file {} has {} bytes, the limit is {limit}", file.id, file.size);
            return Err(RpcError::new(ErrorCode::PayloadTooLarge, message));
        }
        let run_id = run_id.to_string();
        let mut response = self.0.get(&["internal", "runs", &run_id, "files", &file.id]).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| away(&error))? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > file.size {
                return Err(changed(file));
            }
        }
        if Digest(Sha256::digest(&bytes).into()) != file.sha256 {
            return Err(changed(file));
        }
        String::from_utf8(bytes).map_err(|_| changed(file))
    }
}

fn changed(file: &FileRef) -> RpcError {
    tracing::error!(event = "file_changed", file_id = file.id, "a file is not what its reference says");
    let message = format!("file {} is not what the history says of it; its bytes were damaged", file.id);
    RpcError::new(ErrorCode::Internal, message)
}
