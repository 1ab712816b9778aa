//! The executor: takes tasks of the built-in nodes from the executor lane, does them, and reports
//! through the control plane (protocol sections 5 and 7).
//!
//! It reaches neither the database nor the engine nor secret-manager: also the secrets of its steps
//! come through the control plane. Values that are too large for a task come from file-service. A lane is a hint, so several
//! executors may take one task: each says in its ack who it is, and only the one whose ack counts
//! does the work.

mod error;
mod held;
mod inputs;
mod nodes;
mod secrets;
mod service;
mod settings;
mod take;

pub use error::Error;
pub use service::Service;
pub use settings::Settings;
