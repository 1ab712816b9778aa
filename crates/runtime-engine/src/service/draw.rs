//! Fresh ids and chance for decisions.

use crate::core::Draw;
use contract::{ExecutionId, RunId};
use uuid::Uuid;

/// `UUIDv7` ids and the thread's random numbers.
#[derive(Debug)]
pub(crate) struct Fresh;

impl Draw for Fresh {
    fn execution_id(&mut self) -> ExecutionId {
        ExecutionId(Uuid::now_v7())
    }

    fn chance(&mut self) -> f64 {
        rand::random()
    }
}

/// A new run's id.
pub(crate) fn run_id() -> RunId {
    RunId(Uuid::now_v7())
}
