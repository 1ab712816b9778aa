//! The services, by the names that the platform gives them.

use clap::ValueEnum;
use std::fmt;

/// A service of the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub(crate) enum ServiceName {
    /// Decides what runs next.
    RuntimeEngine,
    /// Keeps secrets.
    SecretManager,
    /// Keeps files.
    FileService,
    /// Keeps the plugin catalogue.
    PluginManager,
    /// The door between plugins and the engine.
    RuntimeControlPlane,
    /// Runs built-in nodes.
    Executor,
    /// The HTTP API.
    Api,
}

impl ServiceName {
    /// All, in the order in which they are bound: a service comes after those it calls.
    pub(crate) const ALL: [Self; 7] = [
        Self::FileService,
        Self::RuntimeEngine,
        Self::SecretManager,
        Self::PluginManager,
        Self::RuntimeControlPlane,
        Self::Executor,
        Self::Api,
    ];

    /// The name on the command line and in logs.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::RuntimeEngine => "runtime-engine",
            Self::SecretManager => "secret-manager",
            Self::FileService => "file-service",
            Self::PluginManager => "plugin-manager",
            Self::RuntimeControlPlane => "runtime-control-plane",
            Self::Executor => "executor",
            Self::Api => "api",
        }
    }

    /// Does it work on the database?
    pub(crate) fn needs_database(self) -> bool {
        self != Self::Executor
    }

    /// Does it work on lanes or notices?
    pub(crate) fn needs_queue(self) -> bool {
        !matches!(self, Self::SecretManager | Self::FileService)
    }

    /// The place in the order of a stop: who reports to others stops before them.
    pub(crate) fn stop_stage(self) -> u8 {
        match self {
            Self::Api | Self::PluginManager | Self::Executor => 0,
            Self::RuntimeControlPlane => 1,
            Self::RuntimeEngine => 2,
            Self::SecretManager | Self::FileService => 3,
        }
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_knows_the_platforms_names() {
        for service in ServiceName::ALL {
            assert_eq!(ServiceName::from_str(service.as_str(), false), Ok(service));
        }
        assert_eq!(ServiceName::value_variants().len(), ServiceName::ALL.len());
    }
}
