//! Which nodes of a saved process a change of a node type hits: only what they use counts. Pure.

use contract::{
    builtin,
    diff::{Change, ChangeKind, Side},
    manifest::ExecutorItem,
    param::Param,
    process::{Process, Widget},
};

/// Loops nest at most so deep (protocol section 7).
const MAX_DEPTH: usize = 16;

/// A node type before and after a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Versions<'a> {
    pub(super) older: Option<&'a ExecutorItem>,
    pub(super) newer: Option<&'a ExecutorItem>,
}

/// The port of an item that a change is about.
fn port<'a>(item: Option<&'a ExecutorItem>, change: &Change) -> Option<&'a Param> {
    let params = match change.side? {
        Side::Input => item?.inputs.as_deref()?,
        Side::Output => item?.outputs.as_slice(),
    };
    params.iter().find(|param| change.port.as_deref() == Some(&*param.name))
}

/// The nodes of the process that the change breaks, as `"Title" (id)`, those in the bodies of loops
/// too.
pub(super) fn hit(process: &Process, change: &Change, versions: Versions<'_>) -> Vec<String> {
    let mut found = Vec::new();
    walk(process, MAX_DEPTH, &mut |graph, widget| {
        let node = Node { graph, widget };
        if widget.source.node_type == change.node_type && node.is_hit(change, versions) {
            found.push(format!("{:?} ({})", widget.title(), widget.id));
        }
    });
    found
}

fn walk(graph: &Process, depth: usize, visit: &mut impl FnMut(&Process, &Widget)) {
    for widget in &graph.widgets {
        visit(graph, widget);
        if widget.source.node_type == builtin::LOOP
            && depth > 0
            && let Some(body) = body(widget)
        {
            walk(&body, depth - 1, visit);
        }
    }
}

/// The body of a loop, which is a value or JSON text of it.
fn body(widget: &Widget) -> Option<Process> {
    let body = widget.field("body")?.effective()?;
    match body.read::<String>() {
        Ok(text) => serde_json::from_str(&text).ok(),
        Err(_) => body.read().ok(),
    }
}

/// A widget in its graph.
struct Node<'a> {
    graph: &'a Process,
    widget: &'a Widget,
}

