//! Databases of their own for tests that share a server.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::{Error, Program, postgres};

const LIMIT: Duration = Duration::from_secs(60);

/// Makes a new, empty database on the server of `url` and returns its URL. It is not removed: the
/// server of the tests is thrown away as a whole.
///
/// # Errors
/// [`Error::Missing`] if `url` is no `postgres://…` URL or `psql` is not installed, otherwise what
/// `psql` says.
pub async fn fresh_database(url: &str) -> Result<String, Error> {
    let name = unique_name();
    let fresh = with_database(url, &name)
        .ok_or_else(|| Error::Missing("the URL is not like postgres://user@host:port/database".into()))?;
    let psql = Program::new(postgres::binaries()?.join("psql"))
        .args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--dbname", url, "--command"])
        .arg(format!("create database {name}"))
        .spawn()?;
    if psql.wait(LIMIT).await?.success() { Ok(fresh) } else { Err(psql.failed("the database was made")) }
}

/// Unique in this process by the counter, and among processes by the seed of the hasher.
fn unique_name() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("test_{:016x}_{number}", RandomState::new().hash_one(number))
}

/// The URL with another database, parameters kept.
fn with_database(url: &str, name: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if !matches!(scheme, "postgres" | "postgresql") {
        return None;
    }
    let (location, parameters) = match rest.split_once('?') {
        Some((location, parameters)) => (location, format!("?{parameters}")),
        None => (rest, String::new()),
    };
    let server = location.split_once('/').map_or(location, |(server, _)| server);
    Some(format!("{scheme}://{server}/{name}{parameters}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_database_of_the_url_is_replaced() {
        let cases = [
            ("postgres://u:p@h:1/db", Some("postgres://u:p@h:1/x")),
            ("postgresql://h/db?sslmode=disable", Some("postgresql://h/x?sslmode=disable")),
            ("postgres://h", Some("postgres://h/x")),
            ("sqlite://file", None),
            ("nonsense", None),
        ];
        for (url, expected) in cases {
            assert_eq!(with_database(url, "x").as_deref(), expected);
        }
    }
}
