//! What crosses a boundary, as types: identifiers, error codes, plugin manifest, executor items,
//! tasks, reports, engine RPC, catalogue RPC and process documents, with their validation.
//!
//! This crate never does I/O, never reads a clock, never draws a random number and depends on no
//! other crate of ours. The rules come from `docs/protocol.md`; each item names its section.

pub mod builtin;
pub mod canonical;
pub mod catalogue;
pub mod check;
pub mod diff;
pub mod engine;
pub mod error;
pub mod file;
pub mod ids;
pub mod json;
pub mod manifest;
pub mod param;
pub mod pattern;
pub mod policy;
pub mod process;
pub mod report;
pub mod run;
pub mod schedule;
pub mod secret;
pub mod signature;
pub mod task;
pub mod time;
pub mod trace;

pub use check::{Fault, Warning};
pub use error::{ErrorCode, RpcError};
pub use ids::{Digest, ExecutionId, NodePath, ProcessId, PublicationId, RunId};
pub use json::Json;
pub use time::Millis;
