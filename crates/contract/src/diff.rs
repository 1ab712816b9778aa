//! What changed between two publications of a plugin, in nodes and ports, and which changes break
//! processes that were drawn with the older one (protocol section 3). Pure.

use crate::{
    manifest::ExecutorItem,
    param::{Param, ParamType},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// What kind of change it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// The newer one has a node type more.
    NodeAdded,
    /// The newer one has a node type less.
    NodeRemoved,
    /// Any input name was accepted, now only the declared ones.
    InputsClosed,
    /// Only declared inputs were accepted, now any name.
    InputsOpened,
    /// A port or field more.
    PortAdded,
    /// A port or field less.
    PortRemoved,
    /// Type, requiredness or being a port changed.
    PortChanged,
}

/// On which side of a node a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// An input or field.
    Input,
    /// An output.
    Output,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// What kind of change.
    pub kind: ChangeKind,
    /// The node type.
    pub node_type: String,
    /// The side of the port, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<Side>,
    /// The port's name, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Can a process that was drawn with the older one fail with the newer?
    pub breaking: bool,
    /// For people: what was and what is.
    pub detail: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.node_type)?;
        if let (Some(side), Some(port)) = (self.side, &self.port) {
            let side = match side {
                Side::Input => "input",
                Side::Output => "output",
            };
            write!(f, " {side} {port:?}")?;
        }
        write!(f, ": {}", self.detail)
    }
}

/// What changed from `older` to `newer`: node types in the order of their names, then their ports.
pub fn diff(older: &[ExecutorItem], newer: &[ExecutorItem]) -> Vec<Change> {
    let by_name = |items: &'_ [ExecutorItem]| -> BTreeMap<String, ExecutorItem> {
        items.iter().map(|item| (item.node_type.clone(), item.clone())).collect()
    };
    let (older, newer) = (by_name(older), by_name(newer));
    let mut changes = Vec::new();
    for (node_type, before) in &older {
        match newer.get(node_type) {
            None => changes.push(of_node(ChangeKind::NodeRemoved, node_type, true, "the node was removed")),
            Some(after) => changes.extend(of_item(before, after)),
        }
    }
    for node_type in newer.keys().filter(|node_type| !older.contains_key(*node_type)) {
        changes.push(of_node(ChangeKind::NodeAdded, node_type, false, "the node is new"));
    }
    changes
}

fn of_node(kind: ChangeKind, node_type: &str, breaking: bool, detail: &str) -> Change {
    Change {
        kind,
        node_type: node_type.to_owned(),
        side: None,
        port: None,
        breaking,
        detail: detail.to_owned(),
    }
}

fn of_item(before: &ExecutorItem, after: &ExecutorItem) -> Vec<Change> {
    let node_type = &before.node_type;
    let mut changes = match (&before.inputs, &after.inputs) {
        (None, None) => Vec::new(),
        (Some(before), Some(after)) => of_ports(node_type, Side::Input, before, after),
        (None, Some(_)) => vec![of_node(
            ChangeKind::InputsClosed,
            node_type,
            true,
            "any input was accepted, now only the declared ones are",
        )],
        (Some(_), None) => {
            vec![of_node(ChangeKind::InputsOpened, node_type, false, "any input is accepted now")]
        }
    };
    changes.extend(of_ports(node_type, Side::Output, &before.outputs, &after.outputs));
    changes
}

fn of_ports(node_type: &str, side: Side, before: &[Param], after: &[Param]) -> Vec<Change> {
    let change = |kind, port: &Param, breaking, detail: String| Change {
        kind,
        node_type: node_type.to_owned(),
        side: Some(side),
        port: Some(port.name.clone()),
        breaking,
        detail,
    };
    let find = |params: &'_ [Param], name: &str| params.iter().find(|param| param.name == name).cloned();
    let mut changes = Vec::new();
    for old in before {
        let Some(new) = find(after, &old.name) else {
            changes.push(change(ChangeKind::PortRemoved, old, true, "was removed".to_owned()));
            continue;
        };
        let (details, breaking) = of_param(side, old, &new);
        if !details.is_empty() {
            changes.push(change(ChangeKind::PortChanged, old, breaking, details.join(", ")));
        }
    }
    for new in after.iter().filter(|new| find(before, &new.name).is_none()) {
        let wanted = side == Side::Input && new.needs_value();
        let detail = if wanted { "is new and required" } else { "is new" };
        changes.push(change(ChangeKind::PortAdded, new, wanted, detail.to_owned()));
    }
    changes
}

