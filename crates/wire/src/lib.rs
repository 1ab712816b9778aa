//! `NestJS` TCP framing (codec, server, client) and the gate that every door shares: address
//! allowlist, trusted proxies, credentials (protocol sections 1 and 9).
//!
//! The codec and packets are pure; [`server`] and [`client`] are the thin shell around them.
//! Payloads are carried as [`contract::Json`] text and never re-typed.

pub mod client;
pub mod codec;
pub mod gate;
pub mod http_listener;
pub mod neighbours;
pub mod packet;
pub mod server;
pub mod tls;

mod acceptor;
mod budget;
mod halves;
mod outbox;
mod reach;
mod secret;
mod socket;

pub use client::{CallError, Client, ClientConfig, Link, Sent};
pub use gate::{AllowList, Credentials, TrustProxy, Verdict, credential_in};
pub use http_listener::{HttpConfig, HttpLimits, HttpListener, HttpPeer};
pub use packet::RemoteError;
pub use reach::{OutOfReach, Reach};
pub use secret::{Payload, SecretJson};
pub use server::{Handler, Limits, LogGate, Peer, Refusal, Reply, Request, Server, ServerConfig, Stats};
pub use tls::{TlsClient, TlsServer};

use std::{io, net::SocketAddr};

/// What keeps a door from opening: faults of configuration and of binding.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The listener could not be bound.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// A list of addresses holds no entry. Empty is not the same as unset (protocol section 9).
    #[error("the address list is empty; name at least one address or CIDR, or leave it unset")]
    EmptyList,
    /// A certificate, key or list of authorities is of no use.
    #[error("the {what} cannot be used for TLS: {reason}")]
    Tls {
        /// `certificate`, `key`, `authorities`, `client authorities` or `configuration`.
        what: &'static str,
        /// What is wrong; never a part of a key.
        reason: String,
    },
    /// An entry of a list of addresses is neither an address nor a CIDR.
    #[error("`{entry}` is neither an IP address nor a CIDR such as `10.0.0.0/8`")]
    ListEntry {
        /// The entry as it was written.
        entry: String,
    },
    /// A forwarded address that has to be judged cannot be read; the request must be refused.
    #[error("the forwarded address `{hop}` is not an IP address")]
    ForwardedHop {
        /// The hop as it was sent, shortened.
        hop: String,
    },
}
