//! Who calls: bearer tokens, of which the store keeps only the SHA-256.

use contract::{
    Digest, ErrorCode, RpcError,
    catalogue::{DEFAULT_USER, DEFAULT_WORKSPACE},
};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest as _, Sha256};
use storage::{Storage, users::Principal};
use subtle::ConstantTimeEq;

/// What the store keeps of a token. Tokens are long and random, so one round of SHA-256 is enough,
/// and finding one by its hash tells nothing about other tokens by its timing.
pub fn token_hash(token: &str) -> Digest {
    Digest(Sha256::digest(token.as_bytes()).into())
}

/// Decides whom a request speaks for.
#[derive(Clone, Debug)]
pub(crate) struct Doorkeeper {
    storage: Storage,
    configured: Option<Digest>,
    insecure: bool,
}

/// The user of a single-machine start.
fn local() -> Principal {
    Principal { user_id: DEFAULT_USER.to_owned(), workspace_id: DEFAULT_WORKSPACE.to_owned() }
}

impl Doorkeeper {
    /// Makes the local user, and takes in the configured token. That token is judged by its hash in
    /// memory and is not stored: taking it out of the configuration ends its validity.
    pub(crate) async fn new(
        storage: Storage,
        token: Option<&SecretString>,
        insecure: bool,
    ) -> Result<Self, storage::Error> {
        storage.users().ensure_user(DEFAULT_USER, storage.now().await?).await?;
        let configured = token.map(|token| token_hash(token.expose_secret()));
        Ok(Self { storage, configured, insecure: insecure && token.is_none() })
    }

    /// The principal of a bearer token.
    ///
    /// # Errors
    /// `unauthorized` without a valid token, and what the store answers when it is away.
    pub(crate) async fn admit(&self, token: Option<&str>) -> Result<Principal, RpcError> {
        let refused = || {
            RpcError::new(
                ErrorCode::Unauthorized,
                "a valid token is needed: send `Authorization: Bearer <token>`",
            )
        };
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            return if self.insecure { Ok(local()) } else { Err(refused()) };
        };
        let hash = token_hash(token);
        if let Some(configured) = &self.configured
            && bool::from(configured.0.ct_eq(&hash.0))
        {
            return Ok(local());
        }
        let found = self.storage.users().find_token(&hash).await.map_err(|error| error.to_rpc())?;
        found.ok_or_else(refused)
    }
}
