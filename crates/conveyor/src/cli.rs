//! The command line. Its doc comments are the help text, where backticks would be shown.
#![allow(clippy::doc_markdown, reason = "help text is no markdown")]

use crate::services::ServiceName;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

const EXIT_CODES: &str = "Exit codes:
  0  done; for a run: it finished
  1  failed; for a run: a node failed it, or it was canceled
  2  the command line, the configuration or a document is not valid";

/// Self-hosted workflow automation.
#[derive(Debug, Parser)]
#[command(name = "conveyor", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start everything in this process.
    ///
    /// Without DATABASE_URL and REDIS_URL it needs nothing else: the data folder holds an SQLite
    /// file, files and the credentials that are made at the first start.
    #[command(after_help = "Examples:
  conveyor up
  conveyor up --data /var/lib/conveyor --port-offset 100
  DATABASE_URL=postgres://conveyor@db/conveyor REDIS_URL=redis://cache conveyor up")]
    Up(Up),
    /// Show the platform at work: everything in this process, an example plugin beside it, one run.
    #[command(after_help = "Examples:
  conveyor demo
  conveyor demo --once --json
  conveyor demo --port-offset 1000 --data /tmp/demo")]
    Demo(Demo),
    /// Run one process document and print its result.
    ///
    /// Progress goes to standard error, the result to standard output.
    #[command(after_help = "Examples:
  conveyor run examples/processes/greeting.json -i name=Мир
  conveyor run process.json -i text=@letter.txt -i count=3 --json
  conveyor run preset.json --diagram 'Second diagram'

Inputs are the trigger's fields. A field of type string, textarea, select or ref takes the text as it
is; any other takes JSON, and text that is no JSON as text.

Exit codes:
  0  the run finished
  1  the run failed or was canceled; standard error names the node and the reason
  2  the document or the command line is not valid; standard error names every fault with its path")]
    Run(Run),
    /// Start one or more services of a split deployment in this process.
    ///
    /// The services meet over TCP and HTTP, PostgreSQL and Redis; `conveyor config SERVICE` shows
    /// the variables of each.
    #[command(after_help = "Examples:
  conveyor serve runtime-engine
  conveyor serve api plugin-manager
  conveyor serve runtime-control-plane secret-manager file-service executor

One service listens on the ports of its page (3000, 3001). Several in one process listen on those of
`conveyor up`, unless their variables are set.")]
    Serve(Serve),
    /// Print the effective configuration of a service, with the origin of each value.
    #[command(after_help = "Examples:
  conveyor config runtime-engine
  conveyor config api --json

Secrets are shown as <redacted>. Exit code 2: the service would refuse to start; standard error says why.")]
    Config(Config),
    /// Check that what is configured can be reached.
    #[command(after_help = "Examples:
  conveyor doctor
  DATABASE_URL=postgres://conveyor@db/conveyor conveyor doctor --json

Exit code 1: something that is configured cannot be reached.")]
    Doctor(Doctor),
    /// Work with process documents and the processes of a running platform.
    #[command(subcommand)]
    Process(crate::commands::process::args::Process),
    /// Watch and steer the runs of a running platform.
    #[command(subcommand)]
    Runs(crate::commands::runs::args::Runs),
    /// Look after the plugins of the catalogue, through plugin-manager's TCP door.
    #[command(subcommand)]
    Plugin(crate::commands::plugin::args::Plugin),
    /// Print documentation that is generated from the code.
    #[command(after_help = "Example:
  conveyor docs configuration > docs/configuration.md")]
    Docs(Docs),
}

#[derive(Args, Debug)]
pub(crate) struct Up {
    /// The data folder [default: CONVEYOR_DATA_DIR, else ./data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Added to every default port (8080, 4020, 4021, 4016, 4017).
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=57_000))]
    pub(crate) port_offset: u16,
}

#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// End after the run; exit code 0 only if it finished.
    #[arg(long)]
    pub(crate) once: bool,
    /// Print only the run's result, as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Where and on which ports.
    #[command(flatten)]
    pub(crate) place: Up,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// A process document: a preset, a diagram or a bare {widgets, edges}.
    pub(crate) file: PathBuf,
    /// A field of the trigger; `key=@file` takes the file's text.
    #[arg(short, long = "input", value_name = "KEY=VALUE")]
    pub(crate) inputs: Vec<String>,
    /// Which diagram of a preset that holds several.
    #[arg(long, value_name = "NAME")]
    pub(crate) diagram: Option<String>,
    /// Print the result, or the faults, as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Keep the run in this data folder, and use the plugins of its catalogue [default: a folder
    /// that is removed afterwards]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Which services.
    #[arg(required = true, value_name = "SERVICE")]
    pub(crate) services: Vec<ServiceName>,
}

#[derive(Args, Debug)]
pub(crate) struct Config {
    /// Which service.
    #[arg(value_name = "SERVICE")]
    pub(crate) service: ServiceName,
    /// As JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// As JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Docs {
    /// Which page.
    pub(crate) page: Page,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Page {
    /// Every variable of every service, as Markdown.
    Configuration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_shows_an_example() {
        fn check(command: &clap::Command) {
            let subcommands: Vec<_> =
                command.get_subcommands().filter(|sub| sub.get_name() != "help").collect();
            if subcommands.is_empty() {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example"), "{}", command.get_name());
            }
            subcommands.into_iter().for_each(check);
        }
        check(&Cli::command());
    }
}
