//! One probe: does the plugin's listener not only accept, but answer?

use super::machine::Outcome;
use contract::{Json, manifest::Endpoint};
use std::time::Duration;
use wire::{CallError, Client, ClientConfig, TlsClient};

/// A pattern that no plugin handles. A living `NestJS` peer answers that it does not know it; nothing
/// runs and no credential is needed.
const PING: &str = "conveyor.ping";

/// Probes an endpoint. Any answer counts; a listener that accepts and stays silent is down.
pub(crate) async fn probe(endpoint: &Endpoint, timeout: Duration, tls: Option<TlsClient>) -> Outcome {
    let config = ClientConfig { connect_timeout: timeout, tls, ..ClientConfig::default() };
    let client = Client::new(endpoint.host.clone(), endpoint.port, config);
    match client.request(PING, &Json::null(), timeout).await {
        Ok(_) | Err(CallError::NoHandler | CallError::Remote(_)) => Ok(()),
        Err(CallError::Timeout { alive: true, .. }) => Err(format!(
            "{endpoint} accepts connections but does not answer within {} ms",
            timeout.as_millis()
        )),
        Err(error) => Err(error.to_string()),
    }
}
