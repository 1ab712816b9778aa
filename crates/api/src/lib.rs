//! The platform's HTTP API (protocol section 8): processes, runs, plugins, secrets and files for
//! people, scripts and the editor, with an `OpenAPI` description of itself.
//!
//! The service keeps process documents and tokens in the store. Everything else is somebody else's:
//! runs belong to the engine, plugins to plugin-manager, secrets to secret-manager, bytes of files to
//! file-service, and the service only asks them. It never sees a secret's value again once it was
//! put, never decides about a run, and holds no state that a restart may lose.

mod app;
mod auth;
mod catalogue;
mod error;
mod http;
mod palettes;
mod rpc;
mod service;
mod settings;

pub use auth::token_hash;
pub use error::Error;
pub use http::openapi;
pub use service::Service;
pub use settings::Settings;
