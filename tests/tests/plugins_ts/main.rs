//! The TypeScript example plugins against `conveyor up`, as users run them: each publishes itself,
//! and its nodes go from a trigger to a result; then what goes wrong between the two.
//!
//! They need the built examples (`make test` builds them).

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

mod check;
mod faults;
mod new;
mod nodes;
mod plugin;
#[path = "../examples/site.rs"]
mod site;
mod tls;
