//! The command line of `conveyor plugin`. Its doc comments are the help text.
#![allow(clippy::doc_markdown, reason = "help text is no markdown")]

use clap::{Args, Subcommand};
use contract::{
    catalogue::{DEFAULT_USER, DEFAULT_WORKSPACE},
    manifest::Endpoint,
};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Plugin {
    /// The plugins of the catalogue, with health and enablement.
    #[command(after_help = "Examples:
  conveyor plugin list
  conveyor plugin list --all --json")]
    List(List),
    /// One plugin with its nodes and their ports.
    #[command(after_help = "Examples:
  conveyor plugin show text-tools
  conveyor plugin show text-tools --version 1.2.0 --json")]
    Show(Show),
    /// All published versions of a plugin, the newest first.
    #[command(after_help = "Example:
  conveyor plugin versions text-tools")]
    Versions(One),
    /// Publish a plugin that listens: its nodes are pulled from it, as when it publishes itself.
    ///
    /// A plugin that the catalogue knows is pulled again with its stored manifest, from where it is or
    /// from HOST:PORT; the place alone stands for the plugin that listens there. A new one needs its
    /// manifest.
    #[command(after_help = "Examples:
  conveyor plugin publish --from 10.0.0.7:4100
  conveyor plugin publish text-tools --from 10.0.0.8:4100
  conveyor plugin publish --manifest manifest.json
  conveyor plugin publish --manifest manifest.json --from 10.0.0.7:4100

Exit codes:
  0  published, or the same as what is published already; standard error names every warning
  1  refused, or the plugin or plugin-manager does not answer
  2  the manifest or the command line is not valid")]
    Publish(Publish),
    /// Let a workspace, or one user there, use a plugin.
    #[command(after_help = "Examples:
  conveyor plugin enable text-tools
  conveyor plugin enable text-tools --workspace sales --user ann")]
    Enable(ForUser),
    /// Keep a workspace, or one user there, from using a plugin. What was dispatched finishes.
    #[command(after_help = "Examples:
  conveyor plugin disable text-tools
  conveyor plugin disable text-tools --workspace sales --user ann")]
    Disable(ForUser),
    /// Remove a plugin from the catalogue; refused while processes use it, unless forced.
    #[command(after_help = "Examples:
  conveyor plugin remove text-tools
  conveyor plugin remove text-tools --force

What runs finishes. Publishing the plugin again brings it back.")]
    Remove(Remove),
    /// Keep a workspace on one version of a plugin.
    #[command(after_help = "Example:
  conveyor plugin pin text-tools 1.2.0 --workspace sales")]
    Pin(OfVersion),
    /// Let a workspace follow the newest version again.
    #[command(after_help = "Example:
  conveyor plugin unpin text-tools --workspace sales")]
    Unpin(One),
    /// Let nothing new use a version. What runs on it or is pinned to it keeps it.
    #[command(after_help = "Examples:
  conveyor plugin yank text-tools 1.2.1
  conveyor plugin yank text-tools 1.2.1 --undo")]
    Yank(Yank),
    /// What changed between two versions, in nodes and ports; breaking changes are marked.
    #[command(after_help = "Examples:
  conveyor plugin diff text-tools 1.2.0 1.3.0
  conveyor plugin diff text-tools 1.2.0 1.3.0 --json

Exit codes:
  0  nothing breaks a process that was drawn with the older version
  1  something does, or the versions could not be compared
  2  the command line is not valid")]
    Diff(Diff),
    /// May a node be dispatched now? The verdict of every rule.
    #[command(after_help = "Examples:
  conveyor plugin explain plugin.text.upper
  conveyor plugin explain plugin.text.upper --workspace sales --user ann --json

Exit codes:
  0  it may
  1  it may not (the rule and the remedy are named), or plugin-manager does not answer
  2  the command line is not valid")]
    Explain(Explain),
    /// Health of the plugins: state, since when, last error and last changes.
    #[command(after_help = "Examples:
  conveyor plugin health
  conveyor plugin health text-tools
  conveyor plugin health --json

Exit codes:
  0  no plugin is offline
  1  one is, or plugin-manager does not answer
  2  the command line is not valid")]
    Health(Health),
    /// Keep new tasks from a plugin in all workspaces. What was dispatched finishes.
    #[command(after_help = "Example:
  conveyor plugin quarantine text-tools")]
    Quarantine(One),
    /// Limit how many tasks of a plugin are under way at once, over all control planes.
    ///
    /// Tasks beyond the limit wait; what was dispatched finishes. Holds for all workspaces and counts for
    /// new dispatches within seconds.
    #[command(after_help = "Examples:
  conveyor plugin limit text-tools 4
  conveyor plugin limit text-tools --off")]
    Limit(Limit),
    /// Lift a quarantine.
    #[command(after_help = "Example:
  conveyor plugin release text-tools")]
    Release(One),
    /// Make a plugin of your own from a template.
    #[command(after_help = "Examples:
  conveyor plugin new my-first --lang ts
  conveyor plugin new my-first --lang rust --sdk ~/src/conveyor

Exit codes:
  0  the plugin is made
  1  the folder is not empty or cannot be written
  2  the name or the command line is not valid")]
    New(super::new::New),
    /// Play the platform against a plugin and tell which rules of the wire it keeps.
    ///
    /// HOST:PORT checks a plugin that runs, wherever it publishes itself. With --listen the check is
    /// the plugin's plugin-manager and control plane: start the plugin with these addresses, and
    /// publication and reports are checked too. docs/plugin-protocol.md has the rules.
    ///
    /// TLS is spoken where the variables of the played services say so: to the plugin with
    /// CONVEYOR_PLUGIN_TLS_CA_FILE, at the doors of --listen with PLUGIN_MANAGER_TLS_CERT_FILE and _KEY_FILE,
    /// RUNTIME_CONTROL_PLANE_TLS_CERT_FILE and _KEY_FILE.
    #[command(after_help = "Examples:
  conveyor plugin check 127.0.0.1:9420 --token dev-token
  conveyor plugin check 127.0.0.1:9420 --token dev-token --node plugin.example.echo --input text=hi
  conveyor plugin check --listen 4016:4021 --token dev-token --key dev-key --node plugin.example.echo --input text=hi

Exit codes:
  0  every rule that could be tried is kept
  1  some are broken; each is told with its remedy
  2  no plugin answers or publishes itself, or the command line is not valid")]
    Check(super::check::Check),
}

