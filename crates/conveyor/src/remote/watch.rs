//! Following a run by its events, line by line, to its end.

use super::{
    Platform,
    events::{Event, Parser},
    said, took,
};
use crate::{
    client::{CallFailure, Outcome, RunFull},
    commands::run::{pretty, reason},
    document::printable,
    failure::Failure,
};
use contract::{ErrorCode, NodePath, ProcessId, RpcError, RunId, builtin, run::RunStatus};
use serde::Deserialize;
use serde_json::Value;
use std::{collections::HashMap, time::Duration};

/// How often a stream that breaks without an event in between is taken up again.
const MAX_TRIES: u32 = 8;
/// The first wait before that; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// The API shows life more often than this.
const SILENCE: Duration = Duration::from_secs(60);

/// Follows a run to its end; what its nodes do goes to standard error.
///
/// # Errors
/// Told: that the run is not known, or that the API stays away.
pub(crate) async fn watch(platform: &Platform, run_id: RunId) -> Result<RunFull, Failure> {
    let run = platform.run(run_id).await?;
    let mut watch =
        Watch { platform, run_id, process_id: run.run.process_id, last_id: None, lines: Lines::new(&run) };
    watch.follow().await?;
    platform.run(run_id).await
}

/// Prints how a run ended: its result, or why it has none.
///
/// # Errors
/// [`Failure`] when the run did not finish.
pub(crate) async fn end(platform: &Platform, run: &RunFull) -> Result<(), Failure> {
    let head = &run.run;
    let public_inputs = platform.told(platform.client.result(head.process_id, head.id).await)?;
    let finished = head.status == RunStatus::Finished;
    let outcome = Outcome {
        run_id: head.id,
        status: head.status.as_str(),
        public_inputs: &public_inputs,
        error: head.error.as_ref(),
    };
    if platform.is_json() {
        println!("{}", outcome.line()?);
    } else if finished {
        println!("{}", pretty(&public_inputs)?);
    }
    match finished {
        true => Ok(()),
        false if platform.is_json() => Err(Failure::Told),
        false => Err(Failure::Failed(anyhow::anyhow!("{}", reason(head.status, run)))),
    }
}

struct Watch<'p> {
    platform: &'p Platform,
    run_id: RunId,
    process_id: ProcessId,
    /// Of the last event that was shown.
    last_id: Option<String>,
    lines: Lines,
}

/// How one stream ended.
enum Broken {
    /// With the run.
    Ended,
    /// It may be taken up again.
    Again(CallFailure),
    /// It may not.
    Refused(CallFailure),
}

impl Watch<'_> {
    async fn follow(&mut self) -> Result<(), Failure> {
        let (mut tries, mut wait) = (0, FIRST_WAIT);
        loop {
            let before = self.last_id.clone();
            let failure = match self.stream().await {
                Broken::Ended => return Ok(()),
                Broken::Refused(failure) => return self.platform.told(Err(failure)),
                Broken::Again(failure) => failure,
            };
            if self.last_id != before {
                (tries, wait) = (0, FIRST_WAIT);
            }
            tries += 1;
            if tries > MAX_TRIES {
                return self.platform.told(Err(failure));
            }
            eprintln!("conveyor: the events broke off ({failure}); connecting again");
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
    }

    async fn stream(&mut self) -> Broken {
        let path = format!("/flow/{}/runs/{}/events", self.process_id, self.run_id);
        let mut response = match self.platform.client.events(&path, self.last_id.as_deref()).await {
            Ok(response) => response,
            Err(CallFailure::Refused(error)) if error.code.http_status() < 500 => {
                return Broken::Refused(CallFailure::Refused(error));
            }
            Err(failure) => return Broken::Again(failure),
        };
        let mut parser = Parser::default();
        loop {
            let bytes = match tokio::time::timeout(SILENCE, response.chunk()).await {
                Ok(Ok(Some(bytes))) => bytes,
                Ok(Ok(None)) => return Broken::Again(gone("the stream ended before the run")),
                Ok(Err(error)) => return Broken::Again(error.into()),
                Err(_) => return Broken::Again(gone("nothing came for a minute")),
            };
            let Ok(events) = parser.take(&bytes) else {
                return Broken::Refused(gone("an event is longer than any event of a run"));
            };
            for event in events {
                if let Some(end) = self.show(event) {
                    return end;
                }
            }
        }
    }

    fn show(&mut self, event: Event) -> Option<Broken> {
        match event.name.as_str() {
            "end" => return Some(Broken::Ended),
            "error" => {
                return Some(match serde_json::from_str::<RpcError>(&event.data) {
                    Ok(error) if !error.code.retryable() => Broken::Refused(CallFailure::Refused(error)),
                    Ok(error) => Broken::Again(CallFailure::Refused(error)),
                    Err(error) => Broken::Again(error.into()),
                });
            }
            _ => {}
        }
        if let Some(line) = self.lines.line(&event, self.run_id) {
            eprintln!("{}", printable(&line));
        }
        self.last_id = event.id.or(self.last_id.take());
        None
    }
}

