//! The command line of `conveyor runs`. Its doc comments are the help text.
#![allow(clippy::doc_markdown, reason = "help text is no markdown")]

use crate::remote::Place;
use clap::{Args, Subcommand};
use contract::{RunId, run::RunStatus};

#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// Runs, newest first.
    #[command(after_help = "Examples:
  conveyor runs list
  conveyor runs list 'Order letter' --status failed --limit 20
  conveyor runs list --json")]
    List(List),
    /// One run with its steps and, once it has ended, its result.
    #[command(after_help = "Examples:
  conveyor runs show 0197c3a1-3333-7000-8000-000000000000
  conveyor runs show 0197c3a1-3333-7000-8000-000000000000 --json
  conveyor runs show 0197c3a1-3333-7000-8000-000000000000 --json --full")]
    Show(Show),
    /// What a step produced, with the values that lie in files.
    ///
    /// A file that holds no value (of the output `file` of an HTTP request) is written as its bytes.
    #[command(after_help = "Examples:
  conveyor runs output 0197c3a1-3333-7000-8000-000000000000 w-report
  conveyor runs output 0197c3a1-3333-7000-8000-000000000000 'w-loop[2]/w-get' --output json
  conveyor runs output 0197c3a1-3333-7000-8000-000000000000 Download --output file > picture.png

Exit codes:
  0  the outputs are printed
  1  no such step, output or file, or the platform does not answer
  2  several steps are meant, or the command line is not valid")]
    Output(Output),
    /// Follow a run to its end, from its beginning.
    ///
    /// What its nodes do goes to standard error, the result to standard output. Ending the command does
    /// not end the run.
    #[command(after_help = "Examples:
  conveyor runs watch 0197c3a1-3333-7000-8000-000000000000
  conveyor runs watch 0197c3a1-3333-7000-8000-000000000000 --json

Exit codes:
  0  the run finished
  1  the run failed or was canceled, or the platform does not answer
  2  the command line is not valid")]
    Watch(One),
    /// Cancel a run.
    #[command(after_help = "Example:
  conveyor runs cancel 0197c3a1-3333-7000-8000-000000000000")]
    Cancel(One),
    /// Answer a step that waits for a person.
    #[command(after_help = "Examples:
  conveyor runs confirm 0197c3a1-3333-7000-8000-000000000000 Approval --approve
  conveyor runs confirm 0197c3a1-3333-7000-8000-000000000000 'w-loop[2]/w-ask' --reject --comment 'too dear'

Exit codes:
  0  the answer is stored
  1  no such step waits, or the platform does not answer
  2  several steps are meant, or the command line is not valid")]
    Confirm(Confirm),
    /// Repeat a failed or canceled run: a new run, in which the steps that had finished keep their outputs.
    #[command(after_help = "Examples:
  conveyor runs retry 0197c3a1-3333-7000-8000-000000000000
  conveyor runs retry 0197c3a1-3333-7000-8000-000000000000 --watch

Exit codes:
  0  the new run is started; with --watch: it finished
  1  refused, or the platform does not answer; with --watch: the new run failed or was canceled
  2  the command line is not valid")]
    Retry(Retry),
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// Only runs of this process: its id, or its name where only one has it.
    #[arg(value_name = "ID|NAME")]
    pub(crate) process: Option<String>,
    /// Only runs that stand so: running, finished, failed or canceled.
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Option<RunStatus>,
    /// At most so many, 1 to 200.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) limit: u32,
    /// `nextCursor` of the page before.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args, Debug)]
pub(crate) struct One {
    /// The run's id.
    pub(crate) run: RunId,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    /// The run's id.
    pub(crate) run: RunId,
    /// Fetch the values that lie in files, instead of showing where they are.
    #[arg(long)]
    pub(crate) full: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args, Debug)]
pub(crate) struct Output {
    /// The run's id.
    pub(crate) run: RunId,
    /// The step: its path, or its id or label where only one has it.
    #[arg(value_name = "NODE")]
    pub(crate) step: String,
    /// Only this output, as its plain value.
    #[arg(long, value_name = "NAME")]
    pub(crate) output: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args, Debug)]
#[group(id = "answer", required = true, multiple = false, args = ["approve", "reject"])]
pub(crate) struct Confirm {
    /// The run's id.
    pub(crate) run: RunId,
    /// The step: its path, or its id or label where only one waits.
    pub(crate) step: String,
    /// Yes.
    #[arg(long)]
    pub(crate) approve: bool,
    /// No.
    #[arg(long)]
    pub(crate) reject: bool,
    /// For the history and for the steps that follow.
    #[arg(long, value_name = "TEXT")]
    pub(crate) comment: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args, Debug)]
pub(crate) struct Retry {
    /// The run's id.
    pub(crate) run: RunId,
    /// Follow the new run to its end and print its result.
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}
