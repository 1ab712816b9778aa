//! The plugins' doors: one pooled client per endpoint, and what was learned about it.

use contract::manifest::Endpoint;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};
use wire::{Client, ClientConfig};

/// How long an unused client keeps its connection.
const IDLE: Duration = Duration::from_secs(10 * 60);

/// For how long it is remembered that a plugin takes events: another version of it may take requests,
/// whose answers say more.
const REMEMBERED: Duration = Duration::from_secs(5 * 60);

/// A plugin's door.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) endpoint: Endpoint,
    pub(super) client: Client,
    /// When it was found to have no handler for tasks as requests: they are sent as events (protocol
    /// section 1).
    takes_events: Mutex<Option<Instant>>,
}

impl Peer {
    pub(super) fn takes_events(&self) -> bool {
        self.takes_events.lock().is_some_and(|since| since.elapsed() < REMEMBERED)
    }

    /// Remembers how tasks are to be sent.
    pub(super) fn set_takes_events(&self, takes: bool) {
        let found = takes.then(Instant::now);
        if std::mem::replace(&mut *self.takes_events.lock(), found).is_none() && takes {
            tracing::info!(
                event = "plugin_takes_events",
                endpoint = %self.endpoint,
                "the plugin has no handler for tasks as requests; they are sent as events"
            );
        }
    }
}

/// All doors in use.
#[derive(Debug)]
pub(super) struct Endpoints {
    config: ClientConfig,
    peers: Mutex<HashMap<Endpoint, (Arc<Peer>, Instant)>>,
}

impl Endpoints {
    pub(super) fn new(config: ClientConfig) -> Self {
        Self { config, peers: Mutex::default() }
    }

    /// The door at `endpoint`; it connects at the first call.
    pub(super) fn get(&self, endpoint: &Endpoint) -> Arc<Peer> {
        let mut peers = self.peers.lock();
        if let Some((peer, used)) = peers.get_mut(endpoint) {
            *used = Instant::now();
            return Arc::clone(peer);
        }
        let peer = Arc::new(Peer {
            endpoint: endpoint.clone(),
            client: Client::new(endpoint.host.clone(), endpoint.port, self.config.clone()),
            takes_events: Mutex::new(None),
        });
        peers.insert(endpoint.clone(), (Arc::clone(&peer), Instant::now()));
        peer
    }

    /// Closes the doors that nobody has used for long and nobody waits at.
    pub(super) fn evict_idle(&self) {
        self.peers.lock().retain(|_, (peer, used)| Arc::strong_count(peer) > 1 || used.elapsed() < IDLE);
    }
}
