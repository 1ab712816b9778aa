//! Runs, for people.

use crate::{
    client::{ImportedProcess, RunFull, RunHead, Step},
    commands::{plugin::table::Table, run::cause},
    document::printable,
    remote::{moment, said, took},
};
use contract::run::NodeStatus;
use serde::Deserialize;

/// A page of runs.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Page {
    runs: Vec<RunHead>,
    #[serde(default)]
    next_cursor: Option<String>,
}

pub(super) fn list(page: &Page, processes: &[ImportedProcess]) -> String {
    if page.runs.is_empty() {
        return "no runs; start one with `conveyor process run`\n".to_owned();
    }
    let name = |run: &RunHead| {
        let process = processes.iter().find(|process| process.id == run.process_id);
        // The runs of a deleted process stay.
        process.map_or_else(|| run.process_id.to_string(), |process| process.name.clone())
    };
    let mut table = Table::new(&["RUN", "STATUS", "STARTED", "TOOK", "PROCESS", "ERROR"]);
    for run in &page.runs {
        let error = run.error.as_ref().map(|error| match &error.label {
            Some(label) => format!("{label}: {}", cause(&error.error)),
            None => cause(&error.error),
        });
        table.row([
            run.id.to_string(),
            run.status.as_str().to_owned(),
            moment(&run.created_at),
            took(Some(&run.created_at), run.finished_at.as_deref()),
            name(run),
            error.unwrap_or_default(),
        ]);
    }
    match &page.next_cursor {
        Some(cursor) => format!("{table}more: --cursor {}\n", printable(cursor)),
        None => table.to_string(),
    }
}

pub(super) fn run(run: &RunFull, result: Option<&str>) -> String {
    let head = &run.run;
    let mut facts = Table::new(&["run", &head.id.to_string()]);
    facts.row(["process".to_owned(), head.process_id.to_string()]);
    facts.row(["status".to_owned(), head.status.as_str().to_owned()]);
    facts.row(["started".to_owned(), moment(&head.created_at)]);
    facts.row(["ended".to_owned(), head.finished_at.as_deref().map_or_else(|| "-".to_owned(), moment)]);
    facts.row(["took".to_owned(), took(Some(&head.created_at), head.finished_at.as_deref())]);
    if let Some(error) = &head.error {
        let place = error.node_path.as_ref().map(|path| format!("{path}: ")).unwrap_or_default();
        facts.row(["error".to_owned(), format!("{place}{}", cause(&error.error))]);
    }
    let mut steps = Table::new(&["STEP", "STATUS", "TRIES", "TOOK", "LABEL", "REMARK"]);
    for step in &run.steps {
        steps.row([
            step.node_path.clone(),
            status(step.status).to_owned(),
            step.attempts.to_string(),
            took(step.started_at.as_deref(), step.finished_at.as_deref()),
            step.label.clone(),
            remark(step),
        ]);
    }
    let result = result.map(|result| format!("\nresult\n{result}\n")).unwrap_or_default();
    format!("{facts}\n{steps}{result}")
}

fn remark(step: &Step) -> String {
    match (&step.error, &step.waits_for) {
        (Some(error), _) => cause(error),
        (None, _) if step.progress.is_some() || step.message.is_some() => {
            said(step.progress, step.message.as_deref())
        }
        (None, Some(waits)) => format!("waits for {waits}"),
        (None, None) => String::new(),
    }
}

fn status(status: NodeStatus) -> &'static str {
    match status {
        NodeStatus::Waiting => "waiting",
        NodeStatus::Queued => "queued",
        NodeStatus::Running => "running",
        NodeStatus::Finished => "finished",
        NodeStatus::Failed => "failed",
        NodeStatus::Skipped => "skipped",
        NodeStatus::Canceled => "canceled",
    }
}