/// Where plugin-manager is and how the answer is written.
///
/// Without variables and options: the deployment of `conveyor up` in the folder ./data.
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// The data folder of a `conveyor up` or `demo`, whose credentials and ports are used [default:
    /// PLUGIN_MANAGER_RPC_HOST, PLUGIN_MANAGER_RPC_PORT and PLUGIN_MANAGER_INGRESS_TOKEN, else
    /// CONVEYOR_DATA_DIR, else ./data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// The port offset of that `conveyor up` or `demo`.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=57_000))]
    pub(crate) port_offset: u16,
    /// The workspace that is meant.
    #[arg(long, value_name = "WORKSPACE", default_value = DEFAULT_WORKSPACE)]
    pub(crate) workspace: String,
    /// Print the answer as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// Also removed ones.
    #[arg(long)]
    pub(crate) all: bool,
    /// Enablement as this user has it.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    /// The plugin.
    pub(crate) plugin: String,
    /// This version instead of the newest.
    #[arg(long, value_name = "VERSION")]
    pub(crate) version: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct One {
    /// The plugin.
    pub(crate) plugin: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
#[group(id = "most", required = true, multiple = false, args = ["tasks", "off"])]
pub(crate) struct Limit {
    /// The plugin.
    pub(crate) plugin: String,
    /// So many tasks at once.
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tasks: Option<u32>,
    /// As many as there are.
    #[arg(long)]
    off: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
#[group(id = "what", required = true, multiple = false, args = ["plugin", "manifest"])]
pub(crate) struct Publish {
    /// A plugin that the catalogue knows.
    pub(crate) plugin: Option<String>,
    /// A file with the manifest.
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    /// Where the plugin listens, as plugin-manager reaches it.
    #[arg(long, value_name = "HOST:PORT", value_parser = endpoint)]
    pub(crate) from: Option<Endpoint>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct ForUser {
    /// The plugin.
    pub(crate) plugin: String,
    /// Only for this user.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Remove {
    /// The plugin.
    pub(crate) plugin: String,
    /// Although processes use it: their new runs will fail.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct OfVersion {
    /// The plugin.
    pub(crate) plugin: String,
    /// The version.
    pub(crate) version: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Yank {
    #[command(flatten)]
    pub(crate) of: OfVersion,
    /// Take the yank back.
    #[arg(long)]
    pub(crate) undo: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Diff {
    /// The plugin.
    pub(crate) plugin: String,
    /// The older version.
    pub(crate) older: String,
    /// The newer version.
    pub(crate) newer: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// The node type.
    pub(crate) node_type: String,
    /// For this user.
    #[arg(long, value_name = "USER", default_value = DEFAULT_USER)]
    pub(crate) user: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args, Debug)]
pub(crate) struct Health {
    /// Only this plugin, with its last changes.
    pub(crate) plugin: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// `host:port`, `[v6]:port`.
pub(super) fn endpoint(text: &str) -> Result<Endpoint, String> {
    let wrong = || format!("{text:?} is no place; use HOST:PORT, for example 10.0.0.7:4100");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match bare {
        Some(bare) => bare,
        None if host.contains(':') => return Err(wrong()),
        None => host,
    };
    match port.parse() {
        Ok(port) if port > 0 && !host.is_empty() => Ok(Endpoint { host: host.to_owned(), port }),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_host_and_a_port() {
        let read = |text: &str| endpoint(text).map(|endpoint| endpoint.to_string());
        for text in ["plugin:4100", "10.0.0.7:4100", "[::1]:4100"] {
            assert_eq!(read(text).as_deref(), Ok(text));
        }
        for text in ["plugin", "plugin:", ":4100", "plugin:0", "plugin:70000", "::1:4100", "[]:1"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
