//! The service over real sockets, with scripted plugins, an embedded database and a queue within
//! the process.
#![allow(clippy::unwrap_used, reason = "tests")]

mod catalogue;
mod hand_out;
mod health;
mod http;
mod publication;
mod reconcile;
mod support;
mod tls;
mod trust;
mod versions;
