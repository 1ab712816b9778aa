//! The executor over real sockets: a scripted control plane decides and takes the reports.

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

mod capacity;
mod files;
mod http;
mod secrets;
mod stage;
mod steps;
