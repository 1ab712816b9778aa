//! Socket options: what the standard library does not set.

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::{io, net::SocketAddr, time::Duration};
use tokio::net::{TcpListener, TcpStream};

/// Dead peers are found within this time (protocol section 3, "Task").
const DEAD_PEER: Duration = Duration::from_secs(30);

/// Connections that the kernel completes before they are accepted.
const BACKLOG: i32 = 1024;

/// No delay, and dead peers found by keepalive (when idle) or unacknowledged data within 30 s.
pub(crate) fn tune(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    let probes = TcpKeepalive::new().with_time(DEAD_PEER / 3).with_interval(DEAD_PEER / 6).with_retries(4);
    socket.set_tcp_keepalive(&probes)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(DEAD_PEER))?;
    Ok(())
}

/// A listener. An unspecified IPv6 address takes IPv4 too.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}
