//! The ingress token, in both directions: who may call, and what plugins are pulled with.

use crate::settings::Settings;
use contract::{ErrorCode, Json, RpcError};
use secrecy::{ExposeSecret, SecretString};
use std::sync::Arc;
use wire::{Credentials, Verdict, credential_in};

/// Where a caller may put the token (protocol section 1).
const TOP: &[&str] = &["token", "ingressToken", "authToken"];
const NESTED: &[&str] = &["token", "key"];

/// The tokens of the service.
#[derive(Debug)]
pub(crate) struct Tokens {
    /// `None`: everyone is let in (`CONVEYOR_INSECURE_DEV`).
    credentials: Option<Arc<Credentials>>,
    /// Current, then previous.
    own: Vec<SecretString>,
}

impl Tokens {
    pub(crate) fn new(settings: &Settings) -> Self {
        let (current, previous) = (&settings.ingress_token, &settings.ingress_token_previous);
        let credentials =
            current.clone().map(|current| Arc::new(Credentials::new(current, previous.clone())));
        Self { credentials, own: current.iter().chain(previous).cloned().collect() }
    }

    /// The judge, for its count of previous tokens.
    pub(crate) fn credentials(&self) -> Option<Arc<Credentials>> {
        self.credentials.clone()
    }

    /// Judges the token in the payload of a call and returns it.
    ///
    /// # Errors
    /// `unauthorized`, which says nothing else.
    pub(crate) fn admit(&self, data: &Json) -> Result<Option<SecretString>, RpcError> {
        let presented = credential_in(data, TOP, "auth", NESTED);
        let Some(credentials) = &self.credentials else { return Ok(presented) };
        let verdict = presented.as_ref().map(|token| credentials.check(token.expose_secret()));
        match verdict {
            Some(Verdict::Current | Verdict::Previous) => Ok(presented),
            Some(Verdict::Wrong) | None => {
                Err(RpcError::new(ErrorCode::Unauthorized, "the ingress token is missing or wrong"))
            }
        }
    }

    /// Is this the token, for HTTP's bearer? Without a token of our own nobody is told details.
    pub(crate) fn is_right(&self, presented: &str) -> bool {
        self.credentials.as_ref().is_some_and(|credentials| credentials.check(presented).is_right())
    }

    /// What to pull a plugin with, best guess first: a plugin uses one token in both directions, so
    /// what it presented it will also accept.
    pub(crate) fn for_pull(&self, presented: Option<SecretString>) -> Vec<SecretString> {
        let mut tokens: Vec<SecretString> = presented.into_iter().collect();
        for own in &self.own {
            if tokens.iter().all(|token| token.expose_secret() != own.expose_secret()) {
                tokens.push(own.clone());
            }
        }
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tokens() -> Tokens {
        let own = vec![SecretString::from("new"), SecretString::from("old")];
        let credentials = Credentials::new("new".into(), Some("old".into()));
        Tokens { credentials: Some(Arc::new(credentials)), own }
    }

    #[test]
    fn the_token_is_accepted_in_each_of_its_places() {
        for data in [
            json!({"token": "new"}),
            json!({"ingressToken": "new"}),
            json!({"authToken": "new"}),
            json!({"auth": {"token": "new"}}),
        ] {
            assert!(tokens().admit(&data.clone().into()).is_ok(), "{data}");
        }
    }

    #[test]
    fn a_wrong_or_missing_token_is_unauthorized_and_nothing_else_is_said() {
        let messages = [json!({"token": "nope"}), json!({}), json!(null), json!({"key": "new"})]
            .map(|data| tokens().admit(&data.into()).unwrap_err());
        for error in messages {
            assert_eq!(
                error,
                RpcError::new(ErrorCode::Unauthorized, "the ingress token is missing or wrong")
            );
        }
    }

    #[test]
    fn the_previous_token_is_accepted_and_counted() {
        let tokens = tokens();
        assert!(tokens.admit(&json!({"token": "old"}).into()).is_ok());
        assert_eq!(tokens.credentials().unwrap().previous_uses(), 1);
    }

    #[test]
    fn a_plugin_is_pulled_first_with_the_token_that_it_presented() {
        let order = |presented: Option<&str>| -> Vec<String> {
            let pulled = tokens().for_pull(presented.map(SecretString::from));
            pulled.iter().map(|token| token.expose_secret().to_owned()).collect()
        };
        assert_eq!(order(Some("old")), ["old", "new"]);
        assert_eq!(order(None), ["new", "old"]);
    }
}