/// The differences of one param in words, and whether one of them breaks.
fn of_param(side: Side, old: &Param, new: &Param) -> (Vec<String>, bool) {
    let mut details = Vec::new();
    let mut breaking = false;
    if old.kind != new.kind {
        details.push(format!("its type was {} and is {}", name(old.kind), name(new.kind)));
        breaking |= !new.kind.takes(old.kind);
    }
    if side == Side::Input && old.needs_value() != new.needs_value() {
        let now = new.needs_value();
        details.push(if now { "it is required now" } else { "it is no longer required" }.to_owned());
        breaking |= now;
    }
    if side == Side::Input && old.may_be_port() != new.may_be_port() {
        let now = new.may_be_port();
        details.push(if now { "it may be a port now" } else { "it can no longer be a port" }.to_owned());
        breaking |= !now;
    }
    (details, breaking)
}

fn name(kind: ParamType) -> &'static str {
    match kind {
        ParamType::String => "string",
        ParamType::Textarea => "textarea",
        ParamType::Number => "number",
        ParamType::Boolean => "boolean",
        ParamType::Select => "select",
        ParamType::Keyvalue => "keyvalue",
        ParamType::Ref => "ref",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn item(node_type: &str, inputs: &[Param], outputs: &[Param]) -> ExecutorItem {
        ExecutorItem {
            node_type: node_type.into(),
            inputs: Some(inputs.to_vec()),
            outputs: outputs.to_vec(),
            ..ExecutorItem::default()
        }
    }

    fn param(name: &str) -> Param {
        Param { name: name.into(), ..Param::default() }
    }

    /// Each change as `kind breaking`.
    fn told(older: &[ExecutorItem], newer: &[ExecutorItem]) -> Vec<String> {
        let told = |change: &Change| {
            let kind = serde_json::to_value(change.kind).unwrap();
            format!("{} {}", kind.as_str().unwrap(), if change.breaking { "breaks" } else { "fits" })
        };
        diff(older, newer).iter().map(told).collect()
    }

    #[test]
    fn the_same_nodes_have_no_changes() {
        let items = [item("a", &[param("x")], &[param("y")])];
        assert_eq!(diff(&items, &items), []);
    }

    #[test]
    fn a_removed_node_breaks_and_a_new_one_does_not() {
        let (a, b) = (item("a", &[], &[]), item("b", &[], &[]));
        assert_eq!(told(&[a], &[b]), ["node_removed breaks", "node_added fits"]);
    }

    #[test]
    fn removed_ports_break_on_both_sides() {
        let before = item("a", &[param("x")], &[param("y")]);
        assert_eq!(told(&[before], &[item("a", &[], &[])]), ["port_removed breaks", "port_removed breaks"]);
    }

    #[test]
    fn a_new_input_breaks_only_when_it_must_have_a_value() {
        let before = [item("a", &[], &[])];
        let required = Param { required: true, ..param("x") };
        let defaulted = Param { default: Some(json!(1)), ..required.clone() };
        assert_eq!(told(&before, &[item("a", &[param("x")], &[])]), ["port_added fits"]);
        assert_eq!(told(&before, &[item("a", std::slice::from_ref(&required), &[])]), ["port_added breaks"]);
        assert_eq!(told(&before, &[item("a", &[defaulted], &[])]), ["port_added fits"]);
        // Nobody has to fill an output.
        assert_eq!(told(&before, &[item("a", &[], &[required])]), ["port_added fits"]);
    }

    #[test]
    fn another_type_breaks_unless_both_are_text() {
        let of = |kind| [item("a", &[Param { kind, ..param("x") }], &[])];
        assert_eq!(told(&of(ParamType::String), &of(ParamType::Textarea)), ["port_changed fits"]);
        assert_eq!(told(&of(ParamType::String), &of(ParamType::Number)), ["port_changed breaks"]);
    }

    #[test]
    fn requiring_a_value_and_forbidding_a_port_break_and_their_opposites_fit() {
        let of = |param: Param| [item("a", &[param], &[])];
        let required = || of(Param { required: true, ..param("x") });
        let fixed = || of(Param { is_static: Some(true), ..param("x") });
        assert_eq!(told(&of(param("x")), &required()), ["port_changed breaks"]);
        assert_eq!(told(&required(), &of(param("x"))), ["port_changed fits"]);
        assert_eq!(told(&of(param("x")), &fixed()), ["port_changed breaks"]);
        assert_eq!(told(&fixed(), &of(param("x"))), ["port_changed fits"]);
    }

    #[test]
    fn closing_an_open_set_of_inputs_breaks() {
        let open = || [ExecutorItem { inputs: None, ..item("a", &[], &[]) }];
        assert_eq!(told(&open(), &[item("a", &[], &[])]), ["inputs_closed breaks"]);
        assert_eq!(told(&[item("a", &[], &[])], &open()), ["inputs_opened fits"]);
    }

    #[test]
    fn a_change_says_where_it_is() {
        let changes = diff(&[item("a.b", &[param("x")], &[])], &[item("a.b", &[], &[])]);
        assert_eq!(changes[0].to_string(), "a.b input \"x\": was removed");
    }
}
