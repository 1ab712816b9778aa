//! The API over real sockets, between a real store and scripted neighbours.

mod access;
mod neighbours;
mod processes;
mod runs;
mod things;
mod world;
