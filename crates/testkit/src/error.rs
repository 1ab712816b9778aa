//! What can go wrong when servers and processes are started for a test.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

/// A failure to start, watch or stop something.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program could not be started at all.
    #[error("cannot start {program}: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// The cause.
        source: io::Error,
    },
    /// The process ended before it did what was waited for, or with a failure.
    #[error("{program} ended ({}) before {waited_for}; its last output:\n{tail}", status_text(*status))]
    Ended {
        /// The program.
        program: String,
        /// How it ended, if that is known.
        status: Option<ExitStatus>,
        /// What was waited for.
        waited_for: String,
        /// The last lines that it wrote.
        tail: String,
    },
    /// The time was over.
    #[error("{program}: no {waited_for} within {} ms; its last output:\n{tail}", limit.as_millis())]
    Timeout {
        /// The program.
        program: String,
        /// What was waited for.
        waited_for: String,
        /// The limit.
        limit: Duration,
        /// The last lines that it wrote.
        tail: String,
    },
    /// An operation of the system failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// The cause.
        source: io::Error,
    },
    /// Something that must be installed or configured is not there.
    #[error("{0}")]
    Missing(String),
}

impl Error {
    /// For `map_err`: an [`Error::Io`] that says what was being done.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        |source| Self::Io { doing: doing.into(), source }
    }

    /// Did the process fail because somebody else has its port?
    pub(crate) fn is_port_taken(&self) -> bool {
        matches!(self, Self::Ended { tail, .. } if tail.contains("Address already in use"))
    }
}

fn status_text(status: Option<ExitStatus>) -> String {
    status.map_or_else(|| "output closed".to_owned(), |status| status.to_string())
}
