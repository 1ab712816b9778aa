//! Where `system.http.request` may go. A name is judged by the addresses that are then connected
//! to, so a name that changes its mind between check and use gains nothing.

use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};
use std::{
    error::Error as StdError,
    net::{IpAddr, SocketAddr},
};
use wire::gate::is_public;

/// Judges addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Egress {
    pub(super) allow_private: bool,
}

/// The target is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{host} leads to a loopback, private or link-local address, where requests may not go (EXECUTOR_HTTP_ALLOW_PRIVATE)"
)]
pub(super) struct Refused {
    host: String,
}

impl Egress {
    /// Judges a URL whose host is written as an address; names are judged when they are resolved.
    pub(super) fn check(self, url: &Url) -> Result<(), Refused> {
        let host = url.host_str().unwrap_or_default();
        match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(address) if !self.allows(address) => Err(Refused { host: host.to_owned() }),
            _ => Ok(()),
        }
    }

    fn allows(self, address: IpAddr) -> bool {
        self.allow_private || is_public(address)
    }
}

impl Resolve for Egress {
    fn resolve(&self, name: Name) -> Resolving {
        let egress = *self;
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            let (allowed, refused): (Vec<_>, Vec<_>) =
                found.into_iter().partition(|address| egress.allows(address.ip()));
            if allowed.is_empty() && !refused.is_empty() {
                return Err(Box::new(Refused { host }) as Box<dyn StdError + Send + Sync>);
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// The refusal that is the cause of an error, if it is one.
pub(super) fn refusal<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e Refused> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref() {
            return Some(refused);
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(url: &str) -> bool {
        Egress { allow_private: false }.check(&url.parse().unwrap()).is_ok()
    }

    #[test]
    fn addresses_within_are_refused_in_every_spelling() {
        for host in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.0.0.1",
            "0177.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:a00:1]",
            "[fd00::1]",
            "[fe80::1]",
            "[fec0::1]",
            "[ff02::1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
            "[2001:db8::1]",
            "[::7f00:1]",
            "[::ffff:0:7f00:1]",
            "[64:ff9b:1::7f00:1]",
            "[2001::1]",
            "[3fff::1]",
            "[100::1]",
            "[5f00::1]",
        ] {
            assert!(!allows(&format!("http://{host}/")), "{host}");
        }
    }

    #[test]
    fn public_addresses_and_names_pass_this_check() {
        for host in
            ["1.1.1.1", "172.32.0.1", "[2606:4700::1111]", "[64:ff9b::101:101]", "example.org", "localhost"]
        {
            assert!(allows(&format!("http://{host}/")), "{host}");
        }
    }

    #[tokio::test]
    async fn a_name_is_judged_by_its_addresses() {
        let resolve = |allow_private| Egress { allow_private }.resolve("localhost".parse().unwrap());
        let error = resolve(false).await.map(|_| ()).unwrap_err();
        assert!(refusal(&*error).is_some());
        assert!(resolve(true).await.unwrap().next().is_some());
    }
}
