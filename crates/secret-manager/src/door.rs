//! What is answered to each pattern.

use crate::seal::Keys;
use contract::{
    ErrorCode, Json, RpcError, pattern,
    secret::{
        DeleteSecret, ListSecrets, MAX_SECRET_BYTES, PutSecret, ResolveSecrets, ResolvedSecrets, SecretNames,
        SecretText,
    },
};
use secrecy::ExposeSecret;
use serde::{Serialize, de::DeserializeOwned};
use storage::Storage;
use wire::{Credentials, Handler, LogGate, Reply, Request, SecretJson, credential_in};

/// Names in one `secret.resolve`.
const MAX_NAMES: usize = 256;
/// Bytes of a name or workspace.
const MAX_NAME_BYTES: usize = 256;

#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) storage: Storage,
    pub(crate) keys: Keys,
    pub(crate) token: Option<Credentials>,
}

/// Answer to `secret.delete`.
#[derive(Serialize)]
struct Deleted {
    deleted: bool,
}

impl Handler for Door {
    async fn call(&self, request: Request) -> Reply {
        let Some(asked) = pattern::find(&request.pattern) else { return Reply::NoHandler };
        if !self.is_let_in(&request) {
            log_unauthorized(asked.name, &request);
            return Reply::Error(RpcError::new(ErrorCode::Unauthorized, "unauthorized"));
        }
        let data = &request.data;
        let answer = match asked {
            pattern::SECRET_RESOLVE => {
                return self.resolve(data).await.map_or_else(Reply::Error, Reply::Secret);
            }
            pattern::SECRET_PUT => self.put(data).await,
            pattern::SECRET_DELETE => self.delete(data).await,
            pattern::SECRET_LIST => self.list(data).await,
            _ => return Reply::NoHandler,
        };
        answer.into()
    }
}

/// At most one line a second: strangers guess tokens as fast as they like.
fn log_unauthorized(pattern: &str, request: &Request) {
    static LOG: LogGate = LogGate::new();
    if let Some(unlogged_before) = LOG.pass_now() {
        tracing::warn!(
            event = "secret_access_unauthorized",
            pattern,
            peer = %request.peer.address,
            unlogged_before,
            "a wrong token was refused"
        );
    }
}

impl Door {
    fn is_let_in(&self, request: &Request) -> bool {
        let Some(token) = &self.token else { return true };
        credential_in(&request.data, &["token"], "auth", &["token"])
            .is_some_and(|presented| token.check(presented.expose_secret()).is_right())
    }

    async fn resolve(&self, data: &Json) -> Result<SecretJson, RpcError> {
        let ResolveSecrets { workspace_id, names } = read(data)?;
        if names.len() > MAX_NAMES {
            return Err(invalid(format!("{} names are asked for, the limit is {MAX_NAMES}", names.len())));
        }
        let sealed =
            self.storage.secrets().get_many(&workspace_id, &names).await.map_err(|error| error.to_rpc())?;
        let open = |(name, sealed): (&String, Option<Vec<u8>>)| {
            let Some(sealed) = sealed else { return Ok(None) };
            self.keys.open(&workspace_id, name, &sealed).map(Some).map_err(|reason| {
                tracing::error!(event = "secret_unreadable", workspace_id, name, %reason, "a secret cannot be opened");
                let message = format!("secret {name:?} of workspace {workspace_id:?} cannot be opened: {reason}; store it again, or start with the key that sealed it");
                RpcError::new(ErrorCode::SecretUnreadable, message)
            })
        };
        let values: Vec<Option<SecretText>> = names.iter().zip(sealed).map(open).collect::<Result<_, _>>()?;
        let bytes: usize = values.iter().flatten().map(|value| value.expose().len() + 16).sum();
        SecretJson::of(&ResolvedSecrets { values }, bytes + 64)
            .map_err(|error| RpcError::new(ErrorCode::Internal, error.to_string()))
    }

    async fn put(&self, data: &Json) -> Result<Json, RpcError> {
        let PutSecret { workspace_id, name, kind, value } = read(data)?;
        check_name("workspaceId", &workspace_id)?;
        check_name("name", &name)?;
        if let Some(kind) = &kind {
            check_name("kind", kind)?;
        }
        let bytes = value.expose().len();
        if bytes > MAX_SECRET_BYTES {
            return Err(RpcError::new(
                ErrorCode::PayloadTooLarge,
                format!("the value of secret {name:?} has {bytes} bytes, the limit is {MAX_SECRET_BYTES}"),
            ));
        }
        let sealed = self
            .keys
            .seal(&workspace_id, &name, &value)
            .ok_or_else(|| RpcError::new(ErrorCode::Internal, format!("secret {name:?} cannot be sealed")))?;
        let at = self.storage.now().await.map_err(|error| error.to_rpc())?;
        let stored = self.storage.secrets().put(&workspace_id, &name, kind.as_deref(), &sealed, at).await;
        stored.map_err(|error| error.to_rpc())?;
        tracing::info!(event = "secret_stored", workspace_id, name, "secret stored");
        write(&contract::secret::SecretInfo { name, kind, updated_at: at })
    }

    async fn delete(&self, data: &Json) -> Result<Json, RpcError> {
        let DeleteSecret { workspace_id, name } = read(data)?;
        let deleted =
            self.storage.secrets().delete(&workspace_id, &name).await.map_err(|error| error.to_rpc())?;
        if deleted {
            tracing::info!(event = "secret_deleted", workspace_id, name, "secret deleted");
        }
        write(&Deleted { deleted })
    }

    async fn list(&self, data: &Json) -> Result<Json, RpcError> {
        let ListSecrets { workspace_id } = read(data)?;
        let secrets = self.storage.secrets().list(&workspace_id).await.map_err(|error| error.to_rpc())?;
        write(&SecretNames { secrets })
    }
}

fn check_name(field: &str, text: &str) -> Result<(), RpcError> {
    if text.is_empty() || text.len() > MAX_NAME_BYTES || text.chars().any(char::is_control) {
        return Err(invalid(format!(
            "{field} must have 1 to {MAX_NAME_BYTES} bytes and no control characters"
        )));
    }
    Ok(())
}

/// The reason of a refusal may quote the value (serde does for a wrong type), so it is not passed on.
fn read<T: DeserializeOwned>(data: &Json) -> Result<T, RpcError> {
    data.read().map_err(|_| invalid(format!("the request is not of the form of {}", type_of::<T>())))
}

fn type_of<T>() -> &'static str {
    std::any::type_name::<T>().rsplit("::").next().unwrap_or_default()
}

fn write<T: Serialize>(answer: &T) -> Result<Json, RpcError> {
    Json::of(answer).map_err(|error| RpcError::new(ErrorCode::Internal, error.to_string()))
}

fn invalid(message: impl Into<String>) -> RpcError {
    RpcError::new(ErrorCode::InvalidRequest, message)
}
