//! Validation that names every fault at once, each with its JSON path.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// JSON path from the document's root: `$.widgets[2].config[0].name`.
    pub path: String,
    /// Stable short code of the kind of fault, `snake_case`.
    pub code: String,
    /// What is wrong and what to do.
    pub message: String,
}

/// A remark that does not refuse the document; the same shape as a fault.
pub type Warning = Fault;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.path, self.message, self.code)
    }
}

/// Collects faults and warnings while a document is walked.
#[derive(Debug, Default)]
pub struct Checker {
    /// What refuses the document.
    pub faults: Vec<Fault>,
    /// What is only remarked.
    pub warnings: Vec<Warning>,
}

impl Checker {
    /// Adds a fault.
    pub fn fault(&mut self, path: impl Into<String>, code: &str, message: impl Into<String>) {
        self.faults.push(Fault { path: path.into(), code: code.to_owned(), message: message.into() });
    }

    /// Adds a warning.
    pub fn warn(&mut self, path: impl Into<String>, code: &str, message: impl Into<String>) {
        self.warnings.push(Fault { path: path.into(), code: code.to_owned(), message: message.into() });
    }

    /// The value as an object, or a fault.
    pub fn object<'v>(&mut self, value: &'v Value, path: &str) -> Option<&'v Map<String, Value>> {
        let object = value.as_object();
        if object.is_none() {
            self.wrong_type(path, "an object", value);
        }
        object
    }

    /// A required string that is not blank, or a fault.
    pub fn text<'v>(&mut self, object: &'v Map<String, Value>, key: &str, path: &str) -> Option<&'v str> {
        match object.get(key) {
            Some(Value::String(text)) if !text.trim().is_empty() => Some(text),
            Some(Value::String(_)) => {
                self.fault(format!("{path}.{key}"), "empty", "must not be empty");
                None
            }
            Some(other) => {
                self.wrong_type(&format!("{path}.{key}"), "a string", other);
                None
            }
            None => {
                self.fault(format!("{path}.{key}"), "missing", "is required");
                None
            }
        }
    }

    /// An optional string, or a fault when it is something else.
    pub fn optional_text<'v>(
        &mut self,
        object: &'v Map<String, Value>,
        key: &str,
        path: &str,
    ) -> Option<&'v str> {
        match object.get(key) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text),
            Some(other) => {
                self.wrong_type(&format!("{path}.{key}"), "a string", other);
                None
            }
        }
    }

    /// An optional boolean, or a fault when it is something else.
    pub fn optional_bool(&mut self, object: &Map<String, Value>, key: &str, path: &str) -> Option<bool> {
        match object.get(key) {
            None | Some(Value::Null) => None,
            Some(Value::Bool(flag)) => Some(*flag),
            Some(other) => {
                self.wrong_type(&format!("{path}.{key}"), "true or false", other);
                None
            }
        }
    }

    /// A list that may be absent; each item comes with its path.
    pub fn list<'v>(
        &mut self,
        object: &'v Map<String, Value>,
        key: &str,
        path: &str,
        required: bool,
    ) -> Vec<(String, &'v Value)> {
        match object.get(key) {
            Some(Value::Array(items)) => {
                items.iter().enumerate().map(|(i, item)| (format!("{path}.{key}[{i}]"), item)).collect()
            }
            None | Some(Value::Null) if !required => Vec::new(),
            None => {
                self.fault(format!("{path}.{key}"), "missing", "is required");
                Vec::new()
            }
            Some(other) => {
                self.wrong_type(&format!("{path}.{key}"), "an array", other);
                Vec::new()
            }
        }
    }

    /// Warns about each key that is not in `known`; unknown fields are kept, never refused.
    pub fn unknown_keys(&mut self, object: &Map<String, Value>, known: &[&str], path: &str) {
        for key in object.keys().filter(|key| !known.contains(&key.as_str())) {
            self.warn(format!("{path}.{key}"), "unknown_field", "is not a known field; it is kept as it is");
        }
    }

    /// A fault for a value of the wrong JSON type.
    pub fn wrong_type(&mut self, path: &str, wanted: &str, found: &Value) {
        self.fault(path, "wrong_type", format!("must be {wanted}, found {}", type_name(found)));
    }

    /// The result: the value when there is no fault.
    pub fn finish<T>(self, value: Option<T>) -> Result<(T, Vec<Warning>), Vec<Fault>> {
        match value {
            Some(value) if self.faults.is_empty() => Ok((value, self.warnings)),
            _ => Err(self.faults),
        }
    }
}

/// The JSON type of a value, for messages.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
