//! What is to run in this process, with all its settings.

use crate::{failure::Failure, platform::PlatformSettings, profile::Profile, services::ServiceName};
use config::{Reader, Source};
use std::collections::BTreeSet;

/// The services of this process with their settings.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What they share.
    pub(crate) platform: PlatformSettings,
    /// `None`: not in this process; likewise below.
    pub(crate) engine: Option<runtime_engine::Settings>,
    pub(crate) secret_manager: Option<secret_manager::Settings>,
    pub(crate) file_service: Option<file_service::Settings>,
    pub(crate) plugin_manager: Option<plugin_manager::Settings>,
    pub(crate) control_plane: Option<runtime_control_plane::Settings>,
    pub(crate) executor: Option<executor::Settings>,
    pub(crate) api: Option<api::Settings>,
    /// May keys that are missing be made in the data folder?
    pub(crate) generates: bool,
}

impl Plan {
    /// Reads the settings of these services.
    ///
    /// # Errors
    /// Every fault of every service at once.
    pub(crate) fn read(
        source: &dyn Source,
        profile: Profile,
        services: &BTreeSet<ServiceName>,
    ) -> Result<Self, Failure> {
        let mut reader = Reader::new(source).with_profile(profile.name, profile.defaults);
        let mut plan = Self::declare(&mut reader, services);
        plan.generates = profile.generates;
        reader.finish().map_err(Failure::invalid)?;
        plan.check(services)?;
        Ok(plan)
    }

    /// Declares every variable of these services; faults stay with the reader.
    pub(crate) fn declare(reader: &mut Reader<'_>, services: &BTreeSet<ServiceName>) -> Self {
        let platform = PlatformSettings::read(reader);
        let has = |service| services.contains(&service);
        Self {
            platform,
            engine: has(ServiceName::RuntimeEngine).then(|| runtime_engine::Settings::read(reader)),
            secret_manager: has(ServiceName::SecretManager).then(|| secret_manager::Settings::read(reader)),
            file_service: has(ServiceName::FileService).then(|| file_service::Settings::read(reader)),
            plugin_manager: has(ServiceName::PluginManager).then(|| plugin_manager::Settings::read(reader)),
            control_plane: has(ServiceName::RuntimeControlPlane)
                .then(|| runtime_control_plane::Settings::read(reader)),
            executor: has(ServiceName::Executor).then(|| executor::Settings::read(reader)),
            api: has(ServiceName::Api).then(|| api::Settings::read(reader)),
            generates: false,
        }
    }

    /// Is the service in this process?
    pub(crate) fn has(&self, service: ServiceName) -> bool {
        match service {
            ServiceName::RuntimeEngine => self.engine.is_some(),
            ServiceName::SecretManager => self.secret_manager.is_some(),
            ServiceName::FileService => self.file_service.is_some(),
            ServiceName::PluginManager => self.plugin_manager.is_some(),
            ServiceName::RuntimeControlPlane => self.control_plane.is_some(),
            ServiceName::Executor => self.executor.is_some(),
            ServiceName::Api => self.api.is_some(),
        }
    }

    /// A part of the platform works only with what all parts can reach.
    fn check(&self, services: &BTreeSet<ServiceName>) -> Result<(), Failure> {
        if services.len() == ServiceName::ALL.len() {
            return Ok(());
        }
        let named = |needs: fn(ServiceName) -> bool| {
            let names: Vec<_> =
                services.iter().filter(|service| needs(**service)).map(|service| service.as_str()).collect();
            names.join(", ")
        };
        let of_database = named(ServiceName::needs_database);
        if self.platform.is_embedded() && !of_database.is_empty() {
            return Err(Failure::invalid(format!(
                "{of_database} cannot start alone with the embedded database, which other processes do not see; \
                 set DATABASE_URL=postgres://… or start everything in one process (conveyor up)"
            )));
        }
        let of_queue = named(ServiceName::needs_queue);
        if self.platform.redis.is_none() && !of_queue.is_empty() {
            return Err(Failure::invalid(format!(
                "{of_queue} cannot start alone with the in-process queue, which other processes do not see; \
                 set REDIS_URL (or REDIS_HOST) or start everything in one process (conveyor up)"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Variables;

    fn refusal(pairs: &[(&str, &str)], services: &[ServiceName]) -> Option<String> {
        let mut source: Variables = pairs.iter().copied().collect();
        for name in [
            "PLUGIN_CONTROL_PLANE_KEY",
            "SECRET_MANAGER_TOKEN",
            "FILE_SERVICE_TOKEN",
            "PLUGIN_MANAGER_INGRESS_TOKEN",
            "CONVEYOR_API_TOKEN",
        ] {
            source.set(name, "t");
        }
        match Plan::read(&source, Profile::single(), &services.iter().copied().collect()) {
            Ok(_) => None,
            Err(Failure::Invalid(message)) => Some(message),
            Err(other) => panic!("{other:?}"),
        }
    }

    const POSTGRES: (&str, &str) = ("DATABASE_URL", "postgres://h/n");
    const REDIS: (&str, &str) = ("REDIS_HOST", "h");

    #[test]
    fn a_service_alone_needs_what_all_processes_reach() {
        let engine = [ServiceName::RuntimeEngine];
        assert!(refusal(&[REDIS], &engine).unwrap().contains("DATABASE_URL"));
        assert!(refusal(&[POSTGRES], &engine).unwrap().contains("REDIS_URL"));
        assert_eq!(refusal(&[POSTGRES, REDIS], &engine), None);
        assert_eq!(refusal(&[REDIS], &[ServiceName::Executor]), None);
        assert_eq!(refusal(&[POSTGRES], &[ServiceName::SecretManager, ServiceName::FileService]), None);
    }

    #[test]
    fn all_services_in_one_process_need_nothing_else() {
        assert_eq!(refusal(&[], &ServiceName::ALL), None);
    }

    #[test]
    fn faults_of_all_services_are_named_at_once() {
        let broken =
            [("API_HTTP_PORT", "x"), ("RUNTIME_ENGINE_RPC_TCP_PORT", "y"), ("DATABASE_URL", "mysql://h")];
        let message = refusal(&broken, &ServiceName::ALL).unwrap();
        for (name, _) in broken {
            assert!(message.contains(name), "{message}");
        }
    }
}
