//! What the whole-system tests share: where our binaries are, and a deployment of real processes.

use std::path::PathBuf;

/// A binary of this workspace, built beside the tests (`make test` builds it first).
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    // target/debug/deps/system-… → target/debug/NAME
    test.ancestors().nth(2).unwrap_or(&test).join(name)
}

/// The root of the repository.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}
