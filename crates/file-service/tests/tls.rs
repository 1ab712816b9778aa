//! File-service behind TLS, as its neighbours' client sees it.

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

use config::{Reader, Variables};
use contract::ErrorCode;
use file_service::{Service, Settings};
use run_files::{Error, FileService, NewFile, RunFilesSettings, StoredFile};
use std::{net::SocketAddr, path::Path, time::Duration};
use storage::{Storage, StorageSettings};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const FILE: NewFile<'static> = NewFile { workspace_id: "w", name: "a.txt", media_type: "text/plain" };

/// A folder with a certificate for 127.0.0.1 that is its own authority, and a file-service that shows it.
struct Running {
    folder: TempDir,
    address: SocketAddr,
    stop: CancellationToken,
}

impl Running {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        issue(folder.path());
        let at = |name: &str| folder.path().join(name).display().to_string();
        let source: Variables = [
            ("CONVEYOR_BIND", "127.0.0.1".to_owned()),
            ("FILE_SERVICE_HTTP_PORT", "0".to_owned()),
            ("FILE_SERVICE_DIR", at("files")),
            ("FILE_SERVICE_TOKEN", "right".to_owned()),
            ("FILE_SERVICE_TLS_CERT_FILE", at("cert.pem")),
            ("FILE_SERVICE_TLS_KEY_FILE", at("key.pem")),
        ]
        .into_iter()
        .collect();
        let mut reader = Reader::new(&source);
        let mut settings = Settings::read(&mut reader);
        assert_eq!(reader.faults(), []);
        settings.tls = settings.tls.map(|tls| tls.looking_every(Duration::ZERO));
        let url = format!("sqlite://{}", at("test.db"));
        let storage = Storage::open(&StorageSettings { url: url.into(), max_connections: 2 }).await.unwrap();
        let service = Service::bind(settings, storage).await.unwrap();
        let (address, stop) = (service.addresses()[0].1, CancellationToken::new());
        tokio::spawn(service.run(stop.clone()));
        Self { folder, address, stop }
    }

    /// A client of this address that is told whom to trust by these variables.
    fn client<const N: usize>(&self, scheme: &str, variables: [(&str, String); N]) -> FileService {
        client(&format!("{scheme}://{}", self.address), variables).unwrap()
    }

    /// The authority, as a file that may change.
    fn file(&self) -> (&'static str, String) {
        ("FILE_SERVICE_TLS_CA_FILE", self.folder.path().join("cert.pem").display().to_string())
    }

    /// The authority as it is now.
    fn text(&self) -> (&'static str, String) {
        ("FILE_SERVICE_TLS_CA", std::fs::read_to_string(self.folder.path().join("cert.pem")).unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn issue(folder: &Path) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
}

fn client<const N: usize>(url: &str, variables: [(&str, String); N]) -> Result<FileService, Error> {
    let known = [("FILE_SERVICE_BASE_URL", url.to_owned()), ("FILE_SERVICE_TOKEN", "right".to_owned())];
    let source: Variables = known.into_iter().chain(variables).collect();
    let mut reader = Reader::new(&source);
    let mut settings = RunFilesSettings::read(&mut reader);
    assert_eq!(reader.faults(), []);
    settings.tls = settings.tls.map(|tls| tls.looking_every(Duration::ZERO));
    FileService::new(&settings)
}

async fn refused(client: &FileService) -> ErrorCode {
    client.store(FILE, "abc").await.unwrap_err().code
}

#[tokio::test]
async fn files_go_both_ways_over_https_and_come_as_conditions_ask() {
    let running = Running::start().await;
    let client = running.client("https", [running.file()]);
    let StoredFile { file_id, size, media_type, .. } = client.store(FILE, "abc").await.unwrap();
    assert_eq!((size, media_type.as_str()), (3, "text/plain"));
    let mut conditions = reqwest::header::HeaderMap::new();
    for (range, status, text) in [("", 200, "abc"), ("bytes=1-1", 206, "b"), ("bytes=9-", 416, "")] {
        conditions.insert(reqwest::header::RANGE, range.parse().unwrap());
        let opened = client.open(&file_id, &conditions).await.unwrap();
        assert_eq!(opened.status(), status, "{range}");
        assert_eq!(opened.text().await.unwrap(), text, "{range}");
    }
    client.remove(&file_id).await.unwrap();
    assert_eq!(client.remove(&file_id).await.unwrap_err().code, ErrorCode::NotFound);
}

#[tokio::test]
async fn a_tls_door_serves_nobody_in_plain_http_and_is_trusted_by_nobody_who_was_not_told() {
    let running = Running::start().await;
    assert_eq!(refused(&running.client("http", [])).await, ErrorCode::Unavailable);
    assert_eq!(
        refused(&running.client("https", [])).await,
        ErrorCode::Unavailable,
        "the system's authorities"
    );
    let stranger = Running::start().await;
    assert_eq!(refused(&running.client("https", [stranger.file()])).await, ErrorCode::Unavailable);
}

#[tokio::test]
async fn authorities_for_an_address_without_tls_refuse_the_start_with_the_remedy() {
    let running = Running::start().await;
    let refused = client(&format!("http://{}", running.address), [running.text()]).unwrap_err();
    assert!(matches!(refused, Error::NotHttps));
    let message = refused.to_string();
    assert!(message.contains("FILE_SERVICE_TLS_CA") && message.contains("https://"), "{message}");
}

#[tokio::test]
async fn renewed_certificates_count_on_both_sides_without_a_restart() {
    let running = Running::start().await;
    let follows = running.client("https", [running.file()]);
    let late = running.client("https", [running.text()]);
    follows.store(FILE, "abc").await.unwrap();
    issue(running.folder.path());
    follows.store(FILE, "abc").await.unwrap();
    assert_eq!(refused(&late).await, ErrorCode::Unavailable, "it trusts only what was there before");
}
