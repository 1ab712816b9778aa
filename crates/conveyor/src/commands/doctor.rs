//! `conveyor doctor`

use crate::{cli::Doctor, failure::Failure, platform::PlatformSettings};
use ::config::{Environment, Reader, Source};
use queue::Queue;
use serde::Serialize;
use std::{path::Path, time::Duration};
use storage::Storage;
use tokio::net::TcpStream;

/// How long one thing may take to answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Neighbours that are reached by host and port: name, variable of the host, variable and default of
/// the port.
const NEIGHBOURS: [(&str, &str, &str, u16); 3] = [
    ("runtime-engine", "RUNTIME_ENGINE_TCP_HOST", "RUNTIME_ENGINE_RPC_TCP_PORT", 3000),
    ("runtime-control-plane", "CONTROL_PLANE_TCP_HOST", "RUNTIME_CONTROL_PLANE_TCP_PORT", 3001),
    ("plugin-manager", "PLUGIN_MANAGER_RPC_HOST", "PLUGIN_MANAGER_RPC_PORT", 3000),
];

/// Neighbours that are reached by one variable.
const URLS: [(&str, &str); 4] = [
    ("secret-manager", "SECRETS_TCP_CONNECT"),
    ("file-service", "FILE_SERVICE_BASE_URL"),
    ("file-service of plugin-manager", "PLUGIN_MANAGER_FILE_SERVICE_URL"),
    ("api", "API_BASE_URL"),
];

/// What was found.
#[derive(Debug, Serialize)]
struct Finding {
    /// What was looked at.
    name: String,
    /// Is it as it should be?
    ok: bool,
    /// What was found, and what to do.
    detail: String,
}

/// Checks database, queue, data folder and every neighbour that the environment names.
pub(super) async fn doctor(args: &Doctor) -> Result<(), Failure> {
    let mut reader = Reader::new(&Environment);
    let settings = PlatformSettings::read(&mut reader);
    reader.finish().map_err(Failure::invalid)?;
    let mut findings = vec![database(&settings).await, queue(&settings).await];
    for (name, address) in neighbours(&Environment) {
        findings.push(neighbour(name, &address).await);
    }
    let healthy = findings.iter().all(|finding| finding.ok);
    if args.json {
        println!("{}", serde_json::json!({ "ok": healthy, "findings": findings }));
    } else {
        for finding in &findings {
            println!("{} {:<32}{}", if finding.ok { "✓" } else { "✗" }, finding.name, finding.detail);
        }
    }
    if healthy { Ok(()) } else { Err(Failure::Told) }
}

async fn database(settings: &PlatformSettings) -> Finding {
    let name = "database".to_owned();
    if settings.database_url.is_none() && !settings.data_dir.join("conveyor.db").exists() {
        return folder(name, &settings.data_dir);
    }
    let opened = tokio::time::timeout(LIMIT, Storage::open(&settings.storage())).await;
    match opened {
        Ok(Ok(storage)) => {
            let kind =
                if storage.is_shared() { "PostgreSQL answers" } else { "the SQLite file can be opened" };
            storage.close().await;
            Finding { name, ok: true, detail: kind.to_owned() }
        }
        Ok(Err(error)) => Finding { name, ok: false, detail: error.to_string() },
        Err(_) => Finding { name, ok: false, detail: format!("no answer within {} s", LIMIT.as_secs()) },
    }
}

/// The embedded database is made at the first start, in this folder.
fn folder(name: String, path: &Path) -> Finding {
    let existing = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("."));
    let writable = tempfile::tempfile_in(existing);
    let detail = match &writable {
        Ok(_) => format!("the embedded one will be made in {}", path.display()),
        Err(error) => {
            format!("the data folder {} cannot be written: {error}; set CONVEYOR_DATA_DIR", path.display())
        }
    };
    Finding { name, ok: writable.is_ok(), detail }
}

async fn queue(settings: &PlatformSettings) -> Finding {
    let name = "queue".to_owned();
    let Some(redis) = settings.redis.clone() else {
        return Finding { name, ok: true, detail: "in the process (Redis is not configured)".to_owned() };
    };
    let answered = async { Queue::redis(redis).await?.ping().await };
    match answered.await {
        Ok(()) => Finding { name, ok: true, detail: "Redis answers".to_owned() },
        Err(error) => Finding { name, ok: false, detail: error.to_string() },
    }
}

/// `host:port` of each neighbour that is named.
fn neighbours(source: &dyn Source) -> Vec<(&'static str, String)> {
    let set = |name: &str| source.get(name).filter(|text| !text.trim().is_empty());
    let by_host = NEIGHBOURS.iter().filter_map(|(name, host, port, default)| {
        let port = set(port).unwrap_or_else(|| default.to_string());
        set(host).map(|host| (*name, format!("{host}:{port}")))
    });
    let by_url = URLS.iter().filter_map(|(name, variable)| Some((*name, authority(&set(variable)?))));
    by_host.chain(by_url).collect()
}

/// `host:port` of a URL, or the text itself where it is none.
fn authority(text: &str) -> String {
    match reqwest::Url::parse(text) {
        Ok(url) if url.has_host() => {
            let port = url.port_or_known_default().unwrap_or(80);
            format!("{}:{port}", url.host_str().unwrap_or_default())
        }
        _ => text.to_owned(),
    }
}

async fn neighbour(name: &str, address: &str) -> Finding {
    let (ok, detail) = match tokio::time::timeout(LIMIT, TcpStream::connect(address)).await {
        Ok(Ok(_)) => (true, format!("{address} accepts connections")),
        Ok(Err(error)) => (false, format!("{address}: {error}")),
        Err(_) => (false, format!("{address}: no answer within {} s", LIMIT.as_secs())),
    };
    Finding { name: name.to_owned(), ok, detail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::config::Variables;

    #[test]
    fn only_what_is_named_is_checked() {
        let source = Variables::of([
            ("RUNTIME_ENGINE_TCP_HOST", "engine"),
            ("SECRETS_TCP_CONNECT", "secrets:3000"),
            ("FILE_SERVICE_BASE_URL", "http://files"),
        ]);
        let found = neighbours(&source);
        let expected = [
            ("runtime-engine", "engine:3000"),
            ("secret-manager", "secrets:3000"),
            ("file-service", "files:80"),
        ];
        assert_eq!(found, expected.map(|(name, address)| (name, address.to_owned())));
    }
}
