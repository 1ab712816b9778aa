//! The form of widgets and edges: what can be read at all.

use super::{
    Edge, Widget,
    validate::{Placed, Validation},
};
use crate::json::read_tree;
use serde_json::{Map, Value};
use std::collections::HashSet;

impl Validation<'_> {
    pub(super) fn widgets(&mut self, object: &Map<String, Value>, path: &str) -> Vec<Placed> {
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
            let text = |key| widget.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
            if let Some(title) = text("label").or_else(|| text("id")) {
                self.name_faults(before, title);
            }
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

    pub(super) fn edges(&mut self, object: &Map<String, Value>, path: &str) -> Vec<(String, Edge)> {
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
}
