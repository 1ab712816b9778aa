//! Nodes that the engine evaluates itself, without a task (protocol section 7).

use super::graph::Node;
use contract::{
    ErrorCode, Json, Millis, NodePath,
    process::{Field, Widget, extract_map, json_setting, parse_path},
    report::StepError,
    run::TriggerKind,
};
use indexmap::IndexMap;
use serde::Serialize;
use serde_json::Value;
use serde_json_path::JsonPath;

/// Values by output name.
pub type Outputs = IndexMap<String, Json>;

/// The output of a node that failed under `onError: continue`.
pub(super) const ERROR_OUTPUT: &str = "error";

/// What a node produces that failed under `onError: continue`: `error`, with the failed step's place
/// and reason.
pub(super) fn failed(node_path: &NodePath, error: &StepError) -> Outputs {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Told<'e> {
        code: &'e str,
        message: &'e str,
        #[serde(skip_serializing_if = "Option::is_none")]
        retryable: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        details: Option<&'e Json>,
        node_path: &'e NodePath,
    }
    let told = Told {
        code: error.code.as_deref().unwrap_or(ErrorCode::StepFailed.as_str()),
        message: &error.message,
        retryable: error.retryable,
        details: error.details.as_ref(),
        node_path,
    };
    // Texts and JSON texts always serialise.
    std::iter::once((ERROR_OUTPUT.to_owned(), Json::of(&told).unwrap_or_default())).collect()
}

/// `system.trigger.input`: each declared field's value is the payload's, else its default, else
/// `null`; `trigger` tells how the run was started. In a loop body the payload is the iteration's.
pub(super) fn trigger(node: &Node, kind: TriggerKind, payload: &Outputs, at: Millis) -> Outputs {
    #[derive(Serialize)]
    struct Trigger<'s> {
        r#type: TriggerKind,
        at: Millis,
        payload: &'s Outputs,
    }
    let mut outputs: Outputs = node
        .inputs
        .iter()
        .map(|input| {
            let value = payload.get(&input.name).or(input.value.as_ref());
            (input.name.clone(), value.cloned().unwrap_or_default())
        })
        .collect();
    if !outputs.contains_key("trigger") {
        let trigger = Trigger { r#type: kind, at, payload };
        // Names and JSON texts always serialise.
        outputs.insert("trigger".to_owned(), Json::of(&trigger).unwrap_or_default());
    }
    outputs
}

/// `system.control.switch`: the arm whose name equals the value's text gets `true`, an arm named
/// `default` catches the rest, all others are dead.
pub(super) fn switch<'n>(arms: impl Iterator<Item = &'n str>, value: Option<&Json>) -> Outputs {
    let text = value.map(text_of);
    let mut chosen = None;
    for arm in arms {
        if Some(arm) == text.as_deref() {
            chosen = Some(arm);
            break;
        }
        if arm == "default" {
            chosen = Some(arm);
        }
    }
    let open = || Json::from(Value::Bool(true));
    chosen.map(|arm| (arm.to_owned(), open())).into_iter().collect()
}

/// A string's content; any other value's JSON text.
fn text_of(value: &Json) -> String {
    value.read().unwrap_or_else(|_| value.text().to_owned())
}

/// `system.object.extract`, compiled.
#[derive(Debug, PartialEq)]
pub struct Extract {
    fields: Vec<ExtractField>,
}

#[derive(Debug, PartialEq)]
struct ExtractField {
    output: String,
    path: JsonPath,
    /// Can the path lead to more than one value? Then the output is the array of them.
    is_plural: bool,
    default: Option<Json>,
}

impl Extract {
    /// Reads `map` and `defaults` of the widget.
    ///
    /// # Errors
    /// What is malformed, in words.
    pub fn compile(widget: &Widget) -> Result<Self, String> {
        let map = extract_map(widget)
            .ok_or_else(|| "\"map\" must be an object {output: path} or JSON text of one".to_owned())?;
        let defaults = widget.field("defaults").and_then(Field::effective).and_then(json_setting);
        let fields = map
            .into_iter()
            .map(|(output, text)| {
                let path = parse_path(&text).map_err(|error| format!("{text:?} is no path: {error}"))?;
                let default = defaults.as_ref().and_then(|defaults| defaults.get(&output)).map(Json::from);
                Ok(ExtractField { output, path, is_plural: is_plural(&text), default })
            })
            .collect::<Result<_, String>>()?;
        Ok(Self { fields })
    }

    /// The names of its outputs.
    pub fn outputs(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| field.output.as_str())
    }

    /// Takes the fields out of the source. A string that holds an object or array as JSON text is
    /// read as that: such values often travel as text.
    ///
    /// # Errors
    /// Why the source cannot be read, in words.
    pub fn evaluate(&self, source: Option<&Json>) -> Result<Outputs, String> {
        let source = match source {
            None => Value::Null,
            Some(json) => {
                json.value().map_err(|error| format!("the source cannot be read as a tree: {error}"))?
            }
        };
        let source = match &source {
            Value::String(text) => {
                serde_json::from_str(text).ok().filter(|value: &Value| value.is_object() || value.is_array())
            }
            _ => None,
        }
        .unwrap_or(source);
        Ok(self
            .fields
            .iter()
            .filter_map(|field| Some((field.output.clone(), field.value_in(&source)?)))
            .collect())
    }
}

impl ExtractField {
    fn value_in(&self, source: &Value) -> Option<Json> {
        let found = self.path.query(source);
        let value = if self.is_plural {
            let all: Vec<&Value> = found.all();
            (!all.is_empty()).then(|| Json::of(&all).unwrap_or_default())
        } else {
            found.first().map(Json::from)
        };
        value.or_else(|| self.default.clone())
    }
}

/// Wildcards, filters, slices, lists of selectors and descents can lead to several values. Quoted
/// names may hold any of these characters.
fn is_plural(path: &str) -> bool {
    let mut quote = None;
    let mut previous = ' ';
    for character in path.chars() {
        match quote {
            Some(open) => {
                if character == open && previous != '\\' {
                    quote = None;
                }
            }
            None => match character {
                '\'' | '"' => quote = Some(character),
                '*' | '?' | ',' | ':' => return true,
                '.' if previous == '.' => return true,
                _ => {}
            },
        }
        // An escaped backslash escapes nothing after it.
        previous = if previous == '\\' && character == '\\' { ' ' } else { character };
    }
    false
}

#[cfg(test)]
#[path = "evaluate_tests.rs"]
mod tests;
