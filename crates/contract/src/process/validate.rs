//! Validation that names every fault of a diagram at once (protocol section 7).

use super::{Edge, Process, Widget, json_setting, parse_path};
use crate::{Fault, Warning, builtin, check::Checker, json::read_tree, param::Param};
use serde_json::{Map, Value};
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

struct Validation<'c> {
    check: Checker,
    catalogue: &'c dyn NodeTypes,
    strictness: Strictness,
    used: HashSet<String>,
}

/// A widget that could be read, with its place in the document.
struct Placed {
    path: String,
    widget: Widget,
}

impl Validation<'_> {
    fn graph(&mut self, document: &Value, path: &str) -> Option<Process> {
        let object = self.check.object(document, path)?;
        let widgets = self.widgets(object, path);
        let edges = self.edges(object, path);
        self.handles(&widgets, &edges);
        self.cycles(&widgets, &edges, path);
        for placed in &widgets {
            self.node(placed, &edges);
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

    fn widgets(&mut self, object: &Map<String, Value>, path: &str) -> Vec<Placed> {
        let mut ids = HashSet::new();
        let mut widgets = Vec::new();
        for (path, value) in self.check.list(object, "widgets", path, true) {
            let before = self.check.faults.len();
            let Some(widget) = self.check.object(value, &path) else { continue };
            if let Some(id) = self.check.text(widget, "id", &path) {
                if !ids.insert(id.to_owned()) {
                    self.check.fault(
                        format!("{path}.id"),
                        "duplicate",
                        format!("the id {id:?} is used by another widget"),
                    );
                }
                if id.contains(['/', '[', ']']) || id.contains(char::is_control) {
                    self.check.fault(
                        format!("{path}.id"),
                        "invalid_id",
                        format!("{id:?} must not hold / [ ] or control characters"),
                    );
                }
            }
            match widget.get("source") {
                Some(source) => {
                    if let Some(source) = self.check.object(source, &format!("{path}.source")) {
                        self.check.text(source, "nodeType", &format!("{path}.source"));
                    }
                }
                None => {
                    self.check.fault(format!("{path}.source"), "missing", "is required: {nodeType, label}");
                }
            }
            self.fields(widget, &path);
            self.execution(widget, &path);
            if self.check.faults.len() > before {
                continue;
            }
            match read_tree::<Widget>(value) {
                Ok(widget) => widgets.push(Placed { path, widget }),
                Err(error) => self.check.fault(path, "malformed", error.to_string()),
            }
        }
        widgets
    }

    fn fields(&mut self, widget: &Map<String, Value>, path: &str) {
        let mut names = HashSet::new();
        for (path, field) in self.check.list(widget, "config", path, false) {
            let Some(field) = self.check.object(field, &path) else { continue };
            if let Some(name) = self.check.text(field, "name", &path)
                && !names.insert(name.to_owned())
            {
                self.check.fault(
                    format!("{path}.name"),
                    "duplicate",
                    format!("the field {name:?} is listed twice"),
                );
            }
        }
        for (path, output) in self.check.list(widget, "outputs", path, false) {
            if !output.is_string() {
                self.check.wrong_type(&path, "a string", output);
            }
        }
    }

    fn execution(&mut self, widget: &Map<String, Value>, path: &str) {
        let Some(execution) = widget.get("execution").filter(|value| !value.is_null()) else { return };
        let path = format!("{path}.execution");
        let Some(object) = self.check.object(execution, &path) else { return };
        if let Some(timeout) = object.get("timeoutMs")
            && timeout.as_u64().is_none_or(|ms| ms == 0)
        {
            self.check.fault(
                format!("{path}.timeoutMs"),
                "out_of_range",
                "must be a whole number of milliseconds above 0",
            );
        }
        if let Some(retry) = object.get("retry").filter(|value| !value.is_null())
            && retry.get("maxAttempts").and_then(Value::as_u64).is_none_or(|n| !(1..=100).contains(&n))
        {
            self.check.fault(
                format!("{path}.retry.maxAttempts"),
                "out_of_range",
                "must be a whole number from 1 to 100",
            );
        }
        if let Some(on_error) = object.get("onError").filter(|value| !value.is_null())
            && !matches!(on_error.as_str(), Some("fail" | "continue"))
        {
            self.check.fault(format!("{path}.onError"), "unknown_value", "must be \"fail\" or \"continue\"");
        }
    }

    fn edges(&mut self, object: &Map<String, Value>, path: &str) -> Vec<(String, Edge)> {
        let mut ids = HashSet::new();
        let mut edges = Vec::new();
        for (path, value) in self.check.list(object, "edges", path, false) {
            let before = self.check.faults.len();
            let Some(edge) = self.check.object(value, &path) else { continue };
            for key in ["source", "sourceHandle", "target", "targetHandle"] {
                self.check.text(edge, key, &path);
            }
            if let Some(id) = self.check.optional_text(edge, "id", &path)
                && !id.is_empty()
                && !ids.insert(id.to_owned())
            {
                self.check.fault(
                    format!("{path}.id"),
                    "duplicate",
                    format!("the id {id:?} is used by another edge"),
                );
            }
            if self.check.faults.len() == before
                && let Ok(edge) = read_tree::<Edge>(value)
            {
                edges.push((path, edge));
            }
        }
        edges
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
        match widget.source.node_type.as_str() {
            builtin::TRIGGER => names.extend(fields().chain(["trigger".to_owned()])),
            builtin::OUTPUT | builtin::SWITCH => {}
            builtin::LOOP => names.extend(["items", "last"].map(str::to_owned)),
            builtin::VALIDATION => names.extend(["confirm", "reject"].map(str::to_owned)),
            builtin::EXTRACT => names.extend(extract_map(widget).unwrap_or_default().into_keys()),
            other => match self.catalogue.node_type(other) {
                Some(known) if widget.outputs.is_none() => {
                    names.extend(known.outputs.into_iter().map(|p| p.name));
                }
                None if widget.outputs.is_none() && !builtin::is_builtin(other) => return None,
                _ => {}
            },
        }
        Some(names)
    }

    /// What an edge may lead into; `None` for an open set.
    fn input_names(&self, widget: &Widget) -> Option<Vec<String>> {
        let mut names: Vec<String> =
            widget.config.iter().filter(|f| f.is_static != Some(true)).map(|f| f.name.clone()).collect();
        match widget.source.node_type.as_str() {
            builtin::VALIDATION | builtin::SWITCH => names.push("value".to_owned()),
            builtin::EXTRACT => names.push("source".to_owned()),
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
            self.check.fault(
                format!("{path}.edges"),
                "cycle",
                format!("the widgets {} feed themselves; use system.loop to repeat", left.join(", ")),
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
            builtin::LOOP => self.loop_body(placed),
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
