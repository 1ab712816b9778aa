//! The bytes of files: file-service over HTTP. Bodies are streamed both ways.

use bytes::Bytes;
use contract::{Digest, ErrorCode, RpcError};
use reqwest::{Response, StatusCode, Url, header};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long file-service may take to begin its answer.
const DEADLINE: Duration = Duration::from_secs(30);

/// A client of file-service.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    client: reqwest::Client,
    base_url: String,
    token: Option<SecretString>,
}

/// What file-service answers to a stored file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredFile {
    /// Its id.
    pub(crate) file_id: String,
    /// Bytes.
    pub(crate) size: u64,
    /// SHA-256 of its bytes.
    pub(crate) digest: Digest,
    /// Its media type.
    pub(crate) media_type: String,
}

impl Files {
    /// A client; it connects at the first call.
    pub(crate) fn new(base_url: &str, token: Option<SecretString>) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(Duration::from_secs(3))
            .build()?;
        Ok(Self { client, base_url: base_url.to_owned(), token })
    }

    /// Stores a file.
    ///
    /// # Errors
    /// What file-service answers, or `unavailable`.
    pub(crate) async fn put(
        &self,
        workspace_id: &str,
        name: &str,
        media_type: &str,
        bytes: Bytes,
    ) -> Result<StoredFile, RpcError> {
        let mut url = self.url(["internal", "files"])?;
        url.query_pairs_mut().append_pair("name", name).append_pair("workspaceId", workspace_id);
        let request = self.client.post(url).header(header::CONTENT_TYPE, media_type).body(bytes);
        let response = self.send(request).await?;
        response.json().await.map_err(|error| away(&error))
    }

    /// Opens a file for reading; conditions of the caller (`If-None-Match`, `Range`) are passed on.
    ///
    /// # Errors
    /// `not_found`, what else file-service answers, or `unavailable`.
    pub(crate) async fn open(
        &self,
        file_id: &str,
        conditions: &header::HeaderMap,
    ) -> Result<Response, RpcError> {
        let mut request = self.client.get(self.url(["files", file_id])?);
        for name in [header::IF_NONE_MATCH, header::RANGE, header::IF_RANGE] {
            if let Some(value) = conditions.get(&name) {
                request = request.header(name, value);
            }
        }
        self.send(request).await
    }

    /// Put together segment by segment, so that an id can never name another route.
    fn url(&self, path: [&str; 2]) -> Result<Url, RpcError> {
        let malformed = || RpcError::new(ErrorCode::Internal, "FILE_SERVICE_BASE_URL is no URL");
        let mut url = Url::parse(&self.base_url).map_err(|_| malformed())?;
        url.path_segments_mut().map_err(|()| malformed())?.pop_if_empty().extend(path);
        Ok(url)
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Response, RpcError> {
        let request = match &self.token {
            Some(token) => request.bearer_auth(token.expose_secret()),
            None => request,
        };
        let response = tokio::time::timeout(DEADLINE, request.send())
            .await
            .map_err(|_| RpcError::new(ErrorCode::Timeout, "file-service does not answer"))?
            .map_err(|error| away(&error))?;
        let status = response.status();
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(response);
        }
        Err(refusal(response).await)
    }
}

/// The error that file-service answered with.
async fn refusal(response: Response) -> RpcError {
    #[derive(Deserialize)]
    struct Body {
        error: RpcError,
    }
    let status = response.status();
    if status == StatusCode::UNAUTHORIZED {
        tracing::error!(
            event = "neighbour_refused_token",
            neighbour = "file-service",
            "file-service refuses the api's credential"
        );
        return RpcError::new(
            ErrorCode::Unavailable,
            "file-service refuses the api's credential; give both the same FILE_SERVICE_TOKEN",
        );
    }
    match response.json::<Body>().await {
        Ok(body) => body.error,
        Err(_) => RpcError::new(ErrorCode::Unavailable, format!("file-service answered {status}")),
    }
}

/// The URL is left out: it is of no use to the caller.
fn away(error: &reqwest::Error) -> RpcError {
    tracing::warn!(event = "file_service_away", "file-service cannot be reached: {error}");
    RpcError::new(ErrorCode::Unavailable, "file-service cannot be reached; try again later")
}
