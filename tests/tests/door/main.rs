//! The doors of the real binary: what they refuse to start with, what `NestJS` clients and plugins see
//! at them, and what becomes of work when one of two control planes dies.

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

mod answers;
mod configuration;
mod neighbours;
mod nest;
mod plugins;
mod secrets;
mod start;
mod trace;

use std::time::Duration;

/// What nothing takes: a hanging test fails instead.
const PATIENCE: Duration = Duration::from_secs(60);
