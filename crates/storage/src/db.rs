//! The two databases behind one name, and the four ways to use them. A statement is written once and
//! compiled for both; `$1` placeholders, `ON CONFLICT`, `RETURNING` and partial indexes are the same
//! in both. The few texts that must differ are visible pairs ([`Db::of_dialect`]), and only those.

use crate::error::{Error, Result, Verdict, verdict};
use contract::Millis;
use sqlx::{Connection, PgPool, QueryBuilder, SqlitePool};
use std::{future::Future, time::Duration};

/// The longest that one statement or transaction may take before its connection counts as dead.
/// Longer than the server's own statement timeout, so it only strikes when the server is silent.
const OPERATION_LIMIT: Duration = Duration::from_secs(40);

/// How often a call is run again after a deadlock, a serialisation failure or (where that is safe) a
/// broken connection.
const MAX_RETRIES: u32 = 4;

/// A database. Cloning shares the pools.
#[derive(Clone, Debug)]
pub(crate) enum Db {
    /// PostgreSQL: shared by any number of processes.
    Pg(PgPool),
    /// SQLite in WAL mode: one writer, many readers.
    Lite {
        /// Exactly one connection: writers queue here and not at the file's lock.
        write: SqlitePool,
        /// Read-only connections.
        read: SqlitePool,
    },
}

/// A failed try: what the caller is told, and what becomes of the connection.
#[derive(Debug)]
pub(crate) struct Fail {
    error: Error,
    verdict: Verdict,
}

impl From<sqlx::Error> for Fail {
    fn from(error: sqlx::Error) -> Self {
        Self { verdict: verdict(&error), error: error.into() }
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Self { error, verdict: Verdict::Keep }
    }
}

/// May a call run again after its connection broke?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Yes: it only reads.
    Safe,
    /// No: it may have been stored.
    Unsafe,
}

/// Bounds the repetitions of one call.
#[derive(Debug)]
pub(crate) struct Tries {
    left: u32,
    repeat: Repeat,
}

impl Tries {
    pub(crate) fn new(repeat: Repeat) -> Self {
        Self { left: MAX_RETRIES, repeat }
    }

    /// `Ok`: run the call again. `Err`: tell the caller.
    pub(crate) fn again(&mut self, fail: Fail) -> Result<()> {
        let again = match fail.verdict {
            Verdict::Keep => false,
            Verdict::Retry => true,
            Verdict::Evict => self.repeat == Repeat::Safe,
        };
        match (again, self.left.checked_sub(1)) {
            (true, Some(left)) => {
                tracing::debug!(event = "storage_retry", error = %fail.error, "statement is run again");
                self.left = left;
                Ok(())
            }
            _ => Err(fail.error),
        }
    }
}

/// Ends a call whose server is silent.
pub(crate) async fn bounded<T>(call: impl Future<Output = Result<T, Fail>>) -> Result<T, Fail> {
    tokio::time::timeout(OPERATION_LIMIT, call).await.unwrap_or_else(|_| {
        Err(Fail {
            error: Error::unavailable(format!("no answer within {} s", OPERATION_LIMIT.as_secs())),
            verdict: Verdict::Evict,
        })
    })
}

/// Keeps the connection or drops it with the idle ones beside it: they lead to the same server, and
/// each would cost one more failed call (failure matrix row 23).
pub(crate) fn release<DB: sqlx::Database, T>(
    pool: &sqlx::Pool<DB>,
    connection: sqlx::pool::PoolConnection<DB>,
    outcome: &Result<T, Fail>,
) {
    if !matches!(outcome, Err(Fail { verdict: Verdict::Evict, .. })) {
        return;
    }
    drop(connection.detach());
    let mut dropped = 1;
    for _ in 0..pool.num_idle() {
        if let Some(idle) = pool.try_acquire() {
            drop(idle.detach());
            dropped += 1;
        }
    }
    tracing::warn!(event = "storage_connections_evicted", dropped, "database connections dropped");
}

/// One transaction on a borrowed connection: `begin`, the body, `commit`; `rollback` on an error.
macro_rules! transaction {
    ($connection:expr, $begin:expr, |$c:ident| $body:expr) => {{
        let mut tx = ::sqlx::Connection::begin_with($connection, $begin).await?;
        let outcome: Result<_, $crate::db::Fail> = async {
            let $c = &mut *tx;
            $body
        }
        .await;
        match outcome {
            Ok(value) => {
                tx.commit().await?;
                Ok(value)
            }
            Err(fail) => {
                // The first error is the one that explains; a failed rollback closes the connection.
                let _ = tx.rollback().await;
                Err(fail)
            }
        }
    }};
}

/// Runs a body on a connection of a pool, as one try.
macro_rules! attempt {
    ($pool:expr, |$connection:ident| $use:expr) => {
        match $pool.acquire().await {
            Err(error) => Err($crate::db::Fail::from(error)),
            Ok(mut guard) => {
                let outcome = $crate::db::bounded(async {
                    let $connection = &mut *guard;
                    $use
                })
                .await;
                $crate::db::release($pool, guard, &outcome);
                outcome
            }
        }
    };
}

/// The loop around the tries of one call.
macro_rules! repeat {
    ($repeat:expr, $attempt:expr) => {{
        let mut tries = $crate::db::Tries::new($repeat);
        loop {
            match $attempt {
                Ok(value) => break Ok(value),
                Err(fail) => {
                    if let Err(error) = tries.again(fail) {
                        break Err(error);
                    }
                }
            }
        }
    }};
}

