//! plugin-manager: takes publications of plugins, keeps the catalogue, hands out manifests, watches
//! the plugins' health (`docs/protocol.md`, sections 1, 3, 6 and 9).
//!
//! - [`Settings`] are its variables, [`Service`] is the service.
//! - One pipeline (`publication`) serves plugins that publish themselves and the reconcile at start.
//! - One snapshot of the catalogue (`view`) serves all calls; notices make it fast, polling makes it
//!   sure.
//! - It executes nothing and stops nothing: health and removal only keep new tasks away.

mod documents;
mod door;
mod error;
mod hand_out;
mod health;
mod http;
mod metrics;
mod publication;
mod reconcile;
mod service;
mod settings;
mod tokens;
mod view;

pub use error::Error;
pub use publication::trust::SigningKeys;
pub use service::Service;
pub use settings::{AssetLimits, HealthSettings, Settings, Thresholds};
