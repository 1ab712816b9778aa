//! A plugin: its declaration, and serving it.

use crate::{
    Error, Form, RunnableNode,
    door::Door,
    http::Http,
    publish::publish,
    reporter::Reporter,
    settings::PluginSettings,
    steps::Steps,
    ui::{Asset, Ui},
};
use config::{Environment, Reader};
use contract::{
    Fault,
    manifest::{
        DeclaredExecutor, Endpoint, ExecutorItem, MANIFEST_KIND, Manifest, Variable, read_items,
        read_manifest,
    },
};
use hyper::body::Bytes;
use serde_json::{Map, json};
use std::{io::IsTerminal, net::SocketAddr, process::ExitCode, sync::Arc};
use tokio_util::sync::CancellationToken;
use wire::{Credentials, Server, ServerConfig};

/// A plugin that is being declared; serving ends the declaration.
#[derive(Clone, Debug)]
pub struct Plugin {
    id: String,
    version: String,
    label: String,
    description: String,
    variables: Vec<Variable>,
    nodes: Vec<RunnableNode>,
    ui: Ui,
}

impl Plugin {
    /// A plugin with its id in the catalogue and its version. A published version never changes:
    /// raise it with every change of the declaration.
    pub fn new(id: &str, version: &str) -> Self {
        Self {
            id: id.to_owned(),
            version: version.to_owned(),
            label: id.to_owned(),
            description: String::new(),
            variables: Vec::new(),
            nodes: Vec::new(),
            ui: Ui::default(),
        }
    }

    /// The name that people see; the id, when it is left out.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        label.clone_into(&mut self.label);
        self
    }

    /// What it is for, for people.
    #[must_use]
    pub fn description(mut self, description: &str) -> Self {
        description.clone_into(&mut self.description);
        self
    }

    /// A variable on the plugin's card; only shown to people, never a secret.
    #[must_use]
    pub fn variable(mut self, key: &str, label: &str, description: &str) -> Self {
        self.variables.push(Variable {
            key: key.to_owned(),
            label: label.to_owned(),
            description: description.to_owned(),
            extra: Map::new(),
        });
        self
    }

    /// Adds a bundle of the web UI: an ES module (`application/javascript`) whose default export is a Vue
    /// component, `ui.form.<id>` or `ui.widget.<id>` by habit. Plugin-manager fetches it during the
    /// publication from `PLUGIN_HEALTH_HTTP_PORT`; without that port nothing of UI is published.
    #[must_use]
    pub fn asset(mut self, key: &str, media_type: &str, bytes: impl Into<Bytes>) -> Self {
        let asset = Asset { media_type: media_type.to_owned(), bytes: bytes.into() };
        self.ui.assets.insert(key.to_owned(), asset);
        self
    }

    /// Adds a form.
    #[must_use]
    pub fn form(mut self, form: Form) -> Self {
        self.ui.forms.push(form);
        self
    }

    /// Adds a node.
    #[must_use]
    pub fn node(mut self, node: RunnableNode) -> Self {
        self.nodes.push(node);
        self
    }

    /// Reads the environment, logs to standard error (`RUST_LOG` filters), serves until SIGTERM or
    /// SIGINT, finishes what is under way, and returns the exit code for `main`.
    pub async fn serve_from_env(self) -> ExitCode {
        let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
        // An application that set up its own logging keeps it.
        let log =
            tracing_subscriber::fmt().with_env_filter(filter).with_ansi(std::io::stderr().is_terminal());
        let _ = log.with_writer(std::io::stderr).try_init();
        let mut reader = Reader::new(&Environment);
        let settings = PluginSettings::read(&mut reader);
        let served = match reader.finish() {
            Ok(_) => self.serve(settings, stop_on_signal()).await,
            Err(invalid) => Err(Error::Configuration(invalid)),
        };
        match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                tracing::error!(event = "plugin_failed", %error, "the plugin cannot serve");
                ExitCode::FAILURE
            }
        }
    }

    /// Serves until `stop`, then drains.
    ///
    /// # Errors
    /// See [`Plugin::bind`].
    pub async fn serve(self, settings: PluginSettings, stop: CancellationToken) -> Result<(), Error> {
        self.bind(settings)?.run(stop).await;
        Ok(())
    }

    /// Checks the declaration and listens; nothing is published yet. Must be called inside a Tokio
    /// runtime.
    ///
    /// # Errors
    /// [`Error::Declaration`] with every fault of it, [`Error::Listen`] when the address is taken.
    pub fn bind(self, settings: PluginSettings) -> Result<BoundPlugin, Error> {
        let reporter = Reporter::new(settings.control_plane.clone());
        let steps = Arc::new(Steps::new(self.nodes.iter().cloned(), reporter, settings.steps.clone()));
        let door = Arc::new(Door {
            plugin_id: self.id.clone(),
            items: self.nodes.iter().map(|node| node.item.clone()).collect(),
            token: settings.publication.token.clone().map(|token| Credentials::new(token, None)),
            steps: Arc::clone(&steps),
        });
        let address = SocketAddr::new(settings.bind, settings.port);
        let config = ServerConfig { tls: settings.tls.clone(), ..ServerConfig::new("plugin", address) };
        let server = Server::bind(config, Arc::clone(&door))?;
        let http = settings.http_port.map(|port| {
            Http::bind(SocketAddr::new(settings.bind, port), &self.id, &self.ui, Arc::clone(&steps))
        });
        let http = http.transpose()?;
        let port = settings.advertised_port.unwrap_or_else(|| server.local_addr().port());
        let http_port = http.as_ref().map(|http| http.local_addr().port());
        let manifest = self.manifest(&settings, port, http_port);
        check(&manifest, &door.items, self.ui.faults(&self.nodes))?;
        Ok(BoundPlugin { server, http, manifest, steps, settings })
    }

    fn manifest(&self, settings: &PluginSettings, port: u16, http_port: Option<u16>) -> Manifest {
        let host = &settings.advertised_host;
        let base = http_port.map(|port| format!("http://{host}:{port}"));
        Manifest {
            kind: MANIFEST_KIND.to_owned(),
            plugin_id: self.id.clone(),
            publication_version: settings.version.clone().unwrap_or_else(|| self.version.clone()),
            label: self.label.clone(),
            description: self.description.clone(),
            variables: self.variables.clone(),
            static_assets: base.as_ref().map(|base| self.ui.static_assets(base)).unwrap_or_default(),
            ui: base.as_ref().and_then(|_| self.ui.manifest()),
            executors: self
                .nodes
                .iter()
                .map(|node| DeclaredExecutor {
                    node_type: node.item.node_type.clone(),
                    required_template_keys: base
                        .as_ref()
                        .map(|_| node.templates.clone())
                        .filter(|keys| !keys.is_empty()),
                    extra: Map::new(),
                })
                .collect(),
            pull: Endpoint { host: host.clone(), port },
            ..Manifest::default()
        }
    }
}

