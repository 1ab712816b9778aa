//! What people call things: names and labels where they are unambiguous, ids always.

use super::Platform;
use crate::{
    client::{ImportedProcess, RunFull, Step},
    document::printable,
    failure::Failure,
};
use contract::{ErrorCode, Json, ProcessId, RpcError, RunId, run::NodeStatus};
use indexmap::IndexMap;

/// Names that a message lists at most.
const LISTED: usize = 10;

impl Platform {
    /// The process that is meant by an id or a name.
    ///
    /// # Errors
    /// Told: that there is none, or several.
    pub(crate) async fn process(&self, meant: &str) -> Result<ProcessId, Failure> {
        if let Ok(id) = meant.parse() {
            return Ok(id);
        }
        let processes = self.told(self.client.processes().await)?;
        by_name(&processes, meant).map_err(|error| self.tell(&error))
    }

    /// A run with its steps.
    ///
    /// # Errors
    /// Told: that there is none.
    pub(crate) async fn run(&self, run_id: RunId) -> Result<RunFull, Failure> {
        self.read(&self.get(&format!("/runs/{run_id}")).await?)
    }
}

fn by_name(processes: &[ImportedProcess], name: &str) -> Result<ProcessId, RpcError> {
    let found: Vec<_> = processes.iter().filter(|process| process.name == name).collect();
    match found.as_slice() {
        [one] => Ok(one.id),
        [] => Err(RpcError::new(
            ErrorCode::NotFound,
            format!(
                "no process has the name {name:?}; there are: {}",
                list(processes.iter().map(|p| format!("{:?}", p.name)))
            ),
        )),
        several => Err(RpcError::new(
            ErrorCode::InvalidRequest,
            format!(
                "{} processes have the name {name:?}; say which by its id: {}",
                several.len(),
                list(several.iter().map(|process| process.id.to_string()))
            ),
        )),
    }
}

/// The path and outputs of the step that is meant by a path, a widget's id or a label, among those that
/// have outputs.
///
/// # Errors
/// That there is none, or several.
pub(crate) fn step_with_outputs<'r>(
    run: &'r RunFull,
    meant: &str,
) -> Result<(&'r str, &'r IndexMap<String, Json>), RpcError> {
    let have = run.steps.iter().filter_map(|step| Some((step, step.outputs.as_ref()?)));
    let is_meant = |step: &Step| {
        step.node_path == meant || step.label == meant || step.node_path.rsplit('/').next() == Some(meant)
    };
    let found: Vec<_> = have.clone().filter(|(step, _)| is_meant(step)).collect();
    let named = |step: &Step| format!("{:?} ({})", step.label, step.node_path);
    let exact = found.iter().find(|(step, _)| step.node_path == meant);
    match (exact, found.as_slice()) {
        (Some((step, outputs)), _) | (None, [(step, outputs)]) => Ok((&step.node_path, outputs)),
        (None, []) => Err(RpcError::new(
            ErrorCode::NotFound,
            format!(
                "no step {meant:?} of run {} shows outputs; there are: {}",
                run.run.id,
                list(have.map(|(step, _)| named(step)))
            ),
        )),
        (None, several) => Err(RpcError::new(
            ErrorCode::InvalidRequest,
            format!(
                "{} steps are called {meant:?}; say which by its path: {}",
                several.len(),
                list(several.iter().map(|(step, _)| named(step)))
            ),
        )),
    }
}

/// The path of the step that is meant by a path, a widget's id or a label, among those that wait.
///
/// # Errors
/// That there is none, or several.
pub(crate) fn waiting_step(run: &RunFull, meant: &str) -> Result<String, RpcError> {
    let waits =
        |step: &&Step| step.status == NodeStatus::Running && step.node_type == contract::builtin::VALIDATION;
    // The platform judges a path itself: the step may have been answered, or not be reached yet.
    if run.steps.iter().any(|step| step.node_path == meant) {
        return Ok(meant.to_owned());
    }
    let is_meant = |step: &&Step| step.label == meant || step.node_path.rsplit('/').next() == Some(meant);
    let found: Vec<_> = run.steps.iter().filter(waits).filter(is_meant).collect();
    let named = |step: &Step| format!("{:?} ({})", step.label, step.node_path);
    match found.as_slice() {
        [one] => Ok(one.node_path.clone()),
        [] => Err(RpcError::new(
            ErrorCode::NotFound,
            format!(
                "no step {meant:?} of run {} waits for a person; waiting are: {}",
                run.run.id,
                list(run.steps.iter().filter(waits).map(named))
            ),
        )),
        several => Err(RpcError::new(
            ErrorCode::InvalidRequest,
            format!(
                "several steps are meant by {meant:?}; say which by its path: {}",
                list(several.iter().map(|step| named(step)))
            ),
        )),
    }
}

fn list(names: impl Iterator<Item = String>) -> String {
    let mut names: Vec<_> = names.map(|name| printable(&name)).collect();
    let more = names.len().saturating_sub(LISTED);
    names.truncate(LISTED);
    match (names.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (false, 0) => names.join(", "),
        (false, more) => format!("{} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn processes(names: &[&str]) -> Vec<ImportedProcess> {
        let process = |(place, name): (usize, &&str)| ImportedProcess {
            id: ProcessId(uuid::Uuid::from_u128(place as u128)),
            name: (*name).to_owned(),
        };
        names.iter().enumerate().map(process).collect()
    }

    #[test]
    fn a_name_is_enough_where_only_one_process_has_it() {
        let all = processes(&["a", "b", "b"]);
        assert_eq!(by_name(&all, "a").unwrap(), all[0].id);
        let several = by_name(&all, "b").unwrap_err();
        assert!(
            several.message.contains(&all[1].id.to_string())
                && several.message.contains(&all[2].id.to_string())
        );
        let none = by_name(&all, "c").unwrap_err();
        assert!(
            none.code == ErrorCode::NotFound && none.message.contains("\"a\", \"b\""),
            "{}",
            none.message
        );
    }

    #[test]
    fn a_step_is_meant_by_path_id_or_label_among_those_that_wait() {
        let step = |path: &str, label: &str, status: &str| json!({"nodePath": path, "label": label, "status": status, "nodeType": "user.validation", "attempts": 1});
        let run: RunFull = serde_json::from_value(json!({
            "run": {"id": uuid::Uuid::nil(), "processId": uuid::Uuid::nil(), "status": "running", "createdAt": "x"},
            "steps": [step("a", "Ask", "running"), step("l[0]/b", "Twice", "running"), step("l[1]/b", "Twice", "running"),
                step("d", "Done", "finished")]
        }))
        .unwrap();
        let found = |meant: &str| waiting_step(&run, meant).map_err(|error| error.code);
        assert_eq!(found("Ask").as_deref(), Ok("a"));
        assert_eq!(found("l[1]/b").as_deref(), Ok("l[1]/b"));
        assert_eq!(found("b"), Err(ErrorCode::InvalidRequest));
        assert_eq!(found("Done"), Err(ErrorCode::NotFound));
    }
}
