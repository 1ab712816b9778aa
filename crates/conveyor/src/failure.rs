//! How a command ends when it does not end well.

use std::{fmt, process::ExitCode};

/// Why a command did not succeed; decides the exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line, the configuration or a document is not valid: exit code 2.
    Invalid(String),
    /// It was tried and failed: exit code 1.
    Failed(anyhow::Error),
    /// As `Failed`, but everything has been said already.
    Told,
    /// As `Invalid`, but everything has been said already.
    ToldInvalid,
}

impl Failure {
    /// Something that is not valid.
    pub(crate) fn invalid(message: impl fmt::Display) -> Self {
        Self::Invalid(message.to_string())
    }

    /// Says what is left to say on standard error.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Self::Invalid(message) => {
                eprintln!("conveyor: {message}");
                ExitCode::from(2)
            }
            Self::Failed(error) => {
                eprintln!("conveyor: {error:#}");
                ExitCode::from(1)
            }
            Self::Told => ExitCode::from(1),
            Self::ToldInvalid => ExitCode::from(2),
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}
