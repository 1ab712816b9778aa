//! Whose address is judged when proxies stand between.

use super::AllowList;
use crate::Error;
use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

/// Peers whose word about the client's address is believed: `X-Forwarded-For` over HTTP, the PROXY
/// protocol over TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TrustProxy {
    /// Nobody's: the header is not read.
    #[default]
    Nobody,
    /// That of these addresses.
    Peers(AllowList),
}

/// `true`: loopback and private peers.
const LOCAL_PEERS: &str = "127.0.0.0/8,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,::1/128,fc00::/7";

impl FromStr for TrustProxy {
    type Err = Error;

    /// Reads `false`, `true` (loopback and private peers) or a list of addresses and CIDRs.
    fn from_str(text: &str) -> Result<Self, Error> {
        match text.trim() {
            "false" => Ok(Self::Nobody),
            "true" => LOCAL_PEERS.parse().map(Self::Peers),
            list => list.parse().map(Self::Peers),
        }
    }
}

impl TrustProxy {
    /// Is this peer's word believed?
    pub fn trusts(&self, peer: IpAddr) -> bool {
        match self {
            Self::Nobody => false,
            Self::Peers(trusted) => trusted.allows(peer),
        }
    }

    /// The one address to judge. `forwarded` are the values of all `X-Forwarded-For` lines in the
    /// order of the request; they are read from right to left up to the first hop that is not
    /// trusted.
    ///
    /// # Errors
    /// [`Error::ForwardedHop`] when a hop that has to be judged is no address: refuse the request.
    pub fn client_address<'h>(
        &self,
        peer: IpAddr,
        forwarded: impl IntoIterator<Item = &'h str>,
    ) -> Result<IpAddr, Error> {
        let mut judged = peer.to_canonical();
        let Self::Peers(trusted) = self else { return Ok(judged) };
        if !trusted.allows(judged) {
            return Ok(judged);
        }
        let lines: Vec<_> = forwarded.into_iter().filter(|line| !line.trim().is_empty()).collect();
        for hop in lines.iter().rev().flat_map(|line| line.rsplit(',')).map(str::trim) {
            judged = parse_hop(hop)
                .ok_or_else(|| Error::ForwardedHop { hop: hop.chars().take(64).collect() })?
                .to_canonical();
            if !trusted.allows(judged) {
                break;
            }
        }
        Ok(judged)
    }
}

/// `v4`, `v4:port`, `v6`, `[v6]` or `[v6]:port`.
fn parse_hop(hop: &str) -> Option<IpAddr> {
    if let Ok(address) = hop.parse::<IpAddr>() {
        return Some(address);
    }
    if let Some(inner) = hop.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse().ok().map(IpAddr::V6);
    }
    hop.parse::<SocketAddr>().ok().map(|socket| socket.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(trust: &str, peer: &str, lines: &[&str]) -> Option<String> {
        let trust: TrustProxy = trust.parse().unwrap();
        trust
            .client_address(peer.parse().unwrap(), lines.iter().copied())
            .ok()
            .map(|address| address.to_string())
    }

    #[test]
    fn matrix_of_trust_peer_and_header() {
        let none: &[&str] = &[];
        let one = &["203.0.113.7"][..];
        let three = &["203.0.113.7, 10.0.0.5, 10.0.0.6"][..];
        let spoofed = &["1.1.1.1, 203.0.113.7, 10.0.0.5"][..];
        let two_lines = &["1.1.1.1, 203.0.113.7", "10.0.0.5"][..];
        for (trust, peer, lines, wanted) in [
            // No trust: the header is not read.
            ("false", "10.0.0.1", none, "10.0.0.1"),
            ("false", "10.0.0.1", one, "10.0.0.1"),
            ("false", "10.0.0.1", three, "10.0.0.1"),
            ("false", "10.0.0.1", spoofed, "10.0.0.1"),
            ("false", "10.0.0.1", two_lines, "10.0.0.1"),
            // Trusted peer: the first untrusted hop from the right.
            ("10.0.0.0/8", "10.0.0.1", none, "10.0.0.1"),
            ("10.0.0.0/8", "10.0.0.1", one, "203.0.113.7"),
            ("10.0.0.0/8", "10.0.0.1", three, "203.0.113.7"),
            ("10.0.0.0/8", "10.0.0.1", spoofed, "203.0.113.7"),
            ("10.0.0.0/8", "10.0.0.1", two_lines, "203.0.113.7"),
            // Untrusted peer: the peer itself.
            ("10.0.0.0/8", "198.51.100.9", none, "198.51.100.9"),
            ("10.0.0.0/8", "198.51.100.9", one, "198.51.100.9"),
            ("10.0.0.0/8", "198.51.100.9", three, "198.51.100.9"),
            ("10.0.0.0/8", "198.51.100.9", spoofed, "198.51.100.9"),
            ("10.0.0.0/8", "198.51.100.9", two_lines, "198.51.100.9"),
        ] {
            assert_eq!(judged(trust, peer, lines).as_deref(), Some(wanted), "{trust} {peer} {lines:?}");
        }
    }

    #[test]
    fn true_trusts_loopback_and_private_peers_only() {
        for peer in
            ["127.0.0.1", "10.1.1.1", "172.16.0.1", "192.168.3.4", "::1", "fd00::1", "::ffff:10.1.1.1"]
        {
            assert_eq!(judged("true", peer, &["8.8.8.8"]).as_deref(), Some("8.8.8.8"), "{peer}");
        }
        assert_eq!(judged("true", "9.9.9.9", &["8.8.8.8"]).as_deref(), Some("9.9.9.9"));
    }

    #[test]
    fn when_all_hops_are_trusted_the_leftmost_is_judged() {
        assert_eq!(judged("true", "10.0.0.1", &["10.0.0.3, 10.0.0.2"]).as_deref(), Some("10.0.0.3"));
    }

    #[test]
    fn five_forms_of_a_hop_are_read() {
        for (hop, address) in [
            ("203.0.113.7", "203.0.113.7"),
            ("203.0.113.7:4711", "203.0.113.7"),
            ("2001:db8::7", "2001:db8::7"),
            ("[2001:db8::7]", "2001:db8::7"),
            ("[2001:db8::7]:4711", "2001:db8::7"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
        ] {
            assert_eq!(judged("true", "10.0.0.1", &[hop]).as_deref(), Some(address), "{hop}");
        }
    }

    #[test]
    fn hop_that_must_be_judged_and_is_garbage_refuses() {
        for line in
            ["unknown", "203.0.113.7,", "203.0.113.7, _hidden", "203.0.113.7, 10.0.0.5:x", "[10.0.0.5]"]
        {
            assert_eq!(judged("true", "10.0.0.1", &[line]), None, "{line}");
        }
        // Left of the judged hop nothing is read.
        assert_eq!(judged("true", "10.0.0.1", &["garbage, 203.0.113.7"]).as_deref(), Some("203.0.113.7"));
    }

    #[test]
    fn bad_list_is_named() {
        assert!(matches!("yes".parse::<TrustProxy>(), Err(Error::ListEntry { entry }) if entry == "yes"));
        assert!(matches!("".parse::<TrustProxy>(), Err(Error::EmptyList)));
    }
}
