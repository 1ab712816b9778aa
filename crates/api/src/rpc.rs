//! Calls to the neighbours that speak TCP: engine, plugin-manager, secret-manager.

use contract::{ErrorCode, RpcError, manifest::Endpoint, pattern::Pattern};
use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, de::DeserializeOwned};
use std::time::Duration;
use wire::{CallError, Client, ClientConfig, TlsClient};

/// How long a neighbour may take to answer.
const DEADLINE: Duration = Duration::from_secs(15);
/// Connections to each neighbour: a large reply on one does not hold up the others.
const CONNECTIONS: usize = 2;

/// A neighbour with its credential.
#[derive(Clone, Debug)]
pub(crate) struct Neighbour {
    client: Client,
    token: Option<SecretString>,
    name: &'static str,
    away: ErrorCode,
}

/// A request with the caller's credential beside its own fields. Flattening is safe here: it only
/// writes, so no value is buffered and re-typed.
#[derive(Serialize)]
struct WithToken<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    #[serde(flatten)]
    body: &'a T,
}

impl Neighbour {
    /// A neighbour called `name` in messages, for whose absence `away` is answered.
    pub(crate) fn new(
        name: &'static str,
        endpoint: &Endpoint,
        token: Option<SecretString>,
        away: ErrorCode,
        max_frame_bytes: usize,
        tls: Option<TlsClient>,
    ) -> Self {
        let config =
            ClientConfig { connections: CONNECTIONS, max_frame_bytes, tls, ..ClientConfig::default() };
        Self { client: Client::new(endpoint.host.clone(), endpoint.port, config), token, name, away }
    }

    /// Calls a pattern.
    ///
    /// # Errors
    /// The neighbour's own error, or one that names the neighbour when it cannot be reached.
    pub(crate) async fn call<T, R>(&self, pattern: Pattern, body: &T) -> Result<R, RpcError>
    where
        T: Serialize + Sync,
        R: DeserializeOwned,
    {
        self.call_within(pattern, body, DEADLINE).await
    }

    /// Calls a pattern that may take longer than others.
    ///
    /// # Errors
    /// As [`Neighbour::call`].
    pub(crate) async fn call_within<T, R>(
        &self,
        pattern: Pattern,
        body: &T,
        deadline: Duration,
    ) -> Result<R, RpcError>
    where
        T: Serialize + Sync,
        R: DeserializeOwned,
    {
        let request = WithToken { token: self.token.as_ref().map(|token| token.expose_secret()), body };
        self.client
            .call(pattern.name, &request, deadline)
            .await
            .map_err(|error| self.outward(pattern, &error))
    }

    /// The error as the caller is told it: what is between us and the neighbour is not the caller's
    /// fault.
    fn outward(&self, pattern: Pattern, error: &CallError) -> RpcError {
        let name = self.name;
        if matches!(error, CallError::NoHandler) {
            tracing::error!(
                event = "neighbour_unlike",
                neighbour = name,
                pattern = pattern.name,
                "unknown pattern"
            );
            let message =
                format!("{name} does not know {:?}; bring all services to one version", pattern.name);
            return RpcError::new(ErrorCode::Unavailable, message);
        }
        let outward = error.to_rpc(self.away, name);
        if outward.code == ErrorCode::Unauthorized {
            tracing::error!(event = "neighbour_refused_token", neighbour = name, "{outward}");
            let message = format!("{name} refuses the api's credential; give both the same token");
            return RpcError::new(ErrorCode::Unavailable, message);
        }
        outward
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::Json;

    #[test]
    fn the_credential_stands_beside_the_fields_and_payloads_stay_as_sent() {
        #[derive(Serialize)]
        struct Body {
            payload: Json,
        }
        let body = Body { payload: Json::parse("12345678901234567890123.0").unwrap() };
        let text = serde_json::to_string(&WithToken { token: Some("t"), body: &body }).unwrap();
        assert_eq!(text, r#"{"token":"t","payload":12345678901234567890123.0}"#);
    }
}
