//! Where a client may go whose URL somebody else wrote. A name is judged by the addresses that are then
//! connected to, so a name that changes its mind between check and use gains nothing.

use crate::gate::is_public;
use std::{
    error::Error,
    net::{IpAddr, SocketAddr},
};

/// Judges the places that a client is led to.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// May it be led to loopback, private and link-local places?
    pub allow_private: bool,
    /// The variable that says so, for the refusal.
    pub setting: &'static str,
}

/// The place is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{host} leads to a loopback, private or link-local address, where requests may not go ({setting})")]
pub struct OutOfReach {
    host: String,
    setting: &'static str,
}

impl OutOfReach {
    /// The refusal that is the cause of an error, if it is one.
    pub fn find<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(refused) = error.downcast_ref() {
                return Some(refused);
            }
            cause = error.source();
        }
        None
    }
}

impl Reach {
    /// Judges the host of a URL where it is written as an address (IPv6 in brackets); names are judged
    /// when they are resolved.
    ///
    /// # Errors
    /// [`OutOfReach`] names the host and the setting.
    pub fn check(self, host: &str) -> Result<(), OutOfReach> {
        match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(address) if !self.allows(address) => Err(self.refusal(host)),
            _ => Ok(()),
        }
    }

    /// The addresses of a name that may be connected to.
    ///
    /// # Errors
    /// [`OutOfReach`] when it has none but forbidden ones, else why the name cannot be resolved.
    pub async fn resolve(self, host: &str) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
        let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
        let (allowed, forbidden): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|address| self.allows(address.ip()));
        match allowed.is_empty() && !forbidden.is_empty() {
            true => Err(self.refusal(host).into()),
            false => Ok(allowed),
        }
    }

    fn allows(self, address: IpAddr) -> bool {
        self.allow_private || is_public(address)
    }

    fn refusal(self, host: &str) -> OutOfReach {
        OutOfReach { host: host.to_owned(), setting: self.setting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(allow_private: bool) -> Reach {
        Reach { allow_private, setting: "THE_SETTING" }
    }

    #[tokio::test]
    async fn a_name_is_judged_by_its_addresses() {
        let error = reach(false).resolve("localhost").await.unwrap_err();
        assert!(OutOfReach::find(&*error).is_some_and(|refused| refused.to_string().contains("THE_SETTING")));
        assert!(!reach(true).resolve("localhost").await.unwrap().is_empty());
    }

    #[test]
    fn a_host_that_is_an_address_is_judged_as_written() {
        for host in ["127.0.0.1", "[::1]", "10.0.0.1"] {
            assert!(reach(false).check(host).is_err() && reach(true).check(host).is_ok(), "{host}");
        }
        assert!(reach(false).check("1.1.1.1").is_ok() && reach(false).check("localhost").is_ok());
    }
}
