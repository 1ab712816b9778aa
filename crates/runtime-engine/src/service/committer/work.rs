//! Commands to a committer, and those who wait for their answers.

use crate::core::{Graph, Input, Kept, RunStarted, State, unknown_execution};
use contract::{ErrorCode, ExecutionId, ProcessId, RpcError, RunId, report::ReportOutcome, run};
use indexmap::IndexMap;
use std::sync::Arc;
use storage::runs::NewRun;
use tokio::sync::oneshot;

/// One thing to be decided and stored.
#[derive(Debug)]
pub(crate) enum Command {
    /// Starts a run.
    Start(Box<Start>),
    /// Concerns an existing run.
    Run(RunId, Box<Item>),
}

/// Starts a run.
#[derive(Debug)]
pub(crate) struct Start {
    /// The new run's id.
    pub(crate) run_id: RunId,
    /// Its process.
    pub(crate) graph: Arc<Graph>,
    /// Its first event.
    pub(crate) started: RunStarted,
    /// Outputs of the run that this one repeats.
    pub(crate) kept: Kept,
    /// A second start of the process with the same key answers with the first run.
    pub(crate) idempotency_key: Option<String>,
    /// Who waits.
    pub(crate) reply: oneshot::Sender<Result<run::RunStarted, RpcError>>,
}

/// One command about an existing run.
#[derive(Debug)]
pub(crate) struct Item {
    pub(super) ask: Ask,
    reply: Option<oneshot::Sender<ReportOutcome>>,
}

/// What is asked of a run.
#[derive(Debug)]
pub(super) enum Ask {
    /// Something happened.
    Input(Input),
    /// The attempt's task is to be put on its lane again.
    Republish(ExecutionId),
}

/// All commands of a batch about one run.
#[derive(Debug)]
pub(super) struct Existing {
    pub(super) run_id: RunId,
    pub(super) items: Vec<Item>,
    /// The held state is not to be trusted.
    pub(super) must_reload: bool,
}

/// What a batch has to do with one run.
#[derive(Debug)]
pub(super) enum Work {
    Start(Box<Start>),
    Existing(Existing),
}

/// Answers in the order of a run's items, kept until they may be told.
#[derive(Debug, Default)]
pub(super) struct Replies(Vec<ReportOutcome>);

impl Ask {
    fn execution_id(&self) -> Option<ExecutionId> {
        match self {
            Self::Input(input) => input.execution_id(),
            Self::Republish(execution_id) => Some(*execution_id),
        }
    }
}

impl Command {
    pub(crate) fn input(run_id: RunId, input: Input, reply: Option<oneshot::Sender<ReportOutcome>>) -> Self {
        Self::Run(run_id, Box::new(Item { ask: Ask::Input(input), reply }))
    }

    /// Puts the attempt's task on its lane again.
    pub(crate) fn republish(run_id: RunId, execution_id: ExecutionId) -> Self {
        Self::Run(run_id, Box::new(Item { ask: Ask::Republish(execution_id), reply: None }))
    }

    /// The run, by which commands are sharded.
    pub(crate) fn run_id(&self) -> RunId {
        match self {
            Self::Start(start) => start.run_id,
            Self::Run(run_id, _) => *run_id,
        }
    }
}

/// Gathers the commands of each run, in order.
pub(super) fn by_run(commands: Vec<Command>) -> Vec<Work> {
    let mut works: IndexMap<RunId, Work> = IndexMap::with_capacity(commands.len());
    for command in commands {
        match command {
            Command::Start(start) => {
                works.insert(start.run_id, Work::Start(start));
            }
            Command::Run(run_id, item) => {
                let new = || Work::Existing(Existing { run_id, items: Vec::new(), must_reload: false });
                match works.entry(run_id).or_insert_with(new) {
                    Work::Existing(existing) => existing.items.push(*item),
                    // Nobody knows the id of a run that is being started.
                    Work::Start(_) => item.tell(ReportOutcome::Err(run::not_found(run_id))),
                }
            }
        }
    }
    works.into_values().collect()
}

impl Start {
    pub(super) fn new_run(&self) -> NewRun {
        NewRun {
            process_id: self.started.process_id,
            process_revision: self.started.process_revision,
            workspace_id: self.started.workspace_id.clone(),
            user_id: self.started.user_id.clone(),
            idempotency_key: self.idempotency_key.clone(),
        }
    }

    pub(super) fn created(self) {
        let _ = self.reply.send(Ok(run::RunStarted { run_id: self.run_id, created: true }));
    }
}

impl Item {
    /// Does it name an attempt that the state does not know, or a step that does not wait?
    pub(super) fn names_unknown(&self, state: &State) -> bool {
        if let Ask::Input(Input::Confirm(confirmation)) = &self.ask {
            return !state.awaits_person(&confirmation.node_path);
        }
        self.ask.execution_id().is_some_and(|execution_id| !state.knows(execution_id))
    }

    fn tell(self, outcome: ReportOutcome) {
        // A caller who has gone away needs no answer.
        let _ = self.reply.map(|reply| reply.send(outcome));
    }
}

impl Existing {
    pub(super) fn reloading(mut self) -> Self {
        self.must_reload = true;
        self
    }
}

impl Work {
    pub(super) fn reloading(self) -> Self {
        match self {
            Self::Existing(existing) => Self::Existing(existing.reloading()),
            start @ Self::Start(_) => start,
        }
    }

    /// Nothing was stored, for this reason.
    pub(super) fn refuse(self, error: &RpcError) {
        match self {
            Self::Start(start) => {
                let _ = start.reply.send(Err(error.clone()));
            }
            Self::Existing(existing) => {
                existing.items.into_iter().for_each(|item| item.tell(ReportOutcome::Err(error.clone())));
            }
        }
    }

    /// There is no such run.
    pub(super) fn unknown(self) {
        let Self::Existing(existing) = self else { return };
        for item in existing.items {
            let error = match item.ask.execution_id() {
                Some(execution_id) => unknown_execution(execution_id),
                None => run::not_found(existing.run_id),
            };
            item.tell(ReportOutcome::Err(error));
        }
    }

    /// As many runs of the process are running as it allows.
    pub(super) fn overloaded(self) {
        if let Self::Start(start) = self {
            let error = too_many_running(start.started.process_id, start.graph.max_concurrent_runs);
            let _ = start.reply.send(Err(error));
        }
    }

    /// The idempotency key named a run that exists.
    pub(super) fn exists(self, run_id: RunId) {
        if let Self::Start(start) = self {
            let _ = start.reply.send(Ok(run::RunStarted { run_id, created: false }));
        }
    }
}

impl Replies {
    pub(super) fn push(&mut self, outcome: ReportOutcome) {
        self.0.push(outcome);
    }

    pub(super) fn send(self, existing: Existing) {
        existing.items.into_iter().zip(self.0).for_each(|(item, outcome)| item.tell(outcome));
    }
}

/// A start beyond what the process allows.
pub(crate) fn too_many_running(process_id: ProcessId, most: Option<u32>) -> RpcError {
    let most = most.map_or_else(String::new, |most| format!(" ({most})"));
    let message = format!(
        "process {process_id} has as many running runs as its settings.maxConcurrentRuns allows{most}; start \
         again when one has ended"
    );
    RpcError::new(ErrorCode::Overloaded, message)
}
