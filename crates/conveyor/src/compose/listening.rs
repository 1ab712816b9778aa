//! Where the services of this process listen.

use crate::services::ServiceName;
use contract::manifest::Endpoint;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// One bound listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listening {
    /// Whose it is.
    pub(crate) service: ServiceName,
    /// Which of its listeners: `http`, `tcp`, ….
    pub(crate) door: &'static str,
    /// As it was bound.
    pub(crate) address: SocketAddr,
    /// Does it speak HTTPS?
    pub(crate) is_https: bool,
}

impl Listening {
    /// Where this process reaches it: a listener on every address is reached over loopback.
    pub(crate) fn reachable(&self) -> SocketAddr {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        SocketAddr::new(ip, self.address.port())
    }

    /// [`Listening::reachable`], as settings carry it.
    pub(crate) fn endpoint(&self) -> Endpoint {
        let address = self.reachable();
        Endpoint { host: address.ip().to_string(), port: address.port() }
    }

    /// The base URL of an HTTP listener.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.is_https { "https" } else { "http" };
        format!("{scheme}://{}", self.reachable())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_every_address_is_reached_over_loopback() {
        let listening = |address: &str| Listening {
            service: ServiceName::Api,
            door: "http",
            address: address.parse().unwrap(),
            is_https: false,
        };
        assert_eq!(listening("0.0.0.0:1").url(), "http://127.0.0.1:1");
        assert_eq!(listening("[::]:1").url(), "http://[::1]:1");
        assert_eq!(Listening { is_https: true, ..listening("[::]:1") }.url(), "https://[::1]:1");
        assert_eq!(listening("10.0.0.1:1").endpoint().host, "10.0.0.1");
    }
}
