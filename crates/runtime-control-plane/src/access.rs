//! Who may come in: one rule for both doors (protocol sections 1, 4 and 9).

use crate::{Error, Settings, metrics::Metrics, reports::Door};
use contract::{ErrorCode, Json, RpcError};
use secrecy::ExposeSecret;
use std::{net::IpAddr, sync::Arc};
use wire::{AllowList, Credentials, LogGate, TrustProxy, credential_in};

/// Where the key stands in a TCP message, in the order of precedence.
const TOP_KEYS: [&str; 3] = ["key", "controlPlaneKey", "token"];
const NESTED_KEYS: [&str; 2] = ["key", "token"];

/// The rules of access.
#[derive(Debug)]
pub(crate) struct Access {
    allow: AllowList,
    trust_proxy: TrustProxy,
    /// `None`: everybody who may connect may report (`CONVEYOR_INSECURE_DEV`).
    credentials: Option<Arc<Credentials>>,
    metrics: Arc<Metrics>,
    log: AuditLog,
}

/// A gate per kind: strangers who guess keys must not hide those who come from elsewhere, nor large
/// bodies either of them.
#[derive(Debug, Default)]
struct AuditLog {
    unauthorized: LogGate,
    forbidden_address: LogGate,
    others: LogGate,
}

impl Access {
    /// # Errors
    /// [`Error::KeyMissing`]
    pub(crate) fn new(settings: &Settings, metrics: Arc<Metrics>) -> Result<Self, Error> {
        let credentials = match &settings.key {
            Some(key) => Some(Arc::new(Credentials::new(key.clone(), settings.key_previous.clone()))),
            None if settings.insecure => None,
            None => return Err(Error::KeyMissing),
        };
        if settings.insecure {
            tracing::warn!(
                event = "insecure_dev",
                has_key = credentials.is_some(),
                "CONVEYOR_INSECURE_DEV is set: without PLUGIN_CONTROL_PLANE_KEY everyone who can connect may report"
            );
        }
        Ok(Self {
            allow: settings.allow.clone(),
            trust_proxy: settings.trust_proxy.clone(),
            credentials,
            metrics,
            log: AuditLog::default(),
        })
    }

    pub(crate) fn credentials(&self) -> Option<Arc<Credentials>> {
        self.credentials.clone()
    }

    /// Judges the address of an HTTP request: its peer's, or the one that trusted proxies name. The
    /// address that was judged.
    pub(crate) fn check_address<'h>(
        &self,
        peer: IpAddr,
        forwarded: impl IntoIterator<Item = &'h str>,
    ) -> Result<IpAddr, RpcError> {
        let address = self
            .trust_proxy
            .client_address(peer, forwarded)
            .map_err(|error| RpcError::new(ErrorCode::ForbiddenAddress, error.to_string()))?;
        if self.allow.allows(address) {
            return Ok(address);
        }
        Err(RpcError::new(
            ErrorCode::ForbiddenAddress,
            format!("the address {address} is not in the allowlist of this service"),
        ))
    }

    /// Puts a refusal on record: each is counted, and logged with the address that it concerns, at most
    /// once a second and kind.
    pub(crate) fn audit(&self, door: Door, address: IpAddr, error: &RpcError) {
        self.metrics.refusal(door.as_str(), error.code.as_str());
        let (gate, event) = match error.code {
            ErrorCode::ForbiddenAddress => (&self.log.forbidden_address, "access_refused"),
            ErrorCode::Unauthorized => (&self.log.unauthorized, "access_refused"),
            _ => (&self.log.others, "request_refused"),
        };
        if let Some(unlogged_before) = gate.pass_now() {
            tracing::warn!(
                event,
                door = door.as_str(),
                %address,
                reason = error.code.as_str(),
                unlogged_before,
                "refused: {}",
                error.message
            );
        }
    }

    /// Judges the key in a TCP message.
    pub(crate) fn check_message(&self, data: &Json) -> Result<(), RpcError> {
        if self.credentials.is_none() {
            return Ok(());
        }
        let key = credential_in(data, &TOP_KEYS, "auth", &NESTED_KEYS);
        self.check_key(key.as_ref().map(ExposeSecret::expose_secret))
    }

    /// Judges a key that was found, or not.
    pub(crate) fn check_key(&self, key: Option<&str>) -> Result<(), RpcError> {
        match (&self.credentials, key) {
            (None, _) => Ok(()),
            (Some(credentials), Some(key)) if credentials.check(key).is_right() => Ok(()),
            _ => Err(RpcError::new(ErrorCode::Unauthorized, "the key is missing or wrong")),
        }
    }
}
