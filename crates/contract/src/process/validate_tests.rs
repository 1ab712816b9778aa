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

#[test]
fn limits_of_runs_and_loops_are_whole_numbers_in_their_range() {
    let mut looping = widget(
        "w",
        "system.loop",
        json!([
            {"name": "body", "value": {"widgets": [], "edges": []}},
            {"name": "mode", "value": "backwards"},
            {"name": "concurrency", "value": 0},
            {"name": "maxIterations", "value": "200000"},
        ]),
    );
    let document = |looping: &Value, timeout: Value| json!({"settings": {"name": "x", "timeoutMs": timeout}, "widgets": [looping], "edges": []});
    check(
        &document(&looping, json!(0)),
        &[
            ("$.settings.timeoutMs", "out_of_range"),
            ("$.widgets[0].config[2].value", "out_of_range"),
            ("$.widgets[0].config[3].value", "out_of_range"),
            ("$.widgets[0].config[1].value", "unknown_value"),
        ],
    );
    looping["config"] = json!([
        {"name": "body", "value": {"widgets": [], "edges": []}},
        {"name": "mode", "value": "parallel"},
        {"name": "concurrency", "value": "7"},
        {"name": "maxIterations", "value": null},
    ]);
    check(&document(&looping, json!(1000)), &[]);
}

#[test]
fn a_delay_hands_its_value_on_without_listing_it() {
    let document = json!({
        "widgets": [widget("d", "system.delay", json!([{"name": "milliseconds", "value": 5}])), widget("out", "system.output", json!([{"name": "r"}]))],
        "edges": [edge("d", "value", "out", "r")],
    });
    check(&document, &[]);
}

/// The warnings of a document that may run: path, code, message.
fn warnings(document: &Value) -> Vec<(String, String, String)> {
    let valid = validate(document, "$", &catalogue(), Strictness::Run).unwrap();
    valid.warnings.into_iter().map(|warning| (warning.path, warning.code, warning.message)).collect()
}

fn codes(document: &Value) -> Vec<(String, String)> {
    warnings(document).into_iter().map(|(path, code, _)| (path, code)).collect()
}

fn named(found: &[(&str, &str)]) -> Vec<(String, String)> {
    found.iter().map(|(path, code)| ((*path).to_owned(), (*code).to_owned())).collect()
}

#[test]
fn outputs_of_tasks_of_our_own_are_known_when_the_widget_lists_none() {
    let text = json!([{"name": "template", "value": "x"}]);
    let document = |output: &str, node: &Value| {
        json!({
            "widgets": [node, widget("o", builtin::OUTPUT, json!([{"name": "y"}]))],
            "edges": [edge("n", output, "o", "y")]
        })
    };
    let url = json!([{"name": "url", "value": "http://example.com"}]);
    for output in ["status", "ok", "headers", "body", "json", "base64"] {
        check(&document(output, &widget("n", builtin::HTTP_REQUEST, url.clone())), &[]);
    }
    check(&document("text", &widget("n", builtin::TEMPLATE, text)), &[]);
    check(
        &document("value", &widget("n", builtin::DELAY, json!([{"name": "milliseconds", "value": 1}]))),
        &[],
    );
    let unknown = [("$.edges[0].sourceHandle", "unknown_handle")];
    check(&document("text", &widget("n", builtin::HTTP_REQUEST, url.clone())), &unknown);
    let mut listed = widget("n", builtin::HTTP_REQUEST, url);
    listed["outputs"] = json!(["json"]);
    check(&document("status", &listed), &unknown);
}

/// A trigger, a switch with the outputs a and b, and these nodes and edges.
fn switched(nodes: Vec<Value>, edges: Vec<Value>) -> Value {
    let mut switch = widget("s", builtin::SWITCH, json!([]));
    switch["outputs"] = json!(["a", "b"]);
    let mut widgets = vec![widget("t", builtin::TRIGGER, json!([{"name": "x"}])), switch];
    widgets.extend(nodes);
    let mut all = vec![edge("t", "x", "s", "value")];
    all.extend(edges);
    json!({"widgets": widgets, "edges": all})
}

