//! The API over real sockets, between a real store and scripted neighbours.
#![allow(clippy::unwrap_used, reason = "tests")]

mod access;
mod neighbours;
mod processes;
mod runs;
mod things;
mod world;
