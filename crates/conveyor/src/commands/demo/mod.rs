//! `conveyor demo`: the platform at work. Everything in this process, an example plugin as a process
//! beside it, and one run that is started and read as any user would.

mod plugin;

use super::up::{announcement, data_folder};
use crate::{
    cli::Demo,
    client::{Client, Outcome, PublicInputs, RunFull},
    compose::{self, Plan, Platform},
    credentials::Credentials,
    failure::Failure,
    profile::Profile,
    services::ServiceName,
    signals::Termination,
    source::CommandSource,
};
use ::config::{Environment, Reader};
use anyhow::{Context, bail};
use contract::{ProcessId, RunId, run::RunStatus};
use plugin::{Keys, Plugin};
use queue::Queue;
use secrecy::{ExposeSecret, SecretString};
use std::{path::Path, time::Duration};

/// The sample process, part of the binary: a demo needs no other file.
const PROCESS: &str = include_str!("../../../../../examples/processes/demo.json");
/// What its run is started with.
const PAYLOAD: &str = include_str!("../../../../../examples/processes/demo.input.json");
/// How long the run may take.
const RUN_LIMIT: Duration = Duration::from_secs(60);

/// Starts everything, shows one run, and stays up unless `--once` was said.
pub(super) async fn demo(args: Demo) -> Result<(), Failure> {
    let mut termination = Termination::listen()?;
    let source = CommandSource::with_data_dir(args.place.data.as_deref());
    let data_dir = data_folder(&source)?;
    let profile = Profile::demo(&data_dir, args.place.port_offset, &Credentials::load_or_create(&data_dir)?);
    let plan = Plan::read(&source, profile, &ServiceName::ALL.into())?;
    let keys = Keys::of(&plan);
    let token = plan.api.as_ref().and_then(|api| api.token.clone());
    let platform = Box::pin(compose::bind(plan)).await?;
    if !args.json {
        println!("{}\n", announcement(&platform, token.as_ref(), &data_dir));
    }
    let stage = Stage::new(&platform, token, &args)?;
    let mut services = platform.start();
    let mut plugin = None;
    let shown = tokio::select! {
        shown = stage.show(&mut plugin, &keys) => shown.map_err(Failure::from),
        error = services.failed() => return Err(error.into()),
        () = termination.told() => Err(Failure::Failed(anyhow::anyhow!("interrupted"))),
    };
    let shown = match shown {
        Ok(()) if !args.once => {
            tokio::select! {
                error = services.failed() => return Err(error.into()),
                () = termination.told() => Ok(()),
                status = ended(&mut plugin) => Err(Failure::Failed(anyhow::anyhow!("the example plugin ended by itself: {status}"))),
            }
        }
        shown => shown,
    };
    if let Some(plugin) = plugin {
        plugin.stop().await;
    }
    let stopped = services.stop().await;
    shown?;
    Ok(stopped?)
}

async fn ended(plugin: &mut Option<Plugin>) -> String {
    match plugin {
        Some(plugin) => plugin.ended().await,
        None => std::future::pending().await,
    }
}

/// What the demo works with.
struct Stage {
    client: Client,
    api_url: String,
    token: Option<SecretString>,
    queue: Queue,
    addresses: plugin::Addresses,
    json: bool,
    once: bool,
}

impl Stage {
    fn new(platform: &Platform, token: Option<SecretString>, args: &Demo) -> anyhow::Result<Self> {
        let find = |service: ServiceName, door| {
            platform.find(service, door).with_context(|| format!("{service} does not listen on {door}"))
        };
        let api_url = find(ServiceName::Api, "http")?.url();
        let mut reader = Reader::new(&Environment);
        let ca = Client::read_authorities(&mut reader);
        reader.finish()?;
        Ok(Self {
            client: Client::new(api_url.clone(), token.clone(), ca.as_ref())?,
            api_url,
            token,
            queue: platform.queue().context("there is no queue")?.clone(),
            addresses: plugin::Addresses {
                plugin_manager: find(ServiceName::PluginManager, "tcp")?.endpoint(),
                control_plane: find(ServiceName::RuntimeControlPlane, "tcp")?.endpoint(),
            },
            json: args.json,
            once: args.once,
        })
    }