fn gone(message: &str) -> CallFailure {
    CallFailure::Refused(RpcError::new(ErrorCode::Unavailable, message))
}

/// Turns events into lines.
#[derive(Debug, Default)]
struct Lines {
    /// Label and node type, by widget id.
    nodes: HashMap<String, (String, String)>,
    /// When the steps that run began, by path.
    begun: HashMap<String, String>,
}

/// An event of the history.
#[derive(Deserialize)]
struct Item {
    at: String,
    /// Read as a tree: only names and errors of it are shown.
    event: Value,
}

impl Lines {
    fn new(run: &RunFull) -> Self {
        let nodes = run.steps.iter().map(|step| {
            let id = NodePath(step.node_path.clone()).node_id().to_owned();
            (id, (step.label.clone(), step.node_type.clone()))
        });
        Self { nodes: nodes.collect(), begun: HashMap::new() }
    }

    /// The line of an event; `None` for what nobody watches for, and for kinds of newer engines.
    fn line(&mut self, event: &Event, run_id: RunId) -> Option<String> {
        if event.name == "progress" {
            return self.word(event);
        }
        let item: Item = serde_json::from_str(&event.data).ok()?;
        let data = &item.event;
        let text = |key: &str| data.get(key).and_then(Value::as_str);
        let path = text("nodePath");
        let name = path.map(|path| self.name(path)).unwrap_or_default();
        let spent = path.and_then(|path| self.begun.get(path)).map(|begun| took(Some(begun), Some(&item.at)));
        let spent = spent.map(|spent| format!("  {spent}")).unwrap_or_default();
        let said = match event.name.as_str() {
            "run_started" => format!("▶ the run started ({})", text("trigger").unwrap_or("?")),
            "step_scheduled" => {
                self.begun.insert(path?.to_owned(), item.at.clone());
                let attempt = data.get("attempt").and_then(Value::as_u64).unwrap_or(1);
                let node_type =
                    self.nodes.get(NodePath(path?.to_owned()).node_id()).map(|(_, kind)| kind.as_str());
                match (node_type, attempt) {
                    (Some(builtin::VALIDATION), _) => format!(
                        "? {name}  waits for a person: conveyor runs confirm {run_id} '{}' --approve",
                        path?
                    ),
                    (_, 1) => format!("· {name}"),
                    (_, attempt) => format!("· {name}  attempt {attempt}"),
                }
            }
            "step_finished" | "step_evaluated" | "step_elapsed" => format!("✓ {name}{spent}"),
            "step_kept" => format!("✓ {name}  kept of the run that is repeated"),
            "iteration_kept" => {
                let index = data.get("index").and_then(Value::as_u64)?;
                format!("✓ {name}  iteration {index} kept of the run that is repeated")
            }
            "step_failed" => {
                let again = data.get("willRetry").and_then(Value::as_bool).unwrap_or(false);
                let again = if again { "; it is tried again" } else { "" };
                format!("✗ {name}{spent}: {}{again}", cause(data.get("error")?))
            }
            "step_skipped" => format!("- {name}"),
            "step_canceled" => format!("× {name}{spent}"),
            "step_confirmed" => {
                let approved = data.get("approved").and_then(Value::as_bool).unwrap_or(false);
                let (mark, word) = if approved { ("✓", "approved") } else { ("✗", "rejected") };
                let comment = text("comment").map(|comment| format!(": {comment}")).unwrap_or_default();
                format!("{mark} {name}{spent}  {word} by {}{comment}", text("by").unwrap_or("?"))
            }
            "iteration_started" => {
                let index = data.get("index").and_then(Value::as_u64)?;
                format!("↻ {name}  iteration {index}")
            }
            "late_result" => {
                let how = data.get("error").map_or_else(|| "finished".to_owned(), cause);
                format!("◦ {name}  reported after the end, which changes nothing: {how}")
            }
            "run_finished" => "■ the run finished".to_owned(),
            "run_canceled" => "■ the run was canceled".to_owned(),
            "run_failed" => "■ the run failed".to_owned(),
            _ => return None,
        };
        Some(format!("{} {said}", clock(&item.at)))
    }

