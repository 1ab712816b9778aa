//! Declared inputs and outputs of a node type (protocol section 3, facts section 4.3).

use crate::{check::Checker, json::read_tree};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The editor control and value kind of a param. `keyvalue` carries objects and arrays, `ref` as an
/// input is a reference to a secret, `textarea` often carries JSON text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParamType {
    /// One line of text.
    #[default]
    String,
    /// Text of many lines.
    Textarea,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// One of `options`.
    Select,
    /// An object or array.
    Keyvalue,
    /// As an input: a secret reference.
    Ref,
}

impl ParamType {
    /// The seven names, as in the wire format.
    pub const NAMES: [&'static str; 7] =
        ["string", "textarea", "number", "boolean", "select", "keyvalue", "ref"];

    /// Does what fits the other type fit this one? One text control instead of the other carries the
    /// same values.
    pub fn takes(self, other: Self) -> bool {
        let text = |kind| matches!(kind, Self::String | Self::Textarea);
        self == other || (text(self) && text(other))
    }
}

/// One declared input or output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Param {
    /// The port's and field's name.
    pub name: String,
    /// Control and value kind.
    #[serde(rename = "type", default)]
    pub kind: ParamType,
    /// What people see.
    #[serde(default)]
    pub label: String,
    /// A longer text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Must it have a value? Absence means no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// The value when none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// A setting of the node, never a port.
    #[serde(rename = "static", default, skip_serializing_if = "Option::is_none")]
    pub is_static: Option<bool>,
    /// May be turned into an input port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub can_be_port: Option<bool>,
    /// Is a port by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_port: Option<bool>,
    /// The node's main field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_primary: Option<bool>,
    /// Kind of secret that a `ref` input wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_kind: Option<String>,
    /// Choices of a `select`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Value>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Param {
    /// Must a process give it a value?
    pub fn needs_value(&self) -> bool {
        self.required && self.default.is_none()
    }

    /// May an edge lead into it?
    pub fn may_be_port(&self) -> bool {
        self.is_static != Some(true)
    }
}

const KNOWN: [&str; 12] = [
    "name",
    "type",
    "label",
    "description",
    "required",
    "default",
    "static",
    "canBePort",
    "isPort",
    "isPrimary",
    "secretKind",
    "options",
];

/// Reads `inputs` or `outputs` of an executor item: an array of params or an object keyed by name;
/// faults go to `check`.
pub fn read_params(value: &Value, path: &str, check: &mut Checker) -> Vec<Param> {
    let named: Vec<(String, Value)> = match value {
        Value::Array(items) => {
            items.iter().enumerate().map(|(i, item)| (format!("{path}[{i}]"), item.clone())).collect()
        }
        Value::Object(fields) => fields
            .iter()
            .map(|(name, item)| {
                let mut item = item.clone();
                if let Value::Object(field) = &mut item {
                    field.entry("name").or_insert_with(|| Value::String(name.clone()));
                }
                (format!("{path}.{name}"), item)
            })
            .collect(),
        other => {
            check.wrong_type(path, "an array of params or an object keyed by name", other);
            return Vec::new();
        }
    };
    let mut seen = std::collections::HashSet::new();
    named
        .into_iter()
        .filter_map(|(path, item)| {
            let param = read_param(&item, &path, check)?;
            if !seen.insert(param.name.clone()) {
                check.fault(
                    format!("{path}.name"),
                    "duplicate",
                    format!("{:?} is declared twice", param.name),
                );
            }
            Some(param)
        })
        .collect()
}

fn read_param(value: &Value, path: &str, check: &mut Checker) -> Option<Param> {
    let object = check.object(value, path)?;
    let before = check.faults.len();
    check.text(object, "name", path);
    if let Some(kind) = check.optional_text(object, "type", path)
        && !ParamType::NAMES.contains(&kind)
    {
        check.fault(
            format!("{path}.type"),
            "unknown_type",
            format!("{kind:?} is no param type; use one of {}", ParamType::NAMES.join(", ")),
        );
    }
    check.optional_text(object, "label", path);
    check.optional_text(object, "description", path);
    check.optional_text(object, "secretKind", path);
    for key in ["required", "static", "canBePort", "isPort", "isPrimary"] {
        check.optional_bool(object, key, path);
    }
    check.unknown_keys(object, &KNOWN, path);
    // Nulls stand for absence in what JavaScript sends.
    let present: Map<String, Value> = object
        .iter()
        .filter(|(key, value)| !value.is_null() || *key == "default")
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    match read_tree(&Value::Object(present)) {
        Ok(param) => Some(param),
        // Most of what cannot be read was named as a fault above.
        Err(error) if check.faults.len() == before => {
            check.fault(path, "malformed", error.to_string());
            None
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn array_and_object_forms_read_the_same() {
        let array = json!([{"name": "text", "type": "textarea", "label": "Text", "isPort": true}]);
        let object = json!({"text": {"type": "textarea", "label": "Text", "isPort": true}});
        let read = |value| {
            let mut check = Checker::default();
            let params = read_params(&value, "$", &mut check);
            assert_eq!(check.faults, []);
            params
        };
        assert_eq!(read(array), read(object));
    }

    #[test]
    fn every_fault_is_named_with_its_path() {
        let mut check = Checker::default();
        read_params(&json!([{"type": "enum"}, {"name": "a", "required": "yes"}, 5]), "$.inputs", &mut check);
        let paths: Vec<_> = check.faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, ["$.inputs[0].name", "$.inputs[0].type", "$.inputs[1].required", "$.inputs[2]"]);
    }

    #[test]
    fn unknown_fields_survive() {
        let mut check = Checker::default();
        let value = json!([{"name": "a", "type": "string", "label": "A", "hint": {"big": 12345678901234567890123u128}}]);
        let params = read_params(&value, "$", &mut check);
        assert_eq!(check.faults, []);
        assert_eq!(serde_json::to_value(&params).unwrap(), value);
        assert_eq!(check.warnings[0].path, "$[0].hint");
    }
}
