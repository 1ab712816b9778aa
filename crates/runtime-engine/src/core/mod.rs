//! The pure heart of the engine: no clock, no randomness, no I/O. Time, ids and chance come in with
//! the input; the history of a run is the truth and its state the fold of it. The same history gives
//! the same decisions, on every machine.

mod decide;
mod decision;
mod evaluate;
mod event;
mod flow;
mod graph;
mod policy;
mod sequences;
mod state;
mod verdict;
mod view;

pub use decision::{Decision, Draw, Input, Opened, Touched};
pub use evaluate::{Extract, Outputs};
pub use event::{
    Event, Failure, LateResult, Pin, RunCanceled, RunFailed, RunFinished, RunStarted, StepAcked,
    StepCanceled, StepDelivered, StepEvaluated, StepFailed, StepFinished, StepPartial, StepScheduled,
    StepSkipped, Unreadable, VERSION,
};
pub use graph::{
    Edge, EdgeIndex, Graph, Input as NodeInput, Kind, Node, NodeIndex, Port, PortIndex, TaskLane,
};
pub use policy::Policy;
pub use state::{Broken, State};
pub(crate) use verdict::unknown_execution;

#[cfg(test)]
mod tests;
