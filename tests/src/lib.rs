//! What the whole-system tests share: where our binaries are, a deployment of real processes, and
//! the platform as a user sees it.
//!
//! Helpers of tests: a failed `expect` is a failed test.

pub mod chaos;
pub mod deployment;
pub mod platform;
pub mod solo;
pub mod stub;

pub use deployment::Deployment;
pub use platform::Platform;
pub use solo::Solo;
pub use stub::StubPlugin;

use std::path::PathBuf;

/// A binary of this workspace, built beside the tests (`make test` builds it first).
pub fn binary(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let folder = own.parent().unwrap_or(&own);
    // A test is target/debug/deps/split-…, a benchmark target/release/….
    match folder.file_name() {
        Some(last) if last == "deps" => folder.with_file_name(name),
        _ => folder.join(name),
    }
}

/// The root of the repository.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A document of `examples/processes`.
pub fn example(name: &str) -> serde_json::Value {
    let path = root().join("examples/processes").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("an example is JSON")
}

/// Servers of a test's own.
#[derive(Debug)]
pub struct Servers {
    /// A database of its own on the suite's PostgreSQL.
    pub database_url: String,
    /// A Redis of its own: lanes of two deployments must not meet.
    pub redis: testkit::Redis,
}

/// Servers for one test; `None`: the suite runs without servers, and the test does not apply.
pub async fn servers() -> Option<Servers> {
    let database = testkit::server_url("TEST_DATABASE_URL")?;
    let database_url = testkit::fresh_database(&database).await.expect("a database");
    let redis = testkit::Redis::start().await.expect("a Redis");
    Some(Servers { database_url, redis })
}
