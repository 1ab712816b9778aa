//! `system.http.request`: calls a URL.
//!
//! Inputs: `url`, `method`, `query`, `headers`, `body`, `bodyType`, `bearerToken`, `username`,
//! `password`, `header.NAME`, `query.NAME`, `timeoutMs`, `followRedirects`, `errorStatuses`; secrets
//! come in as `ref` fields of `bearerToken`, `password`, `header.NAME` and the like. Outputs: `status`,
//! `ok`, `headers`, `body` (a text), `json` (a text that is JSON), `base64` (a body that is no text, and
//! any body where the widget lists this output), `file` (where the widget lists it: a reference to a
//! body that is larger than the others hold, and to any body where the widget lists none of them).
//!
//! Any status is a success of the node, so that a switch behind it can tell them apart, except those
//! that `errorStatuses` lists. The node sends its request once: repeating it is `execution.retry`,
//! whose attempts are durable and visible in the history.

mod body;
mod egress;
mod exchange;
mod request;
mod response;
mod statuses;

use crate::Error;
use contract::{ErrorCode, builtin};
use egress::Egress;
use plugin_sdk::{Context, Failure, Node, Param, RunnableNode, Values};
use request::Prepared;
use response::{Answered, Save};
use run_files::RunFiles;

const DEFAULT_TIMEOUT_MS: u64 = 30_000;
const MAX_TIMEOUT_MS: u64 = 10 * 60 * 1000;

/// The node, with one client for all its steps.
pub(super) fn node(allow_private: bool, files: &RunFiles) -> Result<RunnableNode, Error> {
    let files = files.clone();
    let egress = Egress::new(allow_private);
    let client = exchange::client(egress).map_err(Error::HttpClient)?;
    let node = Node::new(builtin::HTTP_REQUEST, "HTTP request")
        .input(Param::string("method").default("GET"))
        .input(Param::string("url").required())
        .input(Param::keyvalue("headers"))
        .input(Param::keyvalue("query"))
        .input(Param::textarea("body"))
        .input(Param::string("bodyType").default("auto"))
        .input(Param::number("timeoutMs").default(DEFAULT_TIMEOUT_MS))
        .input(Param::boolean("followRedirects").default(true))
        .input(Param::string("errorStatuses"))
        .output(Param::number("status"))
        .output(Param::boolean("ok"))
        .output(Param::keyvalue("headers"))
        .output(Param::textarea("body"))
        .output(Param::keyvalue("json"))
        .output(Param::textarea("base64"))
        .output(Param::keyvalue("file"));
    Ok(node.run(move |inputs: Values, context: Context| {
        let (client, files) = (client.clone(), files.clone());
        async move { call(&client, egress, inputs, (&context, &files)).await }
    }))
}

async fn call(
    client: &reqwest::Client,
    egress: Egress,
    inputs: Values,
    (context, files): (&Context, &RunFiles),
) -> Result<Answered, Failure> {
    let Prepared { request, timeout, follow, errors } = request::prepared(inputs)?;
    let host = request.url().host_str().unwrap_or_default().to_owned();
    let work = async {
        let response = exchange::exchange(client, egress, request, follow).await?;
        response::answered(response, &errors, Save { files, context }).await
    };
    tokio::select! {
        answered = tokio::time::timeout(timeout, work) => answered.unwrap_or_else(|_| {
            let timeout_ms = timeout.as_millis();
            let message = format!("{host} did not answer within {timeout_ms} ms; raise timeoutMs if it may take longer");
            Err(Failure::of(ErrorCode::Timeout, message))
        }),
        () = context.cancelled() => Err(Failure::new("the request was broken off: its step was given up")),
    }
}

/// An input has the wrong form. The message never holds a value, which may be a secret.
fn invalid(message: impl Into<String>) -> Failure {
    Failure::of(ErrorCode::InvalidNodeInput, message)
}

#[cfg(test)]
mod tests;
