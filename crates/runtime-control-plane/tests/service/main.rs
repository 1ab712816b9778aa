//! The whole service over real sockets, with scripted neighbours: engine, plugins, secret-manager.
#![allow(clippy::unwrap_used, missing_docs)]

mod access;
mod dispatch;
mod executor_secrets;
mod files;
mod limits;
mod outcomes;
mod pages;
mod policy;
mod reports;
mod stop;
mod tls;
mod world;
