//! Import: a preset, one diagram, or a bare `{widgets, edges}` (protocol section 7).

use crate::Fault;
use crate::check::Checker;
use serde_json::{Value, json};

/// Splits an imported document into diagrams, each with its JSON path. A bare `{widgets, edges}`
/// gets `default_name` as its name.
pub fn import(document: &Value, default_name: &str) -> Result<Vec<(String, Value)>, Vec<Fault>> {
    let mut check = Checker::default();
    let Some(object) = check.object(document, "$") else { return Err(check.faults) };
    if object.contains_key("diagrams") {
        let diagrams = check.list(object, "diagrams", "$", true);
        if diagrams.is_empty() {
            check.fault("$.diagrams", "empty", "the preset holds no diagram");
        }
        let preset_name =
            object.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
        let diagrams = diagrams
            .into_iter()
            .map(|(path, diagram)| (path, named(diagram, preset_name.unwrap_or(default_name))))
            .collect();
        return check.finish(Some(diagrams)).map(|(diagrams, _)| diagrams);
    }
    if !object.contains_key("widgets") {
        check.fault(
            "$",
            "unknown_form",
            "must be a preset {diagrams: [...]}, a diagram {settings, widgets, edges} or {widgets, edges}",
        );
        return Err(check.faults);
    }
    Ok(vec![("$".to_owned(), named(document, default_name))])
}

/// The diagram, with a name when it has none. Only objects can be named; others fail validation.
fn named(diagram: &Value, name: &str) -> Value {
    let mut diagram = diagram.clone();
    if let Some(object) = diagram.as_object_mut() {
        let settings = object.entry("settings").or_insert_with(|| json!({}));
        if let Some(settings) = settings.as_object_mut()
            && settings.get("name").and_then(Value::as_str).is_none_or(str::is_empty)
        {
            settings.insert("name".to_owned(), json!(name));
        }
    }
    diagram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preset_diagram_and_bare_graph_are_accepted() {
        let graph = json!({"widgets": [], "edges": []});
        let preset = json!({"id": "p", "version": 1, "metadata": {"name": "Preset"}, "diagrams": [graph]});
        let imported = import(&preset, "file").unwrap();
        assert_eq!(imported[0].0, "$.diagrams[0]");
        assert_eq!(imported[0].1["settings"]["name"], "Preset");
        assert_eq!(import(&graph, "file").unwrap()[0].1["settings"]["name"], "file");
    }

    #[test]
    fn anything_else_is_refused_with_the_reason() {
        for document in [json!(5), json!({}), json!({"diagrams": []}), json!({"diagrams": 1})] {
            assert!(import(&document, "x").is_err(), "{document}");
        }
    }
}
