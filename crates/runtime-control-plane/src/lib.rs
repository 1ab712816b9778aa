//! Control plane: the door between plugins and the engine.
//!
//! Reports of steps come in over TCP and HTTP, go through one report core and reach the engine in
//! batches; a reporter is answered after its report is durable (protocol sections 3 and 4). Tasks come
//! from the plugin lane, pass the policy, get their secrets and are delivered to plugins (sections 3,
//! 5 and 6); executors get the secrets of their own attempts (section 8). Nothing is kept that a
//! restart may lose: a task that was not delivered is the engine's sweep's, a report that was not
//! answered is its reporter's.

mod access;
mod batch;
mod dispatch;
mod engine;
mod error;
mod executor_secrets;
mod http;
mod metrics;
mod readiness;
mod reports;
mod retry;
mod secrets;
mod service;
mod settings;
mod tcp;

pub use error::Error;
pub use service::{Deps, Service};
pub use settings::{DispatchLimits, PluginsDefault, Settings};
