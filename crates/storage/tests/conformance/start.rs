//! Opening: migrations with many processes, URLs, files.

use crate::{open, postgres_url, settings, sqlite_url};
use futures::future::join_all;
use secrecy::SecretString;
use storage::{Error, Storage, StorageSettings};

async fn five_at_once(url: &str) {
    let openers = (0..5).map(|_| {
        let settings = settings(url);
        tokio::spawn(async move { Storage::open(&settings).await })
    });
    let opened: Vec<Storage> =
        join_all(openers).await.into_iter().map(|storage| storage.unwrap().unwrap()).collect();
    for storage in &opened {
        assert_eq!(storage.catalogue().revision().await.unwrap(), 0, "one row, made once");
        storage.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_openers_of_a_new_sqlite_file_migrate_it_once() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        five_at_once(&sqlite_url(&folder)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_openers_of_a_new_postgres_database_migrate_it_once() {
    if let Some(url) = postgres_url().await {
        five_at_once(&url).await;
    }
}

#[tokio::test]
async fn what_is_stored_is_there_after_opening_again() {
    let folder = tempfile::tempdir().unwrap();
    let storage = open(&sqlite_url(&folder)).await;
    storage.secrets().put("w", "a", None, b"x", contract::Millis(1)).await.unwrap();
    storage.close().await;
    let storage = open(&sqlite_url(&folder)).await;
    assert_eq!(storage.secrets().list("w").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    open(&sqlite_url(&folder)).await.close().await;
    let pool = sqlx::SqlitePool::connect(&sqlite_url(&folder)).await.unwrap();
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (9999, 'later', TRUE, x'00', 0)",
    )
    .execute(&pool)
    .await
    .unwrap();
    let error = Storage::open(&settings(&sqlite_url(&folder))).await.unwrap_err();
    assert!(matches!(&error, Error::Migration { reason } if reason.contains("9999")), "{error}");
}

#[tokio::test]
async fn unusable_urls_are_refused_without_showing_the_password() {
    for url in [
        "mysql://u:hunter2@h/d",
        "hunter2",
        "",
        "postgres://u:hunter2@h:port/d",
        "postgres://u:hunter2@h/d?sslmode=hunter",
        "sqlite::memory:",
        "sqlite://f?mode=memory",
    ] {
        let settings = StorageSettings { url: SecretString::from(url), max_connections: 1 };
        let error = Storage::open(&settings).await.unwrap_err();
        assert!(matches!(error, Error::InvalidUrl { .. }), "{url}: {error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
        assert!(!format!("{settings:?} {error:?}").contains("hunter2"));
    }
}

#[tokio::test]
async fn an_absent_server_and_a_file_that_cannot_be_made_are_unavailable() {
    let absent = settings("postgres://u:hunter2@127.0.0.1:1/d");
    let error = Storage::open(&absent).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(!error.to_string().contains("hunter2"));
    let folder = tempfile::tempdir().unwrap();
    let error = Storage::open(&settings(&format!("sqlite://{}", folder.path().display()))).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("cannot open"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("conveyor.db");
    let text = "certainly not a database, but the notes of somebody".repeat(50);
    std::fs::write(&path, &text).unwrap();
    let error = Storage::open(&settings(&sqlite_url(&folder))).await.unwrap_err();
    assert!(error.to_string().contains("conveyor.db"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}
