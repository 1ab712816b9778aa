//! A running platform, as commands reach it: over its HTTP API, like any other user.

mod events;
mod files;
mod names;
mod shown;
mod watch;

pub(crate) use names::{step_with_outputs, waiting_step};
pub(crate) use shown::{moment, said, took};
pub(crate) use watch::{end, watch};

use crate::{
    client::{CallFailure, Client, faults},
    credentials::Credentials,
    document::printable,
    failure::Failure,
};
use ::config::{Environment, Reader};
use clap::Args;
use contract::{ErrorCode, Json, RpcError};
use secrecy::SecretString;
use serde::Serialize;
use std::{
    error::Error,
    path::{Path, PathBuf},
};

/// Where `conveyor up` listens.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// Where the platform is and how the answer is written.
#[derive(Args, Debug)]
#[allow(clippy::doc_markdown, reason = "help text is no markdown")]
pub(crate) struct Place {
    /// The platform's API [default: CONVEYOR_URL, else http://127.0.0.1:8080]; for HTTPS with an authority of
    /// your own set CONVEYOR_API_CA_FILE
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// A file that holds the API's token [default: CONVEYOR_API_TOKEN]
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    pub(crate) token_file: Option<PathBuf>,
    /// The data folder of a `conveyor up`, whose token is used [default, when no token is set:
    /// CONVEYOR_DATA_DIR, else ./data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Print the answer as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The platform with its token.
#[derive(Debug)]
pub(crate) struct Platform {
    pub(crate) client: Client,
    url: String,
    json: bool,
}

impl Platform {
    /// Finds the platform; nothing is asked of it yet.
    ///
    /// # Errors
    /// What is missing or malformed, with the remedy.
    pub(crate) fn find(place: &Place) -> Result<Self, Failure> {
        let mut reader = Reader::new(&Environment);
        let url = reader.text("CONVEYOR_URL", DEFAULT_URL, "The platform's API.");
        let token = reader.secret("CONVEYOR_API_TOKEN", "The API's token.");
        let ca = Client::read_authorities(&mut reader);
        let folder = reader.text("CONVEYOR_DATA_DIR", "./data", "The data folder.");
        reader.finish().map_err(Failure::invalid)?;
        let url = place.url.clone().unwrap_or(url);
        let is_http = ["http", "https"].iter().any(|scheme| url.starts_with(&format!("{scheme}://")));
        if !is_http || reqwest::Url::parse(&url).is_err() {
            return Err(Failure::invalid(format!(
                "{url:?} is no URL of an API; use --url or CONVEYOR_URL, for example {DEFAULT_URL}"
            )));
        }
        let url = url.trim_end_matches('/').to_owned();
        let token = match (&place.token_file, &place.data, token) {
            (Some(file), _, _) => Some(of_file(file)?),
            (None, Some(folder), _) => Some(of_folder(folder)?.ok_or_else(|| {
                Failure::invalid(format!(
                    "{} holds no credentials of a `conveyor up`; name its data folder with --data, or set \
                     CONVEYOR_API_TOKEN",
                    folder.display()
                ))
            })?),
            (None, None, Some(token)) => Some(token),
            // A platform may ask for none; what it says without one names the ways to give it.
            (None, None, None) => of_folder(Path::new(&folder))?,
        };
        Ok(Self { client: Client::new(url.clone(), token, ca.as_ref())?, url, json: place.json })
    }

    /// Reads what is at a path of the API.
    ///
    /// # Errors
    /// The refusal, told with its remedy.
    pub(crate) async fn get(&self, path: &str) -> Result<Json, Failure> {
        self.told(self.client.call(reqwest::Method::GET, path, None).await)
    }

    /// Posts to a path of the API.
    ///
    /// # Errors
    /// As of [`Platform::get`].
    pub(crate) async fn post(&self, path: &str, body: Option<String>) -> Result<Json, Failure> {
        self.told(self.client.call(reqwest::Method::POST, path, body).await)
    }

    /// Reads an answer as far as it is shown.
    ///
    /// # Errors
    /// When the API is of another version.
    pub(crate) fn read<T: serde::de::DeserializeOwned>(&self, answer: &Json) -> Result<T, Failure> {
        self.told(answer.read().map_err(CallFailure::Unreadable))
    }

    /// What a call came to; a failure is told with its remedy.
    ///
    /// # Errors
    /// The failure.
    pub(crate) fn told<T>(&self, answer: Result<T, CallFailure>) -> Result<T, Failure> {
        answer.map_err(|failure| self.tell(&self.explain(failure)))
    }

    /// Tells a refusal: on standard error, or as JSON on standard output. What the caller got wrong is
    /// exit code 2.
    pub(crate) fn tell(&self, error: &RpcError) -> Failure {
        if self.json {
            println!("{}", serde_json::json!({ "error": error }));
        } else {
            eprintln!("conveyor: {} ({})", printable(&error.message), error.code);
            for fault in faults(error) {
                eprintln!("  {}", printable(&fault.to_string()));
            }
        }
        match error.code {
            ErrorCode::InvalidProcess | ErrorCode::InvalidInput | ErrorCode::InvalidRequest => {
                Failure::ToldInvalid
            }
            _ => Failure::Told,
        }
    }

    /// Prints the answer: as one line of JSON, or as people read it.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub(crate) fn print<T: Serialize>(
        &self,
        answer: &T,
        shown: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        if self.json {
            // Payloads stay as they were written, also over several lines; outside of strings JSON does
            // not mind a space instead.
            println!("{}", serde_json::to_string(answer)?.replace(['\r', '\n'], " "));
        } else {
            print!("{}", shown());
        }
        Ok(())
    }

    /// Is the answer wanted as JSON?
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    fn explain(&self, failure: CallFailure) -> RpcError {
        match failure {
            CallFailure::Refused(mut error) => {
                if error.code == ErrorCode::Unauthorized {
                    error.message.push_str(
                        "; the API's token is printed by `conveyor up` and kept in credentials.json of its data \
                         folder: name that with --data, or give the token by --token-file or CONVEYOR_API_TOKEN",
                    );
                }
                error
            }
            CallFailure::Away(error) => RpcError::new(
                ErrorCode::Unavailable,
                format!(
                    "no platform answers at {}: {}; start one with `conveyor up`, or say where it is with --url \
                     or CONVEYOR_URL",
                    self.url,
                    cause(&error)
                ),
            ),
            CallFailure::Unreadable(error) => RpcError::new(
                ErrorCode::Unavailable,
                format!(
                    "what answers at {} is no Conveyor API of this version: {error}; check --url or CONVEYOR_URL",
                    self.url
                ),
            ),
        }
    }
}

/// The last of the causes: those before it only say that a request failed.
fn cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn of_file(file: &Path) -> Result<SecretString, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::invalid(format!("--token-file {}: {error}", file.display())))?;
    match text.trim() {
        "" => Err(Failure::invalid(format!("--token-file {}: the file is empty", file.display()))),
        token => Ok(token.to_owned().into()),
    }
}

fn of_folder(folder: &Path) -> Result<Option<SecretString>, Failure> {
    let credentials = Credentials::load(folder).map_err(Failure::Failed)?;
    Ok(credentials.map(|credentials| credentials.api_token.into()))
}
