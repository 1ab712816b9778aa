//! Starts the servers that the tests can use, runs a command with their addresses in the
//! environment, stops the servers, and ends as the command ended:
//!
//! ```text
//! testkit-servers [--env FILE] [-- COMMAND [ARGUMENT]...]
//! ```
//!
//! The addresses also go to FILE, as lines for a shell to read. Without a command the servers run
//! until SIGINT or SIGTERM.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use testkit::{Postgres, Process, Program, Redis, Signal};
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "usage: testkit-servers [--env FILE] [-- COMMAND [ARGUMENT]...]";

/// How long the command may take to end after a signal was passed on to it.
const GRACE: Duration = Duration::from_secs(10);
/// The command itself has no limit; a day is beyond any test run.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

type Failure = Box<dyn std::error::Error>;

#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    env_file: Option<String>,
    command: Vec<String>,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut parsed = Arguments::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--env" => parsed.env_file = Some(arguments.next()?),
            "--" => parsed.command = arguments.by_ref().collect(),
            _ => return None,
        }
    }
    Some(parsed)
}

#[tokio::main]
async fn main() -> ExitCode {
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    run(arguments).await.unwrap_or_else(|error| {
        eprintln!("testkit-servers: {error}");
        ExitCode::FAILURE
    })
}

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    // Before the servers start, so that a signal in between does not leave them behind.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async {
        tokio::select! {
            _ = interrupt.recv() => Signal::INT,
            _ = terminate.recv() => Signal::TERM,
        }
    };
    tokio::pin!(stop);

    let start = async { tokio::try_join!(Postgres::start(), Redis::start(), Redis::start_cluster()) };
    let servers = tokio::select! {
        servers = start => servers?,
        signal = &mut stop => return Ok(code_of_signal(signal)),
    };
    let (postgres, redis, cluster) = &servers;
    let addresses = [
        ("TEST_DATABASE_URL", postgres.url()),
        ("TEST_REDIS_URL", redis.url()),
        ("TEST_REDIS_CLUSTER_URL", cluster.url()),
    ];
    if let Some(path) = &arguments.env_file {
        let lines: String = addresses.iter().map(|(name, url)| format!("export {name}='{url}'\n")).collect();
        std::fs::write(path, lines).map_err(|error| format!("cannot write {path}: {error}"))?;
    }

    let Some((program, rest)) = arguments.command.split_first() else {
        return Ok(code_of_signal(stop.await));
    };
    let command =
        Program::new(program).args(rest).envs(addresses).env("CI_SERVERS", "1").inherit_streams().spawn()?;
    tokio::select! {
        status = command.wait(DAY) => Ok(code_of(status?)),
        signal = &mut stop => {
            end(&command, signal).await;
            Ok(code_of_signal(signal))
        }
    }
}

/// Passes the signal on; what has not ended after a while is killed when `command` is dropped.
async fn end(command: &Process, signal: Signal) {
    command.signal(signal);
    if command.wait(GRACE).await.is_err() {
        eprintln!("testkit-servers: the command did not end within {} s and is killed", GRACE.as_secs());
    }
}

/// As a shell reports it: the code, or 128 plus the signal.
fn code_of(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn code_of_signal(signal: Signal) -> ExitCode {
    u8::try_from(128 + signal.as_raw()).map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<Arguments> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn everything_after_the_dashes_is_the_command() {
        let arguments = parsed("--env out -- cargo test -- --env x").unwrap();
        assert_eq!(arguments.env_file.as_deref(), Some("out"));
        assert_eq!(arguments.command, ["cargo", "test", "--", "--env", "x"]);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for line in ["--env", "cargo test", "--help"] {
            assert_eq!(parsed(line), None, "{line}");
        }
    }
}
