//! Variables of the whole platform: where database and queue are, and the data folder.

use config::Reader;
use queue::RedisSettings;
use secrecy::{ExposeSecret, SecretString};
use std::path::PathBuf;
use storage::StorageSettings;

/// What every service of a process shares.
#[derive(Clone, Debug)]
pub(crate) struct PlatformSettings {
    /// The data folder.
    pub(crate) data_dir: PathBuf,
    /// `DATABASE_URL`, if it is set.
    pub(crate) database_url: Option<SecretString>,
    /// Connections to the database.
    pub(crate) max_connections: u32,
    /// Redis, if it is configured.
    pub(crate) redis: Option<RedisSettings>,
}

impl PlatformSettings {
    /// Declares and reads the variables; faults stay with the reader.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Self {
        let data_dir = reader.text(
            "CONVEYOR_DATA_DIR",
            "./data",
            "Data folder: the embedded database, files, generated credentials.",
        );
        let database_url = reader.secret(
            "DATABASE_URL",
            "postgres://user:password@host/name or sqlite://path/of/file; unset: conveyor.db in the data folder.",
        );
        if let Some(Err(error)) = database_url.as_ref().map(StorageSettings::check) {
            reader.fault("DATABASE_URL", None, error.to_string());
        }
        Self {
            data_dir: PathBuf::from(data_dir),
            database_url,
            max_connections: reader.parsed(
                "DATABASE_MAX_CONNECTIONS",
                "connections",
                16,
                "Most connections of one process to the database.",
                |text| match text.parse() {
                    Ok(count) if count > 0 => Ok(count),
                    _ => Err("is no whole number from 1 up".to_owned()),
                },
            ),
            redis: read_redis(reader),
        }
    }

    /// The database: what is configured, else the embedded one.
    pub(crate) fn storage(&self) -> StorageSettings {
        let embedded = || {
            let path = self.data_dir.join("conveyor.db");
            SecretString::from(format!("sqlite://{}", escape(&path.to_string_lossy(), "/")))
        };
        StorageSettings {
            url: self.database_url.clone().unwrap_or_else(embedded),
            max_connections: self.max_connections,
        }
    }

    /// Is the database one that only this machine has?
    pub(crate) fn is_embedded(&self) -> bool {
        self.database_url.as_ref().is_none_or(|url| url.expose_secret().starts_with("sqlite:"))
    }
}

/// `REDIS_URL`, else the single variables; `REDIS_HOST` decides whether there is a Redis.
fn read_redis(reader: &mut Reader<'_>) -> Option<RedisSettings> {
    let url = reader.secret("REDIS_URL", "redis://[user:password@]host:port/db, or rediss:// for TLS; several, separated by commas, for a Cluster.");
    let host = reader.optional_host("REDIS_HOST", "Host of Redis, where REDIS_URL is not set.");
    let port = reader.port("REDIS_PORT", 6379, "Port of Redis.");
    let user = reader.text("REDIS_USERNAME", "", "User of Redis; empty: the default user.");
    let password = reader.secret("REDIS_PASSWORD", "Password of Redis.");
    let database = reader.number("REDIS_DB", "number", 0, "Database of Redis.");
    let tls = reader.flag("REDIS_TLS", false, "Speak TLS with Redis.");
    let cluster = reader.flag("REDIS_CLUSTER", false, "Redis is a Cluster.");
    let prefix = reader.parsed(
        "REDIS_PREFIX",
        "prefix",
        "conveyor".to_owned(),
        "What all keys begin with; deployments that share a Redis need different ones.",
        |text| RedisSettings::check_prefix(text).map(|()| text.to_owned()).map_err(|error| error.to_string()),
    );
    let composed = || {
        host.map(|host| {
            let scheme = if tls { "rediss" } else { "redis" };
            let password = password.as_ref().map(|password| escape(password.expose_secret(), ""));
            let login =
                password.map_or_else(String::new, |password| format!("{}:{password}@", escape(&user, "")));
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            let path = if cluster { String::new() } else { format!("/{database}") };
            SecretString::from(format!("{scheme}://{login}{host}:{port}{path}"))
        })
    };
    let is_whole = url.is_some();
    let redis = RedisSettings { url: url.or_else(composed)?, cluster, prefix };
    if let Err(error) = redis.check() {
        // Its parts are judged one by one.
        reader.fault(if is_whole { "REDIS_URL" } else { "REDIS_HOST" }, None, error.to_string());
    }
    Some(redis)
}

/// Text for a part of a URL; the characters of `kept` stay as they are.
pub(crate) fn escape(text: &str, kept: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        let character = char::from(byte);
        if byte.is_ascii_alphanumeric() || "-_.~".contains(character) || kept.contains(character) {
            escaped.push(character);
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Variables;

    fn read<const N: usize>(pairs: [(&str, &str); N]) -> PlatformSettings {
        let source = Variables::of(pairs);
        PlatformSettings::read(&mut Reader::new(&source))
    }

    fn redis_url<const N: usize>(pairs: [(&str, &str); N]) -> Option<String> {
        read(pairs).redis.map(|redis| redis.url.expose_secret().to_owned())
    }

    #[test]
    fn without_variables_everything_is_embedded() {
        let settings = read([]);
        assert!(settings.is_embedded() && settings.redis.is_none());
        assert_eq!(settings.storage().url.expose_secret(), "sqlite://./data/conveyor.db");
        let odd = read([("CONVEYOR_DATA_DIR", "/tmp/a b?c")]);
        assert_eq!(odd.storage().url.expose_secret(), "sqlite:///tmp/a%20b%3Fc/conveyor.db");
    }

    #[test]
    fn redis_comes_as_a_url_or_in_parts() {
        assert_eq!(
            redis_url([("REDIS_URL", "redis://a"), ("REDIS_HOST", "b")]).as_deref(),
            Some("redis://a")
        );
        assert_eq!(redis_url([("REDIS_HOST", "b")]).as_deref(), Some("redis://b:6379/0"));
        let parts =
            [("REDIS_HOST", "b"), ("REDIS_PASSWORD", "p@ss"), ("REDIS_TLS", "true"), ("REDIS_DB", "2")];
        assert_eq!(redis_url(parts).as_deref(), Some("rediss://:p%40ss@b:6379/2"));
        assert_eq!(redis_url([("REDIS_PORT", "1")]), None);
    }

    #[test]
    fn an_unknown_database_is_refused_without_showing_its_password() {
        let source = Variables::of([("DATABASE_URL", "mysql://u:hunter2@h/n")]);
        let mut reader = Reader::new(&source);
        PlatformSettings::read(&mut reader);
        let faults = reader.finish().unwrap_err().to_string();
        assert!(faults.contains("DATABASE_URL") && !faults.contains("hunter2"), "{faults}");
    }
}
