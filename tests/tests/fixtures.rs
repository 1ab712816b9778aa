//! Real documents of the existing platform, where they stand beside the repository (`../shared/fixtures`;
//! they belong to others and are not part of it), and examples of ours that do the same.

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

use serde_json::Value;
use std::{collections::BTreeSet, path::PathBuf, time::Duration};
use system_tests::{binary, root};
use testkit::{Program, Stream};

const LIMIT: Duration = Duration::from_secs(60);

async fn run(document: &PathBuf, args: &[&str]) -> (Option<i32>, String) {
    let process = Program::new(binary("conveyor")).arg("run").arg(document).args(args).spawn().unwrap();
    let status = process.wait(LIMIT).await.unwrap();
    (status.code(), process.text(Stream::Stdout))
}

/// The JSON paths and node types of the nodes that only a plugin can run.
fn plugin_nodes(document: &Value) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for (d, diagram) in document["diagrams"].as_array().unwrap().iter().enumerate() {
        for (w, widget) in diagram["widgets"].as_array().unwrap().iter().enumerate() {
            let node_type = widget["source"]["nodeType"].as_str().unwrap();
            if !contract::builtin::is_builtin(node_type) {
                let path = format!("$.diagrams[{d}].widgets[{w}].source.nodeType");
                found.insert((path, node_type.to_owned()));
            }
        }
    }
    found
}

#[tokio::test]
async fn every_unknown_plugin_node_of_a_real_document_is_a_fault_with_its_path() {
    for name in ["stub-echo-demo.json", "rag-search.json", "rag-index.json"] {
        let path = root().join("../shared/fixtures").join(name);
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let expected = plugin_nodes(&serde_json::from_str(&text).unwrap());
        let (code, output) = run(&path, &["--json"]).await;
        assert_eq!(code, Some(2), "{name}: {output}");
        let report: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
        let faults = report["faults"].as_array().unwrap();
        let found: BTreeSet<_> = faults
            .iter()
            .map(|fault| {
                assert_eq!(fault["code"], "unknown_node_type", "{name}: {fault}");
                let message = fault["message"].as_str().unwrap();
                let named =
                    expected.iter().find(|(_, node_type)| message.contains(&format!("{node_type:?}")));
                (fault["path"].as_str().unwrap().to_owned(), named.unwrap().1.clone())
            })
            .collect();
        assert_eq!(found, expected, "{name}");
    }
}

#[tokio::test]
async fn an_equivalent_example_of_ours_runs() {
    let (code, output) =
        run(&root().join("examples/processes/greeting.json"), &["-i", "name=Мир", "--json"]).await;
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("Здравствуйте, Мир!"), "{output}");
}
