use super::*;
use serde_json::{Value, json};

fn compile(document: &Value) -> Result<Graph, RpcError> {
    Graph::compile(&Process::deserialize_from(document))
}

trait FromValue {
    fn deserialize_from(document: &Value) -> Self;
}

impl FromValue for Process {
    fn deserialize_from(document: &Value) -> Self {
        Json::from(document).read().unwrap()
    }
}

fn faults(document: &Value) -> Vec<(String, String)> {
    let error = compile(document).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidProcess);
    let details = error.details.unwrap();
    let text = |fault: &Value, key: &str| fault[key].as_str().unwrap().to_owned();
    details["faults"].as_array().unwrap().iter().map(|f| (text(f, "path"), text(f, "code"))).collect()
}

#[test]
fn every_fault_is_named_at_once_with_its_path() {
    let document = json!({
        "widgets": [
            {"id": "a", "source": {"nodeType": "plugin.x"}, "outputs": ["o"]},
            {"id": "a", "source": {"nodeType": "system.loop"}, "config": [
                {"name": "mode", "value": "backwards"}, {"name": "concurrency", "value": 0},
                {"name": "body", "value": {"widgets": [{"id": "x/y", "source": {"nodeType": "plugin.x"}}]}},
            ]},
            {"id": "e", "source": {"nodeType": "system.object.extract"}, "config": []},
        ],
        "edges": [
            {"source": "a", "sourceHandle": "o", "target": "nobody", "targetHandle": "i"},
        ],
    });
    let expected = [
        ("$.widgets[1].id", "duplicate"),
        ("$.widgets[1].config", "out_of_range"),
        ("$.widgets[1].config", "unknown_value"),
        ("$.widgets[1].config[2].value.widgets[0].id", "invalid_id"),
        ("$.widgets[2].config", "malformed"),
        ("$.edges[0].target", "unknown_widget"),
    ];
    assert_eq!(faults(&document), expected.map(|(path, code)| (path.to_owned(), code.to_owned())));
}

#[test]
fn a_loop_body_may_be_json_text_and_is_refused_when_it_is_none() {
    let document = |body: Value| json!({"widgets": [{"id": "w", "source": {"nodeType": "system.loop"}, "config": [{"name": "body", "value": body}]}]});
    assert!(compile(&document(json!("{\"widgets\": [], \"edges\": []}"))).is_ok());
    for body in [json!("no json"), json!(5), json!([]), Value::Null] {
        assert_eq!(faults(&document(body))[0].1, "malformed");
    }
}

#[test]
fn loops_nest_to_a_limit() {
    let nested = |depth: usize| {
        (0..depth).fold(json!({"widgets": []}), |body, _| {
            json!({"widgets": [{"id": "w", "source": {"nodeType": "system.loop"}, "config": [{"name": "body", "value": body}]}]})
        })
    };
    assert!(compile(&nested(MAX_DEPTH)).is_ok());
    assert_eq!(faults(&nested(MAX_DEPTH + 1))[0].1, "too_deep");
}

#[test]
fn an_edge_from_an_undeclared_output_is_refused() {
    let document = |outputs: Value| {
        json!({
            "widgets": [
                {"id": "a", "source": {"nodeType": "plugin.x"}, "outputs": outputs},
                {"id": "b", "source": {"nodeType": "plugin.x"}},
            ],
            "edges": [{"source": "a", "sourceHandle": "o", "target": "b", "targetHandle": "i"}],
        })
    };
    assert_eq!(faults(&document(json!(["other"])))[0].1, "unknown_handle");
    assert!(compile(&document(json!(["o"]))).is_ok());
    assert!(compile(&document(Value::Null)).is_ok(), "no list means all outputs");
}

#[test]
fn a_cycle_is_refused_with_its_widgets() {
    let document = json!({
        "widgets": [
            {"id": "a", "source": {"nodeType": "plugin.x"}},
            {"id": "b", "source": {"nodeType": "plugin.x"}},
        ],
        "edges": [
            {"source": "a", "sourceHandle": "o", "target": "b", "targetHandle": "i"},
            {"source": "b", "sourceHandle": "o", "target": "a", "targetHandle": "i"},
        ],
    });
    assert_eq!(faults(&document), [("$.edges".to_owned(), "cycle".to_owned())]);
}

#[test]
fn only_the_listed_names_are_built_in() {
    let lane = |node_type: &str| {
        let graph = compile(&json!({"widgets": [{"id": "a", "source": {"nodeType": node_type}}]})).unwrap();
        match graph.nodes[0].kind {
            Kind::Task(lane) => lane.as_str(),
            _ => "engine",
        }
    };
    assert_eq!(lane("system.http.request"), "executor");
    assert_eq!(lane("system.template"), "executor");
    assert_eq!(lane("system.office.word"), "plugin");
    assert_eq!(lane("plugin.example.echo"), "plugin");
    assert_eq!(lane("system.output"), "engine");
}

#[test]
fn required_trigger_fields_are_missing_unless_given_or_defaulted() {
    let graph =
        compile(&json!({"widgets": [{"id": "t", "source": {"nodeType": "system.trigger.input"}, "config": [
            {"name": "a", "isRequired": true},
            {"name": "b", "isRequired": true, "defaultValue": 1},
            {"name": "c"},
            {"name": "d", "isRequired": true},
        ]}]}))
        .unwrap();
    let payload = [("d".to_owned(), Json::null())].into_iter().collect();
    let missing: Vec<_> = graph.missing_inputs(&payload).into_iter().map(|fault| fault.path).collect();
    assert_eq!(missing, ["$.a", "$.d"]);
}

#[test]
fn connected_handles_that_no_field_declares_are_inputs() {
    let graph = compile(&json!({
        "widgets": [
            {"id": "t", "source": {"nodeType": "system.trigger.input"}, "config": [{"name": "q"}]},
            {"id": "a", "source": {"nodeType": "plugin.x"}, "config": [{"name": "k", "type": "ref", "value": "key"}]},
        ],
        "edges": [{"source": "t", "sourceHandle": "q", "target": "a", "targetHandle": "extra"}],
    }))
    .unwrap();
    let names: Vec<_> =
        graph.nodes[1].inputs.iter().map(|input| (input.name.as_str(), input.is_secret)).collect();
    assert_eq!(names, [("k", true), ("extra", false)]);
}

#[test]
fn names_that_no_path_or_row_can_hold_are_refused() {
    for id in ["", "a/b", "a[0]", "a\u{0}b"] {
        let document = json!({"widgets": [{"id": id, "source": {"nodeType": "plugin.x"}}]});
        assert_eq!(faults(&document), [("$.widgets[0].id".to_owned(), "invalid_id".to_owned())], "{id:?}");
    }
    let document = json!({"widgets": [{"id": "a", "source": {"nodeType": "plugin.\u{0}"}}]});
    assert_eq!(faults(&document)[0].0, "$.widgets[0].source.nodeType");
}
