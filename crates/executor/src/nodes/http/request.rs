//! From the node's inputs to the request.

use super::{DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS, body::body, invalid, statuses::Statuses};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use contract::{Json, secret::SecretText};
use indexmap::IndexMap;
use plugin_sdk::{Failure, Values};
use reqwest::{
    Method, Request, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use serde::de::DeserializeOwned;
use std::time::Duration;
use zeroize::Zeroizing;

/// Inputs `header.NAME` and `query.NAME`: one header or query parameter each, so that it can be a
/// `ref` or a port of its own.
const HEADER: &str = "header.";
const QUERY: &str = "query.";

/// What is to be done.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) request: Request,
    /// For the whole exchange, redirects and the response's body included.
    pub(super) timeout: Duration,
    pub(super) follow: bool,
    pub(super) errors: Statuses,
}

pub(super) fn prepared(mut inputs: Values) -> Result<Prepared, Failure> {
    let url: String = take(&mut inputs, "url", "a text")?.unwrap_or_default();
    let mut url: Url =
        url.trim().parse().map_err(|error| invalid(format!("input `url` is no URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(invalid("input `url` must begin with http:// or https:// and name a host"));
    }
    let mut query: IndexMap<String, Json> = take(&mut inputs, "query", "an object")?.unwrap_or_default();
    query.extend(named(&mut inputs, QUERY));
    for (name, value) in &query {
        for value in texts(value) {
            url.query_pairs_mut().append_pair(name, &value);
        }
    }
    let method: Option<String> = take(&mut inputs, "method", "a text")?;
    let method = method.filter(|method| !method.trim().is_empty()).unwrap_or_else(|| "GET".to_owned());
    let method = Method::from_bytes(method.trim().to_ascii_uppercase().as_bytes())
        .map_err(|_| invalid("input `method` is no HTTP method"))?;
    let mut request = Request::new(method, url);
    let kind: String = take(&mut inputs, "bodyType", "a text")?.unwrap_or_default();
    if let Some(value) = inputs.shift_remove("body").filter(|value| !value.is_null()) {
        let body = body(&kind, &value)?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(body.media_type));
        *request.body_mut() = Some(body.bytes.into());
    }
    let mut headers: IndexMap<String, Json> = take(&mut inputs, "headers", "an object")?.unwrap_or_default();
    headers.extend(named(&mut inputs, HEADER));
    set_headers(request.headers_mut(), &headers)?;
    authorize(&mut inputs, request.headers_mut())?;
    let timeout_ms = take(&mut inputs, "timeoutMs", "a whole number")?.unwrap_or(DEFAULT_TIMEOUT_MS);
    let errors: String = take(&mut inputs, "errorStatuses", "a text")?.unwrap_or_default();
    Ok(Prepared {
        request,
        timeout: Duration::from_millis(timeout_ms.clamp(1, MAX_TIMEOUT_MS)),
        follow: take(&mut inputs, "followRedirects", "true or false")?.unwrap_or(true),
        errors: Statuses::read(&errors)?,
    })
}

fn take<T: DeserializeOwned>(inputs: &mut Values, name: &str, what: &str) -> Result<Option<T>, Failure> {
    let value = inputs.shift_remove(name).filter(|value| !value.is_null());
    value.map(|value| value.read().map_err(|_| invalid(format!("input `{name}` must be {what}")))).transpose()
}

/// The inputs whose names begin with `prefix`, by the rest of their names.
fn named(inputs: &mut Values, prefix: &str) -> Vec<(String, Json)> {
    let names: Vec<String> = inputs.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        if let (Some(value), Some(rest)) = (inputs.shift_remove(&name), name.strip_prefix(prefix)) {
            found.push((rest.to_owned(), value));
        }
    }
    found
}

/// The message names the header and never its value, which may be a secret.
fn set_headers(headers: &mut HeaderMap, given: &IndexMap<String, Json>) -> Result<(), Failure> {
    for (name, value) in given {
        let header: HeaderName = name
            .trim()
            .parse()
            .map_err(|_| invalid(format!("input `headers`: {name:?} is no header name")))?;
        headers.remove(&header);
        for value in texts(value).into_iter().map(Zeroizing::new) {
            headers.append(&header, header_value(name, &value)?);
        }
    }
    Ok(())
}

/// `Authorization` from `bearerToken`, or from `username` and `password`.
fn authorize(inputs: &mut Values, headers: &mut HeaderMap) -> Result<(), Failure> {
    let token: Option<SecretText> = take(inputs, "bearerToken", "a text")?;
    let username: Option<SecretText> = take(inputs, "username", "a text")?;
    let password: Option<SecretText> = take(inputs, "password", "a text")?;
    let value = match (token, username, password) {
        (None, None, None) => return Ok(()),
        (Some(token), None, None) => joined(&["Bearer ", token.expose().trim()]),
        (None, Some(username), password) => {
            let password = password.as_ref().map_or("", SecretText::expose);
            let pair = joined(&[username.expose(), ":", password]);
            joined(&["Basic ", &Zeroizing::new(STANDARD.encode(pair.as_bytes()))])
        }
        (None, None, Some(_)) => return Err(invalid("input `password` needs `username`")),
        (Some(_), ..) => return Err(invalid("give `bearerToken` or `username` and `password`, not both")),
    };
    headers.insert(AUTHORIZATION, header_value("Authorization", &value)?);
    Ok(())
}

/// The parts in one text, in a buffer that does not grow.
fn joined(parts: &[&str]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(parts.iter().map(|part| part.len()).sum()));
    parts.iter().for_each(|part| text.push_str(part));
    text
}

/// A header's value, wiped with the request; what is sent of it the HTTP client keeps as it likes.
fn header_value(name: &str, value: &str) -> Result<HeaderValue, Failure> {
    let bytes = Bytes::from_owner(Zeroizing::new(value.trim().as_bytes().to_vec()));
    let mut value = HeaderValue::from_maybe_shared(bytes).map_err(|_| {
        invalid(format!("the value of the header {name:?} has characters that no header may have"))
    })?;
    // Kept out of debug output: it may be a secret.
    value.set_sensitive(true);
    Ok(value)
}

/// The values that a JSON value stands for in a query, form or header: of an array each, of `null`
/// none.
pub(super) fn texts(value: &Json) -> Vec<String> {
    // A text is read as a secret, which it may be: else it would stay where it is unescaped, and in the
    // words of the error that it is no array.
    let plain = |value: &Json| match value.read::<SecretText>() {
        Ok(text) => text.expose().to_owned(),
        Err(_) => value.text().to_owned(),
    };
    match value.text().starts_with('[').then(|| value.read::<Vec<Json>>()) {
        Some(Ok(items)) => items.iter().filter(|item| !item.is_null()).map(plain).collect(),
        _ if value.is_null() => Vec::new(),
        _ => vec![plain(value)],
    }
}
