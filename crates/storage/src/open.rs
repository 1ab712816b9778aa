//! From a URL to a migrated database.

use crate::{
    db::Db,
    error::{Error, Result},
    migrate,
};
use sqlx::{
    Connection, Executor, PgConnection, SqliteConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use std::{str::FromStr, time::Duration};

/// Waiting longer for a free connection means that the database does not keep up.
const ACQUIRE_LIMIT: Duration = Duration::from_secs(10);
/// A connection that was idle for longer is tested before it is used.
const TEST_AFTER_IDLE: Duration = Duration::from_secs(2);
/// How long SQLite waits for a lock that another process holds.
const BUSY_LIMIT: Duration = Duration::from_secs(10);
/// The most readers of an SQLite file: they only need to be as many as there are cores.
const MAX_READERS: u32 = 8;

/// Every statement of this crate finds its rows by key through an index. The settings say so to the
/// planner: a plan that was made while a table was empty must not scan it when it has grown, and
/// joins with arrays walk the array in its order, which is the order of locks.
const PG_SESSION: &str = "\
    SET statement_timeout = '30s'; \
    SET idle_in_transaction_session_timeout = '30s'; \
    SET plan_cache_mode = force_generic_plan; \
    SET random_page_cost = 1.1; \
    SET enable_seqscan = off; \
    SET enable_hashjoin = off; \
    SET enable_mergejoin = off; \
    SET jit = off";

/// Opens the database of a URL, brings it to this version's tables and returns its pools.
pub(crate) async fn open(url: &str, max_connections: u32) -> Result<Db> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("postgres" | "postgresql") => open_postgres(url, max_connections).await,
        Some("sqlite") => open_sqlite(url, max_connections).await,
        _ => Err(Error::InvalidUrl { reason: "its scheme is neither postgres nor sqlite".into() }),
    }
}

/// Judges a URL, before anybody is connected to.
pub(crate) fn check(url: &str) -> Result<()> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("postgres" | "postgresql") => PgConnectOptions::from_str(url).map(drop),
        Some("sqlite") => SqliteConnectOptions::from_str(url).map(drop),
        _ => return Err(Error::InvalidUrl { reason: "its scheme is neither postgres nor sqlite".into() }),
    }
    .map_err(|error| invalid(&error))
}

/// The driver's words about a URL: they name the faulty part and never hold the password.
fn invalid(error: &sqlx::Error) -> Error {
    Error::InvalidUrl { reason: error.to_string() }
}

async fn open_postgres(url: &str, max_connections: u32) -> Result<Db> {
    let options =
        PgConnectOptions::from_str(url).map_err(|error| invalid(&error))?.application_name("conveyor");
    let mut connection = PgConnection::connect_with(&options).await.map_err(connecting)?;
    migrate::postgres(&mut connection).await?;
    connection.close().await?;
    let pool = PgPoolOptions::new()
        .max_connections(max_connections.max(1))
        .acquire_timeout(ACQUIRE_LIMIT)
        .idle_timeout(Duration::from_secs(300))
        // A ping before each use would double the round trips of the hot path.
        .test_before_acquire(false)
        .before_acquire(|connection, meta| {
            Box::pin(async move {
                if meta.idle_for > TEST_AFTER_IDLE {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
        .after_connect(|connection, _| {
            Box::pin(async move { connection.execute(PG_SESSION).await.map(drop) })
        })
        .connect_with(options)
        .await?;
    Ok(Db::Pg(pool))
}

async fn open_sqlite(url: &str, max_connections: u32) -> Result<Db> {
    let options = SqliteConnectOptions::from_str(url).map_err(|error| invalid(&error))?;
    if url.contains(":memory:") || url.contains("mode=memory") {
        return Err(Error::InvalidUrl { reason: "an SQLite database must be a file".into() });
    }
    let options = options.busy_timeout(BUSY_LIMIT).foreign_keys(true).statement_cache_capacity(256);
    let writer = options
        .clone()
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // Whoever was answered can forget, also when the power fails: NORMAL would lose the last commits.
        .synchronous(SqliteSynchronous::Full)
        .pragma("journal_size_limit", "67108864");
    let mut connection = connect_sqlite(&writer).await?;
    migrate::sqlite(&mut connection).await?;
    connection.close().await?;
    let pool = |max| {
        SqlitePoolOptions::new()
            .max_connections(max)
            .acquire_timeout(ACQUIRE_LIMIT)
            .test_before_acquire(false)
            // A file does not go away: connections stay, with their prepared statements.
            .idle_timeout(None)
            .max_lifetime(None)
    };
    let write = pool(1).connect_with(writer).await?;
    let read = pool(max_connections.clamp(1, MAX_READERS)).connect_with(options.read_only(true)).await?;
    Ok(Db::Lite { write, read })
}

/// Connects to a file that other processes may be creating at this moment: switching a new file to
/// WAL does not wait for locks as statements do, so it is tried again for as long as they would wait.
async fn connect_sqlite(options: &SqliteConnectOptions) -> Result<SqliteConnection> {
    const PAUSE: Duration = Duration::from_millis(20);
    let mut left = BUSY_LIMIT.as_millis() / PAUSE.as_millis();
    loop {
        match SqliteConnection::connect_with(options).await {
            Ok(connection) => return Ok(connection),
            Err(error) if left > 0 && is_busy(&error) => {
                left -= 1;
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => {
                let file = options.get_filename().display();
                return Err(Error::unavailable(format!("cannot open {file}: {error}")));
            }
        }
    }
}

fn is_busy(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.and_then(|code| code.parse::<u32>().ok()).is_some_and(|code| matches!(code & 0xff, 5 | 6))
}

/// A first connection that fails for whatever reason may succeed when the operator has acted; the
/// server's words tell how (no such database, wrong password, ...).
fn connecting(error: sqlx::Error) -> Error {
    match Error::from(error) {
        Error::Statement(cause) => Error::unavailable(cause.to_string()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sqlite_answers_only_what_survives_a_power_failure() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/a.db", folder.path().display());
        let db = open(&url, 4).await.unwrap();
        let Db::Lite { write, read } = &db else { panic!("not SQLite") };
        let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(write).await.unwrap();
        assert_eq!(synchronous, 2, "FULL");
        let foreign_keys: i64 = sqlx::query_scalar("PRAGMA foreign_keys").fetch_one(write).await.unwrap();
        assert_eq!(foreign_keys, 1);
        let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(write).await.unwrap();
        assert_eq!(mode, "wal");
        let written = sqlx::query("DELETE FROM users").execute(read).await;
        assert!(written.is_err(), "readers cannot write");
        db.close().await;
    }
}