    /// Starts the plugin, waits for it in the catalogue, runs the sample process and prints.
    async fn show(&self, plugin: &mut Option<Plugin>, keys: &Keys) -> anyhow::Result<()> {
        let plugin = plugin.insert(Plugin::start(&self.addresses, keys)?);
        plugin.published(&self.client, &self.queue).await?;
        self.say(&format!(
            "The plugin {} runs as a process of its own and is in the catalogue.",
            plugin::NAME
        ));
        let id = self.store().await?;
        let run_id = self.client.start(id, "webhook", PAYLOAD.to_owned()).await?;
        self.say(&format!("Process {id} was started by webhook: run {run_id}."));
        let following = self.client.follow(id, run_id, |_| ());
        let run = tokio::time::timeout(RUN_LIMIT, following)
            .await
            .with_context(|| format!("the run did not end within {} s", RUN_LIMIT.as_secs()))??;
        let result = self.client.result(id, run_id).await?;
        self.tell(id, run_id, &run, &result)
    }

    /// The sample process: imported at the first demo, renewed at later ones in the same folder.
    async fn store(&self) -> anyhow::Result<ProcessId> {
        let name = sample_name()?;
        let known = self.client.processes().await?.into_iter().find(|process| process.name == name);
        if let Some(process) = known {
            self.client.replace(process.id, PROCESS.to_owned()).await?;
            return Ok(process.id);
        }
        let imported = self.client.import(PROCESS.to_owned()).await?;
        Ok(imported.processes.first().context("the import made no process")?.id)
    }

    fn tell(&self, id: ProcessId, run_id: RunId, run: &RunFull, result: &PublicInputs) -> anyhow::Result<()> {
        let head = &run.run;
        let outcome = Outcome {
            run_id,
            status: head.status.as_str(),
            public_inputs: result,
            error: head.error.as_ref(),
        };
        if !self.json {
            self.say(&format!("Run {run_id} {}:", head.status.as_str()));
            println!("{}\n", serde_json::to_string_pretty(result)?);
            if !self.once {
                println!("{}\n", self.try_it(id));
            }
        }
        if self.json || self.once {
            println!("{}", outcome.line()?);
        }
        if head.status != RunStatus::Finished {
            bail!("the sample run {run_id} was {}, not finished", head.status.as_str());
        }
        Ok(())
    }

    fn try_it(&self, id: ProcessId) -> String {
        let token = self.token.as_ref().map_or("", |token| token.expose_secret());
        format!(
            "Try it yourself:\n  curl -X POST {}/flow/{id}/webhook \\\n    -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' \\\n    \
             -d '{{\"name\": \"Аня\", \"text\": \"Привет 👋\", \"mode\": \"loud\"}}'\n  \
             curl -H 'Authorization: Bearer {token}' {}/flow/{id}/runs\n\nCtrl-C stops everything.",
            self.api_url, self.api_url
        )
    }

    fn say(&self, text: &str) {
        if !self.json {
            println!("{text}");
        }
    }
}

fn sample_name() -> anyhow::Result<String> {
    let document: serde_json::Value = serde_json::from_str(PROCESS)?;
    let name = document.pointer("/settings/name").and_then(serde_json::Value::as_str);
    Ok(name.context("the sample process has no name")?.to_owned())
}

/// A program that stands beside this one.
fn beside(name: &str) -> anyhow::Result<std::path::PathBuf> {
    let own = std::env::current_exe().context("this program's own place is unknown")?;
    let path = own.parent().unwrap_or(Path::new(".")).join(name);
    if !path.is_file() {
        bail!(
            "{} is not there; build it with `cargo build --package {name}` (make demo does), in the same profile as conveyor",
            path.display()
        );
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::process::{Strictness, import, validate};

    #[test]
    fn the_sample_process_is_valid_and_has_a_name() {
        let document: serde_json::Value = serde_json::from_str(PROCESS).unwrap();
        let diagrams = import(&document, "x").unwrap();
        assert_eq!(diagrams.len(), 1);
        let none = std::collections::BTreeMap::new();
        let valid = validate(&diagrams[0].1, "$", &none, Strictness::Save).unwrap();
        assert_eq!(valid.plugin_node_types, [plugin::NODE_TYPE]);
        assert_eq!(sample_name().unwrap(), valid.process.settings.name);
    }

    #[test]
    fn the_sample_payload_fits_the_trigger() {
        let payload: serde_json::Map<String, serde_json::Value> = serde_json::from_str(PAYLOAD).unwrap();
        let process: contract::process::Process = serde_json::from_str(PROCESS).unwrap();
        let trigger = process
            .widgets
            .iter()
            .find(|widget| widget.source.node_type == contract::builtin::TRIGGER)
            .unwrap();
        assert!(payload.keys().all(|key| trigger.field(key).is_some()));
    }
}