/// `read!(db, |c| body)`: reads that need no common snapshot. The body is an expression over `c` (a
/// connection of either kind) of type `Result<T, Fail>`, with `?` on both kinds of error; it may run
/// more than once.
macro_rules! read {
    ($db:expr, |$c:ident| $body:expr) => {
        $crate::db::repeat!(
            $crate::db::Repeat::Safe,
            match $db {
                $crate::db::Db::Pg(pool) => $crate::db::attempt!(pool, |$c| $body),
                $crate::db::Db::Lite { read, .. } => $crate::db::attempt!(read, |$c| $body),
            }
        )
    };
}

/// `snapshot!(db, |c| body)`: several reads of one state of the database.
macro_rules! snapshot {
    ($db:expr, |$c:ident| $body:expr) => {
        $crate::db::repeat!(
            $crate::db::Repeat::Safe,
            match $db {
                $crate::db::Db::Pg(pool) => $crate::db::attempt!(pool, |connection| {
                    $crate::db::transaction!(
                        connection,
                        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
                        |$c| $body
                    )
                }),
                $crate::db::Db::Lite { read, .. } => $crate::db::attempt!(read, |connection| {
                    $crate::db::transaction!(connection, "BEGIN", |$c| $body)
                }),
            }
        )
    };
}

/// `write!(db, |c| body)`: one writing statement, which is its own transaction.
macro_rules! write {
    ($db:expr, |$c:ident| $body:expr) => {
        $crate::db::repeat!(
            $crate::db::Repeat::Unsafe,
            match $db {
                $crate::db::Db::Pg(pool) => $crate::db::attempt!(pool, |$c| $body),
                $crate::db::Db::Lite { write, .. } => $crate::db::attempt!(write, |$c| $body),
            }
        )
    };
}

/// `in_tx!(db, |c| body)`: several statements in one writing transaction.
macro_rules! in_tx {
    ($db:expr, |$c:ident| $body:expr) => {
        $crate::db::repeat!(
            $crate::db::Repeat::Unsafe,
            match $db {
                $crate::db::Db::Pg(pool) => $crate::db::attempt!(pool, |connection| {
                    $crate::db::transaction!(connection, "BEGIN", |$c| $body)
                }),
                $crate::db::Db::Lite { write, .. } => $crate::db::attempt!(write, |connection| {
                    $crate::db::transaction!(connection, "BEGIN IMMEDIATE", |$c| $body)
                }),
            }
        )
    };
}

pub(crate) use {attempt, in_tx, read, repeat, snapshot, transaction, write};

/// The database's clock as an expression: epoch milliseconds, the same within a statement.
const PG_CLOCK: &str = "(extract(epoch FROM statement_timestamp()) * 1000)::bigint";
const LITE_CLOCK: &str = "CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)";

impl Db {
    /// The text of the dialect, of a pair for PostgreSQL and SQLite.
    pub(crate) fn of_dialect(&self, [pg, lite]: [&'static str; 2]) -> &'static str {
        match self {
            Self::Pg(_) => pg,
            Self::Lite { .. } => lite,
        }
    }

    /// The clock expression of the dialect.
    pub(crate) fn clock(&self) -> &'static str {
        self.of_dialect([PG_CLOCK, LITE_CLOCK])
    }

    /// What a `SELECT` ends with that takes rows nobody else is taking. SQLite has one writer.
    pub(crate) fn skip_locked(&self) -> &'static str {
        self.of_dialect([" FOR UPDATE SKIP LOCKED", ""])
    }

    /// What a `SELECT` ends with that keeps its rows for this transaction. SQLite has one writer.
    pub(crate) fn locked(&self) -> &'static str {
        self.of_dialect([" FOR UPDATE", ""])
    }

    /// The time by the database's clock.
    pub(crate) async fn now(&self) -> Result<Millis> {
        let clock = self.clock();
        let now: i64 = read!(self, |c| {
            Ok(QueryBuilder::new("SELECT ").push(clock).build_query_scalar().fetch_one(c).await?)
        })?;
        Ok(Millis(now))
    }

    /// Is the database a server that several processes share?
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Pg(_))
    }

    /// Closes all connections; calls that run end first.
    pub(crate) async fn close(&self) {
        match self {
            Self::Pg(pool) => pool.close().await,
            Self::Lite { write, read } => {
                read.close().await;
                // Last: the closing writer folds the write-ahead log into the file.
                write.close().await;
            }
        }
    }

    /// Does the database answer?
    pub(crate) async fn ping(&self) -> Result<()> {
        read!(self, |c| {
            c.ping().await?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(verdict: Verdict) -> Fail {
        Fail { error: Error::unavailable("test"), verdict }
    }

    #[test]
    fn deadlocks_are_repeated_a_bounded_number_of_times() {
        let mut tries = Tries::new(Repeat::Unsafe);
        for _ in 0..MAX_RETRIES {
            assert!(tries.again(fail(Verdict::Retry)).is_ok());
        }
        assert!(tries.again(fail(Verdict::Retry)).is_err());
    }

    #[test]
    fn a_write_is_not_repeated_after_its_connection_broke() {
        assert!(Tries::new(Repeat::Unsafe).again(fail(Verdict::Evict)).is_err());
        assert!(Tries::new(Repeat::Safe).again(fail(Verdict::Evict)).is_ok());
        assert!(Tries::new(Repeat::Safe).again(fail(Verdict::Keep)).is_err());
    }
}
