//! `conveyor plugin …`: the catalogue, for operators, through plugin-manager's TCP door.

pub(crate) mod args;
mod check;
mod door;
mod new;
mod show;
pub(super) mod table;

use crate::{document::printable, failure::Failure};
use args::{Common, ForUser, Health, Plugin, Publish};
use contract::{
    ErrorCode, Json, RpcError,
    catalogue::{
        Changed, DiffRequest, ExplainRequest, HealthState, PluginDetail, PluginDiff, PluginHealthList,
        PluginList, PluginListRequest, PluginRef, PluginVersions, PublicationReply, PublishRequest,
    },
    pattern::{self, Pattern},
    policy::Decision,
};
use door::{Door, tell};
use serde::{Serialize, de::DeserializeOwned};

/// Runs the command.
///
/// # Errors
/// [`Failure`], which decides the exit code.
pub(super) async fn plugin(command: Plugin) -> Result<(), Failure> {
    match command {
        Plugin::List(args) => {
            let request = PluginListRequest {
                workspace_id: args.common.workspace.clone(),
                user_id: args.user,
                include_removed: args.all,
                ..PluginListRequest::default()
            };
            ask(&args.common, pattern::PLUGIN_LIST, &request, |list: &PluginList| (show::list(list), true))
                .await
        }
        Plugin::Show(args) => {
            let request = PluginRef { publication_version: args.version, ..of(args.plugin, &args.common) };
            let shown = |detail: &PluginDetail| (show::detail(detail), true);
            ask(&args.common, pattern::PLUGIN_GET, &request, shown).await
        }
        Plugin::Versions(args) => {
            let request = of(args.plugin, &args.common);
            let shown = |versions: &PluginVersions| (show::versions(versions), true);
            ask(&args.common, pattern::PLUGIN_VERSIONS, &request, shown).await
        }
        Plugin::Publish(args) => publish(args).await,
        Plugin::Enable(args) => for_user(pattern::PLUGIN_ENABLE, args, "is enabled").await,
        Plugin::Disable(args) => for_user(pattern::PLUGIN_DISABLE, args, "is disabled").await,
        Plugin::Remove(args) => {
            let request = PluginRef { force: args.force, ..of(args.plugin, &args.common) };
            change(pattern::PLUGIN_REMOVE, &request, &args.common, "is removed").await
        }
        Plugin::Pin(args) => {
            let request =
                PluginRef { publication_version: Some(args.version), ..of(args.plugin, &args.common) };
            change(pattern::PLUGIN_PIN, &request, &args.common, "is pinned").await
        }
        Plugin::Unpin(args) => {
            let request = of(args.plugin, &args.common);
            change(pattern::PLUGIN_UNPIN, &request, &args.common, "follows the newest version").await
        }
        Plugin::Yank(args) => {
            let (pattern, done) = match args.undo {
                false => (pattern::PLUGIN_YANK, "is yanked"),
                true => (pattern::PLUGIN_UNYANK, "is not yanked"),
            };
            let args = args.of;
            let request =
                PluginRef { publication_version: Some(args.version), ..of(args.plugin, &args.common) };
            change(pattern, &request, &args.common, done).await
        }
        Plugin::Diff(args) => {
            let request = DiffRequest { plugin_id: args.plugin, from: args.older, to: args.newer };
            let shown = |answer: &PluginDiff| (show::diff(answer), !answer.breaking);
            ask(&args.common, pattern::PLUGIN_DIFF, &request, shown).await
        }
        Plugin::Explain(args) => {
            let request = ExplainRequest {
                workspace_id: args.common.workspace.clone(),
                user_id: args.user,
                node_type: args.node_type,
                publication_id: None,
            };
            let shown = |answer: &Decision| (show::decision(answer), answer.allowed);
            ask(&args.common, pattern::PLUGIN_EXPLAIN, &request, shown).await
        }
        Plugin::Health(args) => health(args).await,
        Plugin::Quarantine(args) => {
            let request = of(args.plugin, &args.common);
            change(pattern::PLUGIN_QUARANTINE, &request, &args.common, "is quarantined").await
        }
        Plugin::Limit(args) => {
            let request = PluginRef { max_attempts: args.tasks, ..of(args.plugin, &args.common) };
            let done = match args.tasks {
                Some(most) => format!("gets {most} tasks at once at most"),
                None => "gets as many tasks at once as there are".to_owned(),
            };
            change(pattern::PLUGIN_LIMIT, &request, &args.common, &done).await
        }
        Plugin::Release(args) => {
            let request = of(args.plugin, &args.common);
            change(pattern::PLUGIN_RELEASE, &request, &args.common, "is not quarantined").await
        }
        Plugin::New(args) => new::new(&args),
        Plugin::Check(args) => check::check(args).await,
    }
}

