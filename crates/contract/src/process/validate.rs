//! Validation that names every fault of a diagram at once (protocol section 7).

use super::{Edge, OnError, Process, Widget, json_setting, parse_path, ports, reach::Drawing};
use crate::{Fault, Warning, builtin, check::Checker, json::read_tree, param::Param};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};

/// What the catalogue knows of a node type.
#[derive(Clone, Debug, Default)]
pub struct NodeType {
    /// Declared inputs; `None` accepts any.
    pub inputs: Option<Vec<Param>>,
    /// Declared outputs.
    pub outputs: Vec<Param>,
}

/// The catalogue, as validation asks it.
pub trait NodeTypes {
    /// The node type, if the catalogue has it.
    fn node_type(&self, name: &str) -> Option<NodeType>;
}

/// A catalogue by name, for callers that loaded what they need.
impl NodeTypes for BTreeMap<String, NodeType> {
    fn node_type(&self, name: &str) -> Option<NodeType> {
        self.get(name).cloned()
    }
}

/// How strict validation is about what the catalogue or a person can still add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Import and save: unknown node types and missing required values are warnings, because the
    /// plugin may come later and secrets are added after an import.
    Save,
    /// Run: they are faults.
    Run,
}

/// A valid diagram.
#[derive(Clone, Debug)]
pub struct Validated {
    /// The diagram.
    pub process: Process,
    /// Remarks.
    pub warnings: Vec<Warning>,
    /// The node types it uses that are not built in, sorted; those of loop bodies too.
    pub plugin_node_types: Vec<String>,
}

/// Checks one diagram whose JSON path in the whole document is `path`.
pub fn validate(
    document: &Value,
    path: &str,
    catalogue: &dyn NodeTypes,
    strictness: Strictness,
) -> Result<Validated, Vec<Fault>> {
    let mut validation =
        Validation { check: Checker::default(), catalogue, strictness, used: HashSet::new() };
    let process = validation.graph(document, path);
    let mut used: Vec<String> = validation.used.into_iter().collect();
    used.sort_unstable();
    let (process, warnings) = validation.check.finish(process)?;
    Ok(Validated { process, warnings, plugin_node_types: used })
}

pub(super) struct Validation<'c> {
    pub(super) check: Checker,
    catalogue: &'c dyn NodeTypes,
    strictness: Strictness,
    used: HashSet<String>,
}

/// A widget that could be read, with its place in the document.
pub(super) struct Placed {
    pub(super) path: String,
    pub(super) widget: Widget,
}

