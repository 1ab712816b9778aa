//! `system.loop` (protocol section 7): its settings, over what it runs, and how far it is.

use super::{
    evaluate::Outputs,
    graph::{Graph, MAX_DEPTH},
};
use contract::{
    Fault, Json,
    process::{Field, Process, Widget, json_setting},
    run::RunError,
};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// Iterations of a loop whose body decides, unless `maxIterations` says otherwise.
const DEFAULT_ITERATIONS: u64 = 1_000;

/// The most iterations of any loop.
const MOST_ITERATIONS: u64 = 100_000;

/// Iterations of a parallel loop at the same time, unless `concurrency` says otherwise.
const DEFAULT_CONCURRENCY: u64 = 10;

/// The most iterations at the same time: the state of each is held in memory.
const MOST_CONCURRENCY: u64 = 100;

/// The loop's own fields; every other input is a free port.
const SETTINGS: [&str; 5] = ["iterator", "body", "mode", "concurrency", "maxIterations"];

/// A loop, compiled.
#[derive(Debug, PartialEq)]
pub struct Loop {
    /// What is repeated.
    pub body: Arc<Graph>,
    /// Iterations at the same time; `None`: one after the other.
    pub concurrency: Option<u64>,
    /// The most iterations, where the widget says so.
    pub max_iterations: Option<u64>,
}

impl Loop {
    /// Reads the settings and compiles the body. What is wrong is added to `faults`.
    pub(super) fn compile(
        widget: &Widget,
        path: &str,
        faults: &mut Vec<Fault>,
        depth: usize,
    ) -> Option<Self> {
        let before = faults.len();
        let mut fault = |code: &str, message: String| {
            faults.push(Fault { path: format!("{path}.config"), code: code.to_owned(), message });
        };
        let title = widget.title();
        if depth >= MAX_DEPTH {
            fault("too_deep", format!("{title:?} lies in {MAX_DEPTH} loops; nest less deeply"));
            return None;
        }
        let mut number = |name: &str, most: u64| {
            let value = widget.field(name).and_then(Field::effective)?;
            let read = whole_number(value).filter(|number| (1..=most).contains(number));
            if read.is_none() {
                fault("out_of_range", format!("{name} of {title:?} must be a whole number from 1 to {most}"));
            }
            read
        };
        let concurrency = number("concurrency", MOST_CONCURRENCY);
        let max_iterations = number("maxIterations", MOST_ITERATIONS);
        let mode: Option<String> =
            widget.field("mode").and_then(Field::effective).map(|mode| mode.read().unwrap_or_default());
        let concurrency = match mode.as_deref() {
            None | Some("sequential") => None,
            Some("parallel") => Some(concurrency.unwrap_or(DEFAULT_CONCURRENCY)),
            Some(_) => {
                fault("unknown_value", format!("mode of {title:?} must be \"sequential\" or \"parallel\""));
                None
            }
        };
        let body = Self::body(widget, path, faults, depth)?;
        (faults.len() == before).then(|| Self { body: Arc::new(body), concurrency, max_iterations })
    }

    fn body(widget: &Widget, path: &str, faults: &mut Vec<Fault>, depth: usize) -> Option<Graph> {
        let index = widget.config.iter().position(|field| field.name == "body");
        let path = match index {
            Some(index) => format!("{path}.config[{index}].value"),
            None => format!("{path}.config"),
        };
        let body = index.and_then(|index| widget.config[index].effective()).and_then(json_setting);
        let body: Option<Process> =
            body.filter(Value::is_object).and_then(|body| Json::from(&body).read().ok());
        let Some(body) = body else {
            let message =
                format!("\"body\" of {:?} must be {{widgets, edges}} or JSON text of it", widget.title());
            faults.push(Fault { path, code: "malformed".to_owned(), message });
            return None;
        };
        let mut inner = Vec::new();
        let graph = Graph::build(&body, &mut inner, depth + 1);
        faults.extend(inner.into_iter().map(|fault| Fault {
            path: format!("{path}{}", fault.path.strip_prefix('$').unwrap_or(&fault.path)),
            ..fault
        }));
        Some(graph)
    }

    /// Over what a loop with these inputs runs: the elements; `None`: its body decides.
    /// `is_connected`: an edge leads into `iterator`, so that an empty list means no iteration.
    ///
    /// # Errors
    /// What is wrong with the iterator, in words.
    pub(super) fn elements(
        &self,
        iterator: Option<&Json>,
        is_connected: bool,
    ) -> Result<Option<Vec<Json>>, String> {
        let elements = match iterator {
            None => Vec::new(),
            Some(json) => read_list(json)?,
        };
        if elements.is_empty() && !is_connected && self.concurrency.is_none() {
            return Ok(None);
        }
        Ok(Some(elements))
    }

    /// The most iterations of the loop.
    pub(super) fn limit(&self, is_counted: bool) -> u64 {
        self.max_iterations.unwrap_or(if is_counted { MOST_ITERATIONS } else { DEFAULT_ITERATIONS })
    }
}

/// A whole number, also as text.
fn whole_number(value: &Json) -> Option<u64> {
    value.read().ok().or_else(|| value.read::<String>().ok()?.trim().parse().ok())
}

