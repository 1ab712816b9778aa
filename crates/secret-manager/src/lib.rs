//! Secrets, encrypted at rest and resolved over TCP (protocol sections 1 and 8).
//!
//! Values are sealed with XChaCha20-Poly1305 under the master key and bound to their workspace and
//! name, so that a row that is moved or renamed in the database does not open. They travel only
//! from `secret.put` to the store and from the store to `secret.resolve`; they are never listed,
//! logged or shown. This crate never stores a key beside what it seals, except where
//! [`load_or_create_key`] is told a file.

mod door;
mod error;
mod key;
mod seal;
mod service;
mod settings;

pub use error::Error;
pub use key::{MasterKey, load_or_create_key};
pub use service::Service;
pub use settings::Settings;
