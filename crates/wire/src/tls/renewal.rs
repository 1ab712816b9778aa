//! Certificates that are replaced while the process runs: files are looked at again before a
//! handshake, and what has changed counts from then on.

use crate::Error;
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::{task::spawn_blocking, time::Instant};

/// Files are read at most that often.
pub(super) const PAUSE: Duration = Duration::from_secs(10);

/// A text in PEM, and the file that it came from.
#[derive(Clone, Debug)]
pub(super) struct Pem {
    text: SecretString,
    file: Option<PathBuf>,
}

impl Pem {
    pub(super) fn new(text: SecretString, file: Option<PathBuf>) -> Self {
        Self { text, file }
    }

    pub(super) fn text(&self) -> &str {
        self.text.expose_secret()
    }

    fn read_again(&self) -> Result<Self, String> {
        let Some(file) = &self.file else { return Ok(self.clone()) };
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Self { text: text.trim().into(), file: self.file.clone() })
    }
}

/// What a door or a client is made of.
#[derive(Clone, Debug, Default)]
pub(super) struct Material {
    pub(super) certificate: Option<Pem>,
    pub(super) key: Option<Pem>,
    pub(super) authorities: Option<Pem>,
}

impl Material {
    fn pems(&self) -> impl Iterator<Item = &Pem> {
        [&self.certificate, &self.key, &self.authorities].into_iter().flatten()
    }

    fn read_again(&self) -> Result<Self, String> {
        let again = |pem: &Option<Pem>| pem.as_ref().map(Pem::read_again).transpose();
        Ok(Self {
            certificate: again(&self.certificate)?,
            key: again(&self.key)?,
            authorities: again(&self.authorities)?,
        })
    }

    fn is_same(&self, other: &Self) -> bool {
        self.pems().map(Pem::text).eq(other.pems().map(Pem::text))
    }
}

/// A TLS configuration that follows the files that it was made from.
pub(super) struct Renewed<C> {
    build: fn(&Material) -> Result<C, Error>,
    pause: Duration,
    state: Mutex<State<C>>,
}

struct State<C> {
    config: Arc<C>,
    material: Material,
    /// `None` when no text is from a file.
    look_after: Option<Instant>,
}

impl<C: Send + Sync + 'static> Renewed<C> {
    /// The configuration that `build` makes of the texts.
    ///
    /// # Errors
    /// Those of `build`.
    pub(super) fn new(
        material: Material,
        pause: Duration,
        build: fn(&Material) -> Result<C, Error>,
    ) -> Result<Self, Error> {
        let config = Arc::new(build(&material)?);
        let look_after = material.pems().any(|pem| pem.file.is_some()).then(|| Instant::now() + pause);
        Ok(Self { build, pause, state: Mutex::new(State { config, material, look_after }) })
    }

    /// The same, with another pause between two looks at the files.
    pub(super) fn every(&self, pause: Duration) -> Self {
        let state = self.state.lock();
        let (config, material) = (Arc::clone(&state.config), state.material.clone());
        let look_after = state.look_after.map(|_| Instant::now() + pause);
        Self { build: self.build, pause, state: Mutex::new(State { config, material, look_after }) }
    }

    /// The configuration of now. Looks at the files first, when it is time to; others that ask
    /// meanwhile get the one before.
    pub(super) async fn current(self: &Arc<Self>) -> Arc<C> {
        if self.is_due() {
            let this = Arc::clone(self);
            // A look that panics leaves everything as it was.
            let _ = spawn_blocking(move || this.look()).await;
        }
        Arc::clone(&self.state.lock().config)
    }

    fn is_due(&self) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock();
        let is_due = state.look_after.is_some_and(|moment| moment <= now);
        if is_due {
            state.look_after = Some(now + self.pause);
        }
        is_due
    }

    fn look(&self) {
        let before = self.state.lock().material.clone();
        match self.build_again(&before) {
            Ok(None) => {}
            Ok(Some((config, material))) => {
                let mut state = self.state.lock();
                state.config = Arc::new(config);
                state.material = material;
                drop(state);
                tracing::info!(event = "tls_reloaded", "changed certificates are used from now on");
            }
            // Certificate and key are replaced one after the other: between the two they do not fit.
            Err(reason) => {
                tracing::warn!(
                    event = "tls_reload_failed",
                    reason,
                    "changed certificates cannot be used; those from before stay"
                );
            }
        }
    }

    fn build_again(&self, before: &Material) -> Result<Option<(C, Material)>, String> {
        let material = before.read_again()?;
        if material.is_same(before) {
            return Ok(None);
        }
        let config = (self.build)(&material).map_err(|error| error.to_string())?;
        Ok(Some((config, material)))
    }
}
