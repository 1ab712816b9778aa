//! References in the inputs of a task are replaced by the values that they stand for.

use crate::RunFiles;
use contract::{
    ErrorCode, Json, RpcError, RunId,
    file::{self, FileRef},
};
use indexmap::IndexMap;
use std::collections::HashMap;

/// No reference is shorter.
const SHORTEST: usize = 120;

impl RunFiles {
    /// Puts values back into the inputs, at any depth, as far as all inputs together stay within
    /// `room` bytes: small values first. What does not fit, what holds plain bytes and what belongs
    /// to another run stays a reference. Inputs without references cost a search of their texts.
    ///
    /// # Errors
    /// `unavailable` (retryable) when file-service does not answer; `internal` when a file is not
    /// what its reference says.
    pub async fn resolve(
        &self,
        run_id: RunId,
        inputs: &mut IndexMap<String, Json>,
        room: usize,
    ) -> Result<(), RpcError> {
        let found = references(inputs);
        if found.is_empty() {
            return Ok(());
        }
        let taken: usize = inputs.values().map(|value| value.text().len()).sum();
        let mut room = room.saturating_sub(taken) as u64;
        let mut values: HashMap<String, String> = HashMap::new();
        for (file, uses) in found {
            let needs = file.size.saturating_mul(uses);
            if needs > room {
                tracing::debug!(event = "file_left_out", %run_id, file_id = file.id, size_bytes = file.size, "a value stays a reference: the task has no room for it");
                break;
            }
            match self.text(run_id, &file, file.size).await {
                Ok(text) => {
                    room -= needs;
                    values.insert(file.id, text);
                }
                Err(error) if error.code == ErrorCode::NotFound => {
                    tracing::warn!(event = "file_unknown", %run_id, file_id = file.id, "a reference names no file of the run; it stays as it is");
                }
                Err(error) => return Err(error),
            }
        }
        for value in inputs.values_mut() {
            let replaced = file::replace(value.text(), |file| values.get(&file.id).cloned());
            if let Some(replaced) = replaced.and_then(|text| Json::parse(text).ok()) {
                *value = replaced;
            }
        }
        Ok(())
    }
}

/// The files that hold values, each with how often it is used, the smallest first.
fn references(inputs: &IndexMap<String, Json>) -> Vec<(FileRef, u64)> {
    let mut found: HashMap<String, (FileRef, u64)> = HashMap::new();
    for value in inputs.values().filter(|value| value.text().len() >= SHORTEST) {
        for (_, file) in file::find(value.text()).filter(|(_, file)| file.holds_value()) {
            found.entry(file.id.clone()).or_insert((file, 0)).1 += 1;
        }
    }
    let mut found: Vec<_> = found.into_values().collect();
    found.sort_by(|(one, _), (other, _)| (one.size, &one.id).cmp(&(other.size, &other.id)));
    found
}
