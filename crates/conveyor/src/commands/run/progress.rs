//! What the nodes do, on standard error: on a terminal the running ones on a line that is written
//! over, elsewhere plain lines.

use crate::{client::RunFull, document::printable};
use contract::{report::StepError, run::NodeStatus};
use std::{
    collections::HashMap,
    io::{IsTerminal, Write},
    time::Instant,
};

/// Takes the line back that is written over.
const CLEAR: &str = "\r\u{1b}[K";

/// Shows how a run goes on.
pub(super) struct Progress {
    known: HashMap<String, NodeStatus>,
    begun: HashMap<String, Instant>,
    terminal: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { known: HashMap::new(), begun: HashMap::new(), terminal: std::io::stderr().is_terminal() }
    }

    /// Shows what has changed.
    pub(super) fn show(&mut self, run: &RunFull) {
        let mut text = String::new();
        for step in &run.steps {
            if self.known.insert(step.node_path.clone(), step.status) == Some(step.status) {
                continue;
            }
            if matches!(step.status, NodeStatus::Queued | NodeStatus::Running) {
                self.begun.entry(step.node_path.clone()).or_insert_with(Instant::now);
            }
            let Some(mark) = mark(step.status) else { continue };
            let took =
                self.begun.get(&step.node_path).map(|begun| format!("  {} ms", begun.elapsed().as_millis()));
            let reason = step.error.as_ref().map(|error| format!(": {}", cause(error)));
            let line = format!("{}{}{}", step.label, took.unwrap_or_default(), reason.unwrap_or_default());
            text.push_str(&format!("{mark} {}\n", printable(&line)));
        }
        let running: Vec<_> = run
            .steps
            .iter()
            .filter(|step| step.status == NodeStatus::Running)
            .map(|step| step.label.as_str())
            .collect();
        self.write(&text, &running);
    }

    /// Leaves the terminal tidy.
    pub(super) fn end(&self) {
        self.write("", &[]);
    }

    fn write(&self, text: &str, running: &[&str]) {
        let mut err = std::io::stderr().lock();
        // Whoever closed standard error does not want to know.
        let _ = match (self.terminal, running.is_empty()) {
            (false, _) => err.write_all(text.as_bytes()),
            (true, true) => write!(err, "{CLEAR}{text}"),
            (true, false) => write!(err, "{CLEAR}{text}… {}", printable(&running.join(", "))),
        };
        let _ = err.flush();
    }
}

/// The sign before a line; `None` for what is shown only while it lasts, or not at all.
fn mark(status: NodeStatus) -> Option<&'static str> {
    match status {
        NodeStatus::Finished => Some("✓"),
        NodeStatus::Failed => Some("✗"),
        NodeStatus::Skipped => Some("-"),
        NodeStatus::Canceled => Some("×"),
        NodeStatus::Waiting | NodeStatus::Queued | NodeStatus::Running => None,
    }
}

/// A step's error in words.
pub(in crate::commands) fn cause(error: &StepError) -> String {
    match &error.code {
        Some(code) => format!("{} ({code})", error.message),
        None => error.message.clone(),
    }
}
