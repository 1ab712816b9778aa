//! The engine as a service: real sockets, a real database (SQLite always, PostgreSQL when
//! `TEST_DATABASE_URL` is set), and a worker that plays plugins and executors by script.

#![allow(clippy::unwrap_used, reason = "a test ends where its helper fails")]

mod bed;
mod faults;
mod large_outputs;
mod replicas;
mod reports;
mod retention;
mod runs;
mod waits;
