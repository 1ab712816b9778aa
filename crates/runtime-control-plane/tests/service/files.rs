//! Values that lie in files are put back into the inputs of tasks (protocol section 3, *Large outputs*).

use crate::{
    dispatch::{next, plugin},
    world::{NODE_TYPE, World},
};
use contract::{Json, RunId, report::Dispatched, task::ExecutorTask};
use run_files::{RunFiles, RunFilesSettings};
use serde_json::json;
use storage::{Storage, StorageSettings};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use wire::Reply;

/// A file-service with a database of its own.
struct Files {
    settings: RunFilesSettings,
    client: RunFiles,
    stop: CancellationToken,
    _folder: TempDir,
}

impl Files {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("files.db").display());
        let storage = Storage::open(&StorageSettings { url: url.into(), max_connections: 2 }).await.unwrap();
        let settings = file_service::Settings {
            address: "127.0.0.1:0".parse().unwrap(),
            tls: None,
            dir: folder.path().join("files"),
            max_file_bytes: u64::MAX,
            token: Some("files".into()),
            sweep: file_service::SweepSettings::default(),
        };
        let service = file_service::Service::bind(settings, storage).await.unwrap();
        let url = format!("http://{}", service.addresses()[0].1);
        let stop = CancellationToken::new();
        tokio::spawn(service.run(stop.clone()));
        let settings = RunFilesSettings { url, token: Some("files".into()), tls: None };
        Self { client: RunFiles::new(&settings).unwrap(), settings, stop, _folder: folder }
    }

    async fn put(&self, run_id: RunId, text: String) -> Json {
        self.client.put(run_id, ("default", "o"), "application/json", text).await.unwrap().to_json()
    }
}

#[tokio::test]
async fn a_plugin_gets_values_whole_as_far_as_a_frame_holds_them() {
    const FRAME: usize = 1024 * 1024;
    let files = Files::start().await;
    let mut world = World::with(|settings| {
        settings.files = files.settings.clone();
        settings.max_frame_bytes = FRAME;
        settings.api_url = "http://api:3000".into();
    })
    .await;
    let (plugin, mut tasks) = plugin(|| Reply::Empty);
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let mut task = world.attempt(NODE_TYPE).await;
    let small = files.put(task.run_id, "[12345678901234567890123.0]".into()).await;
    let large = files.put(task.run_id, json!("x".repeat(FRAME)).to_string()).await;
    let others = files.put(RunId(Uuid::now_v7()), "\"of another run\"".into()).await;
    task.inputs.insert("small".into(), small.clone());
    task.inputs.insert("nested".into(), Json::parse(format!("[1,{}]", small.text())).unwrap());
    task.inputs.insert("large".into(), large.clone());
    task.inputs.insert("others".into(), others.clone());
    world.push(&task).await;
    let got: ExecutorTask = next(&mut tasks).await.data.read().unwrap();
    assert_eq!(got.inputs["small"].text(), "[12345678901234567890123.0]");
    assert_eq!(got.inputs["nested"].text(), "[1,[12345678901234567890123.0]]");
    assert_eq!(got.inputs["large"], large, "no frame holds it");
    assert_eq!(got.inputs["others"], others, "nobody reaches the files of others");
    assert_eq!(got.files_url.as_deref(), Some("http://api:3000/files"), "where the bytes are");
    let delivered = world.next_dispatched(task.execution_id).await;
    assert_eq!(delivered, Dispatched::Delivered { implicit: false });
    files.stop.cancel();
}

#[tokio::test]
async fn while_file_service_is_away_a_task_is_not_delivered_and_tried_again() {
    let files = Files::start().await;
    let mut world = World::with(|settings| {
        settings.files = RunFilesSettings { url: "http://127.0.0.1:9".into(), token: None, tls: None };
    })
    .await;
    let (plugin, _tasks) = plugin(|| Reply::Empty);
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    let mut task = world.attempt(NODE_TYPE).await;
    task.inputs.insert("i".into(), files.put(task.run_id, "[1]".into()).await);
    world.push(&task).await;
    let Dispatched::Failed(error) = world.next_dispatched(task.execution_id).await else {
        panic!("delivered")
    };
    assert_eq!((error.code.as_deref(), error.retryable), (Some("unavailable"), Some(true)));
    files.stop.cancel();
}
