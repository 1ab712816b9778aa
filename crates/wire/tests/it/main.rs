//! The transport over real sockets.

// Helpers are test code too, which the lint's own exception does not see.
#![allow(clippy::unwrap_used)]

mod client;
mod common;
mod http_listener;
mod limits;
mod proxied;
mod server;
mod tls;
mod vectors;
