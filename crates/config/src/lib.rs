//! Settings of the services, from environment variables (protocol section 9).
//!
//! A service declares each of its variables once, where it reads it: name, default and meaning. The
//! same declaration yields the typed value, the error that names variable, value and remedy, the
//! listing of `conveyor config` and the page `docs/configuration.md`.
//!
//! This crate reads no file except those that `NAME_FILE` variables name, writes none except private
//! ones on behalf of a first start, and never prints.

mod common;
mod private_file;
mod reader;
mod source;

pub use common::HostPort;
pub use private_file::make_private_file;
pub use reader::{Entry, Fault, Invalid, Kind, Origin, Reader};
pub use source::{Environment, Source, Variables};
