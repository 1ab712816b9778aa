use super::*;
use serde_json::json;

fn catalogue() -> BTreeMap<String, NodeType> {
    let text = Param { name: "text".into(), required: true, ..Param::default() };
    let length = Param { name: "length".into(), ..Param::default() };
    let echo = NodeType { inputs: Some(vec![text.clone()]), outputs: vec![text, length] };
    let open = NodeType { inputs: None, outputs: vec![] };
    BTreeMap::from([("plugin.example.echo".to_owned(), echo), ("plugin.open".to_owned(), open)])
}

fn faults(document: &Value, strictness: Strictness) -> Vec<(String, String)> {
    match validate(document, "$", &catalogue(), strictness) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.into_iter().map(|fault| (fault.path, fault.code)).collect(),
    }
}

fn check(document: &Value, expected: &[(&str, &str)]) {
    let found = faults(document, Strictness::Run);
    let found: Vec<_> = found.iter().map(|(path, code)| (path.as_str(), code.as_str())).collect();
    assert_eq!(found, expected);
}

#[allow(clippy::needless_pass_by_value, reason = "reads like the document")]
fn widget(id: &str, node_type: &str, config: Value) -> Value {
    json!({"id": id, "label": id, "source": {"nodeType": node_type}, "config": config})
}

fn edge(from: &str, output: &str, to: &str, input: &str) -> Value {
    json!({"source": from, "sourceHandle": output, "target": to, "targetHandle": input})
}

#[test]
fn a_good_process_passes_and_keeps_unknown_fields() {
    let document = json!({
        "settings": {"name": "Эхо 😀", "triggers": [{"type": "webhook", "x": 1}], "colour": "red"},
        "widgets": [
            widget("t", builtin::TRIGGER, json!([{"name": "text", "type": "string", "isRequired": true}])),
            widget("e", "plugin.example.echo", json!([{"name": "text", "type": "string", "defaultValue": 12345678901234567890123u128}])),
            widget("o", builtin::OUTPUT, json!([{"name": "text"}])),
        ],
        "edges": [edge("t", "text", "e", "text"), edge("e", "text", "o", "text")],
        "zoom": 2
    });
    let valid = validate(&document, "$", &catalogue(), Strictness::Run).unwrap();
    assert_eq!(valid.plugin_node_types, ["plugin.example.echo"]);
    let written = serde_json::to_value(&valid.process).unwrap();
    assert_eq!(written["zoom"], 2);
    assert_eq!(written["settings"]["colour"], "red");
    assert_eq!(
        written["widgets"][1]["config"][0]["defaultValue"],
        document["widgets"][1]["config"][0]["defaultValue"]
    );
}

#[test]
fn duplicate_ids_are_named() {
    let document = json!({
        "widgets": [widget("a", builtin::TRIGGER, json!([])), widget("a", builtin::TRIGGER, json!([{"name": "x"}, {"name": "x"}]))],
        "edges": []
    });
    check(&document, &[("$.widgets[1].id", "duplicate"), ("$.widgets[1].config[1].name", "duplicate")]);
}

#[test]
fn unknown_handles_and_widgets_are_named() {
    let document = json!({
        "widgets": [widget("t", builtin::TRIGGER, json!([{"name": "x"}])), widget("o", builtin::OUTPUT, json!([{"name": "y"}]))],
        "edges": [edge("t", "nope", "o", "y"), edge("t", "x", "o", "nope"), edge("z", "x", "o", "y")]
    });
    check(
        &document,
        &[
            ("$.edges[0].sourceHandle", "unknown_handle"),
            ("$.edges[1].targetHandle", "unknown_handle"),
            ("$.edges[2].source", "unknown_widget"),
        ],
    );
}

#[test]
fn cycles_are_named_with_their_widgets() {
    let open = |id: &str| json!({"id": id, "source": {"nodeType": "plugin.open"}, "outputs": ["a"]});
    let document = json!({
        "widgets": [open("x"), open("y"), open("z")],
        "edges": [edge("x", "a", "y", "a"), edge("y", "a", "x", "a"), edge("y", "a", "z", "a")]
    });
    let found = validate(&document, "$", &catalogue(), Strictness::Run).unwrap_err();
    assert_eq!((found[0].code.as_str(), found.len()), ("cycle", 1));
    assert!(found[0].message.contains("x, y feed"), "{}", found[0].message);
}

#[test]
fn what_a_person_can_still_add_is_a_warning_when_saved_and_a_fault_when_run() {
    let document = json!({
        "widgets": [widget("e", "plugin.example.echo", json!([])), widget("u", "plugin.unknown", json!([]))],
        "edges": []
    });
    check(
        &document,
        &[("$.widgets[0].config", "missing_required"), ("$.widgets[1].source.nodeType", "unknown_node_type")],
    );
    let saved = validate(&document, "$", &catalogue(), Strictness::Save).unwrap();
    assert_eq!(saved.warnings.len(), 2);
}

#[test]
fn an_output_that_nothing_feeds_is_a_fault() {
    check(
        &json!({"widgets": [widget("o", builtin::OUTPUT, json!([{"name": "y"}]))], "edges": []}),
        &[("$.widgets[0]", "unreachable_output")],
    );
}

#[test]
fn a_person_may_be_asked_without_declared_ports() {
    let document = json!({
        "widgets": [widget("t", builtin::TRIGGER, json!([{"name": "x"}])), widget("v", builtin::VALIDATION, json!([]))],
        "edges": [edge("t", "x", "v", "value")]
    });
    check(&document, &[]);
}

#[test]
fn loop_bodies_and_extract_maps_are_checked_inside() {
    let body = json!({"widgets": [widget("b", "plugin.unknown", json!([]))], "edges": []});
    let document = json!({
        "widgets": [
            widget("l", builtin::LOOP, json!([{"name": "body", "static": true, "value": body.to_string()}])),
            widget("x", builtin::EXTRACT, json!([{"name": "map", "static": true, "value": {"a": "b..["}}])),
            widget("m", builtin::EXTRACT, json!([])),
        ],
        "edges": []
    });
    check(
        &document,
        &[
            ("$.widgets[0].config[0].value.widgets[0].source.nodeType", "unknown_node_type"),
            ("$.widgets[1].config[0].value.a", "invalid_path"),
            ("$.widgets[2].config", "missing_required"),
        ],
    );
}

#[test]
fn a_document_of_the_wrong_shape_never_panics() {
    for document in [
        json!(null),
        json!([]),
        json!({"widgets": 5}),
        json!({"widgets": [5, {"id": 1, "source": 2, "config": {}}], "edges": [1, {}]}),
    ] {
        assert!(!faults(&document, Strictness::Save).is_empty(), "{document}");
    }
}

#[test]
fn execution_settings_are_checked() {
    let mut node = widget("e", "plugin.open", json!([]));
    node["execution"] = json!({"timeoutMs": 0, "retry": {"maxAttempts": 1000}, "onError": "ignore"});
    check(
        &json!({"widgets": [node], "edges": []}),
        &[
            ("$.widgets[0].execution.timeoutMs", "out_of_range"),
            ("$.widgets[0].execution.retry.maxAttempts", "out_of_range"),
            ("$.widgets[0].execution.onError", "unknown_value"),
        ],
    );
}

#[test]
fn ids_are_fit_for_paths_and_databases() {
    for id in ["a/b", "a[0]", "a\u{0}", "a\n"] {
        let document = json!({"widgets": [widget(id, builtin::TRIGGER, json!([]))], "edges": []});
        check(&document, &[("$.widgets[0].id", "invalid_id")]);
    }
}
