//! The environment as one command sees it.

use config::{Environment, Source};
use std::path::Path;

/// The environment, with what the command line says in place of variables.
#[derive(Debug, Default)]
pub(crate) struct CommandSource {
    data_dir: Option<String>,
    only_embedded: bool,
}

/// Where a deployment is: a single run on the embedded default must not touch it.
const DEPLOYMENT: [&str; 5] =
    ["DATABASE_URL", "REDIS_URL", "REDIS_HOST", "FILE_SERVICE_DIR", "CONVEYOR_BIND"];

impl CommandSource {
    /// `--data` goes before `CONVEYOR_DATA_DIR`.
    pub(crate) fn with_data_dir(data_dir: Option<&Path>) -> Self {
        Self { data_dir: data_dir.map(|path| path.display().to_string()), only_embedded: false }
    }

    /// Everything in this process and this data folder, whatever deployment the environment names.
    pub(crate) fn embedded(data_dir: &Path) -> Self {
        Self { only_embedded: true, ..Self::with_data_dir(Some(data_dir)) }
    }
}

impl Source for CommandSource {
    fn get(&self, name: &str) -> Option<String> {
        if name == "CONVEYOR_DATA_DIR" && self.data_dir.is_some() {
            return self.data_dir.clone();
        }
        // `DATABASE_URL_FILE` is `DATABASE_URL` too.
        let plain = name.strip_suffix("_FILE").unwrap_or(name);
        let is_elsewhere = DEPLOYMENT.contains(&plain) || plain.ends_with("_PORT") || plain.contains("_TLS_");
        if self.only_embedded && is_elsewhere {
            return None;
        }
        Environment.get(name)
    }
}
