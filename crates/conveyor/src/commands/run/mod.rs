//! `conveyor run FILE`

pub(super) mod inputs;
mod progress;

pub(super) use progress::cause;

use crate::{
    cli::Run,
    client::{CallFailure, Client, Outcome, PublicInputs, RunFull, faults},
    compose::{self, Plan, Started},
    credentials::Credentials,
    document::{self, Diagram, Unusable, printable, refuse},
    failure::Failure,
    profile::Profile,
    services::ServiceName,
    signals::Termination,
    source::CommandSource,
};
use anyhow::Context;
use contract::{ErrorCode, RunId, process::Strictness, run::RunStatus};
use progress::Progress;
use std::path::{Path, PathBuf};

/// Validates and runs one document.
pub(super) async fn run(args: Run) -> Result<(), Failure> {
    let refused = |unusable| refuse(args.file.display(), unusable, args.json);
    let diagrams = document::read(&args.file).map_err(refused)?;
    let diagram = document::choose(diagrams, args.diagram.as_deref()).map_err(refused)?;
    let catalogue = document::catalogue(args.data.as_deref()).await?;
    let (process, warnings) = document::check(&diagram, &catalogue, Strictness::Run)
        .map_err(|faults| refused(Unusable::Faulty(faults)))?;
    for warning in warnings {
        eprintln!("conveyor: warning: {}", printable(&warning.to_string()));
    }
    let payload = inputs::payload(&process, &args.inputs).map_err(Failure::Invalid)?;

    let mut termination = Termination::listen()?;
    let folder = Folder::new(args.data.as_deref())?;
    let (client, mut services) = start(folder.path()).await?;
    let ended = tokio::select! {
        ended = attempt(&client, &diagram, payload, &mut termination) => ended,
        error = services.failed() => return Err(error.into()),
    };
    let told = ended.and_then(|ended| tell(&ended, args.json)).map_err(|failure| match failure {
        // What the trigger requires is the engine's to judge; it names it as the validation does.
        RunFailure::Call(CallFailure::Refused(error))
            if is_of_input(error.code) && !faults(&error).is_empty() =>
        {
            let what = format!("the input (-i) of {}", args.file.display());
            refuse(what, Unusable::Faulty(faults(&error)), args.json)
        }
        RunFailure::Call(CallFailure::Refused(error)) if is_of_input(error.code) => {
            Failure::Invalid(error.message)
        }
        RunFailure::Call(error) => Failure::Failed(error.into()),
        RunFailure::Ended(failure) => failure,
    });
    let stopped = services.stop().await;
    told?;
    Ok(stopped?)
}

/// Where the run is kept.
enum Folder {
    Given(PathBuf),
    Passing(tempfile::TempDir),
}

impl Folder {
    fn new(given: Option<&Path>) -> anyhow::Result<Self> {
        match given {
            Some(path) => {
                compose::make_folder(path)?;
                Ok(Self::Given(path.to_owned()))
            }
            None => Ok(Self::Passing(tempfile::tempdir().context("no folder for the run can be made")?)),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Passing(folder) => folder.path(),
        }
    }
}

/// All services on free ports, and a client of theirs.
async fn start(data_dir: &Path) -> Result<(Client, Started), Failure> {
    let profile = Profile::run(data_dir, &Credentials::load_or_create(data_dir)?);
    let plan = Plan::read(&CommandSource::embedded(data_dir), profile, &ServiceName::ALL.into())?;
    let token = plan.api.as_ref().and_then(|api| api.token.clone());
    let platform = Box::pin(compose::bind(plan)).await?;
    let api = platform.find(ServiceName::Api, "http").context("the api does not listen")?;
    Ok((Client::new(api.url(), token, None)?, platform.start()))
}

/// A run that ended.
struct Ended {
    run_id: RunId,
    run: RunFull,
    result: PublicInputs,
}

/// What keeps a run from finishing.
enum RunFailure {
    Call(CallFailure),
    Ended(Failure),
}

impl From<CallFailure> for RunFailure {
    fn from(error: CallFailure) -> Self {
        Self::Call(error)
    }
}

/// Stores the process, runs it and takes it away again; the run stays with its own revision of it.
async fn attempt(
    client: &Client,
    diagram: &Diagram,
    payload: String,
    termination: &mut Termination,
) -> Result<Ended, RunFailure> {
    let imported = client.import(diagram.value.to_string()).await?;
    let Some(process) = imported.processes.first() else {
        return Err(RunFailure::Ended(Failure::Failed(anyhow::anyhow!("the document was not stored"))));
    };
    let ended = follow(client, process.id, payload, termination).await;
    let deleted = client.delete(process.id).await;
    let ended = ended?;
    deleted?;
    Ok(ended)
}

async fn follow(
    client: &Client,
    id: contract::ProcessId,
    payload: String,
    termination: &mut Termination,
) -> Result<Ended, RunFailure> {
    let run_id = client.start(id, "run", payload).await?;
    let mut progress = Progress::new();
    let run = tokio::select! {
        run = client.follow(id, run_id, |run| progress.show(run)) => run?,
        () = termination.told() => {
            progress.end();
            client.cancel(id, run_id).await?;
            return Err(RunFailure::Ended(Failure::Failed(anyhow::anyhow!("interrupted; the run was canceled"))));
        }
    };
    progress.end();
    let result = client.result(id, run_id).await?;
    Ok(Ended { run_id, run, result })
}

/// Prints the result; a run that did not finish is a failure.
fn tell(ended: &Ended, as_json: bool) -> Result<(), RunFailure> {
    let head = &ended.run.run;
    let failed = |error: anyhow::Error| RunFailure::Ended(Failure::Failed(error));
    if as_json {
        let outcome = Outcome {
            run_id: ended.run_id,
            status: head.status.as_str(),
            public_inputs: &ended.result,
            error: head.error.as_ref(),
        };
        println!("{}", outcome.line().map_err(|error| failed(error.into()))?);
    } else if head.status == RunStatus::Finished {
        println!("{}", pretty(&ended.result).map_err(|error| failed(error.into()))?);
    }
    match head.status {
        RunStatus::Finished => Ok(()),
        _ if as_json => Err(RunFailure::Ended(Failure::Told)),
        status => Err(failed(anyhow::anyhow!("{}", reason(status, &ended.run)))),
    }
}

/// Which node, and why.
pub(crate) fn reason(status: RunStatus, run: &RunFull) -> String {
    let Some(error) = &run.run.error else { return format!("the run was {}", status.as_str()) };
    let step = error.node_path.as_ref().map(|path| match &error.label {
        Some(label) if *label != path.0 => format!(" at {label:?} ({path})"),
        _ => format!(" at {path}"),
    });
    printable(&format!("the run failed{}: {}", step.unwrap_or_default(), progress::cause(&error.error)))
}

/// Indented where a tree can hold it, else as it was written.
pub(crate) fn pretty(result: &PublicInputs) -> Result<String, serde_json::Error> {
    let text = serde_json::to_string(result)?;
    match serde_json::from_str::<serde_json::Value>(&text) {
        Ok(tree) => serde_json::to_string_pretty(&tree),
        Err(_) => Ok(text),
    }
}

fn is_of_input(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::InvalidInput | ErrorCode::InvalidProcess | ErrorCode::InvalidRequest)
}
