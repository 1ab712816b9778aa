//! Free ports.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, PoisonError};

use crate::Error;

/// Below the range from which systems take the local ports of outgoing connections: there, a client
/// that keeps connecting to a stopped server could get the server's port, or connect to itself.
/// Each port plus 10,000 is outside of that range too: Redis Cluster takes it for its bus.
const PORTS: std::ops::Range<u16> = 11_000..22_000;

/// What this process has given out, each port by a name that the system gives to one process at a
/// time. They are kept to its end: a server that is stopped finds its port again.
static CLAIMED: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());

/// A port of 127.0.0.1 that nobody listens on now, nor on the one 10,000 above, and that no other
/// call, in this process or in another that tests at the same time, gets while this process lives.
///
/// Use it for servers that need a fixed port because they restart on it or are told of it before
/// they start; everything else listens on port 0.
///
/// # Errors
/// [`Error::Missing`] if a thousand ports in a row are taken.
pub fn free_port() -> Result<u16, Error> {
    let count = u64::from(PORTS.end - PORTS.start);
    // A hasher of the standard library is seeded at random: other processes look elsewhere.
    let first = RandomState::new().hash_one(std::process::id());
    (0..1000)
        .map(|n| PORTS.start + (first.wrapping_add(n) % count) as u16)
        .find(|port| is_free(*port) && is_free(port + 10_000) && claim(*port))
        .ok_or_else(|| {
            Error::Missing(format!("no free port found between {} and {}", PORTS.start, PORTS.end))
        })
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Is the port ours from now on? An abstract socket needs no file and is gone with its process.
fn claim(port: u16) -> bool {
    let address = SocketAddr::from_abstract_name(format!("conveyor-testkit-port-{port}"));
    let Ok(claim) = address.and_then(|address| UnixDatagram::bind_addr(&address)) else { return false };
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).push(claim);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_port_that_is_listened_on_is_not_given_out() {
        let port = free_port().unwrap();
        assert!(PORTS.contains(&port));
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert!(!is_free(port));
    }

    #[test]
    fn no_port_is_given_out_twice_though_nobody_listens_on_it_yet() {
        let given: BTreeSet<u16> = (0..500).map(|_| free_port().unwrap()).collect();
        assert_eq!(given.len(), 500);
        assert!(given.iter().all(|port| !claim(*port)));
    }
}
