//! The PROXY protocol header. The input is the beginning of a connection.

use wire::gate::{ProxyHeaderError, parse_proxy_header};

/// A header is read from exactly its bytes: every shorter prefix asks for more, what follows changes
/// nothing.
pub(super) fn run(input: &[u8]) -> String {
    match parse_proxy_header(input) {
        Ok(Some((client, length))) => {
            assert!(length <= input.len(), "a header of {length} bytes was read from {}", input.len());
            let header = input.get(..length).unwrap_or_default();
            assert_eq!(
                parse_proxy_header(header),
                Ok(Some((client, length))),
                "what follows changes the header"
            );
            let shorter = header.get(..length.saturating_sub(1)).unwrap_or_default();
            assert_eq!(parse_proxy_header(shorter), Ok(None), "a part of a header is a header");
            match client {
                Some(client) if client.is_ipv4() => "IPv4".to_owned(),
                Some(_) => "IPv6".to_owned(),
                None => "local".to_owned(),
            }
        }
        Ok(None) => "more".to_owned(),
        Err(ProxyHeaderError::Signature) => "no signature".to_owned(),
        Err(ProxyHeaderError::Command(_)) => "command".to_owned(),
        Err(ProxyHeaderError::Family(_)) => "family".to_owned(),
        Err(ProxyHeaderError::Length { .. }) => "length".to_owned(),
    }
}
