//! Process documents (diagrams): types, import and validation (protocol section 7, facts section 6).

mod form;
mod import;
mod path;
mod ports;
mod reach;
mod triggers;
mod validate;

pub use import::import;
pub use path::parse_path;
pub use validate::{NodeType, NodeTypes, Strictness, Validated, validate};

use crate::Json;
use crate::json::present;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One diagram. Unknown fields are kept at every level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Name, triggers and the like.
    #[serde(default)]
    pub settings: Settings,
    /// The nodes, in document order.
    #[serde(default)]
    pub widgets: Vec<Widget>,
    /// The edges; their order decides which of several edges into one port wins.
    #[serde(default)]
    pub edges: Vec<Edge>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Settings of a diagram.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// What people see.
    #[serde(default)]
    pub name: String,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// How runs are started.
    #[serde(default)]
    pub triggers: Vec<Trigger>,
    /// May triggers start it?
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_active: Option<bool>,
    /// From the start of a run to its end, milliseconds; absent means without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How many runs may be running at the same time; a start beyond it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent_runs: Option<u32>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// One way to start a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trigger {
    /// `webhook`, `manual` or `schedule`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its settings, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A node of a diagram.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Widget {
    /// Unique in its graph; `nodeId` of tasks and reports.
    pub id: String,
    /// What people see.
    #[serde(default)]
    pub label: String,
    /// What it is.
    pub source: Source,
    /// Its fields.
    #[serde(default)]
    pub config: Vec<Field>,
    /// Names of its outputs; may be a subset of what the node type declares, absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Vec<String>>,
    /// Timeout, retry and what an error means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Execution>,
    /// Unknown fields, kept (`position` too).
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What a widget is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// The node type.
    pub node_type: String,
    /// Its display name when it was drawn.
    #[serde(default)]
    pub label: String,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// One field of a widget: a port, a setting, or both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Field {
    /// The port's and input's name.
    pub name: String,
    /// Control and value kind (see [`crate::param::ParamType`]); free text in stored documents.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// Is it a port?
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_port: Option<bool>,
    /// May it be turned into a port?
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub can_be_port: Option<bool>,
    /// Must it have a value?
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_required: Option<bool>,
    /// A setting, never a port.
    #[serde(rename = "static", default, skip_serializing_if = "Option::is_none")]
    pub is_static: Option<bool>,
    /// The set value; `null` and absence fall back to `default_value`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub value: Option<Json>,
    /// The value when none is set.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub default_value: Option<Json>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Field {
    /// `value ?? defaultValue`: what the input is when no edge leads into it.
    pub fn effective(&self) -> Option<&Json> {
        let set = |json: &&Json| !json.is_null();
        self.value.as_ref().filter(set).or(self.default_value.as_ref())
    }

    /// Is it a reference to a secret?
    pub fn is_secret(&self) -> bool {
        self.kind == "ref"
    }
}

impl Widget {
    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.config.iter().find(|field| field.name == name)
    }

    /// What people see: the label, else the id.
    pub fn title(&self) -> &str {
        if self.label.is_empty() { &self.id } else { &self.label }
    }
}

/// An edge from an output to an input.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Edge {
    /// Its id; may be absent in what people write by hand.
    #[serde(default)]
    pub id: String,
    /// Source widget.
    pub source: String,
    /// Output of the source.
    pub source_handle: String,
    /// Target widget.
    pub target: String,
    /// Input of the target.
    pub target_handle: String,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// How a node is executed (protocol section 5).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Execution {
    /// From ack to result, milliseconds; default one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Repeat a failed step; absent means never after an ack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// What a failure does to the run; absent means `fail`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// How often a failed step is repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// All attempts, the first included; at least 1, at most 100.
    pub max_attempts: u32,
    /// Wait before the second attempt, milliseconds; doubles from then on.
    #[serde(default = "default_backoff_ms")]
    pub backoff_ms: u64,
    /// Longest wait, milliseconds.
    #[serde(default = "default_max_backoff_ms")]
    pub max_backoff_ms: u64,
}

fn default_backoff_ms() -> u64 {
    1_000
}

fn default_max_backoff_ms() -> u64 {
    60_000
}

/// What a failed node does to its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// The run fails.
    Fail,
    /// Its outputs are dead and the run goes on.
    Continue,
}

/// A static field that holds JSON as a value or as text of it (`map`, `body`, `iterator`).
pub fn json_setting(field: &Json) -> Option<Value> {
    let value = field.value().ok()?;
    match value {
        Value::String(text) => serde_json::from_str(&text).ok(),
        other => Some(other),
    }
}

/// `map` of a `system.object.extract` widget: output name → path; `None` when it is malformed.
pub fn extract_map(widget: &Widget) -> Option<std::collections::BTreeMap<String, String>> {
    validate::extract_map(widget)
}
