//! `conveyor process …`: process documents, and the processes of a running platform.

pub(crate) mod args;
mod show;
mod validate;

use super::run::inputs;
use crate::{
    document::{MAX_BYTES, printable},
    failure::Failure,
    platform::escape,
    remote::{Platform, end, watch},
};
use args::{Import, List, One, Process, Run};
use contract::{Fault, Json, ProcessId, process};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fs;

/// Runs the command.
///
/// # Errors
/// [`Failure`], which decides the exit code.
pub(super) async fn process(command: Process) -> Result<(), Failure> {
    match command {
        Process::Validate(args) => validate::validate(&args).await,
        Process::Import(args) => import(&args).await,
        Process::List(args) => list(&args).await,
        Process::Show(args) => show(&args).await,
        Process::Run(args) => run(&args).await,
    }
}

/// A process with its document, as far as it is shown here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    id: ProcessId,
    name: String,
    revision: i64,
    created_at: String,
    updated_at: String,
    document: process::Process,
}

#[derive(Debug, Deserialize)]
struct Imported {
    processes: Vec<crate::client::ImportedProcess>,
    warnings: Vec<Fault>,
}

async fn import(args: &Import) -> Result<(), Failure> {
    let platform = Platform::find(&args.place)?;
    let unreadable = |reason: String| Failure::invalid(format!("{}: {reason}", args.file.display()));
    let size = fs::metadata(&args.file).map_err(|error| unreadable(error.to_string()))?.len();
    if size > MAX_BYTES {
        return Err(unreadable(format!("has {size} bytes, the limit is {MAX_BYTES}")));
    }
    let text = fs::read_to_string(&args.file).map_err(|error| unreadable(error.to_string()))?;
    let stem = args.file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = args.name.clone().or(stem).unwrap_or_default();
    let answer = platform.post(&format!("/flow/import?name={}", escape(&name, "")), Some(text)).await?;
    let imported: Imported = platform.read(&answer)?;
    if !platform.is_json() {
        for warning in &imported.warnings {
            eprintln!("  warning: {}", printable(&warning.to_string()));
        }
    }
    platform.print(&answer, || {
        let line = |process: &crate::client::ImportedProcess| {
            format!("{}  {}\n", process.id, printable(&process.name))
        };
        imported.processes.iter().map(line).collect()
    })
}

async fn list(args: &List) -> Result<(), Failure> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Page {
        processes: Vec<Json>,
        #[serde(default)]
        next_cursor: Option<String>,
    }
    #[derive(Serialize)]
    struct All {
        processes: Vec<Json>,
    }
    let platform = Platform::find(&args.place)?;
    let (mut all, mut path) = (All { processes: Vec::new() }, "/flow?limit=200".to_owned());
    loop {
        let page: Page = platform.read(&platform.get(&path).await?)?;
        all.processes.extend(page.processes);
        match page.next_cursor {
            Some(cursor) => path = format!("/flow?limit=200&cursor={}", escape(&cursor, "")),
            None => break,
        }
    }
    let heads = all.processes.iter().map(|head| platform.read(head)).collect::<Result<Vec<_>, _>>()?;
    platform.print(&all, || show::list(&heads))
}

async fn show(args: &One) -> Result<(), Failure> {
    let platform = Platform::find(&args.place)?;
    let id = platform.process(&args.process).await?;
    let answer = platform.get(&format!("/flow/{id}")).await?;
    let stored: Stored = platform.read(&answer)?;
    platform.print(&answer, || show::process(&stored))
}

async fn run(args: &Run) -> Result<(), Failure> {
    let platform = Platform::find(&args.place)?;
    let id = platform.process(&args.process).await?;
    let stored: Stored = platform.read(&platform.get(&format!("/flow/{id}")).await?)?;
    let payload = inputs::payload(&stored.document, &args.inputs).map_err(Failure::Invalid)?;
    let run_id = platform.told(platform.client.start(id, "run", payload).await)?;
    if !args.watch {
        let answer = json!({ "runId": run_id, "processId": id });
        return platform.print(&answer, || format!("{run_id}\n"));
    }
    eprintln!("conveyor: run {run_id} is started; it goes on when this command is ended");
    let ended = watch(&platform, run_id).await?;
    end(&platform, &ended).await
}
