//! Address lists and forwarded addresses. The input is lines: an address list, a list of trusted
//! proxies, then lines of `X-Forwarded-For`.

use std::net::{IpAddr, Ipv4Addr};
use wire::{AllowList, Error, TrustProxy};

const PEERS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7))];

/// A list says the same after it is written and read again; an untrusted peer is judged as itself
/// whatever it says; a judged address is a trusted one only when all are.
pub(super) fn run(input: &[u8]) -> String {
    let text = String::from_utf8_lossy(input);
    let mut lines = text.split('\n');
    let mut told = String::new();
    match lines.next().unwrap_or_default().parse::<AllowList>() {
        Ok(list) => {
            let written = list.to_string();
            let again = written.parse::<AllowList>();
            assert!(again.is_ok_and(|again| again == list), "{written} says something else than it is");
            told += "list; ";
        }
        Err(error) => told += kind(&error),
    }
    let trust = match lines.next().unwrap_or_default().parse::<TrustProxy>() {
        Ok(trust) => trust,
        Err(error) => return told + kind(&error),
    };
    let forwarded: Vec<&str> = lines.collect();
    for peer in PEERS {
        match trust.client_address(peer, forwarded.iter().copied()) {
            Ok(judged) => {
                assert!(trust.trusts(peer) || judged == peer, "an untrusted peer is judged as {judged}");
                assert_eq!(judged, judged.to_canonical(), "a mapped address is judged");
                told += if judged == peer { "itself; " } else { "forwarded; " };
            }
            Err(error) => {
                assert!(trust.trusts(peer), "an untrusted peer's header was read");
                told += kind(&error);
            }
        }
    }
    told
}

fn kind(error: &Error) -> &'static str {
    match error {
        Error::EmptyList => "empty; ",
        Error::ListEntry { .. } => "entry; ",
        Error::ForwardedHop { .. } => "hop; ",
        Error::Bind { .. } => "bind; ",
        Error::Tls { .. } => "tls; ",
    }
}