impl Validation<'_> {
    fn graph(&mut self, document: &Value, path: &str) -> Option<Process> {
        let object = self.check.object(document, path)?;
        if let Some(Value::Object(settings)) = object.get("settings") {
            for name in ["timeoutMs", "maxConcurrentRuns"] {
                self.above_zero(settings.get(name), format!("{path}.settings.{name}"));
            }
            self.schedules(settings.get("triggers"), &format!("{path}.settings.triggers"));
        }
        let start = self.check.faults.len();
        let widgets = self.widgets(object, path);
        let edges = self.edges(object, path);
        self.handles(&widgets, &edges);
        self.cycles(&widgets, &edges, path);
        if self.check.faults.len() == start {
            self.reach(&widgets, &edges);
        }
        for placed in &widgets {
            let before = self.check.faults.len();
            self.node(placed, &edges);
            self.name_faults(before, placed.widget.title());
        }
        match read_tree::<Process>(document) {
            Ok(process) => Some(process),
            Err(error) if self.check.faults.is_empty() => {
                self.check.fault(path, "malformed", error.to_string());
                None
            }
            Err(_) => None,
        }
    }

    /// Both ends of each edge exist.
    fn handles(&mut self, widgets: &[Placed], edges: &[(String, Edge)]) {
        let by_id: HashMap<&str, &Widget> =
            widgets.iter().map(|w| (w.widget.id.as_str(), &w.widget)).collect();
        for (path, edge) in edges {
            match by_id.get(edge.source.as_str()) {
                None => self.check.fault(
                    format!("{path}.source"),
                    "unknown_widget",
                    format!("no widget has the id {:?}", edge.source),
                ),
                Some(widget) => {
                    if let Some(outputs) = self.output_names(widget)
                        && !outputs.contains(&edge.source_handle)
                    {
                        self.unknown_handle(
                            &format!("{path}.sourceHandle"),
                            widget,
                            "output",
                            &edge.source_handle,
                            &outputs,
                        );
                    }
                }
            }
            match by_id.get(edge.target.as_str()) {
                None => self.check.fault(
                    format!("{path}.target"),
                    "unknown_widget",
                    format!("no widget has the id {:?}", edge.target),
                ),
                Some(widget) => {
                    if let Some(inputs) = self.input_names(widget)
                        && !inputs.contains(&edge.target_handle)
                    {
                        self.unknown_handle(
                            &format!("{path}.targetHandle"),
                            widget,
                            "input",
                            &edge.target_handle,
                            &inputs,
                        );
                    }
                }
            }
        }
    }

    fn unknown_handle(&mut self, path: &str, widget: &Widget, what: &str, handle: &str, known: &[String]) {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        self.check.fault(
            path,
            "unknown_handle",
            format!("{:?} has no {what} {handle:?}; it has: {known}", widget.title()),
        );
    }

    /// What an edge may leave from; `None` when that cannot be known (a plugin that is not here).
    fn output_names(&self, widget: &Widget) -> Option<Vec<String>> {
        let mut names = widget.outputs.clone().unwrap_or_default();
        let fields = || widget.config.iter().map(|field| field.name.clone());
        let node_type = widget.source.node_type.as_str();
        names.extend(ports::always(node_type).iter().map(|name| (*name).to_owned()));
        if widget.execution.as_ref().is_some_and(|execution| execution.on_error == Some(OnError::Continue)) {
            names.push("error".to_owned());
        }
        if widget.outputs.is_none() {
            names.extend(ports::unlisted(node_type).iter().map(|name| (*name).to_owned()));
        }
        match node_type {
            builtin::TRIGGER => names.extend(fields()),
            builtin::EXTRACT => names.extend(extract_map(widget).unwrap_or_default().into_keys()),
            other => match self.catalogue.node_type(other) {
                Some(known) if widget.outputs.is_none() => {
                    names.extend(known.outputs.into_iter().map(|p| p.name));
                }
                None if widget.outputs.is_none() && !builtin::is_builtin(other) => return None,
                _ => {}
            },
        }
        let mut seen = HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        Some(names)
    }

    /// What an edge may lead into; `None` for an open set.
    fn input_names(&self, widget: &Widget) -> Option<Vec<String>> {
        let mut names: Vec<String> =
            widget.config.iter().filter(|f| f.is_static != Some(true)).map(|f| f.name.clone()).collect();
        match widget.source.node_type.as_str() {
            builtin::VALIDATION | builtin::SWITCH => names.push("value".to_owned()),
            builtin::EXTRACT => names.push("source".to_owned()),
            builtin::DELAY => names.extend(["value", "milliseconds", "until"].map(str::to_owned)),
            other => {
                if let Some(known) = self.catalogue.node_type(other) {
                    names.extend(
                        known.inputs?.into_iter().filter(|p| p.is_static != Some(true)).map(|p| p.name),
                    );
                }
            }
        }
        Some(names)
    }

    /// Kahn's algorithm: what is left over lies on a cycle or behind one; the smallest remaining
    /// core is reported.
    fn cycles(&mut self, widgets: &[Placed], edges: &[(String, Edge)], path: &str) {
        let mut left: Vec<&str> = widgets.iter().map(|w| w.widget.id.as_str()).collect();
        loop {
            let inside = |id: &str| left.contains(&id);
            let has = |end: fn(&Edge) -> &str, other: fn(&Edge) -> &str, id: &str| {
                edges.iter().any(|(_, edge)| end(edge) == id && inside(other(edge)))
            };
            let kept: Vec<&str> = left
                .iter()
                .copied()
                .filter(|id| has(|e| &e.target, |e| &e.source, id) && has(|e| &e.source, |e| &e.target, id))
                .collect();
            if kept.len() == left.len() {
                break;
            }
            left = kept;
        }
        if !left.is_empty() {
            let titles: Vec<&str> = widgets
                .iter()
                .map(|w| &w.widget)
                .filter(|w| left.contains(&w.id.as_str()))
                .map(Widget::title)
                .collect();
            self.check.fault(
                format!("{path}.edges"),
                "cycle",
                format!("the widgets {} feed themselves; use system.loop to repeat", titles.join(", ")),
            );
        }
    }

    fn node(&mut self, placed: &Placed, edges: &[(String, Edge)]) {
        let widget = &placed.widget;
        let node_type = widget.source.node_type.as_str();
        let connected =
            |name: &str| edges.iter().any(|(_, e)| e.target == widget.id && e.target_handle == name);
        match node_type {
            builtin::TRIGGER => {}
            builtin::LOOP => {
                self.loop_settings(placed);
                self.loop_body(placed);
            }
            builtin::EXTRACT => self.extract(placed),
            builtin::OUTPUT => {
                let is_fed = edges.iter().any(|(_, edge)| edge.target == widget.id);
                if !is_fed && !widget.config.iter().any(|field| field.effective().is_some()) {
                    self.check.fault(
                        &placed.path,
                        "unreachable_output",
                        format!("no edge leads into {:?}: it can never hold a result", widget.title()),
                    );
                }
            }
            other if builtin::is_builtin(other) => {}
            other => {
                self.used.insert(other.to_owned());
                match self.catalogue.node_type(other) {
                    Some(known) => self.required_params(placed, &known, &connected),
                    None => self.needed(
                        format!("{}.source.nodeType", placed.path),
                        "unknown_node_type",
                        format!("no plugin in the catalogue has the node type {other:?} (widget {:?}); start the plugin that has it", widget.title()),
                    ),
                }
            }
        }
        if let Some((inputs, purpose)) = ports::required(node_type)
            && !inputs.iter().any(|input| connected(input) || ports::is_provided(widget, input))
        {
            let names: Vec<_> = inputs.iter().map(|input| format!("{input:?}")).collect();
            self.check.warn(
                &placed.path,
                "unconnected_input",
                format!(
                    "{} of {:?} {purpose}: set a value or connect an edge",
                    names.join(" or "),
                    widget.title()
                ),
            );
        }
        if node_type != builtin::TRIGGER {
            for (index, field) in widget.config.iter().enumerate() {
                if field.is_required == Some(true) && field.effective().is_none() && !connected(&field.name) {
                    self.needed(
                        format!("{}.config[{index}]", placed.path),
                        "missing_required",
                        format!(
                            "{:?} of {:?} is required: set a value or connect an edge",
                            field.name,
                            widget.title()
                        ),
                    );
                }
            }
        }
    }

    /// Remarks on what the drawing alone keeps from running.
    fn reach(&mut self, widgets: &[Placed], edges: &[(String, Edge)]) {
        let nodes: Vec<&Widget> = widgets.iter().map(|placed| &placed.widget).collect();
        let lines: Vec<&Edge> = edges.iter().map(|(_, edge)| edge).collect();
        for (node, code, message) in (Drawing { widgets: &nodes, edges: &lines }).remarks() {
            self.check.warn(&widgets[node].path, code, message);
        }
    }

    /// Faults from here on name the node that they are about.
    pub(super) fn name_faults(&mut self, from: usize, title: &str) {
        for fault in self.check.faults.iter_mut().skip(from) {
            if !fault.message.contains(title) {
                fault.message.push_str(&format!(" (widget {title:?})"));
            }
        }
    }

    fn required_params(&mut self, placed: &Placed, known: &NodeType, connected: &dyn Fn(&str) -> bool) {
        for param in known.inputs.iter().flatten().filter(|param| param.required && param.default.is_none()) {
            // Listed fields that say so themselves are reported by their own path.
            let field = placed.widget.field(&param.name);
            if field.is_some_and(|field| field.effective().is_some() || field.is_required == Some(true))
                || connected(&param.name)
            {
                continue;
            }
            self.needed(
                format!("{}.config", placed.path),
                "missing_required",
                format!(
                    "{:?} of {:?} is required: set a value or connect an edge",
                    param.name,
                    placed.widget.title()
                ),
            );
        }
    }

    /// A fault when the diagram is to run now, a warning when it is only saved.
    fn needed(&mut self, path: String, code: &str, message: String) {
        match self.strictness {
            Strictness::Run => self.check.fault(path, code, message),
            Strictness::Save => self.check.warn(path, code, message),
        }
    }

    /// A number of things or milliseconds that may be absent, but not 0.
    fn above_zero(&mut self, value: Option<&Value>, path: String) {
        let value = value.filter(|value| !value.is_null());
        if value.is_some_and(|value| value.as_u64().is_none_or(|n| !(1..=u64::from(u32::MAX)).contains(&n))) {
            self.check.fault(path, "out_of_range", "must be a whole number from 1 to 4294967295");
        }
    }

    fn loop_settings(&mut self, placed: &Placed) {
        for (name, most) in [("concurrency", 100), ("maxIterations", 100_000)] {
            let Some((index, Some(value))) = setting(&placed.widget, name) else { continue };
            if value.as_u64().is_none_or(|n| !(1..=most).contains(&n)) {
                self.check.fault(
                    format!("{}.config[{index}].value", placed.path),
                    "out_of_range",
                    format!("{name} of {:?} must be a whole number from 1 to {most}", placed.widget.title()),
                );
            }
        }
        let mode = placed.widget.config.iter().position(|field| field.name == "mode");
        let Some(index) = mode else { return };
        let value = placed.widget.config[index].effective().and_then(|mode| mode.value().ok());
        if value.is_some_and(|mode| !matches!(mode.as_str(), Some("sequential" | "parallel"))) {
            self.check.fault(
                format!("{}.config[{index}].value", placed.path),
                "unknown_value",
                format!("mode of {:?} must be \"sequential\" or \"parallel\"", placed.widget.title()),
            );
        }
    }

    fn loop_body(&mut self, placed: &Placed) {
        let Some((index, body)) = setting(&placed.widget, "body") else {
            return self.check.fault(
                format!("{}.config", placed.path),
                "missing_required",
                "a loop needs a field \"body\" with {widgets, edges}",
            );
        };
        let path = format!("{}.config[{index}].value", placed.path);
        match body {
            Some(body) => {
                self.graph(&body, &path);
            }
            None => self.check.fault(
                path,
                "malformed",
                "must be {widgets, edges}, as an object or as JSON text of it",
            ),
        }
    }

    fn extract(&mut self, placed: &Placed) {
        let Some((index, _)) = setting(&placed.widget, "map") else {
            return self.check.fault(
                format!("{}.config", placed.path),
                "missing_required",
                "system.object.extract needs a field \"map\" with {output: path}",
            );
        };
        let path = format!("{}.config[{index}].value", placed.path);
        match extract_map(&placed.widget) {
            None => self.check.fault(
                path,
                "malformed",
                "must be an object {output: path} of strings, or JSON text of it",
            ),
            Some(map) => {
                for (output, expression) in map {
                    if let Err(error) = parse_path(&expression) {
                        self.check.fault(
                            format!("{path}.{output}"),
                            "invalid_path",
                            format!("{expression:?} is no path: {error}"),
                        );
                    }
                }
            }
        }
    }
}

/// A static field that holds JSON: its place in `config` and its value, `None` when it is no JSON.
fn setting(widget: &Widget, name: &str) -> Option<(usize, Option<Value>)> {
    let index = widget.config.iter().position(|field| field.name == name)?;
    Some((index, json_setting(widget.config[index].effective()?)))
}

/// `map` of `system.object.extract`: output name → path.
pub(crate) fn extract_map(widget: &Widget) -> Option<BTreeMap<String, String>> {
    let (_, map) = setting(widget, "map")?;
    map?.as_object()?.iter().map(|(key, path)| Some((key.clone(), path.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
