//! What can go wrong with the database, sorted by what the caller can do about it.

use contract::{ErrorCode, RpcError};
use sqlx::migrate::MigrateError;
use std::fmt;

/// Result of a storage call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a storage call failed. No message shows the database's URL or a stored value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database cannot be reached, is read-only, is overloaded or took too long. Whether a
    /// write that failed so was stored is unknown unless it is idempotent; the same call can succeed
    /// later.
    #[error("the database is not available: {reason}")]
    Unavailable {
        /// What the driver or the server said.
        reason: String,
    },
    /// The thing to be created exists, or another writer was faster.
    #[error("{what} exists already or was changed at the same time")]
    Conflict {
        /// The constraint or the thing.
        what: String,
    },
    /// A value cannot be stored, for example text with a NUL character.
    #[error("the database refuses a value: {reason}")]
    InvalidValue {
        /// What the server said.
        reason: String,
    },
    /// A stored row cannot be read: the database was changed by hand or by another version.
    #[error("{what} in the database cannot be read: {reason}")]
    Corrupt {
        /// The row.
        what: String,
        /// Its fault.
        reason: String,
    },
    /// The database URL is not usable. Never shows its password.
    #[error("the database URL is not valid: {reason}; use postgres://user@host/name or sqlite://path")]
    InvalidUrl {
        /// Its fault.
        reason: String,
    },
    /// The tables could not be brought to this version.
    #[error("the database could not be migrated: {reason}")]
    Migration {
        /// The migration and its fault.
        reason: String,
    },
    /// A statement failed in a way that only a bug of ours explains.
    #[error("a statement failed: {0}")]
    Statement(#[source] sqlx::Error),
}

impl Error {
    /// Can the same call succeed later without being changed?
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// The error as a peer is told it. Internal details stay in the log.
    pub fn to_rpc(&self) -> RpcError {
        let code = match self {
            Self::Unavailable { .. } => ErrorCode::Unavailable,
            Self::Conflict { .. } => ErrorCode::Conflict,
            Self::InvalidValue { .. } => ErrorCode::InvalidRequest,
            Self::Corrupt { .. } | Self::InvalidUrl { .. } | Self::Migration { .. } => ErrorCode::Internal,
            Self::Statement(_) => {
                return RpcError::new(
                    ErrorCode::Internal,
                    "a database statement failed; its details are in the service's log",
                );
            }
        };
        RpcError::new(code, self.to_string())
    }

    pub(crate) fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable { reason: reason.into() }
    }

    pub(crate) fn conflict(what: impl Into<String>) -> Self {
        Self::Conflict { what: what.into() }
    }

    pub(crate) fn corrupt(what: impl Into<String>, reason: &dyn fmt::Display) -> Self {
        Self::Corrupt { what: what.into(), reason: reason.to_string() }
    }
}

/// What the connection that gave an error is still good for, and whether the statement may run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The connection is fine; the error is about the statement.
    Keep,
    /// A serialisation failure or deadlock: nothing was stored, run it again.
    Retry,
    /// The connection is broken, its server has become read-only or is going away: drop it, and the
    /// idle ones, which lead to the same server.
    Evict,
}

/// Judges a driver error (failure matrix row 23).
pub(crate) fn verdict(error: &sqlx::Error) -> Verdict {
    match error {
        sqlx::Error::Database(error) => match error.code().as_deref() {
            Some("40001" | "40P01") => Verdict::Retry,
            // Read-only; the server shuts down or crashed; idle in transaction for too long.
            Some("25006" | "57P01" | "57P02" | "57P03" | "57P05" | "25P03") => Verdict::Evict,
            Some(code) if code.len() == 5 && code.starts_with("08") => Verdict::Evict,
            _ => Verdict::Keep,
        },
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
            Verdict::Evict
        }
        _ => Verdict::Keep,
    }
}

/// SQLSTATE classes and codes (and SQLite's primary result codes) that mean "not now".
fn is_not_now(code: &str) -> bool {
    const SQLSTATES: [&str; 10] = [
        "40001", // serialisation failure, still after retries
        "40P01", // deadlock, still after retries
        "25006", // read-only after a failover
        "25P03", // idle in transaction for too long
        "55P03", // lock not available
        "57014", // statement timeout
        "57P01", // admin shutdown
        "57P02", // crash shutdown
        "57P03", // starting up or shutting down
        "57P05", // idle session timeout
    ];
    // SQLite's extended codes carry the primary one in the low byte: BUSY, LOCKED, READONLY, IOERR,
    // FULL, CANTOPEN.
    let sqlite = || code.parse::<u32>().is_ok_and(|code| matches!(code & 0xff, 5 | 6 | 8 | 10 | 13 | 14));
    match code.len() {
        5 if code.starts_with("08") || code.starts_with("53") => true,
        5 => SQLSTATES.contains(&code),
        _ => sqlite(),
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(cause) => {
                let code = cause.code().unwrap_or_default();
                if cause.is_unique_violation() || cause.is_foreign_key_violation() {
                    Self::conflict(cause.constraint().unwrap_or_else(|| cause.message()))
                } else if is_not_now(&code) {
                    Self::unavailable(cause.message())
                } else if matches!(&*code, "XX001" | "XX002" | "11" | "26") {
                    // Data or index corrupted; SQLite: malformed, or no database at all.
                    Self::corrupt("the database", &cause.message())
                } else if matches!(&*code, "22021" | "22P05") {
                    Self::InvalidValue { reason: cause.message().to_owned() }
                } else {
                    Self::Statement(error)
                }
            }
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::BeginFailed => Self::unavailable(error.to_string()),
            sqlx::Error::ColumnDecode { index, source } => Self::corrupt(format!("column {index}"), source),
            sqlx::Error::Decode(source) => Self::corrupt("a row", source),
            _ => Self::Statement(error),
        }
    }
}

impl From<MigrateError> for Error {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::Execute(cause) => Self::from(cause),
            MigrateError::ExecuteMigration(cause, number) => match Self::from(cause) {
                unavailable @ Self::Unavailable { .. } => unavailable,
                cause => Self::Migration { reason: format!("migration {number}: {cause}") },
            },
            MigrateError::VersionMissing(number) => Self::Migration {
                reason: format!(
                    "the database has migration {number}, which this version does not know; start the version that made it, or a newer one"
                ),
            },
            MigrateError::VersionMismatch(number) => Self::Migration {
                reason: format!(
                    "migration {number} was applied in another form; this database belongs to another build"
                ),
            },
            other => Self::Migration { reason: other.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_is_unavailable_and_evicts() {
        let broken = || sqlx::Error::Io(std::io::ErrorKind::BrokenPipe.into());
        assert_eq!(verdict(&broken()), Verdict::Evict);
        let error = Error::from(broken());
        assert!(error.is_unavailable());
        assert_eq!(error.to_rpc().code, ErrorCode::Unavailable);
        assert!(error.to_rpc().retryable);
    }

    #[test]
    fn codes_that_mean_not_now_are_told_apart() {
        for code in ["25006", "57014", "40001", "08006", "53300", "5", "261", "14", "13"] {
            assert!(is_not_now(code), "{code}");
        }
        for code in ["23505", "42P01", "1", "19", "2067", "22021"] {
            assert!(!is_not_now(code), "{code}");
        }
    }

    #[test]
    fn a_statement_error_is_not_shown_to_peers() {
        let error = Error::from(sqlx::Error::ColumnNotFound("secret".into()));
        assert!(!error.to_rpc().message.contains("secret"));
    }
}
