//! Logs go to standard error; results of commands go to standard output.

mod flood;

use crate::failure::Failure;
use flood::Flood;
use std::io::IsTerminal;
use tracing_subscriber::{EnvFilter, Layer, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// Starts logging with `CONVEYOR_LOG` (a filter such as `info` or `warn,runtime_engine=debug`) and
/// `CONVEYOR_LOG_FORMAT` (`text` or `json`).
///
/// # Errors
/// When a variable cannot be understood.
pub(crate) fn start(default_level: &str) -> Result<(), Failure> {
    let filter = set("CONVEYOR_LOG").unwrap_or_else(|| default_level.to_owned());
    let filter = EnvFilter::try_new(&filter).map_err(|error| {
        Failure::invalid(format!("CONVEYOR_LOG={filter:?} is no log filter: {error}; use for example info"))
    })?;
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match set("CONVEYOR_LOG_FORMAT").as_deref() {
        None | Some("text") => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        Some("json") => lines.json().flatten_event(true).boxed(),
        Some(other) => {
            return Err(Failure::invalid(format!("CONVEYOR_LOG_FORMAT={other:?} is neither text nor json")));
        }
    };
    tracing_subscriber::registry().with(filter).with(Flood::default()).with(lines).init();
    Ok(())
}

fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.trim().is_empty())
}
