//! Plugins for Conveyor in Rust: declare typed nodes, write async functions, and let `main` call one
//! function.
//!
//! ```no_run
//! use plugin_sdk::{Node, Param, Plugin};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Deserialize)]
//! struct Text { text: String }
//!
//! #[derive(Serialize)]
//! struct Counted { words: usize }
//!
//! #[tokio::main]
//! async fn main() -> std::process::ExitCode {
//!     Plugin::new("text-tools", "0.1.0")
//!         .label("Text tools")
//!         .node(
//!             Node::new("plugin.text-tools.count", "Count words")
//!                 .input(Param::textarea("text").label("Text").port().required())
//!                 .output(Param::number("words").label("Words"))
//!                 .run(|input: Text, _context| async move {
//!                     Ok(Counted { words: input.text.split_whitespace().count() })
//!                 }),
//!         )
//!         .serve_from_env()
//!         .await
//! }
//! ```
//!
//! What the platform may rely on is done here: publication with retries, batch pull, delivery,
//! acknowledgement, heartbeats, results that are sent until they are answered, and draining on
//! SIGTERM (protocol sections 3 and 4). [`worker`] and [`reporter`] are the parts of it that the
//! platform's own executor uses too.

mod backoff;
mod context;
mod door;
mod error;
mod failure;
mod http;
mod input;
mod node;
mod param;
mod plugin;
mod publish;
pub mod reporter;
mod settings;
mod steps;
mod ui;
pub mod worker;

pub use context::Context;
pub use contract::{ErrorCode, Json};
pub use error::Error;
pub use failure::Failure;
pub use input::Values;
pub use node::{Node, RunnableNode};
pub use param::Param;
pub use plugin::{BoundPlugin, Plugin};
pub use settings::{PluginSettings, PublicationSettings, StepSettings};
pub use ui::Form;
