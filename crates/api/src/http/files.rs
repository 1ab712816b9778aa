//! Files: in as base64 JSON, out as a stream.

use crate::{
    app::App,
    http::{
        extract::{Caller, Named, OfProcess, Payload},
        problem::{Answer, ErrorBody, Problem, json},
        processes::owned_head,
    },
};
use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use contract::ErrorCode;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// The longest file name, bytes.
const MAX_NAME_BYTES: usize = 255;
/// What file-service says that is passed on.
const RELAYED: [HeaderName; 6] = [
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::ACCEPT_RANGES,
    header::ETAG,
    header::CACHE_CONTROL,
];

/// A file as base64. The fields' other spellings are those of existing clients.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewFile {
    /// Also `fileName`, `filename`.
    #[serde(default, alias = "fileName", alias = "filename")]
    name: Option<String>,
    /// Also `mimeType`, `contentType`.
    #[serde(default, alias = "mimeType", alias = "contentType")]
    media_type: Option<String>,
    /// Base64, with or without a `data:` prefix. Also `content`, `base64`.
    #[serde(alias = "content", alias = "base64")]
    data: String,
}

/// Stores a file for a process; the answer's `fileId` is what nodes are given.
#[utoipa::path(post, path = "/internal/diagram/{id}/files", tag = "files", params(("id" = String, Path)),
    request_body = NewFile, responses((status = 201, body = Object), (status = 400, body = ErrorBody),
        (status = 413, body = ErrorBody, description = "over `PAYLOAD_LIMIT` or `FILE_MAX_SIZE_MB`")))]
pub(crate) async fn upload(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    OfProcess(process_id): OfProcess,
    payload: Payload,
) -> Answer<Response> {
    owned_head(&app, &caller, process_id).await?;
    let file: NewFile = payload.read()?;
    drop(payload);
    let (media_type, bytes) = decode(&file)?;
    let name = file.name.filter(|name| !name.is_empty()).unwrap_or_else(|| "file".to_owned());
    if name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        return Err(Problem::new(
            ErrorCode::InvalidRequest,
            format!("name: at most {MAX_NAME_BYTES} bytes without control characters"),
        ));
    }
    let new = run_files::NewFile { workspace_id: &caller.workspace_id, name: &name, media_type: &media_type };
    let stored = app.files.store(new, bytes).await?;
    tracing::info!(event = "file_stored", file_id = stored.file_id, size_bytes = stored.size, process_id = %process_id, "file stored");
    Ok(json(StatusCode::CREATED, &stored))
}

/// The media type and the bytes.
fn decode(file: &NewFile) -> Answer<(String, Vec<u8>)> {
    let (of_url, text) = match file.data.strip_prefix("data:").and_then(|rest| rest.split_once(',')) {
        Some((head, text)) => (Some(head.trim_end_matches(";base64")), text),
        None => (None, file.data.as_str()),
    };
    let bytes = STANDARD
        .decode(text.trim().as_bytes())
        .map_err(|error| Problem::new(ErrorCode::InvalidRequest, format!("data is not base64: {error}")))?;
    let media_type = file.media_type.as_deref().or(of_url).filter(|text| !text.is_empty());
    let media_type = media_type.unwrap_or("application/octet-stream");
    match HeaderValue::from_str(media_type) {
        Ok(_) => Ok((media_type.to_owned(), bytes)),
        Err(_) => Err(Problem::new(ErrorCode::InvalidRequest, "mediaType is no media type")),
    }
}

/// A file's bytes.
#[utoipa::path(get, path = "/files/{id}", tag = "files", params(("id" = String, Path)),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"), (status = 404, body = ErrorBody)))]
pub(crate) async fn download(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Named(id): Named<String>,
    headers: HeaderMap,
) -> Answer<Response> {
    let row = app.storage.blobs().get(&id).await?;
    if row.is_none_or(|row| row.workspace_id != caller.workspace_id) {
        return Err(Problem::not_found("file", id));
    }
    Ok(relay(app.files.open(&id, &headers).await?, None))
}

/// Hands file-service's answer on as a stream. Whatever the file holds, a browser must not run it
/// with the rights of this origin.
pub(crate) fn relay(from: reqwest::Response, media_type: Option<&str>) -> Response {
    let status = from.status();
    let mut headers = HeaderMap::new();
    for name in RELAYED {
        if let Some(value) = from.headers().get(&name) {
            headers.insert(name, value.clone());
        }
    }
    if let Some(value) = media_type.and_then(|text| HeaderValue::from_str(text).ok()) {
        headers.insert(header::CONTENT_TYPE, value);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    let mut response = Response::new(Body::from_stream(from.bytes_stream()));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> NewFile {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn base64_comes_plain_or_as_a_data_url() {
        let (kind, bytes) = decode(&file(r#"{"fileName":"a.txt","content":"0L/RgNC40LLQtdGC"}"#)).unwrap();
        assert_eq!((kind.as_str(), bytes.as_slice()), ("application/octet-stream", "привет".as_bytes()));
        let (kind, bytes) = decode(&file(r#"{"data":"data:text/plain;base64,YQ=="}"#)).unwrap();
        assert_eq!((kind.as_str(), bytes.as_slice()), ("text/plain", b"a".as_slice()));
    }

    #[test]
    fn anything_else_is_refused() {
        assert!(decode(&file(r#"{"data":"%%%"}"#)).is_err());
        assert!(decode(&file(r#"{"data":"","mediaType":"a\nb"}"#)).is_err());
    }
}
