//! Values that are too large for a history, through the whole platform.

use crate::{
    ended, platform,
    site::{Answer, Site},
};
use serde_json::{Value, json};

/// An HTTP request whose JSON goes to a template and to the result.
fn process(outputs: &[&str], edges: &[(&str, &str, &str)]) -> Value {
    let edges: Vec<Value> = edges
        .iter()
        .map(|(output, target, input)| {
            json!({"source": "get", "sourceHandle": output, "target": target, "targetHandle": input})
        })
        .collect();
    let start = json!({"source": "start", "sourceHandle": "url", "target": "get", "targetHandle": "url"});
    let text = json!({"source": "count", "sourceHandle": "text", "target": "end", "targetHandle": "count"});
    let edges = [edges, vec![start, text]].concat();
    json!({
        "settings": {"name": "Large values"},
        "widgets": [
            {"id": "start", "source": {"nodeType": "system.trigger.input"}, "config": [{"name": "url"}],
                "outputs": ["url"]},
            {"id": "get", "source": {"nodeType": "system.http.request"},
                "config": [{"name": "url", "isPort": true}], "outputs": outputs},
            {"id": "count", "source": {"nodeType": "system.template"},
                "config": [{"name": "template", "value": "{{ rows | length }}"}, {"name": "rows", "isPort": true, "defaultValue": []}],
                "outputs": ["text"]},
            {"id": "end", "source": {"nodeType": "system.output"}, "config": [
                {"name": "count", "isPort": true}, {"name": "rows", "isPort": true}, {"name": "why", "isPort": true}]},
        ],
        "edges": edges,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_beyond_the_limit_lies_in_a_file_and_reaches_the_next_step_whole() {
    let rows: Vec<Value> =
        (0..40_000).map(|number| json!({"number": number, "name": "Строка таблицы"})).collect();
    let rows = json!(rows);
    let size = rows.to_string().len();
    assert!(size > 2 * 1024 * 1024);
    let site = {
        let rows = rows.clone();
        Site::start(move |_| {
            let answer = Answer::json(200, &rows);
            async move { answer }
        })
        .await
    };
    let solo = platform().await;
    let edges = [("json", "count", "rows"), ("json", "end", "rows")];
    let process = solo.platform.import(&process(&["json"], &edges)).await;
    let run = solo.platform.start(&process, &json!({"url": site.url("/rows")})).await;
    let ended = ended(&solo.platform, process, run).await;
    let result = ended.finished();
    assert_eq!(result["count"], "40000", "the template got the value");
    let file = &result["rows"]["$file"];
    assert_eq!(
        (file["size"].as_u64(), file["contentType"].as_str()),
        (Some(size as u64), Some("application/json"))
    );
    let (_, bytes) = solo.platform.download(file["id"].as_str().unwrap()).await;
    assert!(serde_json::from_slice::<Value>(&bytes).unwrap() == rows);
    let history = json!(solo.platform.history(&ended.process, &ended.run).await).to_string();
    assert!(history.len() < 100_000, "the history stays small: {} bytes", history.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_of_a_step_reaches_its_branch_through_the_whole_platform() {
    let site = Site::start(|_| async { Answer::json(200, &json!({})) }).await;
    let solo = platform().await;
    let mut document = process(&["json"], &[("error", "end", "why")]);
    document["widgets"][1]["execution"] = json!({"onError": "continue"});
    document["widgets"][1]["config"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "errorStatuses", "value": "200"}));
    let process = solo.platform.import(&document).await;
    let run = solo.platform.start(&process, &json!({"url": site.url("/")})).await;
    let ended = ended(&solo.platform, process, run).await;
    let why = &ended.finished()["why"];
    assert_eq!((why["code"].as_str(), why["nodePath"].as_str()), (Some("http_status"), Some("get")));
    assert_eq!(why["details"], json!({"status": 200}));
}
