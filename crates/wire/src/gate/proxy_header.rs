//! PROXY protocol version 2: the header with which a proxy names the client of a TCP connection
//! (`proxy-protocol.txt` of `HAProxy`, section 2.2). Pure: bytes in, address out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of the fixed part.
pub(crate) const FIXED_BYTES: usize = 16;

/// Most bytes that may follow: both addresses, and extensions (TLVs), which are skipped.
pub(crate) const MAX_REST_BYTES: usize = 4096;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes of both addresses and ports.
const V4_BYTES: usize = 12;
const V6_BYTES: usize = 36;

/// Why a header is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderError {
    /// Another protocol, or a client that came past the proxy's own configuration.
    #[error("the connection of a trusted proxy does not begin with a PROXY protocol v2 header")]
    Signature,
    /// A version or command that does not exist.
    #[error("the PROXY header has the version and command {0:#04x}; 0x20 (LOCAL) and 0x21 (PROXY) are known")]
    Command(u8),
    /// Neither TCP over IPv4 nor over IPv6: there is no address to judge.
    #[error(
        "the PROXY header has the family and protocol {0:#04x}; 0x11 (TCP4) and 0x21 (TCP6) are accepted"
    )]
    Family(u8),
    /// Too long, or too short for its addresses.
    #[error("the PROXY header announces {actual} bytes; {least} to {MAX_REST_BYTES} are accepted")]
    Length {
        /// Fewest bytes for this family.
        least: usize,
        /// Announced bytes.
        actual: usize,
    },
}

/// The fixed part of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fixed {
    kind: Kind,
    /// Bytes that follow.
    pub(crate) rest_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The proxy speaks for itself, such as to see whether the server is alive.
    Local,
    Tcp4,
    Tcp6,
}

impl Kind {
    fn least_bytes(self) -> usize {
        match self {
            Self::Local => 0,
            Self::Tcp4 => V4_BYTES,
            Self::Tcp6 => V6_BYTES,
        }
    }
}

impl Fixed {
    /// Reads the first bytes of a connection.
    pub(crate) fn parse(bytes: &[u8; FIXED_BYTES]) -> Result<Self, ProxyHeaderError> {
        let [signature @ .., command, family, high, low] = bytes;
        if *signature != SIGNATURE {
            return Err(ProxyHeaderError::Signature);
        }
        let kind = match (*command, *family) {
            // What a LOCAL header says about addresses has to be ignored.
            (0x20, _) => Kind::Local,
            (0x21, 0x11) => Kind::Tcp4,
            (0x21, 0x21) => Kind::Tcp6,
            (0x21, family) => return Err(ProxyHeaderError::Family(family)),
            (command, _) => return Err(ProxyHeaderError::Command(command)),
        };
        let (least, actual) = (kind.least_bytes(), usize::from(u16::from_be_bytes([*high, *low])));
        if actual < least || actual > MAX_REST_BYTES {
            return Err(ProxyHeaderError::Length { least, actual });
        }
        Ok(Self { kind, rest_bytes: actual })
    }

    /// The client's address, from the bytes that follow; `None` when the proxy speaks for itself.
    pub(crate) fn client(self, rest: &[u8]) -> Result<Option<SocketAddr>, ProxyHeaderError> {
        let short = ProxyHeaderError::Length { least: self.kind.least_bytes(), actual: rest.len() };
        let client = match self.kind {
            Kind::Local => return Ok(None),
            Kind::Tcp4 => rest.first_chunk::<V4_BYTES>().map(|bytes| {
                let [a, b, c, d, _, _, _, _, high, low, _, _] = *bytes;
                let port = u16::from_be_bytes([high, low]);
                SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), port)
            }),
            Kind::Tcp6 => rest.first_chunk::<V6_BYTES>().and_then(|bytes| {
                let address = Ipv6Addr::from(*bytes.first_chunk::<16>()?);
                let port = u16::from_be_bytes(*bytes.get(32..)?.first_chunk::<2>()?);
                Some(SocketAddr::new(IpAddr::V6(address), port))
            }),
        };
        client.map(Some).ok_or(short)
    }
}

