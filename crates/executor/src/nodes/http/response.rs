//! From the response to the node's outputs.

use super::{exchange::failure, statuses::Statuses, statuses::is_transient};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use contract::{
    ErrorCode, Json,
    file::{FileRef, VALUE_TYPE},
};
use futures::{StreamExt, TryStreamExt, stream};
use indexmap::IndexMap;
use plugin_sdk::{Context, Failure};
use reqwest::{
    Response,
    header::{CONTENT_TYPE, HeaderMap},
};
use run_files::RunFiles;
use serde::Serialize;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Bytes of a response's body that become a value.
const MAX_BODY_BYTES: usize = 10 * 1024 * 1024;

/// The outputs that hold a body.
const BODY_OUTPUTS: [&str; 3] = ["body", "json", "base64"];

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
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<Json>,
}

/// Where a large body goes.
#[derive(Clone, Copy)]
pub(super) struct Save<'s> {
    pub(super) files: &'s RunFiles,
    pub(super) context: &'s Context,
}

/// What was read of a body.
enum Content {
    Value(Vec<u8>),
    File(FileRef),
}

/// Reads the response. Of body and JSON only what the process uses is kept: both hold the same
/// bytes, and together they might not fit into a report. A process that lists `base64` gets it of a
/// text too.
pub(super) async fn answered(
    response: Response,
    errors: &Statuses,
    save: Save<'_>,
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
    let wanted = save.context.outputs();
    let is_listed = |name: &str| wanted.iter().any(|output| output == name);
    let ok = (200..300).contains(&status);
    let room = match BODY_OUTPUTS.into_iter().any(is_listed) || !is_listed("file") {
        true => MAX_BODY_BYTES,
        false => 0,
    };
    let bytes = match content(&host, response, room, is_listed("file").then_some(save)).await? {
        Content::Value(bytes) => bytes,
        Content::File(file) => {
            let file = Some(file.to_json());
            return Ok(Answered { status, ok, headers, body: None, json: None, base64: None, file });
        }
    };
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
    Ok(Answered { status, ok, headers, body, json, base64, file: None })
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

/// The body as a value of at most `room` bytes; a larger one goes to a file, where there is one.
async fn content(
    host: &str,
    mut response: Response,
    room: usize,
    save: Option<Save<'_>>,
) -> Result<Content, Failure> {
    let mut head = Vec::new();
    let is_announced = response.content_length().is_some_and(|length| length > room as u64);
    if is_announced || room == 0 {
        return stored(host, head, response, save).await;
    }
    while let Some(chunk) = response.chunk().await.map_err(|error| failure(host, error))? {
        let fits = head.len() + chunk.len() <= room;
        head.extend_from_slice(&chunk);
        if !fits {
            return stored(host, head, response, save).await;
        }
    }
    Ok(Content::Value(head))
}

/// Streams a body, of which `head` was read already, into a file of the run.
async fn stored(
    host: &str,
    head: Vec<u8>,
    response: Response,
    save: Option<Save<'_>>,
) -> Result<Content, Failure> {
    let Some(Save { files, context }) = save else {
        let message = format!(
            "the response of {host} is larger than {MAX_BODY_BYTES} bytes; ask for less, or take it from the \
             output `file`"
        );
        return Err(Failure::of(ErrorCode::PayloadTooLarge, message));
    };
    let content_type = plain_type(response.headers());
    let broke = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&broke);
    let rest = response.bytes_stream().inspect_err(move |_| seen.store(true, Ordering::Relaxed));
    let body = reqwest::Body::wrap_stream(stream::once(async { Ok(Bytes::from(head)) }).chain(rest));
    let name = format!("{}.body", context.node_path());
    let kept = files.put(context.run_id(), (context.workspace_id(), &name), &content_type, body).await;
    match kept {
        Ok(file) => Ok(Content::File(file)),
        Err(_) if broke.load(Ordering::Relaxed) => {
            let message = format!("the response of {host} broke off");
            Err(Failure::of(ErrorCode::Unavailable, message))
        }
        Err(error) => Err(Failure::of(error.code, error.message)),
    }
}

/// What the bytes are. Never just the type of files that hold values: a body stays a file, also one
/// that is JSON.
fn plain_type(headers: &HeaderMap) -> String {
    let told = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match told.trim() {
        "" => "application/octet-stream".to_owned(),
        told if told.eq_ignore_ascii_case(VALUE_TYPE) => format!("{VALUE_TYPE}; charset=utf-8"),
        told => told.to_owned(),
    }
}
