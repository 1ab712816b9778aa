//! runtime-engine: starts runs, decides what runs next, and answers reporters once it is durable.

pub mod core;
mod service;

pub use service::{Deps, Error, Retention, Service, Settings, start};
