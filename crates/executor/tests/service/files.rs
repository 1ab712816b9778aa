//! Values and bodies that lie in file-service.

use crate::stage::{Stage, task};
use contract::{Json, RunId, builtin};
use run_files::{RunFiles, RunFilesSettings};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A file-service with a database of its own.
struct Files {
    client: RunFiles,
    url: String,
    stop: CancellationToken,
    _folder: tempfile::TempDir,
}

impl Files {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("test.db").display());
        let storage = storage::StorageSettings { url: url.into(), max_connections: 2 };
        let storage = storage::Storage::open(&storage).await.unwrap();
        let settings = file_service::Settings {
            address: "127.0.0.1:0".parse().unwrap(),
            tls: None,
            dir: folder.path().join("files"),
            max_file_bytes: 64 * 1024 * 1024,
            token: None,
            sweep: file_service::SweepSettings::default(),
        };
        let service = file_service::Service::bind(settings, storage).await.unwrap();
        let url = format!("http://{}", service.addresses()[0].1);
        let stop = CancellationToken::new();
        tokio::spawn(service.run(stop.clone()));
        let client = RunFiles::new(&RunFilesSettings { url: url.clone(), token: None, tls: None }).unwrap();
        Self { client, url, stop, _folder: folder }
    }
}

#[tokio::test]
async fn values_that_lie_in_files_are_back_in_the_inputs_of_a_step() {
    let files = Files::start().await;
    let mut stage = Stage::with_files(false, files.url.clone()).await;
    let template = json!("{{ list | length }} {{ nested.deep.n }} {{ other }}");
    let mut task = task(builtin::TEMPLATE, json!({"template": template}), &["text"]);
    let put = async |run_id, text: &'static str, content_type| {
        files.client.put(run_id, ("default", "o"), content_type, text).await.unwrap()
    };
    let list = put(task.run_id, "[1,2,3]", "application/json").await;
    let deep = put(task.run_id, r#"{"n":12345678901234567890123.0}"#, "application/json").await;
    let others = put(RunId(Uuid::now_v7()), "\"secret\"", "application/json").await;
    task.inputs.insert("list".into(), list.to_json());
    let nested = format!(r#"{{"deep":{}}}"#, deep.to_json().text());
    task.inputs.insert("nested".into(), Json::parse(nested).unwrap());
    task.inputs.insert("other".into(), others.to_json());
    stage.push(&task).await;
    let (_, result) = stage.result().await;
    let text: String = result.outputs["text"].read().unwrap();
    assert!(text.starts_with("3 12345678901234567890123"), "{text}");
    assert!(!text.contains("secret"), "a file of another run stays where it is: {text}");
    files.stop.cancel();
}

/// A site that answers every request with this many bytes of JSON.
async fn site(bytes: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await.unwrap();
            let body = format!("\"{}\"", "x".repeat(bytes - 2));
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {bytes}\r\nconnection: close\r\n\r\n{body}"
            );
            // A client that wants no more breaks off.
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    format!("http://{address}/")
}

#[tokio::test]
async fn a_response_that_is_larger_than_a_value_goes_to_a_file_where_the_widget_wants_one() {
    let files = Files::start().await;
    let mut stage = Stage::with_files(true, files.url.clone()).await;
    let url = site(11 * 1024 * 1024).await;
    let wanting = |outputs: &[&str]| task(builtin::HTTP_REQUEST, json!({"url": url}), outputs);
    stage.push(&wanting(&["status", "body"])).await;
    let error = stage.result().await.1.error.unwrap();
    assert_eq!(error.code.as_deref(), Some("payload_too_large"));
    assert!(error.message.contains("`file`"), "{}", error.message);

    let task = wanting(&["status", "body", "file"]);
    stage.push(&task).await;
    let result = stage.result().await.1;
    assert!(!result.outputs.contains_key("body"), "{:?}", result.error);
    let file = contract::file::FileRef::of(&result.outputs["file"]).unwrap();
    assert_eq!((file.size, file.holds_value()), (11 * 1024 * 1024, false), "the body stays a file");
    assert_eq!(file.content_type, "application/json; charset=utf-8");
    let text = files.client.text(task.run_id, &file, u64::MAX).await.unwrap();
    assert!(text.len() == 11 * 1024 * 1024 && text.starts_with("\"xxx"));
    files.stop.cancel();
}

#[tokio::test]
async fn any_body_goes_to_a_file_where_the_widget_wants_nothing_else_of_it() {
    let files = Files::start().await;
    let mut stage = Stage::with_files(true, files.url.clone()).await;
    let url = site(100).await;
    for (outputs, keys) in [(["status", "file"], ["status", "file"]), (["body", "file"], ["status", "body"])]
    {
        stage.push(&task(builtin::HTTP_REQUEST, json!({"url": url}), &outputs)).await;
        let result = stage.result().await.1;
        assert!(keys.iter().all(|key| result.outputs.contains_key(*key)), "{keys:?} {:?}", result.error);
        assert!(result.outputs.contains_key("file") != result.outputs.contains_key("body"));
    }
    files.stop.cancel();
}