    /// The line of what a running step says of itself.
    fn word(&self, event: &Event) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Word {
            node_path: String,
            at: Option<String>,
            progress: Option<f64>,
            message: Option<String>,
        }
        let word: Word = serde_json::from_str(&event.data).ok()?;
        let at = word.at.as_deref().map(clock).unwrap_or_default();
        let said = said(word.progress, word.message.as_deref());
        Some(format!("{at} … {}  {said}", self.name(&word.node_path)))
    }

    /// The label, with the path where the label alone does not tell which iteration is meant.
    fn name(&self, path: &str) -> String {
        let id = NodePath(path.to_owned());
        match self.nodes.get(id.node_id()) {
            Some((label, _)) if path.contains('/') => format!("{label} ({path})"),
            Some((label, _)) => label.clone(),
            None => path.to_owned(),
        }
    }
}

/// The time of day, UTC.
fn clock(at: &str) -> &str {
    at.split_once('T').and_then(|(_, time)| time.split('.').next()).unwrap_or(at)
}

/// A step's error in words.
fn cause(error: &Value) -> String {
    let text = |key: &str| error.get(key).and_then(Value::as_str);
    let code = text("code").map(|code| format!(" ({code})")).unwrap_or_default();
    format!("{}{code}", text("message").unwrap_or("no reason was given"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lines(events: &[(&str, Value)]) -> Vec<String> {
        let nodes = [("a", "Письмо", "plugin.x"), ("v", "Согласование", builtin::VALIDATION)];
        let nodes = nodes.map(|(id, label, kind)| (id.to_owned(), (label.to_owned(), kind.to_owned())));
        let mut lines = Lines { nodes: HashMap::from(nodes), begun: HashMap::new() };
        let run_id = RunId(uuid::Uuid::nil());
        let line = |(place, (name, data)): (usize, &(&str, Value))| {
            let at = format!("2026-11-30T14:44:{place:02}.500Z");
            let data = json!({"sequence": place, "at": at, "event": data}).to_string();
            lines.line(&Event { id: None, name: (*name).to_owned(), data }, run_id)
        };
        events.iter().enumerate().filter_map(line).collect()
    }

    #[test]
    fn each_step_has_a_line_when_it_begins_and_when_it_ends() {
        let said = lines(&[
            ("step_scheduled", json!({"nodePath": "a", "attempt": 1})),
            ("step_acked", json!({"nodePath": "a"})),
            (
                "step_failed",
                json!({"nodePath": "a", "willRetry": true, "error": {"message": "занято", "code": "busy"}}),
            ),
            ("step_scheduled", json!({"nodePath": "l[2]/a", "attempt": 2})),
            ("step_finished", json!({"nodePath": "l[2]/a"})),
            ("of_the_future", json!({"nodePath": "a"})),
        ]);
        assert_eq!(
            said,
            [
                "14:44:00 · Письмо",
                "14:44:02 ✗ Письмо  2000 ms: занято (busy); it is tried again",
                "14:44:03 · Письмо (l[2]/a)  attempt 2",
                "14:44:04 ✓ Письмо (l[2]/a)  1000 ms",
            ]
        );
    }

    #[test]
    fn what_comes_after_the_end_has_a_line_too() {
        let said = lines(&[
            ("run_canceled", json!({})),
            ("late_result", json!({"nodePath": "a", "status": "ok", "outputs": {"o": 1}})),
            ("late_result", json!({"nodePath": "a", "status": "error", "error": {"message": "занято"}})),
        ]);
        assert_eq!(
            said,
            [
                "14:44:00 ■ the run was canceled",
                "14:44:01 ◦ Письмо  reported after the end, which changes nothing: finished",
                "14:44:02 ◦ Письмо  reported after the end, which changes nothing: занято",
            ]
        );
    }

    #[test]
    fn what_running_steps_say_of_themselves_is_told() {
        let at = "2026-11-30T14:44:00.500Z";
        let mut lines = Lines::default();
        let mut line = |data: Value| {
            let event = Event { id: None, name: "progress".into(), data: data.to_string() };
            lines.line(&event, RunId(uuid::Uuid::nil()))
        };
        let half = line(
            json!({"nodePath": "a", "executionId": "x", "at": at, "progress": 0.5, "message": "стр. 3"}),
        );
        assert_eq!(half.as_deref(), Some("14:44:00 … a  50 %  стр. 3"));
        let only_text = line(json!({"nodePath": "a", "at": at, "message": "начал"}));
        assert_eq!(only_text.as_deref(), Some("14:44:00 … a  начал"));
    }

    #[test]
    fn a_person_who_is_asked_is_told_how_to_answer() {
        let said = lines(&[
            ("step_scheduled", json!({"nodePath": "v", "attempt": 1})),
            ("step_confirmed", json!({"nodePath": "v", "approved": false, "by": "ann", "comment": "дорого"})),
        ]);
        assert!(said[0].contains("? Согласование  waits for a person: conveyor runs confirm "), "{said:?}");
        assert!(said[0].ends_with(" 'v' --approve"), "{said:?}");
        assert_eq!(said[1], "14:44:01 ✗ Согласование  1000 ms  rejected by ann: дорого");
    }
}