/// Reads a whole header at the front of `bytes`: the client it names (`None`: the proxy itself) and
/// the header's length; `None` when more bytes are needed.
///
/// # Errors
/// See [`ProxyHeaderError`].
pub fn parse_proxy_header(bytes: &[u8]) -> Result<Option<(Option<SocketAddr>, usize)>, ProxyHeaderError> {
    let Some(first) = bytes.first_chunk::<FIXED_BYTES>() else { return Ok(None) };
    let fixed = Fixed::parse(first)?;
    let end = FIXED_BYTES + fixed.rest_bytes;
    match bytes.get(FIXED_BYTES..end) {
        Some(rest) => Ok(Some((fixed.client(rest)?, end))),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    const V4: [u8; V4_BYTES] = [203, 0, 113, 7, 10, 0, 0, 1, 0x12, 0x67, 0, 80];

    fn v6() -> Vec<u8> {
        let client: Ipv6Addr = "2001:db8::7".parse().unwrap();
        [&client.octets()[..], &Ipv6Addr::LOCALHOST.octets(), &[0x12, 0x67, 0, 80]].concat()
    }

    #[test]
    fn both_families_name_the_client() {
        let v4 = header(0x21, 0x11, &V4);
        assert_eq!(parse_proxy_header(&v4), Ok(Some((Some("203.0.113.7:4711".parse().unwrap()), 28))));
        let v6 = header(0x21, 0x21, &v6());
        assert_eq!(parse_proxy_header(&v6), Ok(Some((Some("[2001:db8::7]:4711".parse().unwrap()), 52))));
    }

    #[test]
    fn extensions_are_skipped_and_what_follows_is_left() {
        let mut bytes = header(0x21, 0x11, &[&V4[..], &[4, 0, 3, 1, 2, 3]].concat());
        bytes.extend(b"36#");
        assert!(matches!(parse_proxy_header(&bytes), Ok(Some((Some(_), 34)))));
    }

    #[test]
    fn local_header_names_nobody_whatever_it_carries() {
        for (family, rest) in [(0, &[][..]), (0x11, &V4[..]), (0xff, &[1, 2, 3][..])] {
            let bytes = header(0x20, family, rest);
            assert_eq!(parse_proxy_header(&bytes), Ok(Some((None, bytes.len()))));
        }
    }

    #[test]
    fn every_prefix_needs_more() {
        for bytes in [header(0x21, 0x11, &V4), header(0x21, 0x21, &v6())] {
            for end in 0..bytes.len() {
                assert_eq!(parse_proxy_header(&bytes[..end]), Ok(None), "{end}");
            }
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let short = header(0x21, 0x21, &V4);
        let long = header(0x21, 0x11, &vec![0; MAX_REST_BYTES + 1]);
        for (bytes, error) in [
            (b"PROXY TCP4 203.0.113.7 10.0.0.1".to_vec(), ProxyHeaderError::Signature),
            (b"36#{\"pattern\":\"echo\"}".to_vec(), ProxyHeaderError::Signature),
            (header(0x11, 0x11, &V4), ProxyHeaderError::Command(0x11)),
            (header(0x22, 0x11, &V4), ProxyHeaderError::Command(0x22)),
            (header(0x21, 0, &[]), ProxyHeaderError::Family(0)),
            (header(0x21, 0x12, &V4), ProxyHeaderError::Family(0x12)),
            (header(0x21, 0x31, &[0; 216]), ProxyHeaderError::Family(0x31)),
            (short, ProxyHeaderError::Length { least: V6_BYTES, actual: V4_BYTES }),
            (long, ProxyHeaderError::Length { least: V4_BYTES, actual: MAX_REST_BYTES + 1 }),
        ] {
            assert_eq!(parse_proxy_header(&bytes), Err(error));
        }
    }
}
