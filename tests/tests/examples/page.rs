//! `docs/processes.md` is true: its documents are JSON, its first one runs, it links every example.

use crate::{ended, platform};
use serde_json::{Value, json};
use system_tests::root;

fn page() -> String {
    std::fs::read_to_string(root().join("docs/processes.md")).unwrap()
}

/// The JSON blocks of the page; fragments of an object are made whole.
fn blocks(page: &str) -> Vec<Value> {
    let fenced = page.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap().trim());
    fenced
        .map(|text| {
            let whole = if text.starts_with('{') { text.to_owned() } else { format!("{{{text}}}") };
            serde_json::from_str(&whole).unwrap_or_else(|error| panic!("{error}: {text}"))
        })
        .collect()
}

#[test]
fn every_snippet_is_json_and_every_widget_in_it_has_a_known_shape() {
    let blocks = blocks(&page());
    assert!(blocks.len() > 10);
    for widget in blocks.iter().filter(|block| block.get("source").is_some()) {
        let mut widget = widget.clone();
        for (key, value) in [("id", json!("w")), ("config", json!([]))] {
            widget.as_object_mut().unwrap().entry(key).or_insert(value);
        }
        serde_json::from_value::<contract::process::Widget>(widget).unwrap();
    }
}

#[test]
fn every_example_is_linked() {
    let page = page();
    for entry in std::fs::read_dir(root().join("examples/processes")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".json") && !name.ends_with(".input.json") {
            assert!(page.contains(&format!("examples/processes/{name})")), "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_document_and_the_loop_run() {
    let blocks = blocks(&page());
    let solo = platform().await;
    let platform = &solo.platform;
    let process = platform.import(&blocks[0]).await;
    let run = platform.start(&process, &json!({"name": "Anna"})).await;
    assert_eq!(*ended(platform, process, run).await.finished(), json!({"greeting": "Hello Anna!"}));

    let looping = blocks.iter().find(|block| block["source"]["nodeType"] == "system.loop").unwrap();
    let document = json!({
        "widgets": [
            {"id": "start", "source": {"nodeType": "system.trigger.input"}, "config": [{"name": "urls", "type": "keyvalue"}]},
            looping,
            {"id": "end", "source": {"nodeType": "system.output"}, "config": [{"name": "items", "type": "keyvalue"}]},
        ],
        "edges": [
            {"source": "start", "sourceHandle": "urls", "target": "each", "targetHandle": "iterator"},
            {"source": "each", "sourceHandle": "items", "target": "end", "targetHandle": "items"},
        ],
    });
    let process = platform.import(&document).await;
    let own = platform.url("/openapi.json");
    let run = platform.start(&process, &json!({"urls": [own, own]})).await;
    let ended = ended(platform, process, run).await;
    assert_eq!(*ended.finished(), json!({"items": [{"status": 200}, {"status": 200}]}));
}
