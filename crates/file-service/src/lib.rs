//! Files over HTTP: uploads and downloads are streamed, bytes lie on the local disk, the index in
//! the database (protocol sections 3 and 8).
//!
//! A file never changes after its upload: it is written under a draft's name, synced and renamed,
//! so a file that has an entry in the index is whole. Nothing here holds a file in memory.

mod disk;
mod error;
mod http;
mod service;
mod settings;
mod sweep;

pub use error::Error;
pub use service::Service;
pub use settings::{Settings, SweepSettings};
