//! The limit of open files. Each connection is a descriptor, the doors take thousands, and many systems
//! give a process 1024 until it asks for more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to the most that the system allows.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(
            event = "file_limit_kept",
            error = %error,
            limit = limit.current,
            "the limit of open files cannot be raised; the doors take fewer connections"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn afterwards_the_limit_is_the_most_that_the_system_allows() {
        raise_limit();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
