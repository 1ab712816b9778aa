//! Free ports.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

use crate::Error;

/// Below the range from which systems take the local ports of outgoing connections: there, a client
/// that keeps connecting to a stopped server could get the server's port, or connect to itself.
/// Each port plus 10,000 is outside of that range too: Redis Cluster takes it for its bus.
const PORTS: std::ops::Range<u16> = 11_000..22_000;

/// A port of 127.0.0.1 that nobody listens on now, nor on the one 10,000 above.
///
/// Somebody may take it before the caller does. Use it for servers that need a fixed port because
/// they restart on it; everything else listens on port 0.
///
/// # Errors
/// [`Error::Missing`] if a thousand ports in a row are taken.
pub fn free_port() -> Result<u16, Error> {
    let count = u64::from(PORTS.end - PORTS.start);
    // A hasher of the standard library is seeded at random: other processes look elsewhere.
    let first = RandomState::new().hash_one(std::process::id());
    (0..1000)
        .map(|n| PORTS.start + (first.wrapping_add(n) % count) as u16)
        .find(|port| is_free(*port) && is_free(port + 10_000))
        .ok_or_else(|| {
            Error::Missing(format!("no free port found between {} and {}", PORTS.start, PORTS.end))
        })
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_listened_on_is_not_given_out() {
        let port = free_port().unwrap();
        assert!(PORTS.contains(&port));
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert!(!is_free(port));
    }
}
