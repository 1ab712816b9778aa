//! The whole binary: what people and scripts see of it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod command;
mod configuration;
mod help;
mod plugin;
mod process;
mod run;
mod runs;
mod started;
mod up;
