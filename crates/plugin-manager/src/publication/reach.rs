//! Where static assets may be fetched from. Plugins live on private networks, so by default
//! everywhere; an operator whose plugins do not can keep plugin-manager from being led inside. A
//! name is judged by the addresses that are then connected to.

use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};
use std::{error::Error as StdError, net::SocketAddr};
use wire::gate::is_public;

/// Judges addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    pub(super) allow_private: bool,
}

/// The place is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{host} leads to a loopback, private or link-local address (PLUGIN_MANAGER_ASSET_ALLOW_PRIVATE=false)"
)]
pub(super) struct Refused {
    host: String,
}

impl Reach {
    /// Judges a URL whose host is written as an address; names are judged when they are resolved.
    pub(super) fn check(self, url: &Url) -> Result<(), Refused> {
        let host = url.host_str().unwrap_or_default();
        match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(address) if !self.allow_private && !is_public(address) => {
                Err(Refused { host: host.to_owned() })
            }
            _ => Ok(()),
        }
    }
}

impl Resolve for Reach {
    fn resolve(&self, name: Name) -> Resolving {
        let allow_private = self.allow_private;
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            let (allowed, refused): (Vec<_>, Vec<_>) =
                found.into_iter().partition(|address| allow_private || is_public(address.ip()));
            if allowed.is_empty() && !refused.is_empty() {
                return Err(Box::new(Refused { host }) as Box<dyn StdError + Send + Sync>);
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}
