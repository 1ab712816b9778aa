//! The listeners that a plugin takes for plugin-manager and control plane. What they hear goes to
//! the script, which decides each answer.

use contract::{Json, pattern};
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use wire::{Handler, Reply, Request, Server, ServerConfig, TlsServer};

/// Messages that may wait for the script.
const BACKLOG: usize = 1024;

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct Heard {
    /// The canonical pattern.
    pub(super) pattern: pattern::Pattern,
    /// What was said.
    pub(super) data: Json,
    answer: oneshot::Sender<Reply>,
}

impl Heard {
    /// Answers. A heard message that is kept withholds its answer.
    pub(super) fn answer(self, reply: Reply) {
        // The plugin may have given up waiting.
        let _ = self.answer.send(reply);
    }
}

#[derive(Debug)]
struct Ear(mpsc::Sender<Heard>);

impl Handler for Ear {
    async fn call(&self, request: Request) -> Reply {
        let Some(pattern) = pattern::find(&request.pattern) else { return Reply::NoHandler };
        let (answer, answered) = oneshot::channel();
        if self.0.send(Heard { pattern, data: request.data, answer }).await.is_err() {
            return Reply::NoHandler;
        }
        answered.await.unwrap_or(Reply::NoHandler)
    }
}

/// Both listeners; they close when this is dropped.
#[derive(Debug)]
pub(super) struct Stage {
    /// Where the plugin publishes.
    pub(super) plugin_manager: SocketAddr,
    /// Where the plugin reports.
    pub(super) control_plane: SocketAddr,
    heard: mpsc::Receiver<Heard>,
    _stop: DropGuard,
}

impl Stage {
    /// Listens on the ports of plugin-manager and control plane.
    pub(super) fn open(
        address: IpAddr,
        [plugin_manager, control_plane]: [(u16, Option<TlsServer>); 2],
    ) -> Result<Self, wire::Error> {
        let (sender, heard) = mpsc::channel(BACKLOG);
        let ear = Arc::new(Ear(sender));
        let bind = |name, (port, tls)| {
            let config = ServerConfig { tls, ..ServerConfig::new(name, SocketAddr::new(address, port)) };
            Server::bind(config, Arc::clone(&ear))
        };
        let manager = bind("check-plugin-manager", plugin_manager)?;
        let plane = bind("check-control-plane", control_plane)?;
        let stop = CancellationToken::new();
        let (plugin_manager, control_plane) = (manager.local_addr(), plane.local_addr());
        tokio::spawn(manager.run(stop.clone(), stop.clone()));
        tokio::spawn(plane.run(stop.clone(), stop.clone()));
        Ok(Self { plugin_manager, control_plane, heard, _stop: stop.drop_guard() })
    }

    /// The next message, waited for so long.
    pub(super) async fn next(&mut self, limit: Duration) -> Option<Heard> {
        // Also a plugin that never stops talking comes to an end.
        if limit.is_zero() {
            return None;
        }
        tokio::time::timeout(limit, self.heard.recv()).await.ok().flatten()
    }
}
