//! Outputs that are too large for the history go to file-service before the report is decided about
//! (protocol section 3, *Large outputs*): events, states and tasks hold a reference instead.
//!
//! A report that is not larger costs a sum of lengths. One that is larger is answered only after its
//! values are stored; while file-service is away its reporter is told to try again.

use super::engine::Shared;
use crate::core::{Input, Outputs, StepOutputs};
use contract::{ErrorCode, ExecutionId, RpcError, RunId, run::RunStatus};
use futures::future::join_all;
use run_files::RunFiles;
use std::sync::Arc;
use storage::runs::AttemptPlace;

/// Room for names and quotation marks beside the values: outputs of just the limit shall pass.
const ENVELOPE_BYTES: usize = 1024;

/// What is done with outputs that are too large.
#[derive(Debug)]
pub(crate) struct LargeOutputs {
    files: RunFiles,
    inline_bytes: usize,
}

/// What a report says to its run, or why nothing can be said.
pub(crate) type Said = Result<(RunId, Input), RpcError>;

impl LargeOutputs {
    pub(crate) fn new(files: RunFiles, inline_bytes: usize) -> Self {
        Self { files, inline_bytes: inline_bytes.saturating_add(ENVELOPE_BYTES) }
    }

    /// Puts away what is too large in the reports of a batch.
    pub(crate) async fn put_away(&self, shared: &Shared, said: &mut [Said]) {
        let large = said.iter_mut().filter(|said| said.as_ref().is_ok_and(|(_, input)| self.is_large(input)));
        let work = large.map(|said| async move {
            let Ok((_, input)) = said else { return };
            if let Err(error) = self.shrink(shared, input).await {
                *said = Err(error);
            }
        });
        join_all(work).await;
    }

    /// Does a report bring more than may stand in the history?
    pub(crate) fn is_large(&self, input: &Input) -> bool {
        let bytes = match input {
            Input::Result(_, result, _) => result.outputs.bytes(),
            Input::Partial(_, partial) => partial.outputs.bytes(),
            _ => 0,
        };
        bytes > self.inline_bytes
    }

    /// Puts away what is too large in one report.
    ///
    /// # Errors
    /// What its reporter is told.
    pub(crate) async fn shrink(&self, shared: &Shared, input: &mut Input) -> Result<(), RpcError> {
        let Some((execution_id, outputs, is_result)) = outputs_of(input) else { return Ok(()) };
        outputs.respell();
        if outputs.bytes() <= self.inline_bytes {
            return Ok(());
        }
        let place = shared.storage.runs().place_of(execution_id).await;
        let place = place.map_err(|error| super::committer::unavailable(&error))?;
        // What is not waited for changes nothing, but that a late result is kept.
        let Some(place) = place.filter(|place| place.is_outstanding || place.status != RunStatus::Running)
        else {
            return Ok(());
        };
        let graph = match shared.graphs.get(place.process_id, place.process_revision).await {
            Ok(graph) => graph,
            Err(error) if error.retryable => return Err(error),
            // Whoever decides about the report says what is wrong.
            Err(_) => return Ok(()),
        };
        // Partial outputs flow nowhere.
        let may_go = |name: &str| !is_result || graph.may_lie_in_file(&place.node_path, name);
        for name in chosen(outputs.values(), self.inline_bytes, may_go) {
            self.put_one(&place, &name, outputs).await?;
        }
        Ok(())
    }

    /// One value becomes a reference. What file-service refuses for good stays in the history.
    async fn put_one(
        &self,
        place: &AttemptPlace,
        name: &str,
        outputs: &mut StepOutputs,
    ) -> Result<(), RpcError> {
        let Some(value) = outputs.values().get(name).cloned() else { return Ok(()) };
        let AttemptPlace { run_id, workspace_id, node_path, .. } = place;
        let title = format!("{node_path}.{name}.json");
        let stored = self.files.put(
            *run_id,
            (workspace_id, &title),
            contract::file::VALUE_TYPE,
            value.text().to_owned(),
        );
        match stored.await {
            Ok(file) => outputs.set(name, file.to_json()),
            Err(error) if error.retryable => {
                let message = format!(
                    "the step's large outputs cannot be kept now: {}; send the report again",
                    error.message
                );
                return Err(RpcError::new(ErrorCode::Unavailable, message));
            }
            Err(error) => {
                tracing::warn!(event = "output_not_put_away", %run_id, %node_path, output = name, size_bytes = value.text().len(), code = error.code.as_str(), "a large output stays in the history: {}", error.message);
            }
        }
        Ok(())
    }
}

/// The values that go, the largest first, until the rest fits.
fn chosen(outputs: &Outputs, inline_bytes: usize, may_go: impl Fn(&str) -> bool) -> Vec<String> {
    let mut left = size(outputs);
    let mut largest: Vec<(&String, usize)> =
        outputs.iter().map(|(name, value)| (name, value.text().len())).collect();
    // A stable sort: of equals the first goes.
    largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let mut going = Vec::new();
    for (name, bytes) in largest {
        if left <= inline_bytes || bytes <= ENVELOPE_BYTES {
            break;
        }
        if may_go(name) {
            left -= bytes;
            going.push(name.clone());
        }
    }
    going
}

/// The outputs that a report brings, of which attempt, and whether they end it.
fn outputs_of(input: &mut Input) -> Option<(ExecutionId, &mut StepOutputs, bool)> {
    match input {
        // Nobody else holds it yet.
        Input::Result(id, result, _) => Some((*id, Arc::make_mut(&mut result.outputs), true)),
        Input::Partial(id, partial) => Some((*id, &mut partial.outputs, false)),
        _ => None,
    }
}

fn size(outputs: &Outputs) -> usize {
    outputs.values().map(|value| value.text().len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::Json;

    fn outputs(sizes: &[(&str, usize)]) -> Outputs {
        let value = |bytes: usize| Json::of(&"x".repeat(bytes - 2)).unwrap();
        sizes.iter().map(|(name, bytes)| ((*name).to_owned(), value(*bytes))).collect()
    }

    #[test]
    fn the_largest_go_until_the_rest_fits() {
        let outputs = outputs(&[("a", 3_000), ("b", 9_000), ("c", 3_000), ("d", 100)]);
        assert_eq!(chosen(&outputs, 20_000, |_| true), [""; 0]);
        assert_eq!(chosen(&outputs, 7_000, |_| true), ["b"]);
        assert_eq!(chosen(&outputs, 4_000, |_| true), ["b", "a"]);
        assert_eq!(chosen(&outputs, 4_000, |name| name != "b"), ["a", "c"], "what may not go stays");
        assert_eq!(
            chosen(&outputs, 10, |_| true),
            ["b", "a", "c"],
            "a reference is not larger than its value"
        );
    }
}
