//! Fresh ids and chance for decisions.

use crate::core::Draw;
use contract::{ExecutionId, RunId};
use uuid::Uuid;

/// Ids for attempts of a run, and the thread's random numbers.
#[derive(Debug)]
pub(crate) struct Fresh(pub(crate) RunId);

impl Draw for Fresh {
    fn execution_id(&mut self) -> ExecutionId {
        storage::runs::new_execution_id(self.0)
    }

    fn chance(&mut self) -> f64 {
        rand::random()
    }
}

/// A new run's id.
pub(crate) fn run_id() -> RunId {
    RunId(Uuid::now_v7())
}
