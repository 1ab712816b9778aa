//! The pure heart of the engine: no clock, no randomness, no I/O. Time, ids and chance come in with
//! the input; the history of a run is the truth and its state the fold of it. The same history gives
//! the same decisions, on every machine.

mod advance;
mod decide;
mod decision;
mod evaluate;
mod event;
mod flow;
mod graph;
mod iterations;
mod kept;
mod looping;
mod outputs;
mod policy;
mod reach;
mod replay;
mod scope;
mod sequences;
mod state;
mod verdict;
mod view;
mod waits;

pub use decision::{Awaited, Confirmation, Decision, Draw, Input, Opened, Touched};
pub use evaluate::{Extract, Outputs};
pub use event::{
    Event, Failure, Iteration, IterationKept, LateResult, LoopStarted, Pin, RunCanceled, RunDeadlineSet,
    RunFailed, RunFinished, RunStarted, StepAcked, StepCanceled, StepConfirmed, StepDelivered, StepElapsed,
    StepEvaluated, StepFailed, StepFinished, StepKept, StepPartial, StepScheduled, StepSkipped, Unreadable,
    VERSION,
};
pub use graph::{
    Edge, EdgeIndex, Graph, Input as NodeInput, Kind, Node, NodeIndex, Port, PortIndex, TaskLane,
};
pub use kept::Kept;
pub use looping::Loop;
pub use outputs::{StepOutputs, shared_result};
pub use policy::Policy;
pub use replay::Replay;
pub use state::{Broken, State};
pub(crate) use verdict::unknown_execution;

#[cfg(test)]
mod tests;
