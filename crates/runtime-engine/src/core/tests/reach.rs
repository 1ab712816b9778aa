//! Which values may lie in files.

use super::stage::{builtin, field, graph, output_node, process, task};
use crate::core::Graph;
use contract::NodePath;
use serde_json::{Value, json};
use std::sync::Arc;

fn may_lie(graph: &Arc<Graph>, path: &str, output: &str) -> bool {
    graph.may_lie_in_file(&NodePath(path.to_owned()), output)
}

/// A loop `w` over `a.list` with the free port `free` from `a.free`: body trigger → `more` → output.
fn looping(body_widgets: &[Value], body_edges: &[&str], edges: &[&str]) -> Arc<Graph> {
    let mut widgets = vec![
        builtin("t", "system.trigger.input", &json!([{"name": "item"}, {"name": "free"}])),
        task("b", &json!({"outputs": ["o", "free", "continueLoop"]})),
        output_node(&json!([])),
    ];
    widgets.extend_from_slice(body_widgets);
    let body = process(&widgets, body_edges);
    let outer = [
        task("a", &json!({"outputs": ["list", "free"]})),
        builtin("w", "system.loop", &json!([field("body", &body)])),
        task("c", &json!({})),
        extract(),
        output_node(&json!([])),
    ];
    graph(&process(&outer, edges))
}

fn extract() -> Value {
    builtin("x", "system.object.extract", &json!([field("map", &json!({"r": "r"}))]))
}

#[test]
fn what_only_tasks_people_and_the_result_get_may_lie_in_a_file() {
    let widgets = [
        task("a", &json!({})),
        task("b", &json!({})),
        builtin("ask", "user.validation", &json!([])),
        output_node(&json!([])),
    ];
    let graph = graph(&process(&widgets, &["a.o -> b.i", "a.o -> ask.what", "a.o -> out.r"]));
    assert!(may_lie(&graph, "a", "o"));
    assert!(may_lie(&graph, "a", "undeclared"), "it flows nowhere");
    assert!(!may_lie(&graph, "nobody", "o"));
}

#[test]
fn what_the_engine_looks_into_stays_in_the_history() {
    for (id, node_type, input) in [
        ("x", "system.object.extract", "source"),
        ("s", "system.control.switch", "value"),
        ("d", "system.delay", "milliseconds"),
        ("d", "system.delay", "until"),
    ] {
        let widget = builtin(id, node_type, &json!([field("map", &json!({"r": "r"}))]));
        let widgets = [task("a", &json!({})), task("b", &json!({})), widget];
        let graph = graph(&process(&widgets, &["a.o -> b.i", &format!("a.o -> {id}.{input}")]));
        assert!(!may_lie(&graph, "a", "o"), "{node_type} {input}");
    }
}

#[test]
fn what_a_delay_hands_on_is_followed() {
    let widgets =
        [task("a", &json!({})), builtin("d", "system.delay", &json!([])), task("b", &json!({})), extract()];
    assert!(may_lie(&graph(&process(&widgets, &["a.o -> d.value", "d.value -> b.i"])), "a", "o"));
    assert!(!may_lie(&graph(&process(&widgets, &["a.o -> d.value", "d.value -> x.source"])), "a", "o"));
}

#[test]
fn a_list_that_a_loop_runs_over_stays_and_what_its_body_gets_is_followed() {
    let edges = ["a.list -> w.iterator", "a.free -> w.free", "w.items -> c.i"];
    let loops = looping(&[], &["t.item -> b.i", "t.free -> b.f", "b.o -> out.r"], &edges);
    assert!(!may_lie(&loops, "a", "list"));
    assert!(may_lie(&loops, "a", "free"));
    assert!(may_lie(&loops, "w[7]/b", "o"), "a task gets the items");
    let looks = looping(&[extract()], &["t.free -> x.source", "b.o -> out.r"], &edges);
    assert!(!may_lie(&looks, "a", "free"));
    let by_trigger = looping(&[extract()], &["t.trigger -> x.source", "b.o -> out.r"], &edges);
    assert!(!may_lie(&by_trigger, "a", "free"));
}

#[test]
fn what_an_iteration_gives_is_followed_out_of_the_loop_and_into_the_next_iteration() {
    let edges = ["a.list -> w.iterator", "w.items -> x.source"];
    let gathered = looping(&[], &["t.item -> b.i", "b.o -> out.r"], &edges);
    assert!(!may_lie(&gathered, "w[0]/b", "o"), "an extract looks into the items");
    let carried =
        ["t.free -> x.source", "b.free -> out.free", "b.o -> out.o", "b.continueLoop -> out.continueLoop"];
    let decides = looping(&[extract()], &carried, &["w.items -> c.i"]);
    assert!(!may_lie(&decides, "w[0]/b", "free"), "the next iteration looks into it");
    assert!(!may_lie(&decides, "w[0]/b", "continueLoop"));
    assert!(may_lie(&decides, "w[0]/b", "o"));
}

#[test]
fn another_loop_over_the_items_takes_only_the_list_apart() {
    let inner = process(
        &[builtin("t", "system.trigger.input", &json!([{"name": "item"}])), task("e", &json!({})), extract()],
        &["t.item -> e.i"],
    );
    let looks = process(
        &[builtin("t", "system.trigger.input", &json!([{"name": "item"}])), task("e", &json!({})), extract()],
        &["t.item -> x.source"],
    );
    for (second, expected) in [(inner, true), (looks, false)] {
        let body = process(&[task("b", &json!({})), output_node(&json!([]))], &["b.o -> out.r"]);
        let widgets = [
            builtin("w", "system.loop", &json!([field("body", &body), field("iterator", &json!([1]))])),
            builtin("v", "system.loop", &json!([field("body", &second)])),
        ];
        let graph = graph(&process(&widgets, &["w.items -> v.iterator"]));
        assert_eq!(may_lie(&graph, "w[0]/b", "o"), expected);
    }
}
