use contract::Fault;

/// Why a plugin cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The environment is not valid.
    #[error(transparent)]
    Configuration(#[from] config::Invalid),
    /// The plugin's own declaration is not valid; every fault of it.
    #[error("the plugin's declaration is not valid:{}", listed(.0))]
    Declaration(Vec<Fault>),
    /// A port cannot be listened on: that of the plugin, or that of health and bundles.
    #[error("{0}; is another plugin there? Set PLUGIN_TCP_PORT or PLUGIN_HEALTH_HTTP_PORT")]
    Listen(#[from] wire::Error),
}

fn listed(faults: &[Fault]) -> String {
    faults.iter().map(|fault| format!("\n  {fault}")).collect()
}
