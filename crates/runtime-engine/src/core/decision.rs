//! What the core is asked and what it answers.

use super::{event::Event, graph::TaskLane, outputs::StepOutputs};
use contract::{
    Digest, ExecutionId, Json, Millis, NodePath,
    report::{Ack, Dispatched, Heartbeat, Partial, ReportOutcome, StepResult},
};
use std::sync::Arc;

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A reporter says that work has begun.
    Ack(ExecutionId, Ack),
    /// A reporter says that work goes on.
    Heartbeat(ExecutionId, Heartbeat),
    /// A reporter gives outputs before the end.
    Partial(ExecutionId, Partial<StepOutputs>),
    /// A reporter says that work has ended; with the digest of the result, which the caller
    /// computes where it costs least.
    Result(ExecutionId, StepResult<Arc<StepOutputs>>, Digest),
    /// A control plane says how a dispatch ended.
    Dispatched(ExecutionId, Dispatched),
    /// The delivery deadline of a dispatched attempt has passed.
    DeliveryOverdue(ExecutionId),
    /// The step deadline of a running attempt has passed.
    StepOverdue(ExecutionId),
    /// The time has come that a timer was set to: a delay, the deadline of a person's answer or of
    /// the run.
    TimerDue(ExecutionId),
    /// A person answers a waiting step.
    Confirm(Box<Confirmation>),
    /// Somebody cancels the run.
    Cancel,
}

/// A person's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// The waiting step.
    pub node_path: NodePath,
    /// Yes or no.
    pub approved: bool,
    /// What the person says.
    pub comment: Option<String>,
    /// Who.
    pub by: String,
}

impl Input {
    /// The attempt that it is about.
    pub fn execution_id(&self) -> Option<ExecutionId> {
        match self {
            Self::Ack(id, _)
            | Self::Heartbeat(id, _)
            | Self::Partial(id, _)
            | Self::Result(id, ..)
            | Self::Dispatched(id, _)
            | Self::DeliveryOverdue(id)
            | Self::StepOverdue(id)
            | Self::TimerDue(id) => Some(*id),
            Self::Confirm(_) | Self::Cancel => None,
        }
    }
}

/// Where fresh ids and chance come from: handed in, so that decisions can be repeated.
pub trait Draw {
    /// A new attempt's id.
    fn execution_id(&mut self) -> ExecutionId;
    /// A number from 0 (inclusive) to 1 (exclusive).
    fn chance(&mut self) -> f64;
}

/// An attempt that becomes outstanding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The attempt.
    pub execution_id: ExecutionId,
    /// The node.
    pub node_path: NodePath,
    /// Its node type.
    pub node_type: String,
    /// Its number.
    pub attempt: u32,
    /// Whose word ends it.
    pub awaited: Awaited,
}

/// What an attempt waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The result of a task.
    Task {
        /// Its lane.
        lane: TaskLane,
        /// When the task is put on the lane (again), unless somebody claims it before.
        publish_at: Millis,
        /// Is the task to be put on the lane at once?
        is_due: bool,
    },
    /// A person's answer, until then.
    Person {
        /// The answer's deadline.
        until: Option<Millis>,
    },
    /// A moment.
    Time {
        /// Which.
        at: Millis,
    },
}

/// A change of an outstanding attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// It reached somebody.
    pub is_running: bool,
    /// Its step deadline.
    pub deadline: Option<Millis>,
    /// When a sign of life came.
    pub heartbeat_at: Option<Millis>,
    /// From 0 to 1.
    pub progress: Option<Json>,
    /// What the reporter says to people.
    pub message: Option<String>,
}

/// What is to be stored and done, all or nothing, and what the asker is told afterwards.
#[derive(Debug)]
pub struct Decision {
    /// New events, in order; already folded into the state.
    pub events: Vec<Event>,
    /// Attempts that become outstanding.
    pub opened: Vec<Opened>,
    /// Changes of outstanding attempts.
    pub touched: Vec<(ExecutionId, Touched)>,
    /// Attempts that are no longer outstanding.
    pub closed: Vec<ExecutionId>,
    /// Of `closed`, those that somebody may be working on for nothing.
    pub withdrawn: Vec<ExecutionId>,
    /// What the asker is told once all this is stored.
    pub answer: ReportOutcome,
}

impl Decision {
    /// Nothing yet; the answer is `applied`.
    pub(super) fn new() -> Self {
        Self {
            events: Vec::new(),
            opened: Vec::new(),
            touched: Vec::new(),
            closed: Vec::new(),
            withdrawn: Vec::new(),
            answer: ReportOutcome::applied(),
        }
    }
}
