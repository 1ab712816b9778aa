//! The command line of `conveyor process`. Its doc comments are the help text.
#![allow(clippy::doc_markdown, reason = "help text is no markdown")]

use crate::remote::Place;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Process {
    /// Check a process document; every fault is named with its path.
    #[command(after_help = "Examples:
  conveyor process validate process.json
  conveyor process validate preset.json --data ./data --json

Exit code 2: the document is not valid.")]
    Validate(Validate),
    /// Store the processes of a document on a running platform.
    #[command(after_help = "Examples:
  conveyor process import process.json
  conveyor process import preset.json --json --url http://conveyor.example:8080

Exit codes:
  0  everything is stored; standard error names what must be done before it can run
  1  the platform does not answer or refuses the token
  2  the document is not valid, every fault is named and nothing is stored; or the command line is not valid")]
    Import(Import),
    /// The processes of a running platform.
    #[command(after_help = "Examples:
  conveyor process list
  conveyor process list --json")]
    List(List),
    /// One process: its inputs and nodes.
    #[command(after_help = "Examples:
  conveyor process show 'Order letter'
  conveyor process show 0197c3a1-2222-7000-8000-000000000000 --json")]
    Show(One),
    /// Start a run of a process on a running platform.
    #[command(after_help = "Examples:
  conveyor process run 'Order letter' -i name=Ann -i count=3
  conveyor process run 'Order letter' -i text=@letter.txt --watch
  conveyor process run 0197c3a1-2222-7000-8000-000000000000 --watch --json

Inputs are as of `conveyor run`. With --watch progress goes to standard error, the result to standard output.

Exit codes:
  0  the run is started; with --watch: it finished
  1  refused, or the platform does not answer; with --watch: the run failed or was canceled
  2  the inputs or the command line are not valid")]
    Run(Run),
}

#[derive(Args, Debug)]
pub(crate) struct Validate {
    /// A process document.
    pub(crate) file: PathBuf,
    /// Check plugin nodes against the catalogue of this data folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Print faults and warnings as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Import {
    /// A process document: a preset, a diagram or a bare {widgets, edges}.
    pub(crate) file: PathBuf,
    /// The name of what the document leaves without one [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args, Debug)]
pub(crate) struct One {
    /// Its id, or its name where only one has it.
    #[arg(value_name = "ID|NAME")]
    pub(crate) process: String,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Its id, or its name where only one has it.
    #[arg(value_name = "ID|NAME")]
    pub(crate) process: String,
    /// A field of the trigger; `key=@file` takes the file's text.
    #[arg(short, long = "input", value_name = "KEY=VALUE")]
    pub(crate) inputs: Vec<String>,
    /// Follow the run to its end and print its result.
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}
