//! Settings of the services, from environment variables (protocol section 9).
//!
//! A service declares each of its variables once, where it reads it: name, default and meaning. The
//! same declaration yields the typed value, the error that names variable, value and remedy, the
//! listing of `conveyor config` and the page `docs/configuration.md`.
//!
//! This crate never reads a file except the one that a `NAME_FILE` variable names, and never
//! prints.

mod common;
mod reader;
mod source;

pub use common::HostPort;
pub use reader::{Entry, Fault, Invalid, Kind, Origin, Reader};
pub use source::{Environment, Source, Variables};
