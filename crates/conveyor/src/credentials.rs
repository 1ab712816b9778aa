//! Credentials of a start in one process: made once, kept in the data folder, readable by their
//! owner only. Variables that are set go before them.

use anyhow::Context;
use rand::distr::{Alphanumeric, SampleString};
use serde::{Deserialize, Serialize};
use std::{fs, io::ErrorKind, path::Path};

/// The file in the data folder.
const FILE: &str = "credentials.json";
/// Characters of a credential: about 285 bits.
const LENGTH: usize = 48;

/// What the services of one process and the plugins beside it share. No `Debug`: it is all secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Credentials {
    /// `CONVEYOR_API_TOKEN`.
    pub(crate) api_token: String,
    /// `PLUGIN_CONTROL_PLANE_KEY`.
    pub(crate) control_plane_key: String,
    /// `PLUGIN_MANAGER_INGRESS_TOKEN`.
    pub(crate) ingress_token: String,
    /// `RUNTIME_ENGINE_RPC_TOKEN`.
    pub(crate) engine_token: String,
    /// `SECRET_MANAGER_TOKEN`.
    pub(crate) secret_manager_token: String,
    /// `FILE_SERVICE_TOKEN`.
    pub(crate) file_service_token: String,
}

impl Credentials {
    /// New random ones.
    fn generate() -> Self {
        let draw = || Alphanumeric.sample_string(&mut rand::rng(), LENGTH);
        Self {
            api_token: draw(),
            control_plane_key: draw(),
            ingress_token: draw(),
            engine_token: draw(),
            secret_manager_token: draw(),
            file_service_token: draw(),
        }
    }

    /// Empty ones, to show which variables there are.
    pub(crate) fn none() -> Self {
        let none = String::new;
        Self {
            api_token: none(),
            control_plane_key: none(),
            ingress_token: none(),
            engine_token: none(),
            secret_manager_token: none(),
            file_service_token: none(),
        }
    }

    /// Those of the data folder, if it has any.
    pub(crate) fn load(folder: &Path) -> anyhow::Result<Option<Self>> {
        load(&folder.join(FILE))
    }

    /// Those of the data folder; made there when it has none. Safe when several processes start at
    /// once: all get the same.
    pub(crate) fn load_or_create(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join(FILE);
        if let Some(found) = load(&path)? {
            return Ok(found);
        }
        let text = serde_json::to_string_pretty(&Self::generate())?;
        config::make_private_file(&path, &text)
            .with_context(|| format!("cannot write {}", path.display()))?;
        load(&path)?.with_context(|| format!("{} disappeared", path.display()))
    }
}

fn load(path: &Path) -> anyhow::Result<Option<Credentials>> {
    match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| {
            // The error's own text is safe (it quotes no values of strings), the file's is not.
            anyhow::anyhow!(
                "{} is damaged ({error}); restore it, or remove it to make new credentials",
                path.display()
            )
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_made_once_and_only_their_owner_reads_them() {
        let folder = tempfile::tempdir().unwrap();
        let made: Vec<_> = std::thread::scope(|scope| {
            let makers: Vec<_> =
                (0..8).map(|_| scope.spawn(|| Credentials::load_or_create(folder.path()).unwrap())).collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        assert!(made.iter().all(|credentials| *credentials == made[0]));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_damaged_file_is_named_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "{\"apiToken\":\"hunter2\"").unwrap();
        let error = Credentials::load_or_create(folder.path()).err().unwrap().to_string();
        assert!(error.contains(FILE) && !error.contains("hunter2"), "{error}");
    }
}
