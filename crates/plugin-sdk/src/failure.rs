//! Why a node could not do its work.

use contract::{ErrorCode, Json, report::StepError};
use std::{error::Error as StdError, fmt};

/// Why a node failed. Any error converts into it, so `?` works in a node's function; the message
/// then tells the whole chain of causes.
///
/// The message is stored in the run's history and shown to people: it must never hold a secret.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure(StepError);

impl Failure {
    /// A failure with a message for people.
    pub fn new(message: impl Into<String>) -> Self {
        Self(StepError { message: message.into(), ..StepError::default() })
    }

    /// A failure with one of the platform's codes.
    pub fn of(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(StepError::of(code, message))
    }

    /// Gives it a machine-readable reason, a word of your own.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.0.code = Some(code.into());
        self
    }

    /// Says whether the same step can succeed later. A node that is set to retry is not retried
    /// after `false`.
    #[must_use]
    pub fn retryable(mut self, retryable: bool) -> Self {
        self.0.retryable = Some(retryable);
        self
    }

    /// Adds anything more, for programs.
    #[must_use]
    pub fn details(mut self, details: impl Into<Json>) -> Self {
        self.0.details = Some(details.into());
        self
    }

    /// As it is reported.
    pub fn into_step_error(self) -> StepError {
        self.0
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

/// `Failure` itself is no [`StdError`], as the two would overlap.
impl<E: StdError> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            message = format!("{message}: {inner}");
            cause = inner.source();
        }
        Self::new(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::num::ParseIntError);

    #[test]
    fn any_error_becomes_a_failure_that_tells_the_chain_of_causes() {
        fn work() -> Result<(), Failure> {
            Err(Outer("x".parse::<u8>().unwrap_err()))?;
            Ok(())
        }
        assert_eq!(work().unwrap_err().to_string(), "outer: invalid digit found in string");
    }
}
