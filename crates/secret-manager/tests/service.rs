//! Secret-manager over real sockets.

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

use contract::{
    ErrorCode,
    secret::{MAX_SECRET_BYTES, ResolvedSecrets, SecretInfo, SecretNames},
};
use secret_manager::{MasterKey, Service, Settings};
use serde_json::{Value, json};
use std::{path::Path, time::Duration};
use storage::{Storage, StorageSettings};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wire::{AllowList, CallError, Client, ClientConfig};

const DEADLINE: Duration = Duration::from_secs(20);

struct Running {
    client: Client,
    stop: CancellationToken,
    service: JoinHandle<Result<(), secret_manager::Error>>,
}

impl Running {
    async fn start(folder: &Path, key: &MasterKey) -> Self {
        Self::start_with(folder, key, AllowList::everyone()).await
    }

    async fn start_with(folder: &Path, key: &MasterKey, allow: AllowList) -> Self {
        let url = format!("sqlite://{}", folder.join("test.db").display());
        let storage = Storage::open(&StorageSettings { url: url.into(), max_connections: 2 }).await.unwrap();
        let settings = Settings {
            address: "127.0.0.1:0".parse().unwrap(),
            allow,
            tls: None,
            token: Some("right".into()),
            master_key: Some(key.clone()),
            previous_key: None,
        };
        let service = Service::bind(settings, storage).await.unwrap();
        let port = service.addresses()[0].1.port();
        let stop = CancellationToken::new();
        let service = tokio::spawn(service.run(stop.clone()));
        Self { client: Client::new("127.0.0.1", port, ClientConfig::default()), stop, service }
    }

    async fn call<R: serde::de::DeserializeOwned>(
        &self,
        pattern: &str,
        mut data: Value,
    ) -> Result<R, CallError> {
        data["token"] = json!("right");
        self.client.call(pattern, &data, DEADLINE).await
    }

    async fn put(&self, workspace: &str, name: &str, value: &str) -> Result<SecretInfo, CallError> {
        self.call("secret.put", json!({"workspaceId": workspace, "name": name, "value": value})).await
    }

    async fn resolve(&self, workspace: &str, names: &[&str]) -> Result<Vec<Option<String>>, CallError> {
        let resolved: ResolvedSecrets =
            self.call("secret.resolve", json!({"workspaceId": workspace, "names": names})).await?;
        let plain = resolved.values.into_iter().map(|value| value.map(|value| value.expose().to_owned()));
        Ok(plain.collect())
    }

    async fn stop(self) {
        self.stop.cancel();
        self.service.await.unwrap().unwrap();
    }
}

fn code(error: &CallError) -> ErrorCode {
    error.to_rpc(ErrorCode::Unavailable, "secret-manager").code
}

#[tokio::test]
async fn stored_secrets_are_resolved_in_order_and_only_in_their_workspace() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), &MasterKey::generate()).await;
    running.put("w", "a", "первый").await.unwrap();
    running.put("w", "b", "second").await.unwrap();
    running.put("w", "a", "newer").await.unwrap();
    let resolved = running.resolve("w", &["b", "none", "a"]).await.unwrap();
    assert_eq!(resolved, [Some("second".into()), None, Some("newer".into())]);
    assert_eq!(running.resolve("v", &["a"]).await.unwrap(), [None]);
    running.stop().await;
}

#[tokio::test]
async fn list_shows_names_and_delete_removes() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), &MasterKey::generate()).await;
    running.put("w", "b", "hush").await.unwrap();
    running.put("w", "a", "hush").await.unwrap();
    let listed: Value = running.call("secret.list", json!({"workspaceId": "w"})).await.unwrap();
    assert!(!listed.to_string().contains("hush"));
    let listed: SecretNames = serde_json::from_value(listed).unwrap();
    assert_eq!(listed.secrets.iter().map(|info| info.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    for deleted in [true, false] {
        let answer: Value =
            running.call("secret.delete", json!({"workspaceId": "w", "name": "a"})).await.unwrap();
        assert_eq!(answer, json!({"deleted": deleted}));
    }
    running.stop().await;
}

#[tokio::test]
async fn a_wrong_or_missing_token_opens_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), &MasterKey::generate()).await;
    for data in
        [json!({"workspaceId": "w", "names": []}), json!({"token": "wrong", "workspaceId": "w", "names": []})]
    {
        for pattern in ["secret.resolve", "secret.put", "secret.delete", "secret.list"] {
            let error = running.client.call::<_, Value>(pattern, &data, DEADLINE).await.unwrap_err();
            assert_eq!(code(&error), ErrorCode::Unauthorized, "{pattern}");
        }
    }
    running.stop().await;
}

#[tokio::test]
async fn an_address_that_is_not_listed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let running =
        Running::start_with(folder.path(), &MasterKey::generate(), "10.0.0.0/8".parse().unwrap()).await;
    let error = running.resolve("w", &["a"]).await.unwrap_err();
    // The refusal may be overtaken by the end of the connection.
    let refused = [ErrorCode::ForbiddenAddress, ErrorCode::Unavailable];
    assert!(refused.contains(&code(&error)), "{error}");
    running.stop().await;
}

#[tokio::test]
async fn values_at_the_limit_pass_and_larger_ones_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), &MasterKey::generate()).await;
    let largest = "x".repeat(MAX_SECRET_BYTES);
    running.put("w", "a", &largest).await.unwrap();
    assert_eq!(running.resolve("w", &["a"]).await.unwrap(), [Some(largest.clone())]);
    assert_eq!(code(&running.put("w", "a", &(largest + "x")).await.unwrap_err()), ErrorCode::PayloadTooLarge);
    for name in ["", "a\nb", &"n".repeat(257)] {
        assert_eq!(code(&running.put("w", name, "v").await.unwrap_err()), ErrorCode::InvalidRequest);
    }
    running.stop().await;
}

#[tokio::test]
async fn a_refusal_never_repeats_what_was_sent() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), &MasterKey::generate()).await;
    let malformed = json!({"workspaceId": "hunter2", "name": ["hunter2"], "value": 5});
    let error = running.call::<Value>("secret.put", malformed).await.unwrap_err();
    assert_eq!(code(&error), ErrorCode::InvalidRequest);
    assert!(!error.to_string().contains("hunter2"));
    running.stop().await;
}

#[tokio::test]
async fn secrets_survive_a_restart_and_another_key_names_the_unreadable_one() {
    let folder = tempfile::tempdir().unwrap();
    let key = MasterKey::generate();
    let running = Running::start(folder.path(), &key).await;
    running.put("w", "a", "hush").await.unwrap();
    running.stop().await;

    let running = Running::start(folder.path(), &key).await;
    assert_eq!(running.resolve("w", &["a"]).await.unwrap(), [Some("hush".into())]);
    running.stop().await;

    let running = Running::start(folder.path(), &MasterKey::generate()).await;
    let error = running.resolve("w", &["a"]).await.unwrap_err();
    assert_eq!(code(&error), ErrorCode::SecretUnreadable);
    assert!(error.to_string().contains("\"a\""));
    running.stop().await;
}

#[tokio::test]
async fn the_database_file_holds_no_value() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), &MasterKey::generate()).await;
    running.put("w", "a", "plain-text-marker").await.unwrap();
    running.stop().await;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(17).any(|window| window == b"plain-text-marker"));
    }
}
