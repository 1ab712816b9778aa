//! `GET /files/{id}`: the bytes as a stream. A file never changes, so it may be cached for ever.

use super::{
    Files, HttpError, file_id, not_found,
    range::{Asked, asked},
};
use axum::{
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use contract::{ErrorCode, RpcError};
use std::{
    fmt::Write,
    io::{self, SeekFrom},
};
use storage::BlobRow;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;
use uuid::Uuid;

/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// Sends the file, or the part of it that is asked for.
pub(super) async fn download(
    State(files): State<Files>,
    Path(id): Path<String>,
    asking: HeaderMap,
) -> Result<Response, HttpError> {
    let id = file_id(&id)?;
    let row =
        files.0.storage.blobs().get(&id.to_string()).await?.ok_or_else(|| not_found(&id.to_string()))?;
    send(&files, id, &row, &asking).await
}

/// Sends a file, or the part of it that is asked for.
pub(super) async fn send(
    files: &Files,
    id: Uuid,
    row: &BlobRow,
    asking: &HeaderMap,
) -> Result<Response, HttpError> {
    let tag = format!("\"{}\"", row.digest);
    let sent = |name: HeaderName| asking.get(name).and_then(|value| value.to_str().ok());
    let mut told = described(row, &tag);
    if sent(header::IF_NONE_MATCH).is_some_and(|tags| is_named(tags, &tag)) {
        return Ok((StatusCode::NOT_MODIFIED, told).into_response());
    }
    // A part is only of use to who has the rest of the same file.
    let range = sent(header::RANGE).filter(|_| sent(header::IF_RANGE).is_none_or(|have| have == tag));
    let (status, first, length) = match asked(range, row.size) {
        Asked::Whole => (StatusCode::OK, 0, row.size),
        Asked::Part(bytes) => {
            let (first, last) = (*bytes.start(), *bytes.end());
            set(&mut told, header::CONTENT_RANGE, &format!("bytes {first}-{last}/{}", row.size));
            (StatusCode::PARTIAL_CONTENT, first, last - first + 1)
        }
        Asked::Beyond => {
            let size = [(header::CONTENT_RANGE, format!("bytes */{}", row.size))];
            return Ok((StatusCode::RANGE_NOT_SATISFIABLE, size).into_response());
        }
    };
    set(&mut told, header::CONTENT_LENGTH, &length.to_string());
    let body = bytes(files, id, first, length).await.map_err(|error| unreadable(id, &error))?;
    Ok((status, told, body).into_response())
}

async fn bytes(files: &Files, id: Uuid, first: u64, length: u64) -> io::Result<Body> {
    let mut file = files.0.disk.read(id).await?;
    if first > 0 {
        file.seek(SeekFrom::Start(first)).await?;
    }
    Ok(Body::from_stream(ReaderStream::with_capacity(file.take(length), CHUNK)))
}

fn described(row: &BlobRow, tag: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    set(&mut headers, header::ETAG, tag);
    set(&mut headers, header::CONTENT_TYPE, &row.media_type);
    set(&mut headers, header::CACHE_CONTROL, "private, max-age=31536000, immutable");
    set(&mut headers, header::ACCEPT_RANGES, "bytes");
    set(&mut headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(
        &mut headers,
        header::CONTENT_DISPOSITION,
        &format!("inline; filename*=UTF-8''{}", encoded(&row.name)),
    );
    headers
}

/// What cannot stand in a header is left out; the values here are checked at the upload.
fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Is the tag in the list of `If-None-Match`?
fn is_named(tags: &str, tag: &str) -> bool {
    tags.split(',')
        .map(|named| named.trim().trim_start_matches("W/"))
        .any(|named| named == tag || named == "*")
}

/// A name as RFC 8187 writes it.
fn encoded(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

fn unreadable(id: Uuid, error: &io::Error) -> HttpError {
    if error.kind() == io::ErrorKind::NotFound {
        tracing::error!(event = "file_bytes_missing", file_id = %id, "the index has a file whose bytes are gone");
        let message = format!("the bytes of file {id} are gone; upload it again or restore FILE_SERVICE_DIR");
        return HttpError(RpcError::new(ErrorCode::Internal, message));
    }
    HttpError::disk("read", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_language_stand_in_a_header() {
        assert_eq!(encoded("a b/я.txt"), "a%20b%2F%D1%8F.txt");
    }

    #[test]
    fn a_tag_is_found_in_a_list() {
        assert!(is_named("\"a\", W/\"b\"", "\"b\""));
        assert!(is_named("*", "\"b\""));
        assert!(!is_named("\"a\"", "\"b\""));
    }
}