impl Node<'_> {
    fn is_hit(&self, change: &Change, versions: Versions<'_>) -> bool {
        if !change.breaking {
            return false;
        }
        let name = change.port.as_deref().unwrap_or_default();
        match (change.kind, change.side) {
            (ChangeKind::NodeRemoved, _) => true,
            (ChangeKind::InputsClosed, _) => self.gives_undeclared(versions.newer),
            (ChangeKind::PortAdded, _) => !self.gives(name),
            (ChangeKind::PortRemoved, Some(Side::Input)) => self.gives(name),
            (ChangeKind::PortChanged, Some(Side::Input)) => {
                match (port(versions.older, change), port(versions.newer, change)) {
                    (Some(older), Some(newer)) => self.input_is_hit(older, newer),
                    _ => true,
                }
            }
            (ChangeKind::PortRemoved | ChangeKind::PortChanged, _) => self.takes(name),
            (ChangeKind::NodeAdded | ChangeKind::InputsOpened, _) => false,
        }
    }

    fn input_is_hit(&self, older: &Param, newer: &Param) -> bool {
        let port = &*newer.name;
        (!newer.kind.takes(older.kind) && self.gives(port))
            || (newer.needs_value() && !older.needs_value() && !self.gives(port))
            || (!newer.may_be_port() && older.may_be_port() && self.has_edge_into(port))
    }

    /// Does the process give the input anything: by an edge or a set value?
    fn gives(&self, input: &str) -> bool {
        self.has_edge_into(input) || self.widget.field(input).and_then(|field| field.effective()).is_some()
    }

    fn has_edge_into(&self, input: &str) -> bool {
        let into =
            |edge: &contract::process::Edge| edge.target == self.widget.id && edge.target_handle == input;
        self.graph.edges.iter().any(into)
    }

    /// Does the process use the output?
    fn takes(&self, output: &str) -> bool {
        self.graph.edges.iter().any(|edge| edge.source == self.widget.id && edge.source_handle == output)
    }

    /// Does the process give an input that the node type does not declare?
    fn gives_undeclared(&self, item: Option<&ExecutorItem>) -> bool {
        let declared = item.and_then(|item| item.inputs.as_deref()).unwrap_or_default();
        let undeclared = |name: &str| !declared.iter().any(|param| param.name == name);
        let fields = self.widget.config.iter().map(|field| &*field.name);
        let edges = self.graph.edges.iter().filter(|edge| edge.target == self.widget.id);
        let mut given = fields.filter(|name| self.gives(name)).chain(edges.map(|edge| &*edge.target_handle));
        given.any(undeclared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{Json, diff::diff};
    use serde_json::{Value, json};

    const UPPER: &str = "plugin.text.upper";

    fn item(inputs: &Value, outputs: &Value) -> ExecutorItem {
        let item = json!({"nodeType": UPPER, "inputs": inputs, "outputs": outputs});
        Json::from(item).read().unwrap()
    }

    fn process(widgets: &Value, edges: &Value) -> Process {
        Json::from(json!({"widgets": widgets, "edges": edges})).read().unwrap()
    }

    /// One node whose input `set` has a value, whose input `wired` has an edge and whose output `out` is
    /// used.
    fn usual() -> Process {
        process(
            &json!([
                {"id": "t", "source": {"nodeType": "system.trigger.input"}},
                {"id": "w", "label": "Upper", "source": {"nodeType": UPPER},
                 "config": [{"name": "set", "value": 1}, {"name": "empty", "value": null}, {"name": "wired"}]},
                {"id": "o", "source": {"nodeType": "system.output"}},
            ]),
            &json!([
                {"source": "t", "sourceHandle": "x", "target": "w", "targetHandle": "wired"},
                {"source": "w", "sourceHandle": "out", "target": "o", "targetHandle": "r"},
            ]),
        )
    }

    fn hits(process: &Process, older: &ExecutorItem, newer: Option<&ExecutorItem>) -> Vec<String> {
        let newest: Vec<ExecutorItem> = newer.cloned().into_iter().collect();
        let versions = Versions { older: Some(older), newer };
        diff(std::slice::from_ref(older), &newest)
            .iter()
            .flat_map(|change| hit(process, change, versions))
            .collect()
    }

    fn is_hit(older: [Value; 2], newer: [Value; 2]) -> bool {
        let ([a, b], [c, d]) = (older, newer);
        !hits(&usual(), &item(&a, &b), Some(&item(&c, &d))).is_empty()
    }

    #[test]
    fn a_removed_node_hits_every_process_that_has_it_and_names_the_node() {
        let older = item(&json!([]), &json!([]));
        assert_eq!(hits(&usual(), &older, None), ["\"Upper\" (w)"]);
    }

    #[test]
    fn a_removed_port_hits_only_who_uses_it() {
        let removed = |name: &str| is_hit([json!([{"name": name}]), json!([])], [json!([]), json!([])]);
        assert!(removed("set") && removed("wired"));
        assert!(!removed("empty") && !removed("unmentioned"));
        let output = |name: &str| is_hit([json!([]), json!([{"name": name}])], [json!([]), json!([])]);
        assert!(output("out") && !output("unused"));
    }

    #[test]
    fn another_type_hits_only_who_uses_the_port() {
        let of = |name: &str, kind: &str| json!([{"name": name, "type": kind}]);
        let input =
            |name: &str, kind: &str| is_hit([of(name, "string"), json!([])], [of(name, kind), json!([])]);
        assert!(input("set", "number") && input("wired", "number"));
        assert!(!input("set", "textarea") && !input("empty", "number"));
        let output = |name: &str| is_hit([json!([]), of(name, "string")], [json!([]), of(name, "number")]);
        assert!(output("out") && !output("unused"));
    }

    #[test]
    fn a_value_that_is_needed_now_hits_who_gives_none() {
        let required = |name: &str| json!([{"name": name, "required": true}]);
        let now = |name: &str| is_hit([json!([{"name": name}]), json!([])], [required(name), json!([])]);
        let new = |name: &str| is_hit([json!([]), json!([])], [required(name), json!([])]);
        for needed in [&now as &dyn Fn(&str) -> bool, &new] {
            assert!(needed("empty") && needed("unmentioned"));
            assert!(!needed("set") && !needed("wired"));
        }
    }

    #[test]
    fn a_port_that_became_a_setting_hits_who_has_an_edge_into_it() {
        let fixed = |name: &str| {
            is_hit([json!([{"name": name}]), json!([])], [json!([{"name": name, "static": true}]), json!([])])
        };
        assert!(fixed("wired") && !fixed("set"));
    }

    #[test]
    fn closed_inputs_hit_who_gives_others_than_declared() {
        let closed = |inputs: Value| is_hit([Value::Null, json!([])], [inputs, json!([])]);
        assert!(closed(json!([{"name": "set"}])));
        assert!(!closed(json!([{"name": "set"}, {"name": "wired"}])));
    }

    #[test]
    fn nodes_in_the_body_of_a_loop_are_seen() {
        let body = json!({"widgets": [{"id": "b", "source": {"nodeType": UPPER}}], "edges": []});
        let older = item(&json!([]), &json!([]));
        for value in [body.clone(), json!(body.to_string())] {
            let outer = process(
                &json!([{"id": "l", "source": {"nodeType": "system.loop"},
                         "config": [{"name": "body", "value": value}]}]),
                &json!([]),
            );
            assert_eq!(hits(&outer, &older, None), ["\"b\" (b)"]);
        }
    }
}
