//! Variables that several services read, declared once, and the forms that many variables have.

use crate::{Kind, Reader};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    ops::RangeInclusive,
    time::Duration,
};

/// `host:port`, as a variable spells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// A name or an address, that one without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Reader<'_> {
    /// `CONVEYOR_INSECURE_DEV`: may the service start without keys and tokens?
    pub fn insecure_dev(&mut self) -> bool {
        self.flag(
            "CONVEYOR_INSECURE_DEV",
            false,
            "Start although keys and tokens are missing. Only for a machine of your own: doors without a key are open.",
        )
    }

    /// `CONVEYOR_BIND`: the address of every listener.
    pub fn bind_address(&mut self) -> IpAddr {
        let default = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        self.parsed("CONVEYOR_BIND", "address", default, "Address that every listener binds.", |text| {
            text.parse().map_err(|_| "is no IP address; use one such as 127.0.0.1 or ::".to_owned())
        })
    }

    /// A host: a name or an address, without scheme and port.
    pub fn host(&mut self, name: &'static str, default: &str, doc: &'static str) -> String {
        self.parsed(name, "host", default.to_owned(), doc, parse_host)
    }

    /// [`Reader::host`], where there may be none.
    pub fn optional_host(&mut self, name: &'static str, doc: &'static str) -> Option<String> {
        self.optional(name, "host", doc, parse_host)
    }

    /// A `host:port`; the default must be one.
    pub fn host_port(&mut self, name: &'static str, default: HostPort, doc: &'static str) -> HostPort {
        let example = default.clone();
        self.parsed(name, "host:port", default, doc, |text| {
            parse_host_port(text).ok_or_else(|| format!("is no host:port; write it like {example}"))
        })
    }

    /// An http(s) URL, without a slash at its end.
    pub fn base_url(&mut self, name: &'static str, default: &str, doc: &'static str) -> String {
        self.parsed(name, "URL", default.to_owned(), doc, |text| match is_base_url(text) {
            true => Ok(text.trim_end_matches('/').to_owned()),
            false => Err("is no http:// or https:// URL; write it like http://host:3000".to_owned()),
        })
    }

    /// A whole number within `range`.
    pub fn bounded(
        &mut self,
        name: &'static str,
        kind: Kind,
        default: usize,
        range: RangeInclusive<usize>,
        doc: &'static str,
    ) -> usize {
        self.parsed(name, kind, default, doc, |text| match text.parse() {
            Ok(number) if range.contains(&number) => Ok(number),
            _ => Err(format!("must be a whole number from {} to {}", range.start(), range.end())),
        })
    }

    /// A time that something may take, milliseconds: none at all would fail everything.
    pub fn positive_millis(&mut self, name: &'static str, default: u64, doc: &'static str) -> Duration {
        Duration::from_millis(self.parsed(name, "milliseconds", default, doc, |text| match text.parse() {
            Ok(millis) if millis > 0 => Ok(millis),
            _ => Err("is no time; use a whole number of milliseconds from 1 up".to_owned()),
        }))
    }
}

fn parse_host(text: &str) -> Result<String, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    match is_host(bare) {
        true => Ok(bare.to_owned()),
        false => Err("is no host; write a name or an address, without scheme and port".to_owned()),
    }
}

/// A name, or an address of either family.
fn is_host(text: &str) -> bool {
    let is_name = !text.is_empty()
        && text.len() <= 253
        && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
    is_name || text.parse::<IpAddr>().is_ok()
}

fn parse_host_port(text: &str) -> Option<HostPort> {
    let (host, port) = text.rsplit_once(':')?;
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = bracketed.unwrap_or(host);
    // Without brackets nobody knows which colon is meant.
    if !is_host(host) || bracketed.is_none() && host.contains(':') {
        return None;
    }
    Some(HostPort { host: host.to_owned(), port: port.parse().ok()? })
}

fn is_base_url(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")) else {
        return false;
    };
    let authority = rest.split('/').next().unwrap_or_default();
    let place = authority.rsplit('@').next().unwrap_or_default();
    let is_place = parse_host_port(place).is_some()
        || parse_host(place).is_ok() && !place.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6());
    is_place && text.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '?' | '#'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Variables;

    #[test]
    fn host_is_a_name_or_an_address_and_nothing_around_it() {
        for (text, host) in [
            ("runtime-engine", Some("runtime-engine")),
            ("a_b.example", Some("a_b.example")),
            ("::1", Some("::1")),
            ("[fd00::1]", Some("fd00::1")),
            ("10.0.0.7", Some("10.0.0.7")),
            ("tcp://engine", None),
            ("engine:3000", None),
            ("a b", None),
            ("user@engine", None),
            ("engine/", None),
        ] {
            assert_eq!(parse_host(text).ok().as_deref(), host, "{text}");
        }
    }

    #[test]
    fn host_and_port_are_both_needed_and_ipv6_stands_in_brackets() {
        for (text, shown) in [
            ("secret-manager:3000", Some("secret-manager:3000")),
            ("[::1]:0", Some("[::1]:0")),
            ("::1:3000", None),
            ("secret-manager", None),
            (":3000", None),
            ("a:port", None),
            ("a:65536", None),
            ("tcp://a:1", None),
        ] {
            assert_eq!(parse_host_port(text).map(|found| found.to_string()).as_deref(), shown, "{text}");
        }
    }

    #[test]
    fn base_url_has_a_scheme_and_a_host() {
        for good in [
            "http://a",
            "https://a.b:1/base",
            "http://[::1]:3000/",
            "http://user:pass@a:1",
            "http://10.0.0.1",
        ] {
            assert!(is_base_url(good), "{good}");
        }
        for wrong in [
            "",
            "a",
            "ftp://a",
            "http://",
            "http:///x",
            "http://a b",
            "http://a:x",
            "http://a?b",
            "http://::1",
        ] {
            assert!(!is_base_url(wrong), "{wrong}");
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_named_with_the_bounds() {
        let source = Variables::of([("A", "0"), ("B", "0"), ("CONVEYOR_BIND", "localhost")]);
        let mut reader = Reader::new(&source);
        assert_eq!(reader.bounded("A", "tasks", 7, 1..=9, ""), 7);
        assert_eq!(reader.positive_millis("B", 5, ""), Duration::from_millis(5));
        reader.bind_address();
        let faults = reader.finish().unwrap_err().to_string();
        for fault in [
            "A=\"0\": must be a whole number from 1 to 9",
            "B=\"0\": is no time",
            "CONVEYOR_BIND=\"localhost\": is no IP address",
        ] {
            assert!(faults.contains(fault), "{faults}");
        }
    }
}