/// Judges the declaration as plugin-manager will, so that a fault shows at once and all together.
fn check(manifest: &Manifest, items: &[ExecutorItem], mut faults: Vec<Fault>) -> Result<(), Error> {
    let read = read_manifest(&json!(manifest))
        .and_then(|(manifest, _)| read_items(&json!(items), "$.items", &manifest));
    faults.extend(read.err().into_iter().flatten());
    if faults.is_empty() { Ok(()) } else { Err(Error::Declaration(faults)) }
}

/// A plugin that listens and waits to be run.
#[derive(Debug)]
pub struct BoundPlugin {
    server: Server<Door>,
    http: Option<Http>,
    manifest: Manifest,
    steps: Arc<Steps>,
    settings: PluginSettings,
}

impl BoundPlugin {
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Where health and UI bundles are served, when they are.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(Http::local_addr)
    }

    /// What it publishes.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Publishes (unless the settings say otherwise) and serves until `stop`. Then it refuses new
    /// tasks, finishes and reports what is under way within the time to drain, and returns.
    pub async fn run(self, stop: CancellationToken) {
        let Self { server, http, manifest, steps, settings } = self;
        tracing::info!(
            event = "plugin_listening",
            plugin_id = manifest.plugin_id,
            publication_version = manifest.publication_version,
            address = %server.local_addr(),
            http_port = http.as_ref().map(|http| http.local_addr().port()),
            advertised = %manifest.pull,
            "the plugin listens"
        );
        let (accept_stop, connections_stop) = (CancellationToken::new(), CancellationToken::new());
        let serving = server.run(accept_stop.clone(), connections_stop.clone());
        let told = async {
            if let Some(http) = http {
                http.run(accept_stop.clone()).await;
            }
        };
        let publishing = async {
            if settings.publication.enabled {
                publish(settings.publication, manifest).await;
            }
            std::future::pending::<()>().await;
        };
        let living = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = publishing => {}
            }
            tracing::info!(event = "plugin_stopping", "no more tasks are taken");
            // Open connections are served while steps finish: a control plane that sends a task
            // now is told to deliver it elsewhere or later.
            steps.drained(settings.drain).await;
            accept_stop.cancel();
            connections_stop.cancel();
        };
        tokio::join!(serving, told, living);
        tracing::info!(event = "plugin_stopped", "the plugin has stopped");
    }
}

/// Cancelled by the first SIGTERM or SIGINT.
fn stop_on_signal() -> CancellationToken {
    let stop = CancellationToken::new();
    let signalled = stop.clone();
    tokio::spawn(async move {
        signal().await;
        signalled.cancel();
    });
    stop
}

#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        tracing::warn!(event = "signal_unavailable", "SIGTERM cannot be heard; stop the plugin with SIGINT");
        return interrupted().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        () = interrupted() => {}
    }
}

#[cfg(not(unix))]
async fn signal() {
    interrupted().await;
}

async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
