//! Values of a task's inputs that lie in file-service are brought back after the ack has won
//! (protocol section 3, *Large outputs*).

use contract::{report::StepError, task::Task};
use plugin_sdk::reporter::Backoff;
use run_files::RunFiles;
use std::time::Duration;

/// The most bytes of a step's inputs.
const INPUT_BYTES: usize = 64 * 1024 * 1024;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Tries until the step fails because its values cannot be had.
const TRIES: u32 = 8;

/// Puts the values in place of their references.
///
/// # Errors
/// `unavailable` when file-service stays away, `internal` when a file is damaged.
pub(crate) async fn fetch_values(files: &RunFiles, task: &mut Task) -> Result<(), StepError> {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut tries = 1;
    loop {
        match files.resolve(task.run_id, &mut task.inputs, INPUT_BYTES).await {
            Err(error) if error.retryable && tries < TRIES => {
                let pause = backoff.next_pause();
                tracing::warn!(
                    event = "values_retried",
                    execution_id = %task.execution_id,
                    retry_in_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                    "the inputs of a step cannot be had now; they are asked for again: {}",
                    error.message
                );
                tokio::time::sleep(pause).await;
                tries += 1;
            }
            fetched => {
                return fetched.map_err(|error| {
                    StepError::of(error.code, format!("an input of the step: {}", error.message))
                });
            }
        }
    }
}
