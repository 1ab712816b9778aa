//! The batch pull: what a plugin's node types are, asked of the plugin itself (protocol section 3).

use contract::{
    ErrorCode, Json, RpcError,
    manifest::{BATCH_PULL_KIND, BatchPullRequest, Endpoint},
    pattern::EXECUTOR_BATCH_PULL,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;
use wire::{CallError, Client, ClientConfig, TlsClient};

/// Most pages of one batch.
const MAX_PAGES: usize = 64;
/// Bytes of all pages together.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Characters of a plugin's own error text that are passed on.
const MAX_REASON_CHARS: usize = 300;

/// Pulls batches.
#[derive(Clone, Debug)]
pub(crate) struct Puller {
    /// Longest pull, all pages together.
    pub(crate) timeout: Duration,
    /// Largest page.
    pub(crate) max_frame_bytes: usize,
    /// How plugins are spoken to; `None` is plain TCP.
    pub(crate) tls: Option<TlsClient>,
}

/// What to pull.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) plugin_id: &'a str,
    pub(crate) version: &'a str,
    pub(crate) node_types: Vec<String>,
    /// What the plugin may accept, best guess first: while tokens are being rotated a plugin knows
    /// the current or the previous one.
    pub(crate) tokens: &'a [SecretString],
}

/// How a pull fails, before it is put in words.
enum Failure {
    Call(CallError),
    Batch(String),
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl Puller {
    /// The items of all pages, as one array. An answer of another form is returned as it is, for the
    /// check of the items to name its fault.
    ///
    /// # Errors
    /// `batch_pull_failed`, which names plugin, address, cause and remedy.
    pub(crate) async fn pull(&self, wanted: &Wanted<'_>) -> Result<Value, RpcError> {
        let config = ClientConfig {
            max_frame_bytes: self.max_frame_bytes,
            tls: self.tls.clone(),
            ..ClientConfig::default()
        };
        let client = Client::new(wanted.endpoint.host.clone(), wanted.endpoint.port, config);
        let mut session = Session {
            client: &client,
            wanted,
            pattern: EXECUTOR_BATCH_PULL.name,
            tokens: wanted.tokens,
            until: Instant::now() + self.timeout,
        };
        session.pages().await.map_err(|failure| self.describe(wanted, &failure))
    }

    fn describe(&self, wanted: &Wanted<'_>, failure: &Failure) -> RpcError {
        let limit_ms = self.timeout.as_millis();
        let reason = match failure {
            Failure::Call(CallError::Timeout { alive: true, .. }) => {
                format!("it accepted the connection but did not answer within {limit_ms} ms")
            }
            Failure::Call(CallError::Remote(error)) => {
                format!("it answered with an error: {}", error.message)
            }
            Failure::Call(CallError::NoHandler) => "it has no handler for the batch pull".to_owned(),
            Failure::Call(error) => error.to_string(),
            Failure::Batch(reason) => reason.clone(),
        };
        let Wanted { endpoint, plugin_id, version, .. } = wanted;
        RpcError::new(
            ErrorCode::BatchPullFailed,
            format!(
                "the executors of {plugin_id}@{version} cannot be pulled from {endpoint}: {}; check that the \
                 plugin listens there and that plugin-manager can reach it (PLUGIN_PULL_ADVERTISED_HOST, \
                 PLUGIN_PULL_ADVERTISED_PORT on the plugin's side)",
                presentable(&reason, wanted.tokens)
            ),
        )
    }
}

/// A reason that came from outside: short, and without the token that it may repeat.
fn presentable(reason: &str, tokens: &[SecretString]) -> String {
    let hidden = tokens
        .iter()
        .map(ExposeSecret::expose_secret)
        .filter(|token| !token.is_empty())
        .fold(reason.to_owned(), |reason, token| reason.replace(token, "<redacted>"));
    hidden.chars().take(MAX_REASON_CHARS).collect()
}

/// One pull under way.
struct Session<'a> {
    client: &'a Client,
    wanted: &'a Wanted<'a>,
    pattern: &'static str,
    /// Those not refused yet.
    tokens: &'a [SecretString],
    until: Instant,
}

impl Session<'_> {
    async fn pages(&mut self) -> Result<Value, Failure> {
        let mut all = Vec::new();
        let mut bytes = 0;
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let answer = self.page(cursor.clone()).await?;
            bytes += answer.text().len();
            if bytes > MAX_BYTES {
                return Err(Failure::Batch(format!("the batch has more than {MAX_BYTES} bytes")));
            }
            let page = answer
                .value()
                .map_err(|error| Failure::Batch(format!("the batch cannot be read: {error}")))?;
            let (items, next) = split_page(page);
            match items {
                Value::Array(items) => all.extend(items),
                other => return Ok(other),
            }
            match next {
                None => return Ok(Value::Array(all)),
                next if next == cursor => {
                    return Err(Failure::Batch(
                        "nextCursor does not move: the batch would never end".to_owned(),
                    ));
                }
                next => cursor = next,
            }
        }
        Err(Failure::Batch(format!("the batch has more than {MAX_PAGES} pages")))
    }

    /// One page; what the plugin turns out to accept (pattern, token) is kept for the next.
    async fn page(&mut self, cursor: Option<Value>) -> Result<Json, CallError> {
        loop {
            let error = match self.ask(cursor.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match (&error, EXECUTOR_BATCH_PULL.aliases.first()) {
                (CallError::NoHandler, Some(alias)) if self.pattern != *alias => self.pattern = alias,
                (CallError::Remote(remote), _)
                    if remote.is(ErrorCode::Unauthorized) && self.tokens.len() > 1 =>
                {
                    self.tokens = self.tokens.get(1..).unwrap_or_default();
                }
                _ => return Err(error),
            }
        }
    }

    async fn ask(&self, cursor: Option<Value>) -> Result<Json, CallError> {
        let request = BatchPullRequest {
            kind: BATCH_PULL_KIND.to_owned(),
            token: self.tokens.first().map(|token| token.expose_secret().to_owned()).unwrap_or_default(),
            plugin_id: self.wanted.plugin_id.to_owned(),
            publication_version: self.wanted.version.to_owned(),
            node_types: self.wanted.node_types.clone(),
            cursor,
        };
        let left = self.until.saturating_duration_since(Instant::now());
        self.client.call(self.pattern, &request, left).await
    }
}

/// Items and next cursor of a page, which is an array or `{items, nextCursor?}`.
fn split_page(page: Value) -> (Value, Option<Value>) {
    match page {
        Value::Object(mut fields) if fields.contains_key("items") => {
            let next = fields.get("nextCursor").filter(|cursor| !cursor.is_null()).cloned();
            (fields.remove("items").unwrap_or_default(), next)
        }
        other => (other, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_page_is_an_array_or_an_object_with_items() {
        assert_eq!(split_page(json!([1])), (json!([1]), None));
        assert_eq!(split_page(json!({"items": [1]})), (json!([1]), None));
        assert_eq!(split_page(json!({"items": [1], "nextCursor": null})), (json!([1]), None));
        assert_eq!(split_page(json!({"items": [1], "nextCursor": 7})), (json!([1]), Some(json!(7))));
        assert_eq!(split_page(json!("x")), (json!("x"), None));
    }

    #[test]
    fn a_reason_from_outside_is_short_and_repeats_no_token() {
        let tokens = [SecretString::from("s3cret"), SecretString::from("")];
        assert_eq!(presentable("bad token s3cret!", &tokens), "bad token <redacted>!");
        assert_eq!(presentable(&"ж".repeat(1_000), &tokens).chars().count(), MAX_REASON_CHARS);
    }
}
