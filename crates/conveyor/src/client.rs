//! Calls to the platform's own HTTP API, as any user would make them.

use ::config::Reader;
use anyhow::Context;
use contract::{Fault, Json, ProcessId, RpcError, RunId, manifest::Endpoint, run::RunError};
use indexmap::IndexMap;
use reqwest::{Method, Response};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::time::Duration;

/// Authorities of the API's certificate.
const CA: &str = "CONVEYOR_API_CA";

/// How long the API may take to answer.
const DEADLINE: Duration = Duration::from_secs(60);

/// How long a connection may stay idle.
const IDLE: Duration = Duration::from_secs(5);

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallFailure {
    /// The API refused it.
    #[error("{0}")]
    Refused(RpcError),
    /// The API cannot be reached, or breaks off.
    #[error("the api does not answer: {0}")]
    Away(#[from] reqwest::Error),
    /// The API's answer is not what it describes.
    #[error("the api's answer cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
}

/// A client with a token.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    base_url: String,
    token: Option<SecretString>,
}

/// What an import made.
#[derive(Debug, Deserialize)]
pub(crate) struct Imported {
    pub(crate) processes: Vec<ImportedProcess>,
}

/// A process that was imported or listed.
#[derive(Debug, Deserialize)]
pub(crate) struct ImportedProcess {
    pub(crate) id: ProcessId,
    pub(crate) name: String,
}

/// A plugin of the catalogue, as far as it is used here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PluginHead {
    pub(crate) node_types: Vec<String>,
    pub(crate) endpoint: Endpoint,
}

/// A run with its steps, as far as it is shown here.
#[derive(Debug, Deserialize)]
pub(crate) struct RunFull {
    pub(crate) run: RunHead,
    pub(crate) steps: Vec<Step>,
}

/// A run.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunHead {
    pub(crate) id: RunId,
    pub(crate) process_id: ProcessId,
    pub(crate) created_at: String,
    #[serde(default)]
    pub(crate) finished_at: Option<String>,
    pub(crate) status: contract::run::RunStatus,
    #[serde(default)]
    pub(crate) error: Option<RunError>,
}

/// A step.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Step {
    pub(crate) node_path: String,
    pub(crate) label: String,
    pub(crate) node_type: String,
    pub(crate) status: contract::run::NodeStatus,
    pub(crate) attempts: u32,
    #[serde(default)]
    pub(crate) started_at: Option<String>,
    #[serde(default)]
    pub(crate) finished_at: Option<String>,
    /// What a waiting step waits for, in words.
    #[serde(default)]
    pub(crate) waits_for: Option<String>,
    #[serde(default)]
    pub(crate) error: Option<contract::report::StepError>,
    /// How far it is, from 0 to 1.
    #[serde(default)]
    pub(crate) progress: Option<f64>,
    /// What it says to people.
    #[serde(default)]
    pub(crate) message: Option<String>,
    #[serde(default)]
    pub(crate) outputs: Option<IndexMap<String, Json>>,
}