fn of(plugin_id: String, common: &Common) -> PluginRef {
    PluginRef { plugin_id, workspace_id: common.workspace.clone(), ..PluginRef::default() }
}

/// Asks, and prints the answer as JSON or as `shown` writes it. Where `shown` says that all is not
/// well the exit code is 1.
async fn ask<T, R>(
    common: &Common,
    pattern: Pattern,
    request: &T,
    shown: impl Fn(&R) -> (String, bool),
) -> Result<(), Failure>
where
    T: Serialize + Sync,
    R: DeserializeOwned,
{
    let raw = Door::find(common)?.call(pattern, request).await?;
    print(common, &raw, shown)
}

fn print<R: DeserializeOwned>(
    common: &Common,
    raw: &Json,
    shown: impl Fn(&R) -> (String, bool),
) -> Result<(), Failure> {
    let (text, well) = shown(&raw.read()?);
    match common.json {
        // Outside of strings JSON does not mind a space instead of a line break.
        true => println!("{}", raw.text().replace(['\r', '\n'], " ")),
        false => print!("{text}"),
    }
    if well { Ok(()) } else { Err(Failure::Told) }
}

async fn change(pattern: Pattern, request: &PluginRef, common: &Common, done: &str) -> Result<(), Failure> {
    let version = request.publication_version.as_deref().map(|version| format!("@{version}"));
    let subject = format!("{}{}", request.plugin_id, version.unwrap_or_default());
    let shown = |answer: &Changed| {
        let already = if answer.changed { "" } else { " (it was so before)" };
        (format!("{} {done}{already}\n", printable(&subject)), true)
    };
    ask(common, pattern, request, shown).await
}

async fn for_user(pattern: Pattern, args: ForUser, done: &str) -> Result<(), Failure> {
    let place = match &args.user {
        Some(user) => format!("{done} for {user} in workspace {}", args.common.workspace),
        None => format!("{done} in workspace {}", args.common.workspace),
    };
    let request = PluginRef { user_id: args.user, ..of(args.plugin, &args.common) };
    change(pattern, &request, &args.common, &printable(&place)).await
}

async fn publish(args: Publish) -> Result<(), Failure> {
    let manifest = match &args.manifest {
        None => None,
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::invalid(format!("cannot read {}: {error}", path.display())))?;
            let read = Json::parse(text);
            Some(read.map_err(|error| Failure::invalid(format!("{} is not JSON: {error}", path.display())))?)
        }
    };
    let request = PublishRequest { manifest, plugin_id: args.plugin, from: args.from };
    let raw = Door::find(&args.common)?.call(pattern::PLUGIN_PUBLISH, &request).await?;
    let answer: PublicationReply = raw.read()?;
    if !args.common.json {
        for warning in &answer.warnings {
            eprintln!("  warning: {}", printable(&warning.to_string()));
        }
    }
    print(&args.common, &raw, |answer: &PublicationReply| (show::publication(answer), true))
}

async fn health(args: Health) -> Result<(), Failure> {
    let request =
        PluginListRequest { workspace_id: args.common.workspace.clone(), ..PluginListRequest::default() };
    let raw = Door::find(&args.common)?.call(pattern::PLUGIN_HEALTH, &request).await?;
    let mut answer: PluginHealthList = raw.read()?;
    let Some(plugin_id) = args.plugin else {
        return print(&args.common, &raw, |answer: &PluginHealthList| {
            (show::health(answer, false), well(answer))
        });
    };
    answer.plugins.retain(|plugin| plugin.plugin_id == plugin_id);
    if answer.plugins.is_empty() {
        let message =
            format!("the catalogue has no live plugin {plugin_id:?}; see `conveyor plugin list --all`");
        return Err(tell(&RpcError::new(ErrorCode::PluginUnknown, message), args.common.json));
    }
    print(&args.common, &Json::of(&answer)?, |answer: &PluginHealthList| {
        (show::health(answer, true), well(answer))
    })
}

fn well(answer: &PluginHealthList) -> bool {
    answer.plugins.iter().all(|plugin| plugin.health.state != HealthState::Offline)
}
