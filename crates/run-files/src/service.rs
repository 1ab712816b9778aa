//! File-service over HTTP, as every service that keeps files uses it. Bodies are streamed both ways.

use crate::{Error, RunFilesSettings};
use contract::{Digest, ErrorCode, RpcError};
use parking_lot::Mutex;
use reqwest::{Body, Client, ClientBuilder, RequestBuilder, Response, StatusCode, Url, header};
use rustls::ClientConfig;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use wire::TlsClient;

/// The longest silence of file-service.
const SILENCE: Duration = Duration::from_secs(30);
/// The path of files that belong to no run.
const FILES: [&str; 2] = ["internal", "files"];

/// A client of file-service; it connects at the first call. Cloning shares its connections.
#[derive(Clone, Debug)]
pub struct FileService {
    url: Url,
    token: Option<SecretString>,
    line: Line,
}

/// What file-service answers to a stored file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredFile {
    /// Its id.
    pub file_id: String,
    /// Bytes.
    pub size: u64,
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// Its media type.
    pub media_type: String,
}

/// What is said of a file that is stored, beside its bytes.
#[derive(Clone, Copy, Debug)]
pub struct NewFile<'f> {
    /// The workspace that it belongs to.
    pub workspace_id: &'f str,
    /// Its name, for people.
    pub name: &'f str,
    /// Its media type.
    pub media_type: &'f str,
}

/// How file-service is connected to.
#[derive(Clone, Debug)]
enum Line {
    /// Plain HTTP, or HTTPS by the authorities of the system.
    Plain(Client),
    /// HTTPS by authorities of one's own, whose files may change: the client is made anew then.
    Trusting(TlsClient, Arc<Mutex<Option<Made>>>),
}

/// The client of a configuration.
#[derive(Debug)]
struct Made {
    config: Arc<ClientConfig>,
    client: Client,
}

impl FileService {
    /// A client.
    ///
    /// # Errors
    /// [`Error::Address`] for what is no URL, [`Error::NotHttps`] for authorities beside an address
    /// without TLS, [`Error::Client`] when the system offers no usable TLS.
    pub fn new(settings: &RunFilesSettings) -> Result<Self, Error> {
        let url =
            Url::parse(&settings.url).ok().filter(|url| !url.cannot_be_a_base()).ok_or(Error::Address)?;
        let line = match settings.tls.clone() {
            None => Line::Plain(builder().build()?),
            Some(_) if url.scheme() != "https" => return Err(Error::NotHttps),
            Some(tls) => Line::Trusting(tls, Arc::default()),
        };
        Ok(Self { url, token: settings.token.clone(), line })
    }

    /// Stores a file that belongs to no run.
    ///
    /// # Errors
    /// `payload_too_large` beyond file-service's limit, what else it answers, `unavailable`
    /// (retryable) when it does not answer or refuses the token.
    pub async fn store(
        &self,
        file: NewFile<'_>,
        body: impl Into<Body> + Send,
    ) -> Result<StoredFile, RpcError> {
        self.put(&FILES, file, body).await
    }

    /// Opens a file for reading, whoever it belongs to; conditions of the caller (`If-None-Match`,
    /// `Range`, `If-Range`) are passed on, other headers are not.
    ///
    /// # Errors
    /// `not_found`, what else file-service answers, or `unavailable` (retryable).
    pub async fn open(&self, file_id: &str, conditions: &header::HeaderMap) -> Result<Response, RpcError> {
        let mut request = self.client().await?.get(self.place(&["files", file_id])?);
        for name in [header::IF_NONE_MATCH, header::RANGE, header::IF_RANGE] {
            if let Some(value) = conditions.get(&name) {
                request = request.header(name, value);
            }
        }
        self.send(request).await
    }

    /// Removes a file.
    ///
    /// # Errors
    /// `not_found`, what else file-service answers, or `unavailable` (retryable).
    pub async fn remove(&self, file_id: &str) -> Result<(), RpcError> {
        let [internal, files] = FILES;
        let request = self.client().await?.delete(self.place(&[internal, files, file_id])?);
        self.send(request).await.map(drop)
    }

    pub(crate) async fn put(
        &self,
        path: &[&str],
        file: NewFile<'_>,
        body: impl Into<Body> + Send,
    ) -> Result<StoredFile, RpcError> {
        let mut url = self.place(path)?;
        url.query_pairs_mut().append_pair("name", file.name).append_pair("workspaceId", file.workspace_id);
        let request = self.client().await?.post(url);
        let request = request.header(header::CONTENT_TYPE, file.media_type).body(body);
        self.send(request).await?.json().await.map_err(|error| away(&error))
    }

    pub(crate) async fn get(&self, path: &[&str]) -> Result<Response, RpcError> {
        let request = self.client().await?.get(self.place(path)?);
        self.send(request).await
    }

    async fn client(&self) -> Result<Client, RpcError> {
        let (tls, made) = match &self.line {
            Line::Plain(client) => return Ok(client.clone()),
            Line::Trusting(tls, made) => (tls, made),
        };
        let config = tls.config().await;
        let mut made = made.lock();
        if let Some(made) = made.as_ref().filter(|made| Arc::ptr_eq(&made.config, &config)) {
            return Ok(made.client.clone());
        }
        let client = builder().tls_backend_preconfigured((*config).clone()).build().map_err(|error| {
            let message = format!("no HTTPS client for file-service can be made: {error}");
            RpcError::new(ErrorCode::Internal, message)
        })?;
        *made = Some(Made { config, client: client.clone() });
        Ok(client)
    }

    /// Put together segment by segment, so that an id can never name another route.
    fn place(&self, path: &[&str]) -> Result<Url, RpcError> {
        let mut url = self.url.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().extend(path),
            Err(()) => {
                return Err(RpcError::new(ErrorCode::Internal, "the address of file-service is no URL"));
            }
        };
        Ok(url)
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, RpcError> {
        let request = match &self.token {
            Some(token) => request.bearer_auth(token.expose_secret()),
            None => request,
        };
        let response = request.send().await.map_err(|error| away(&error))?;
        let status = response.status();
        // The last two answer conditions that the caller set.
        match status {
            _ if status.is_success() => Ok(response),
            StatusCode::NOT_MODIFIED | StatusCode::RANGE_NOT_SATISFIABLE => Ok(response),
            _ => Err(refusal(response).await),
        }
    }
}

fn builder() -> ClientBuilder {
    Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        // A neighbour: what the environment says about the way to the outside does not hold.
        .no_proxy()
        .connect_timeout(Duration::from_secs(3))
        .read_timeout(SILENCE)
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

/// The URL is left out: it is of no use to the caller.
pub(crate) fn away(error: &reqwest::Error) -> RpcError {
    let reason = cause(error);
    tracing::warn!(event = "file_service_away", reason, "file-service cannot be reached");
    RpcError::new(ErrorCode::Unavailable, "file-service cannot be reached; try again later")
}

/// The innermost cause, which says more than the client's own words: that a certificate is not
/// trusted, for one.
fn cause(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    if error.is_timeout() { "it took too long".to_owned() } else { innermost.to_string() }
}
