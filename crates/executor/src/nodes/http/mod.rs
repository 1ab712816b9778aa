//! `system.http.request`: calls a URL. Inputs `method`, `url`, `headers`, `query`, `body`,
//! `timeoutMs`; outputs `status`, `headers`, `body`, `json`, and `base64` for a body that is no
//! text. Any status is a success of the node: a switch behind it can tell them apart.

mod egress;

use crate::Error;
use base64::{Engine, engine::general_purpose::STANDARD};
use contract::{ErrorCode, Json, builtin};
use egress::{Egress, refusal};
use indexmap::IndexMap;
use plugin_sdk::{Context, Failure, Node, Param, RunnableNode};
use reqwest::{
    Client, Method, Request, Response, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    redirect::Policy,
};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_TIMEOUT_MS: u64 = 30_000;
const MAX_TIMEOUT_MS: u64 = 10 * 60 * 1000;
const MAX_REDIRECTS: usize = 10;
/// Bytes of a response's body.
const MAX_BODY_BYTES: usize = 10 * 1024 * 1024;

/// The node's inputs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    url: String,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    headers: Option<IndexMap<String, Json>>,
    #[serde(default)]
    query: Option<IndexMap<String, Json>>,
    #[serde(default)]
    body: Option<Json>,
    #[serde(default)]
    timeout_ms: Option<u64>,
}

