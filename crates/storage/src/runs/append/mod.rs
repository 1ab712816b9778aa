//! The hot path: events of many runs in one transaction.
//!
//! A batch is cut into *waves* in which no run has two appends that depend on each other; nearly
//! always there is one wave. A wave becomes a set of columns ([`wave::Wave`], pure), which PostgreSQL
//! takes as arrays in one statement and SQLite as multi-row statements in one transaction. Both first
//! create and move the run rows; what belongs to a run whose row did not move is not stored.

mod limited;
mod postgres;
mod sqlite;
mod wave;

use super::{AttemptState, Runs};
use crate::{db::Db, error::Result};
use contract::{ExecutionId, Json, Millis, NodePath, ProcessId, RunId, run::RunStatus};

/// The run that stands in the way of a new one: with its key, or with its id.
const HOLDER: &str = "\
    SELECT run_id FROM runs WHERE (process_id = $1 AND idempotency_key = $2) OR run_id = $3 \
    ORDER BY CASE WHEN run_id = $3 THEN 1 ELSE 0 END LIMIT 1";

/// What is appended to one run, all or nothing.
#[derive(Clone, Debug)]
pub struct Append {
    /// The run.
    pub run_id: RunId,
    /// The last sequence number that the caller saw; 0 with `create`.
    pub expected: u64,
    /// Creates the run.
    pub create: Option<NewRun>,
    /// With `create`: the most runs of its process that may be running at the same time, this one
    /// included. Runs started without a limit count from the first start of a newer revision on.
    pub max_running: Option<u32>,
    /// Now.
    pub at: Millis,
    /// The events, numbered from `expected + 1`.
    pub events: Vec<NewEvent>,
    /// How the run stands afterwards.
    pub status: RunStatus,
    /// When it ended.
    pub finished_at: Option<Millis>,
    /// Why it failed, raw.
    pub error: Option<Json>,
    /// Attempts that begin.
    pub open: Vec<NewAttempt>,
    /// Outstanding attempts that change. What is closed already stays as it is.
    pub update: Vec<AttemptUpdate>,
    /// Attempts that end.
    pub close: Vec<ExecutionId>,
}

impl Append {
    /// An append that changes nothing yet, to be filled.
    pub fn new(run_id: RunId, expected: u64, status: RunStatus, at: Millis) -> Self {
        Self {
            run_id,
            expected,
            create: None,
            max_running: None,
            at,
            events: Vec::new(),
            status,
            finished_at: None,
            error: None,
            open: Vec::new(),
            update: Vec::new(),
            close: Vec::new(),
        }
    }

    /// Does it depend on the run's sequence number? An append that only updates attempts (a
    /// heartbeat) does not, and does not touch the run's row.
    pub fn compares(&self) -> bool {
        self.create.is_some() || !self.events.is_empty() || !self.open.is_empty() || !self.close.is_empty()
    }
}

/// A run that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// What is run.
    pub process_id: ProcessId,
    /// The revision of the process.
    pub process_revision: i64,
    /// The workspace of the run.
    pub workspace_id: String,
    /// The user of the run.
    pub user_id: String,
    /// A second run of the process with the same key is not created.
    pub idempotency_key: Option<String>,
}

/// An event to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// Its kind, `snake_case`.
    pub kind: String,
    /// Its body, raw.
    pub body: Json,
}

/// An attempt that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAttempt {
    /// Its id.
    pub execution_id: ExecutionId,
    /// Its node.
    pub node_path: NodePath,
    /// The node's type.
    pub node_type: String,
    /// From 1 per node.
    pub attempt: u32,
    /// The lane that carries its task.
    pub lane: String,
    /// How it stands.
    pub state: AttemptState,
    /// When the sweep looks at it; `None`: never.
    pub deadline: Option<Millis>,
}

/// Changes of an outstanding attempt; `None` keeps what is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptUpdate {
    /// The attempt.
    pub execution_id: ExecutionId,
    /// Its new state.
    pub state: Option<AttemptState>,
    /// Its new deadline; `Some(None)`: no deadline.
    pub deadline: Option<Option<Millis>>,
    /// When it was acknowledged.
    pub acked_at: Option<Millis>,
    /// When it gave a sign of life.
    pub heartbeat_at: Option<Millis>,
    /// How far it is: a raw JSON number.
    pub progress: Option<Json>,
    /// What it says to people.
    pub message: Option<String>,
}

impl AttemptUpdate {
    /// An update that changes nothing yet, to be filled.
    pub fn new(execution_id: ExecutionId) -> Self {
        Self {
            execution_id,
            state: None,
            deadline: None,
            acked_at: None,
            heartbeat_at: None,
            progress: None,
            message: None,
        }
    }
}

/// What became of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// Stored.
    Done,
    /// The run's sequence number is not the expected one (or there is no such run): nothing of this
    /// append is stored. Reload and decide again.
    Conflict,
    /// A run with this idempotency key (or this id) exists already: nothing of this append is stored.
    Exists(RunId),
    /// As many runs of the process are running as [`Append::max_running`] allows: nothing of this append
    /// is stored.
    Full,
}

impl Runs {
    /// Appends to many runs in one transaction, and answers in order. One append that loses its race
    /// does not hinder the others. Appends to one run take effect in their order. When the call fails
    /// with [`crate::Error::Unavailable`], whether it was stored is unknown; repeating it is safe,
    /// since what was stored answers [`Appended::Conflict`] or [`Appended::Exists`].
    pub async fn append(&self, batch: &[Append]) -> Result<Vec<Appended>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let mut answers = vec![Appended::Conflict; batch.len()];
        let mut waves = wave::cut(batch);
        if batch.iter().any(limited::is_limited) {
            limited::create(&self.db, batch, &mut answers).await?;
            for members in &mut waves {
                members.retain(|place| !limited::is_limited(&batch[*place]));
            }
            waves.retain(|members| !members.is_empty());
            if waves.is_empty() {
                return Ok(answers);
            }
        }
        let waves: Vec<_> =
            waves.iter().map(|members| wave::Wave::of(batch, members)).collect::<Result<_>>()?;
        let stored = match &self.db {
            Db::Pg(pool) => postgres::append(pool, &waves).await?,
            Db::Lite { write, .. } => sqlite::append(write, &waves).await?,
        };
        for (wave, stored) in waves.iter().zip(stored) {
            wave.answer(&stored, &mut answers);
        }
        Ok(answers)
    }
}
