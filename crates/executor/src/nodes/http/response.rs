//! From the response to the node's outputs.

use super::{exchange::failure, statuses::Statuses, statuses::is_transient};
use base64::{Engine, engine::general_purpose::STANDARD};
use contract::{ErrorCode, Json};
use indexmap::IndexMap;
use plugin_sdk::Failure;
use reqwest::{Response, header::HeaderMap};
use serde::Serialize;

/// Bytes of a response's body.
const MAX_BODY_BYTES: usize = 10 * 1024 * 1024;

/// The node's outputs; what is absent leaves its output dead.
#[derive(Debug, Serialize)]
pub(super) struct Answered {
    status: u16,
    ok: bool,
    headers: IndexMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    json: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// Reads the response. Of body and JSON only what the process uses is kept: both hold the same
/// bytes, and together they might not fit into a report. A process that lists `base64` gets it of a
/// text too.
pub(super) async fn answered(
    response: Response,
    errors: &Statuses,
    wanted: &[String],
) -> Result<Answered, Failure> {
    let host = response.url().host_str().unwrap_or_default().to_owned();
    let status = response.status().as_u16();
    if errors.contain(status) {
        return Err(Failure::new(format!("{host} answered with status {status}, which errorStatuses lists"))
            .code("http_status")
            .details(serde_json::json!({ "status": status }))
            .retryable(is_transient(status)));
    }
    let headers = texts(response.headers());
    let bytes = bytes(&host, response).await?;
    let is_listed = |name: &str| wanted.iter().any(|output| output == name);
    let is_wanted = |name: &str| wanted.is_empty() || is_listed(name);
    let (body, base64) = match String::from_utf8(bytes) {
        Ok(text) => {
            let base64 = is_listed("base64").then(|| STANDARD.encode(&text));
            (Some(text), base64)
        }
        Err(binary) => (None, Some(STANDARD.encode(binary.as_bytes()))),
    };
    let json = body.as_ref().filter(|_| is_wanted("json")).and_then(|text| Json::parse(text.trim()).ok());
    let (body, base64) = (body.filter(|_| is_wanted("body")), base64.filter(|_| is_wanted("base64")));
    Ok(Answered { status, ok: (200..300).contains(&status), headers, body, json, base64 })
}

fn texts(headers: &HeaderMap) -> IndexMap<String, String> {
    let mut texts = IndexMap::<String, String>::new();
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        match texts.get_mut(name.as_str()) {
            Some(values) => *values = format!("{values}, {value}"),
            None => drop(texts.insert(name.as_str().to_owned(), value.into_owned())),
        }
    }
    texts
}

async fn bytes(host: &str, mut response: Response) -> Result<Vec<u8>, Failure> {
    let too_large = || {
        let message = format!("the response of {host} is larger than {MAX_BODY_BYTES} bytes; ask for less");
        Failure::of(ErrorCode::PayloadTooLarge, message)
    };
    if response.content_length().is_some_and(|length| length > MAX_BODY_BYTES as u64) {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failure(host, error))? {
        if bytes.len() + chunk.len() > MAX_BODY_BYTES {
            return Err(too_large());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