/// The node's outputs; what is absent leaves its output dead.
#[derive(Debug, Serialize)]
struct Answered {
    status: u16,
    headers: IndexMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    json: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// The node, with one client for all its steps.
pub(super) fn node(allow_private: bool) -> Result<RunnableNode, Error> {
    let egress = Egress { allow_private };
    let client = client(egress).map_err(Error::HttpClient)?;
    let node = Node::new(builtin::HTTP_REQUEST, "HTTP request")
        .input(Param::string("method").default("GET"))
        .input(Param::string("url").required())
        .input(Param::keyvalue("headers"))
        .input(Param::keyvalue("query"))
        .input(Param::textarea("body"))
        .input(Param::number("timeoutMs").default(DEFAULT_TIMEOUT_MS))
        .output(Param::number("status"))
        .output(Param::keyvalue("headers"))
        .output(Param::textarea("body"))
        .output(Param::keyvalue("json"))
        .output(Param::textarea("base64"));
    Ok(node.run(move |asked: Asked, context: Context| {
        let client = client.clone();
        async move { call(&client, egress, asked, &context).await }
    }))
}

/// Proxies of the environment are not used: they would connect where the check does not see.
fn client(egress: Egress) -> reqwest::Result<Client> {
    let redirects = Policy::custom(move |attempt| match egress.check(attempt.url()) {
        Err(refused) => attempt.error(refused),
        Ok(()) if attempt.previous().len() > MAX_REDIRECTS => attempt.error("it redirects too often"),
        Ok(()) => attempt.follow(),
    });
    Client::builder()
        .user_agent(concat!("conveyor/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .dns_resolver(Arc::new(egress))
        .redirect(redirects)
        .connect_timeout(CONNECT_TIMEOUT)
        .build()
}

async fn call(client: &Client, egress: Egress, asked: Asked, context: &Context) -> Result<Answered, Failure> {
    let request = request(asked)?;
    egress
        .check(request.url())
        .map_err(|refused| Failure::of(ErrorCode::ForbiddenAddress, refused.to_string()))?;
    let host = request.url().host_str().unwrap_or_default().to_owned();
    let work = async {
        let response = client.execute(request).await.map_err(|error| failure(&host, error))?;
        answered(&host, response, context.outputs()).await
    };
    tokio::select! {
        answered = work => answered,
        () = context.cancelled() => Err(Failure::new("the request was broken off: its step was given up")),
    }
}

fn request(asked: Asked) -> Result<Request, Failure> {
    let mut url: Url =
        asked.url.trim().parse().map_err(|error| invalid(format!("input `url` is no URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(invalid("input `url` must begin with http:// or https:// and name a host"));
    }
    for (name, value) in asked.query.unwrap_or_default() {
        for value in texts(&value) {
            url.query_pairs_mut().append_pair(&name, &value);
        }
    }
    let method = asked.method.filter(|method| !method.trim().is_empty()).unwrap_or_else(|| "GET".to_owned());
    let method = Method::from_bytes(method.trim().to_ascii_uppercase().as_bytes())
        .map_err(|_| invalid("input `method` is no HTTP method"))?;
    let mut request = Request::new(method, url);
    if let Some(body) = asked.body.filter(|body| !body.is_null()) {
        let (kind, text) = match body.read::<String>() {
            Ok(text) => ("text/plain; charset=utf-8", text),
            Err(_) => ("application/json", body.text().to_owned()),
        };
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        *request.body_mut() = Some(text.into());
    }
    set_headers(request.headers_mut(), asked.headers.unwrap_or_default())?;
    let timeout_ms = asked.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS).clamp(1, MAX_TIMEOUT_MS);
    *request.timeout_mut() = Some(Duration::from_millis(timeout_ms));
    Ok(request)
}

/// The message names the header and never its value, which may be a secret.
fn set_headers(headers: &mut HeaderMap, given: IndexMap<String, Json>) -> Result<(), Failure> {
    for (name, value) in given {
        let header: HeaderName = name
            .trim()
            .parse()
            .map_err(|_| invalid(format!("input `headers`: {name:?} is no header name")))?;
        headers.remove(&header);
        for value in texts(&value) {
            let value = HeaderValue::from_str(value.trim()).map_err(|_| {
                invalid(format!(
                    "input `headers`: the value of {name:?} has characters that no header may have"
                ))
            })?;
            headers.append(&header, value);
        }
    }
    Ok(())
}

/// The values that a JSON value stands for in a query or header: of an array each, of `null` none.
fn texts(value: &Json) -> Vec<String> {
    let plain = |value: &Json| value.read().unwrap_or_else(|_| value.text().to_owned());
    match value.read::<Vec<Json>>() {
        Ok(items) => items.iter().filter(|item| !item.is_null()).map(plain).collect(),
        Err(_) if value.is_null() => Vec::new(),
        Err(_) => vec![plain(value)],
    }
}

/// Reads the response. Of body and JSON only what the process uses is kept: both hold the same
/// bytes, and together they might not fit into a report.
async fn answered(host: &str, mut response: Response, wanted: &[String]) -> Result<Answered, Failure> {
    let status = response.status().as_u16();
    let mut headers = IndexMap::<String, String>::new();
    for (name, value) in response.headers() {
        let value = String::from_utf8_lossy(value.as_bytes());
        match headers.get_mut(name.as_str()) {
            Some(values) => *values = format!("{values}, {value}"),
            None => drop(headers.insert(name.as_str().to_owned(), value.into_owned())),
        }
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failure(host, error))? {
        if bytes.len() + chunk.len() > MAX_BODY_BYTES {
            let message =
                format!("the response of {host} is larger than {MAX_BODY_BYTES} bytes; ask for less");
            return Err(Failure::of(ErrorCode::PayloadTooLarge, message));
        }
        bytes.extend_from_slice(&chunk);
    }
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|output| output == name);
    let (body, base64) = match String::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(binary) => (None, Some(STANDARD.encode(binary.as_bytes()))),
    };
    let json = body.as_ref().filter(|_| is_wanted("json")).and_then(|text| Json::parse(text.trim()).ok());
    let (body, base64) = (body.filter(|_| is_wanted("body")), base64.filter(|_| is_wanted("base64")));
    Ok(Answered { status, headers, body, json, base64 })
}

/// The URL stays out of the message: it may hold secrets.
fn failure(host: &str, error: reqwest::Error) -> Failure {
    if let Some(refused) = refusal(&error) {
        return Failure::of(ErrorCode::ForbiddenAddress, refused.to_string());
    }
    let code = match () {
        () if error.is_timeout() => ErrorCode::Timeout,
        () if error.is_redirect() || error.is_builder() => ErrorCode::InvalidNodeInput,
        () => ErrorCode::Unavailable,
    };
    let reason = Failure::from(error.without_url());
    Failure::of(code, format!("the request to {host} failed: {reason}"))
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure::of(ErrorCode::InvalidNodeInput, message)
}

#[cfg(test)]
mod tests;
