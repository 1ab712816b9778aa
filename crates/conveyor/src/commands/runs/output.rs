//! `conveyor runs output`: what a step produced, whole.

use super::args::Output;
use crate::{
    commands::run::pretty,
    failure::Failure,
    remote::{Platform, step_with_outputs},
};
use contract::{ErrorCode, RpcError, file::FileRef};
use std::io::Write;

/// Runs the command.
///
/// # Errors
/// [`Failure`], which decides the exit code.
pub(super) async fn output(args: &Output) -> Result<(), Failure> {
    let platform = Platform::find(&args.place)?;
    let run = platform.run(args.run).await?;
    let (path, outputs) = step_with_outputs(&run, &args.step).map_err(|error| platform.tell(&error))?;
    let Some(name) = &args.output else {
        let outputs = platform.all_whole(outputs).await?;
        let shown = pretty(&outputs)?;
        return platform.print(&outputs, || shown + "\n");
    };
    let Some(value) = outputs.get(name) else {
        let names: Vec<&str> = outputs.keys().map(String::as_str).collect();
        let message = format!("{path} has no output {name:?}; it has: {}", names.join(", "));
        return Err(platform.tell(&RpcError::new(ErrorCode::NotFound, message)));
    };
    match FileRef::of(value).filter(|file| !file.holds_value() && !platform.is_json()) {
        Some(file) => {
            let bytes = platform.file(&file.id).await?;
            Ok(std::io::stdout().lock().write_all(&bytes).map_err(anyhow::Error::from)?)
        }
        None => {
            let value = platform.whole(value).await?;
            platform.print(&value, || value.text().to_owned() + "\n")
        }
    }
}
