//! Plugin-manager's TCP door, as an operator reaches it.

use super::args::Common;
use crate::{credentials::Credentials, document::printable, failure::Failure, profile};
use ::config::{Environment, Reader};
use contract::{ErrorCode, Json, RpcError, pattern::Pattern};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use wire::{CallError, Client, ClientConfig, TlsClient, tls::ClientVariables};

/// Longer than a publication may take: the pull of the batch and of the assets.
const DEADLINE: Duration = Duration::from_secs(120);
/// The port of plugin-manager's page.
const SERVICE_PORT: u16 = 3000;

/// The door with the ingress token.
pub(super) struct Door {
    client: Client,
    token: SecretString,
    json: bool,
}

/// A request with the token beside its own fields. Flattening is safe here: it only writes.
#[derive(Serialize)]
struct WithToken<'a, T> {
    token: &'a str,
    #[serde(flatten)]
    body: &'a T,
}

impl Door {
    /// Finds plugin-manager: in the named data folder, else by the environment, else in the default
    /// data folder.
    ///
    /// # Errors
    /// What is missing, with the remedy.
    pub(super) fn find(common: &Common) -> Result<Self, Failure> {
        let mut reader = Reader::new(&Environment);
        let host = reader.optional_text("PLUGIN_MANAGER_RPC_HOST", "Where plugin-manager is.");
        let local = common.data.is_some() || host.is_none();
        let default_port = match local {
            true => profile::PLUGIN_MANAGER_PORT.saturating_add(common.port_offset),
            false => SERVICE_PORT,
        };
        let port = reader.port("PLUGIN_MANAGER_RPC_PORT", default_port, "Port of plugin-manager's TCP door.");
        let token = reader.secret("PLUGIN_MANAGER_INGRESS_TOKEN", "Token of plugin-manager's TCP door.");
        let tls = TlsClient::read(&mut reader, ClientVariables::PLUGIN_MANAGER);
        let folder = reader.text("CONVEYOR_DATA_DIR", "./data", "The data folder.");
        reader.finish().map_err(Failure::invalid)?;
        let folder = common.data.clone().unwrap_or_else(|| PathBuf::from(folder));
        // A folder that was named goes before the environment.
        let (host, port, token) = match &common.data {
            Some(folder) => ("127.0.0.1".to_owned(), default_port, of_folder(folder)?),
            None => {
                let token = match token {
                    Some(token) => token,
                    None if local => of_folder(&folder)?,
                    None => return Err(no_token()),
                };
                (host.unwrap_or_else(|| "127.0.0.1".to_owned()), port, token)
            }
        };
        let client = Client::new(host, port, ClientConfig { tls, ..ClientConfig::default() });
        Ok(Self { client, token, json: common.json })
    }

    /// Calls a pattern.
    ///
    /// # Errors
    /// The refusal, told with its remedy: on standard error, or as JSON on standard output.
    pub(super) async fn call<T: Serialize + Sync>(
        &self,
        pattern: Pattern,
        body: &T,
    ) -> Result<Json, Failure> {
        let request = WithToken { token: self.token.expose_secret(), body };
        let request = Json::of(&request).map_err(Failure::invalid)?;
        let answer = self.client.request(pattern.name, &request, DEADLINE).await;
        answer.map_err(|error| tell(&self.explain(&error), self.json))
    }

    fn explain(&self, error: &CallError) -> RpcError {
        let address = self.client.address();
        let mut told = error.to_rpc(ErrorCode::Unavailable, &format!("plugin-manager at {address}"));
        let remedy = match (error, told.code) {
            (_, ErrorCode::Unauthorized) => {
                "; set PLUGIN_MANAGER_INGRESS_TOKEN to its token, or name the data folder of `conveyor up` \
                 with --data"
            }
            (CallError::Connect { .. }, _) => {
                "; start it with `conveyor up`, or say where it is: --data and --port-offset, or \
                 PLUGIN_MANAGER_RPC_HOST and PLUGIN_MANAGER_RPC_PORT"
            }
            (CallError::NoHandler, _) => "; is this plugin-manager's TCP door, and of this version?",
            (CallError::Closed { .. }, _) => "; look at its log: it may not accept this address",
            _ => "",
        };
        told.message.push_str(remedy);
        told
    }
}

/// Tells a refusal; documents and requests that are not valid are exit code 2.
pub(super) fn tell(error: &RpcError, json: bool) -> Failure {
    if json {
        println!("{}", serde_json::json!({ "error": error }));
    } else {
        eprintln!("conveyor: {} ({})", printable(&error.message), error.code);
        for fault in crate::client::faults(error) {
            eprintln!("  {}", printable(&fault.to_string()));
        }
    }
    match error.code {
        ErrorCode::InvalidManifest | ErrorCode::InvalidRequest => Failure::ToldInvalid,
        _ => Failure::Told,
    }
}

fn of_folder(folder: &Path) -> Result<SecretString, Failure> {
    match Credentials::load(folder).map_err(Failure::Failed)? {
        Some(credentials) => Ok(credentials.ingress_token.into()),
        None => Err(Failure::invalid(format!(
            "{} holds no credentials of a `conveyor up`; name its data folder with --data, or set \
             PLUGIN_MANAGER_RPC_HOST, PLUGIN_MANAGER_RPC_PORT and PLUGIN_MANAGER_INGRESS_TOKEN",
            folder.display()
        ))),
    }
}

fn no_token() -> Failure {
    Failure::invalid(
        "PLUGIN_MANAGER_INGRESS_TOKEN is not set; set it to the token of the plugin-manager that \
         PLUGIN_MANAGER_RPC_HOST names (or PLUGIN_MANAGER_INGRESS_TOKEN_FILE to a file that holds it)",
    )
}
