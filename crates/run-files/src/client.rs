//! File-service over HTTP, as the services on a run's path use it.

use crate::{Error, RunFilesSettings};
use contract::{Digest, ErrorCode, RpcError, RunId, file::FileRef};
use reqwest::{Body, Client, RequestBuilder, Response, StatusCode, Url, header};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::time::Duration;

/// The longest silence of file-service.
const SILENCE: Duration = Duration::from_secs(30);

/// A client of file-service; it connects at the first call. Cloning shares its connections.
#[derive(Clone, Debug)]
pub struct RunFiles {
    client: Client,
    url: String,
    token: Option<SecretString>,
}

/// What file-service answers to a stored file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    file_id: String,
    size: u64,
    digest: Digest,
    media_type: String,
}

impl RunFiles {
    /// A client.
    ///
    /// # Errors
    /// [`Error::Client`] when the system offers no usable TLS.
    pub fn new(settings: &RunFilesSettings) -> Result<Self, Error> {
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            // A neighbour: what the environment says about the way to the outside does not hold.
            .no_proxy()
            .connect_timeout(Duration::from_secs(3))
            .read_timeout(SILENCE)
            .build()?;
        Ok(Self { client, url: settings.url.clone(), token: settings.token.clone() })
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
        let mut url = self.place(run_id, None)?;
        url.query_pairs_mut().append_pair("name", name).append_pair("workspaceId", workspace_id);
        let request = self.client.post(url).header(header::CONTENT_TYPE, content_type).body(body);
        let stored: Stored = self.send(request).await?.json().await.map_err(|error| away(&error))?;
        let Stored { file_id, size, digest, media_type } = stored;
        Ok(FileRef { id: file_id, size, content_type: media_type, sha256: digest })
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
        let request = self.client.get(self.place(run_id, Some(&file.id))?);
        let mut response = self.send(request).await?;
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

    /// Put together segment by segment, so that an id can never name another route.
    fn place(&self, run_id: RunId, file_id: Option<&str>) -> Result<Url, RpcError> {
        let malformed = || RpcError::new(ErrorCode::Internal, "FILE_SERVICE_BASE_URL is no URL");
        let mut url = Url::parse(&self.url).map_err(|_| malformed())?;
        let run_id = run_id.to_string();
        let path = ["internal", "runs", &run_id, "files"].into_iter().chain(file_id);
        url.path_segments_mut().map_err(|()| malformed())?.pop_if_empty().extend(path);
        Ok(url)
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, RpcError> {
        let request = match &self.token {
            Some(token) => request.bearer_auth(token.expose_secret()),
            None => request,
        };
        let response = request.send().await.map_err(|error| away(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(refusal(response).await)
    }
}

/// The error that file-service answered with.
async fn refusal(response: Response) -> RpcError {
    #[derive(Deserialize)]
    struct Told {
        error: RpcError,
    }
    let status = response.status();
    if status == StatusCode::UNAUTHORIZED {
        tracing::error!(
            event = "neighbour_refused_token",
            neighbour = "file-service",
            "file-service refuses this service's credential"
        );
        let message = "file-service refuses this service's token; give both the same FILE_SERVICE_TOKEN";
        return RpcError::new(ErrorCode::Unavailable, message);
    }
    match response.json::<Told>().await {
        Ok(told) => told.error,
        Err(_) => RpcError::new(ErrorCode::Unavailable, format!("file-service answered {status}; try again")),
    }
}

fn changed(file: &FileRef) -> RpcError {
    tracing::error!(event = "file_changed", file_id = file.id, "a file is not what its reference says");
    let message = format!("file {} is not what the history says of it; its bytes were damaged", file.id);
    RpcError::new(ErrorCode::Internal, message)
}

/// The URL is left out: it is of no use to the caller.
fn away(error: &reqwest::Error) -> RpcError {
    tracing::warn!(event = "file_service_away", "file-service cannot be reached: {error}");
    RpcError::new(ErrorCode::Unavailable, "file-service cannot be reached; try again later")
}
