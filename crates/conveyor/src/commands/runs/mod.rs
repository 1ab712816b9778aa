//! `conveyor runs …`: the runs of a running platform.

pub(crate) mod args;
mod output;
mod show;

use crate::{
    failure::Failure,
    platform::escape,
    remote::{Platform, end, waiting_step, watch},
};
use args::{Confirm, List, One, Retry, Runs, Show};
use contract::{Json, RunId};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::json;

/// Runs the command.
///
/// # Errors
/// [`Failure`], which decides the exit code.
pub(super) async fn runs(command: Runs) -> Result<(), Failure> {
    match command {
        Runs::List(args) => list(&args).await,
        Runs::Show(args) => show(&args).await,
        Runs::Output(args) => output::output(&args).await,
        Runs::Watch(args) => {
            let platform = Platform::find(&args.place)?;
            let ended = watch(&platform, args.run).await?;
            end(&platform, &ended).await
        }
        Runs::Cancel(args) => cancel(&args).await,
        Runs::Confirm(args) => confirm(&args).await,
        Runs::Retry(args) => retry(&args).await,
    }
}

async fn list(args: &List) -> Result<(), Failure> {
    let platform = Platform::find(&args.place)?;
    let mut path = match &args.process {
        Some(process) => format!("/flow/{}/runs", platform.process(process).await?),
        None => "/runs".to_owned(),
    };
    path.push_str(&format!("?limit={}", args.limit));
    if let Some(status) = args.status {
        path.push_str(&format!("&status={}", status.as_str()));
    }
    if let Some(cursor) = &args.cursor {
        path.push_str(&format!("&cursor={}", escape(cursor, "")));
    }
    let answer = platform.get(&path).await?;
    let page: show::Page = platform.read(&answer)?;
    let names = match platform.is_json() {
        true => Vec::new(),
        false => platform.told(platform.client.processes().await)?,
    };
    platform.print(&answer, || show::list(&page, &names))
}

async fn show(args: &Show) -> Result<(), Failure> {
    let platform = Platform::find(&args.place)?;
    let mut answer = platform.get(&format!("/runs/{}", args.run)).await?;
    if args.full {
        answer = platform.whole(&answer).await?;
    }
    let run: crate::client::RunFull = platform.read(&answer)?;
    let mut whole: IndexMap<String, Json> = platform.read(&answer)?;
    let mut result = None;
    if run.run.status.is_terminal() {
        let mut public = platform.told(platform.client.result(run.run.process_id, args.run).await)?;
        if args.full {
            public = platform.all_whole(&public).await?;
        }
        whole.insert("publicInputs".to_owned(), Json::of(&public)?);
        result = Some(super::run::pretty(&public)?);
    }
    platform.print(&whole, || show::run(&run, result.as_deref()))
}

async fn cancel(args: &One) -> Result<(), Failure> {
    let platform = Platform::find(&args.place)?;
    let run = platform.run(args.run).await?.run;
    platform.told(platform.client.cancel(run.process_id, args.run).await)?;
    let answer = json!({ "ok": true, "runId": args.run });
    platform.print(&answer, || format!("run {} is canceled\n", args.run))
}

async fn confirm(args: &Confirm) -> Result<(), Failure> {
    let platform = Platform::find(&args.place)?;
    let run = platform.run(args.run).await?;
    let step = waiting_step(&run, &args.step).map_err(|error| platform.tell(&error))?;
    let path = format!("/flow/{}/runs/{}/steps/{}/confirm", run.run.process_id, args.run, escape(&step, ""));
    let body = json!({ "approved": args.approve, "comment": args.comment });
    platform.post(&path, Some(body.to_string())).await?;
    let answer = json!({ "ok": true, "runId": args.run, "nodePath": step, "approved": args.approve });
    let word = if args.approve { "approved" } else { "rejected" };
    platform.print(&answer, || crate::document::printable(&format!("{step} is {word}")) + "\n")
}

async fn retry(args: &Retry) -> Result<(), Failure> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Started {
        run_id: RunId,
    }
    let platform = Platform::find(&args.place)?;
    let process_id = platform.run(args.run).await?.run.process_id;
    let answer = platform.post(&format!("/flow/{process_id}/runs/{}/retry", args.run), None).await?;
    let run_id = platform.read::<Started>(&answer)?.run_id;
    if !args.watch {
        let answer = json!({ "runId": run_id, "processId": process_id, "retryOf": args.run });
        return platform.print(&answer, || format!("{run_id}\n"));
    }
    eprintln!("conveyor: run {run_id} is started; it goes on when this command is ended");
    let ended = watch(&platform, run_id).await?;
    end(&platform, &ended).await
}
