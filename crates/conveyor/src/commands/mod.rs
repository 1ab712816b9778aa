//! The subcommands.

mod config;
mod demo;
mod docs;
mod doctor;
pub(crate) mod plugin;
pub(crate) mod process;
pub(crate) mod run;
pub(crate) mod runs;
mod serve;
mod up;

use crate::{
    cli::{Cli, Command},
    failure::Failure,
    logs,
};

/// Runs the command.
///
/// # Errors
/// [`Failure`], which decides the exit code.
pub(crate) async fn run(cli: Cli) -> Result<(), Failure> {
    logs::start(match cli.command {
        Command::Up(_) | Command::Serve(_) => "info",
        _ => "warn",
    })?;
    match cli.command {
        Command::Up(args) => up::up(args).await,
        Command::Demo(args) => demo::demo(args).await,
        Command::Run(args) => run::run(args).await,
        Command::Serve(args) => serve::serve(args).await,
        Command::Config(args) => config::config(&args),
        Command::Doctor(args) => doctor::doctor(&args).await,
        Command::Process(command) => process::process(command).await,
        Command::Runs(command) => runs::runs(command).await,
        Command::Plugin(command) => plugin::plugin(command).await,
        Command::Docs(args) => {
            docs::docs(args.page);
            Ok(())
        }
    }
}