/// Inputs of `system.output`.
pub(crate) type PublicInputs = IndexMap<String, Json>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Started {
    run_id: RunId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RunResult {
    public_inputs: PublicInputs,
}

#[derive(Deserialize)]
struct Refusal {
    error: RpcError,
}

impl Client {
    /// A client of the API at this base URL. With HTTPS the authorities that the system trusts count, and
    /// those of `ca` too.
    ///
    /// # Errors
    /// When the HTTP client cannot be made, or `ca` holds no certificate.
    pub(crate) fn new(
        base_url: String,
        token: Option<SecretString>,
        ca: Option<&SecretString>,
    ) -> anyhow::Result<Self> {
        // Our own loopback address must not be asked of a proxy. The api closes what is idle for long.
        let mut builder = reqwest::Client::builder().no_proxy().pool_idle_timeout(IDLE);
        if let Some(ca) = ca {
            let known = reqwest::Certificate::from_pem_bundle(ca.expose_secret().as_bytes());
            let known = known.ok().filter(|certificates| !certificates.is_empty());
            let known = known.with_context(|| format!("{CA} holds no certificate in PEM form"))?;
            builder = builder.tls_certs_merge(known);
        }
        Ok(Self { http: builder.build()?, base_url, token })
    }

    /// Authorities of the API's certificate beside those that the system trusts.
    pub(crate) fn read_authorities(reader: &mut Reader<'_>) -> Option<SecretString> {
        reader.secret(CA, "Authorities in PEM, usually as NAME_FILE, that the API's certificate may come from beside those that the system trusts.")
    }

    /// The plugins that the catalogue has now.
    pub(crate) async fn plugins(&self) -> Result<Vec<PluginHead>, CallFailure> {
        #[derive(Deserialize)]
        struct Plugins {
            plugins: Vec<PluginHead>,
        }
        let found: Plugins = self.call(Method::GET, "/plugins", None).await?;
        Ok(found.plugins)
    }

    /// All processes of the workspace, page by page.
    pub(crate) async fn processes(&self) -> Result<Vec<ImportedProcess>, CallFailure> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Page {
            processes: Vec<ImportedProcess>,
            #[serde(default)]
            next_cursor: Option<String>,
        }
        let mut all = Vec::new();
        let mut path = "/flow?limit=200".to_owned();
        loop {
            let page: Page = self.call(Method::GET, &path, None).await?;
            all.extend(page.processes);
            match page.next_cursor {
                Some(cursor) => path = format!("/flow?limit=200&cursor={cursor}"),
                None => return Ok(all),
            }
        }
    }

    /// Imports a document.
    pub(crate) async fn import(&self, document: String) -> Result<Imported, CallFailure> {
        self.call(Method::POST, "/flow/import", Some(document)).await
    }

    /// Replaces a process.
    pub(crate) async fn replace(&self, id: ProcessId, document: String) -> Result<(), CallFailure> {
        self.call::<Json>(Method::PUT, &format!("/flow/{id}"), Some(document)).await.map(drop)
    }

    /// Deletes a process; its runs stay.
    pub(crate) async fn delete(&self, id: ProcessId) -> Result<(), CallFailure> {
        self.send(Method::DELETE, &format!("/flow/{id}"), None).await.map(drop)
    }

    /// Starts a run: `how` is `webhook` or `run`.
    pub(crate) async fn start(
        &self,
        id: ProcessId,
        how: &str,
        payload: String,
    ) -> Result<RunId, CallFailure> {
        let started: Started = self.call(Method::POST, &format!("/flow/{id}/{how}"), Some(payload)).await?;
        Ok(started.run_id)
    }

    /// A run with its steps.
    pub(crate) async fn run(&self, id: ProcessId, run_id: RunId) -> Result<RunFull, CallFailure> {
        self.call(Method::GET, &format!("/flow/{id}/runs/{run_id}"), None).await
    }

    /// A run's result.
    pub(crate) async fn result(&self, id: ProcessId, run_id: RunId) -> Result<PublicInputs, CallFailure> {
        let result: RunResult =
            self.call(Method::GET, &format!("/flow/{id}/runs/{run_id}/result"), None).await?;
        Ok(result.public_inputs)
    }

    /// The bytes of a file.
    pub(crate) async fn file(&self, id: &str) -> Result<Vec<u8>, CallFailure> {
        let path = format!("/files/{}", crate::platform::escape(id, ""));
        Ok(self.send(Method::GET, &path, None).await?.bytes().await?.to_vec())
    }

    /// Cancels a run.
    pub(crate) async fn cancel(&self, id: ProcessId, run_id: RunId) -> Result<(), CallFailure> {
        self.call::<Json>(Method::POST, &format!("/flow/{id}/runs/{run_id}/cancel"), None).await.map(drop)
    }

    /// Follows a run to its end. `seen` is shown the run after each change.
    pub(crate) async fn follow(
        &self,
        id: ProcessId,
        run_id: RunId,
        mut seen: impl FnMut(&RunFull),
    ) -> Result<RunFull, CallFailure> {
        // The events only say when to look: the run itself is what is shown, so nothing is lost when
        // the stream breaks.
        let path = format!("/flow/{id}/runs/{run_id}/events");
        loop {
            let mut events = self.request(Method::GET, &path).send().await?;
            loop {
                let run = self.run(id, run_id).await?;
                seen(&run);
                if run.run.status.is_terminal() {
                    return Ok(run);
                }
                if events.chunk().await?.is_none() {
                    break;
                }
            }
        }
    }

    /// Calls a path of the API and reads its answer.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<T, CallFailure> {
        let text = self.send(method, path, body).await?.text().await?;
        Ok(serde_json::from_str(&text)?)
    }

    async fn send(&self, method: Method, path: &str, body: Option<String>) -> Result<Response, CallFailure> {
        let mut request = self.request(method, path).timeout(DEADLINE);
        if let Some(body) = body {
            request = request.header(reqwest::header::CONTENT_TYPE, "application/json").body(body);
        }
        accepted(request.send().await?).await
    }

    /// Opens a stream of events, after the last one that was seen.
    pub(crate) async fn events(&self, path: &str, last_id: Option<&str>) -> Result<Response, CallFailure> {
        let request = self.request(Method::GET, path);
        let request = match last_id {
            Some(id) => request.header("last-event-id", id),
            None => request,
        };
        accepted(request.send().await?).await
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base_url));
        match &self.token {
            Some(token) => request.bearer_auth(token.expose_secret()),
            None => request,
        }
    }
}

/// The response, unless it is a refusal.
async fn accepted(response: Response) -> Result<Response, CallFailure> {
    if response.status().is_success() {
        return Ok(response);
    }
    let refusal: Refusal = serde_json::from_str(&response.text().await?)?;
    Err(CallFailure::Refused(refusal.error))
}

/// The faults that an error lists, if it lists any.
pub(crate) fn faults(error: &RpcError) -> Vec<Fault> {
    let listed = error.details.as_ref().and_then(|details| details.get("faults"));
    listed.and_then(|faults| Vec::deserialize(faults).ok()).unwrap_or_default()
}

/// How a run ended, as one line of JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outcome<'a> {
    pub(crate) run_id: RunId,
    pub(crate) status: &'static str,
    pub(crate) public_inputs: &'a PublicInputs,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<&'a RunError>,
}

impl Outcome<'_> {
    /// Payloads are kept as they were written, also over several lines; outside of strings JSON does
    /// not mind a space instead.
    pub(crate) fn line(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self).map(|text| text.replace(['\r', '\n'], " "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_one_line_and_keeps_numbers_as_written() {
        let value = Json::parse("{\n  \"n\": 12345678901234567890.10\n}").unwrap();
        let outputs = PublicInputs::from([("result".to_owned(), value)]);
        let outcome = Outcome {
            run_id: RunId(uuid::Uuid::nil()),
            status: "finished",
            public_inputs: &outputs,
            error: None,
        };
        let line = outcome.line().unwrap();
        assert_eq!(line.lines().count(), 1);
        assert!(line.contains("12345678901234567890.10"), "{line}");
    }
}
