//! Real servers and processes for tests: PostgreSQL, Redis and our own binaries, started on private
//! ports and in temporary folders, and gone when their value is dropped.
//!
//! For development only; no crate depends on it outside of its tests. Nothing here sleeps: it
//! waits for log lines and process ends, always with a limit.
//!
//! Linux only: processes are held by file descriptors of theirs (`pidfd`), so that no signal can
//! reach a stranger who got the same number.

mod clock;
mod database;
mod error;
pub mod memory;
mod output;
mod port;
mod postgres;
mod process;
mod redis;
mod tree;

pub use clock::Clock;
pub use database::fresh_database;
pub use error::Error;
pub use output::{Line, Stream};
pub use port::free_port;
pub use postgres::{Postgres, PostgresSettings};
pub use process::{Process, Program};
pub use redis::Redis;
pub use rustix::process::Signal;

/// The address of a server that the tests may use, from the environment variable `variable`
/// (`TEST_DATABASE_URL`, `TEST_REDIS_URL`, `TEST_REDIS_CLUSTER_URL`); `None` if it is not set, and
/// the test does not apply.
///
/// # Panics
/// If the variable is missing although `CI_SERVERS=1` promises servers: a suite that silently
/// tests nothing is worse than one that fails.
pub fn server_url(variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok().filter(|url| !url.is_empty());
    let promised = std::env::var("CI_SERVERS").is_ok_and(|value| value == "1");
    assert!(url.is_some() || !promised, "CI_SERVERS=1 is set, but {variable} is not");
    url
}
