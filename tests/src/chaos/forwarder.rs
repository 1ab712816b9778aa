//! One address in front of several, as a load balancer or a floating address is.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};
use tokio_util::sync::CancellationToken;

/// Where connections lead, and the token that ends those which were opened under it.
#[derive(Debug)]
struct Route {
    targets: Vec<u16>,
    open: CancellationToken,
}

/// Forwards connections of one local port to others in turn, past those that do not listen.
#[derive(Debug)]
pub struct Forwarder {
    port: u16,
    route: Arc<Mutex<Route>>,
    accepting: AbortHandle,
}

impl Forwarder {
    /// Listens on this port (0: a free one) for these.
    pub async fn start(port: u16, targets: Vec<u16>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.expect("the port is free");
        let port = listener.local_addr().expect("it listens").port();
        let route = Arc::new(Mutex::new(Route { targets, open: CancellationToken::new() }));
        let accepting = tokio::spawn(accept(listener, Arc::clone(&route))).abort_handle();
        Self { port, route, accepting }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts all connections; new ones lead to these ports.
    pub fn switch(&self, targets: Vec<u16>) {
        let route = Route { targets, open: CancellationToken::new() };
        let before = std::mem::replace(&mut *lock(&self.route), route);
        before.open.cancel();
    }

    /// Cuts all connections; new ones lead where the old ones led.
    pub fn cut(&self) {
        let mut route = lock(&self.route);
        std::mem::take(&mut route.open).cancel();
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.accepting.abort();
        lock(&self.route).open.cancel();
    }
}

fn lock(route: &Mutex<Route>) -> std::sync::MutexGuard<'_, Route> {
    route.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, route: Arc<Mutex<Route>>) {
    let turn = AtomicUsize::new(0);
    while let Ok((stream, _)) = listener.accept().await {
        let (targets, open) = {
            let route = lock(&route);
            let mut targets = route.targets.clone();
            let turn = turn.fetch_add(1, Ordering::Relaxed) % targets.len().max(1);
            targets.rotate_left(turn);
            (targets, route.open.clone())
        };
        tokio::spawn(open.run_until_cancelled_owned(forward(stream, targets)));
    }
}

/// Until one side closes. Nobody to be reached: the connection is closed, as a balancer does.
async fn forward(mut stream: TcpStream, targets: Vec<u16>) {
    for target in targets {
        if let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await {
            let _ = (stream.set_nodelay(true), server.set_nodelay(true));
            let _ = copy_bidirectional(&mut stream, &mut server).await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn listener() -> (TcpListener, u16) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    #[tokio::test]
    async fn a_switch_cuts_the_connections_and_leads_new_ones_elsewhere() {
        let ((first, first_port), (second, second_port)) = (listener().await, listener().await);
        let forwarder = Forwarder::start(0, vec![first_port]).await;
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, forwarder.port())).await.unwrap();
        let (mut server, _) = first.accept().await.unwrap();
        client.write_all(b"x").await.unwrap();
        assert_eq!(server.read_u8().await.unwrap(), b'x');

        forwarder.switch(vec![second_port]);
        assert_eq!(client.read(&mut [0]).await.unwrap_or(0), 0, "closed");
        let _client = TcpStream::connect((Ipv4Addr::LOCALHOST, forwarder.port())).await.unwrap();
        second.accept().await.unwrap();
    }

    #[tokio::test]
    async fn who_does_not_listen_is_passed_over() {
        let (gone, gone_port) = listener().await;
        drop(gone);
        let (there, there_port) = listener().await;
        let forwarder = Forwarder::start(0, vec![gone_port, there_port]).await;
        for _ in 0..2 {
            let _client = TcpStream::connect((Ipv4Addr::LOCALHOST, forwarder.port())).await.unwrap();
            there.accept().await.unwrap();
        }
    }
}