/// A list, its elements untouched; also as JSON text. `null`, `""` and `{}` (an untouched field of
/// the editor) are empty.
fn read_list(json: &Json) -> Result<Vec<Json>, String> {
    if let Ok(list) = json.read() {
        return Ok(list);
    }
    let text: Option<String> = json.read().ok();
    let text = text.as_deref().unwrap_or_else(|| json.text()).trim();
    match text {
        "" | "null" | "{}" => Ok(Vec::new()),
        text => serde_json::from_str(text)
            .map_err(|_| "\"iterator\" must be a list or JSON text of one".to_owned()),
    }
}

/// How far a loop is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LoopState {
    /// What it runs over; `None`: its body decides.
    elements: Option<Vec<Json>>,
    limit: u64,
    concurrency: u64,
    /// The iteration that comes next.
    next: u64,
    running: u64,
    /// The outputs of finished iterations, each at its place.
    items: Vec<Json>,
    /// Of the last iteration of a loop whose body decides.
    carried: Outputs,
    wants_more: bool,
    /// The first failure in an iteration.
    pub(super) failure: Option<RunError>,
}

/// What a loop does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This iteration starts.
    Start(u64),
    /// Iterations run.
    Wait,
    /// All iterations are done.
    Done,
    /// There are more iterations than allowed.
    Limit(u64),
}

impl LoopState {
    pub(super) fn new(spec: &Loop, elements: Option<Vec<Json>>) -> Self {
        let count = elements.as_ref().map_or(0, Vec::len);
        Self {
            limit: spec.limit(elements.is_some()),
            concurrency: spec.concurrency.unwrap_or(1),
            next: 0,
            running: 0,
            items: vec![Json::null(); count],
            carried: Outputs::new(),
            wants_more: true,
            failure: None,
            elements,
        }
    }

    /// What comes next.
    pub(super) fn next(&self) -> Next {
        if let Some(elements) = &self.elements {
            let count = elements.len() as u64;
            return match (self.next < count, self.running) {
                _ if count > self.limit => Next::Limit(self.limit),
                (true, running) if running < self.concurrency => Next::Start(self.next),
                (false, 0) => Next::Done,
                _ => Next::Wait,
            };
        }
        match (self.running, self.wants_more) {
            (0, false) => Next::Done,
            (0, true) if self.next >= self.limit => Next::Limit(self.limit),
            (0, true) => Next::Start(self.next),
            _ => Next::Wait,
        }
    }

    /// An iteration starts with these inputs; `given` are those of the loop.
    pub(super) fn start(&mut self, index: u64, given: Outputs) -> Outputs {
        self.next = index + 1;
        self.skip_finished();
        self.running += 1;
        let mut inputs: Outputs =
            given.into_iter().filter(|(name, _)| !SETTINGS.contains(&name.as_str())).collect();
        match &self.elements {
            Some(elements) => {
                let item = usize::try_from(index).ok().and_then(|index| elements.get(index)).cloned();
                inputs.insert("item".to_owned(), item.unwrap_or_default());
                inputs.insert("index".to_owned(), Json::of(&index).unwrap_or_default());
            }
            None => inputs.extend(std::mem::take(&mut self.carried)),
        }
        inputs
    }

    /// The iteration that comes next is the first that has neither begun nor was kept.
    fn skip_finished(&mut self) {
        let is_finished = |next: u64| {
            let place = usize::try_from(next).ok();
            place.and_then(|place| self.items.get(place)).is_some_and(|item| !item.is_null())
        };
        let mut next = self.next;
        while is_finished(next) {
            next += 1;
        }
        self.next = next;
    }

    /// An iteration that began ended well. Returns the bytes that are held of it.
    pub(super) fn finish(&mut self, index: u64, outputs: Outputs) -> usize {
        self.running = self.running.saturating_sub(1);
        self.store(index, outputs)
    }

    /// An iteration need not begin: its outputs are known. Returns the bytes that are held of it.
    pub(super) fn keep(&mut self, index: u64, outputs: Outputs) -> usize {
        let bytes = self.store(index, outputs);
        self.skip_finished();
        bytes
    }

    /// The finished iterations of a loop that was not through, and how many there would have been.
    pub(super) fn finished(&self) -> (Option<u64>, BTreeMap<u64, Arc<Outputs>>) {
        let finished = self.items.iter().zip(0..).filter(|(item, _)| !item.is_null());
        // Items are objects: they were made of outputs.
        let finished = finished.filter_map(|(item, index)| Some((index, Arc::new(item.read().ok()?))));
        (self.elements.as_ref().map(|elements| elements.len() as u64), finished.collect())
    }

    fn store(&mut self, index: u64, mut outputs: Outputs) -> usize {
        // Names and JSON texts always serialise.
        let item = Json::of(&outputs).unwrap_or_default();
        let bytes = item.text().len();
        if self.elements.is_some() {
            let place = usize::try_from(index).ok().and_then(|index| self.items.get_mut(index));
            if let Some(place) = place {
                *place = item;
            }
        } else {
            self.items.push(item);
            self.wants_more = outputs.shift_remove("continueLoop").is_some_and(|value| is_true(&value));
            self.carried = outputs;
        }
        bytes
    }

    /// `items` and, unless there were none, `last`.
    pub(super) fn outputs(&self) -> Outputs {
        let items = ("items".to_owned(), Json::of(&self.items).unwrap_or_default());
        let last = self.items.last().map(|last| ("last".to_owned(), last.clone()));
        std::iter::once(items).chain(last).collect()
    }
}

/// `true`, also as the texts and numbers that stand for it.
fn is_true(value: &Json) -> bool {
    matches!(value.text(), "true" | "\"true\"" | "1" | "\"1\"")
}
