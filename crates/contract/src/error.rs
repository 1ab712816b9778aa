//! Stable error codes and the one error object of every door (protocol sections 1 and 4).

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $http:literal, $retryable:literal;)*) => {
        /// Every code that a service of the platform answers with. Codes never change meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ErrorCode {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
        }

        impl ErrorCode {
            /// All codes, in the order of this file.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code on the wire: `snake_case`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The HTTP status that carries this code.
            pub fn http_status(self) -> u16 {
                match self { $(Self::$name => $http,)* }
            }

            /// Can the same call succeed later without being changed?
            pub fn retryable(self) -> bool {
                match self { $(Self::$name => $retryable,)* }
            }
        }
    };
}

codes! {
    // Access
    /// Wrong or missing credential; nothing else is said.
    Unauthorized = "unauthorized", 401, false;
    /// The address is not in the allowlist.
    ForbiddenAddress = "forbidden_address", 403, false;

    // Form and size
    /// A request body or argument is malformed; `details.faults` names each fault with its path.
    InvalidRequest = "invalid_request", 400, false;
    /// A report is malformed; `details.faults` names each fault with its path.
    InvalidReport = "invalid_report", 400, false;
    /// A manifest or its executor batch is malformed; `details.faults` names each fault.
    InvalidManifest = "invalid_manifest", 400, false;
    /// A process document is malformed; `details.faults` names each fault.
    InvalidProcess = "invalid_process", 400, false;
    /// The data with which a run is started lacks required fields; `details.faults` names them.
    InvalidInput = "invalid_input", 400, false;
    /// Larger than the limit that the message names.
    PayloadTooLarge = "payload_too_large", 413, false;
    /// No handler for the pattern, or no such route.
    UnknownPattern = "unknown_pattern", 404, false;
    /// The thing named in the request does not exist.
    NotFound = "not_found", 404, false;
    /// No such run: there never was one, or it ended and was pruned (`docs/processes.md`, *Retention*).
    RunNotFound = "run_not_found", 404, false;
    /// The request contradicts the present state of the thing.
    Conflict = "conflict", 409, false;

    // Reports (section 4)
    /// Same `executionId`, other result body.
    ConflictingResult = "conflicting_result", 422, false;
    /// A newer attempt exists, or the attempt timed out.
    Superseded = "superseded", 409, false;
    /// The run has ended; the report is kept as a late result.
    RunTerminal = "run_terminal", 409, false;
    /// The report carries no `executionId`.
    MissingExecutionId = "missing_execution_id", 400, false;
    /// No such attempt.
    UnknownExecution = "unknown_execution", 404, false;
    /// The engine or its database cannot be reached now.
    EngineUnavailable = "engine_unavailable", 503, true;

    // Policy (section 6)
    /// No such plugin in the catalogue.
    PluginUnknown = "plugin_unknown", 404, false;
    /// The plugin was removed.
    PluginRemoved = "plugin_removed", 410, false;
    /// The publication that the run is pinned to does not exist.
    PublicationMissing = "publication_missing", 404, false;
    /// The publication has no such node type.
    NodeTypeUnknown = "node_type_unknown", 404, false;
    /// The plugin is not enabled in the workspace, or for the user.
    PluginDisabled = "plugin_disabled", 403, false;
    /// The plugin is quarantined by an operator.
    PluginQuarantined = "plugin_quarantined", 403, false;
    /// The plugin does not answer its health probe.
    PluginOffline = "plugin_offline", 503, true;

    // Publication
    /// The version is already published with another digest.
    VersionImmutable = "version_immutable", 409, false;
    /// The node type belongs to another live plugin.
    NodeTypeConflict = "node_type_conflict", 409, false;
    /// The executor batch could not be pulled from the plugin.
    BatchPullFailed = "batch_pull_failed", 502, true;
    /// A static asset could not be fetched or exceeds its limit.
    AssetFetchFailed = "asset_fetch_failed", 502, true;
    /// Only signed publications are taken, and this one is not validly signed.
    SignatureRequired = "signature_required", 403, false;
    /// The plugin is used by processes, which the message names.
    PluginInUse = "plugin_in_use", 409, false;
    /// The manifest did not appear within the wait.
    ManifestTimeout = "manifest_timeout", 504, true;

    // How a step fails
    /// The plugin reported an error or its result was an error.
    StepFailed = "step_failed", 500, false;
    /// No plugin or executor took the task within all its delivery attempts.
    DeliveryFailed = "delivery_failed", 504, true;
    /// The step exceeded its deadline after it was acknowledged.
    StepTimeout = "step_timeout", 504, false;
    /// The run exceeded its deadline.
    RunTimeout = "run_timeout", 504, false;
    /// A loop exceeded `maxIterations`.
    LoopLimit = "loop_limit", 500, false;
    /// A `ref` input names a secret that does not exist in the workspace.
    SecretMissing = "secret_missing", 422, false;
    /// The secret exists but cannot be decrypted with the present master key.
    SecretUnreadable = "secret_unreadable", 500, false;
    /// A built-in node's input has the wrong form.
    InvalidNodeInput = "invalid_node_input", 422, false;
    /// A person refused, and the node's `reject` output is not connected.
    Rejected = "rejected", 422, false;

    // General
    /// A neighbour service or database cannot be reached now.
    Unavailable = "unavailable", 503, true;
    /// Too much work is in flight; try again later.
    Overloaded = "overloaded", 503, true;
    /// The call did not end within its deadline.
    Timeout = "timeout", 504, true;
    /// A bug of ours: the details are in the service's log.
    Internal = "internal", 500, false;
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error object: `err` of a TCP reply, `error` of an HTTP body (protocol section 1).
/// `message` names the thing and the remedy and never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RpcError {
    /// Always `error`: what `NestJS` clients look for.
    #[serde(default, skip_deserializing)]
    pub status: Status,
    /// The stable code.
    pub code: ErrorCode,
    /// What happened and what to do, for a person.
    #[serde(default)]
    pub message: String,
    /// Machine-readable details; `faults` for validation errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Can the same call succeed later without being changed?
    #[serde(default)]
    pub retryable: bool,
}

/// The constant `error`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The only one.
    #[default]
    Error,
}

impl RpcError {
    /// An error with the code's own `retryable`.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            status: Status::Error,
            code,
            message: message.into(),
            details: None,
            retryable: code.retryable(),
        }
    }

    /// Adds machine-readable details.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// An error that lists every fault, in the message (the first three) and in `details.faults`.
    pub fn of_faults(code: ErrorCode, what: &str, faults: &[crate::Fault]) -> Self {
        let shown: Vec<_> = faults.iter().take(3).map(ToString::to_string).collect();
        let more = match faults.len().saturating_sub(3) {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        Self::new(code, format!("{what} is not valid: {}{more}", shown.join("; ")))
            .with_details(serde_json::json!({ "faults": faults }))
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for RpcError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_its_text_and_is_snake_case() {
        for code in ErrorCode::ALL {
            let text = serde_json::to_string(code).unwrap();
            assert_eq!(text, format!("\"{}\"", code.as_str()));
            assert_eq!(serde_json::from_str::<ErrorCode>(&text).unwrap(), *code);
            assert!(code.as_str().chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{code}");
            assert!((400..600).contains(&code.http_status()), "{code}");
        }
    }

    #[test]
    fn error_object_has_the_shape_that_nest_clients_read() {
        let error = RpcError::new(ErrorCode::EngineUnavailable, "no engine");
        assert_eq!(
            serde_json::to_string(&error).unwrap(),
            r#"{"status":"error","code":"engine_unavailable","message":"no engine","retryable":true}"#
        );
    }
}