#[test]
fn a_node_that_waits_for_two_arms_of_one_switch_never_runs_nor_does_what_it_feeds() {
    let open = |id: &str| json!({"id": id, "label": format!("Node {id}"), "source": {"nodeType": "plugin.open"}, "outputs": ["r"]});
    let document = switched(
        vec![open("l"), open("r"), open("m"), open("n")],
        vec![
            edge("s", "a", "l", "i"),
            edge("s", "b", "r", "i"),
            edge("l", "r", "m", "one"),
            edge("r", "r", "m", "two"),
            edge("m", "r", "n", "i"),
        ],
    );
    let found = warnings(&document);
    assert_eq!(codes(&document), named(&[("$.widgets[4]", "dead_node"), ("$.widgets[5]", "dead_node")]));
    assert!(
        found[0].2.contains("\"Node m\" never runs") && found[0].2.contains("outputs of \"s\""),
        "{found:?}"
    );
    assert!(found[1].2.contains("its input \"i\""), "{found:?}");
}

#[test]
fn arms_that_meet_in_one_input_or_in_the_output_are_alive() {
    let open = |id: &str| json!({"id": id, "source": {"nodeType": "plugin.open"}, "outputs": ["r"]});
    let joined = switched(
        vec![open("l"), open("r"), open("m")],
        vec![
            edge("s", "a", "l", "i"),
            edge("s", "b", "r", "i"),
            edge("l", "r", "m", "one"),
            edge("r", "r", "m", "one"),
            edge("t", "x", "m", "two"),
        ],
    );
    assert_eq!(warnings(&joined), []);
    let collected = switched(
        vec![widget("o", builtin::OUTPUT, json!([{"name": "one"}, {"name": "two"}]))],
        vec![edge("s", "a", "o", "one"), edge("s", "b", "o", "two")],
    );
    assert_eq!(warnings(&collected), []);
}

#[test]
fn a_node_apart_from_the_trigger_is_named() {
    let alone = json!({"id": "z", "label": "Один", "source": {"nodeType": "plugin.open"}});
    let document = switched(vec![alone], vec![]);
    assert_eq!(codes(&document), named(&[("$.widgets[2]", "unreachable_node")]));
    assert!(warnings(&document)[0].2.starts_with("\"Один\" is not connected"));
}

#[test]
fn an_input_that_a_built_in_node_needs_and_nothing_feeds_is_named() {
    let text = |config: Value| json!({"widgets": [widget("w", builtin::TEMPLATE, config)], "edges": []});
    assert_eq!(codes(&text(json!([]))), named(&[("$.widgets[0]", "unconnected_input")]));
    assert_eq!(codes(&text(json!([{"name": "template", "value": "x"}]))), []);
    let delay = json!({"widgets": [widget("d", builtin::DELAY, json!([{"name": "until", "value": 5}]))], "edges": []});
    assert_eq!(codes(&delay), []);
}

#[test]
fn faults_name_the_label_of_their_node() {
    let document = json!({
        "widgets": [
            {"id": "w1", "label": "Письмо", "source": {"nodeType": builtin::LOOP}},
            {"id": "w1", "label": "Счёт", "source": {"nodeType": builtin::TRIGGER}, "execution": {"timeoutMs": 0}},
        ],
        "edges": []
    });
    let found = validate(&document, "$", &catalogue(), Strictness::Run).unwrap_err();
    let of = |place: &str| {
        found.iter().filter(|fault| fault.path.starts_with(place)).map(|f| &f.message).collect::<Vec<_>>()
    };
    assert!(of("$.widgets[0]").iter().all(|message| message.contains("Письмо")), "{found:?}");
    assert!(
        of("$.widgets[1]").len() == 2 && of("$.widgets[1]").iter().all(|message| message.contains("Счёт")),
        "{found:?}"
    );
}

#[test]
fn a_schedule_that_cannot_fire_is_refused_with_its_path_also_when_it_is_only_saved() {
    let document = json!({
        "settings": {"name": "x", "triggers": [
            {"type": "webhook", "cron": "anything"},
            {"type": "schedule", "cron": "0 9 * * MON-FRI", "timeZone": "Europe/Riga"},
            {"type": "schedule", "cron": "every day"},
            {"type": "schedule", "cron": "0 0 31 4 *"},
            {"type": "schedule", "cron": "* * * * *", "timeZone": "Europe/Atlantis"},
        ]},
        "widgets": [],
        "edges": []
    });
    let expected = [
        ("$.settings.triggers[2].cron", "invalid_cron"),
        ("$.settings.triggers[3].cron", "never_fires"),
        ("$.settings.triggers[4].timeZone", "unknown_time_zone"),
    ]
    .map(|(path, code)| (path.to_owned(), code.to_owned()));
    assert_eq!(faults(&document, Strictness::Run), expected);
    assert_eq!(faults(&document, Strictness::Save), expected);
}
