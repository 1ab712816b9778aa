//! Lists of addresses.

use crate::Error;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// The addresses that may connect. IPv4-mapped IPv6 addresses are judged as IPv4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowList(Vec<IpNet>);

impl AllowList {
    /// Every address of both families: the default.
    pub fn everyone() -> Self {
        Self(vec![
            Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0).into(),
            Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0).into(),
        ])
    }

    /// May this address connect?
    pub fn allows(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|net| net.contains(&address))
    }

    /// The one family that the list lets in, when it shuts the other out whole. An explicit
    /// `0.0.0.0/0` alone is IPv4 only: worth a line in the log.
    pub fn only_family(&self) -> Option<&'static str> {
        let v4 = self.0.iter().any(|net| matches!(net, IpNet::V4(_)));
        let v6 = self.0.iter().any(|net| matches!(net, IpNet::V6(_)));
        match (v4, v6) {
            (true, false) => Some("IPv4"),
            (false, true) => Some("IPv6"),
            _ => None,
        }
    }
}

impl Default for AllowList {
    fn default() -> Self {
        Self::everyone()
    }
}

/// Reads a comma-separated list of addresses and CIDRs. Spaces do not matter; an entry that is
/// neither, and a list without entries, are errors.
impl FromStr for AllowList {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.trim().is_empty() {
            return Err(Error::EmptyList);
        }
        text.split(',').map(|entry| parse_net(entry.trim())).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for AllowList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, net) in self.0.iter().enumerate() {
            write!(f, "{}{net}", if index > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// An address or a CIDR; a mapped network becomes the IPv4 network that it maps.
fn parse_net(entry: &str) -> Result<IpNet, Error> {
    let net = entry
        .parse::<IpNet>()
        .or_else(|_| entry.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| Error::ListEntry { entry: entry.to_owned() })?;
    match net {
        IpNet::V6(v6) if v6.prefix_len() >= 96 => match v6.addr().to_ipv4_mapped() {
            Some(v4) => Ok(Ipv4Net::new(v4, v6.prefix_len() - 96).map_or(net, IpNet::V4).trunc()),
            None => Ok(net.trunc()),
        },
        _ => Ok(net.trunc()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> AllowList {
        text.parse().unwrap()
    }

    fn allows(text: &str, address: &str) -> bool {
        list(text).allows(address.parse().unwrap())
    }

    #[test]
    fn default_lets_both_families_in() {
        for address in ["10.1.2.3", "::1", "2001:db8::1", "::ffff:10.1.2.3"] {
            assert!(AllowList::default().allows(address.parse().unwrap()), "{address}");
        }
        assert_eq!(AllowList::default().only_family(), None);
    }

    #[test]
    fn mapped_addresses_are_judged_as_ipv4() {
        assert!(allows("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(!allows("10.0.0.0/8", "::ffff:11.1.2.3"));
        assert!(!allows("::/0", "::ffff:10.1.2.3"));
        assert!(allows("::ffff:10.0.0.0/104", "10.1.2.3"));
    }

    #[test]
    fn one_family_alone_shuts_the_other_out() {
        assert!(!allows("0.0.0.0/0", "2001:db8::1"));
        assert_eq!(list("0.0.0.0/0").only_family(), Some("IPv4"));
        assert_eq!(list("::/0").only_family(), Some("IPv6"));
    }

    #[test]
    fn single_addresses_and_spaces_are_accepted() {
        assert!(allows(" 192.168.1.7 , fd00::/8", "192.168.1.7"));
        assert!(!allows("192.168.1.7,fd00::/8", "192.168.1.8"));
        assert_eq!(list("10.1.2.3/8").to_string(), "10.0.0.0/8");
    }

    #[test]
    fn one_bad_entry_refuses_the_list_and_is_named() {
        for (text, entry) in [
            ("10.0.0.0/8,10.0.0.0/33", "10.0.0.0/33"),
            ("10.0.0.0/8,,::1", ""),
            ("localhost", "localhost"),
            ("10.0.0.0/8,", ""),
            ("10.0.0", "10.0.0"),
        ] {
            match text.parse::<AllowList>() {
                Err(Error::ListEntry { entry: named }) => assert_eq!(named, entry, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn empty_is_not_unset() {
        for text in ["", "  "] {
            assert!(matches!(text.parse::<AllowList>(), Err(Error::EmptyList)));
        }
    }
}
