//! Folding a stored history as it is read, so that it never needs to be in memory as a whole.

use super::{
    event::Event,
    graph::Graph,
    state::{Broken, State},
};
use contract::{Millis, RunId};
use std::sync::Arc;

/// A history in the middle of being folded.
#[derive(Debug)]
pub struct Replay {
    run_id: RunId,
    /// Until the first event.
    graph: Arc<Graph>,
    state: Option<State>,
}

impl Replay {
    /// Begins with nothing.
    pub fn new(run_id: RunId, graph: Arc<Graph>) -> Self {
        Self { run_id, graph, state: None }
    }

    /// Folds the next event.
    ///
    /// # Errors
    /// [`Broken`], when it does not fit the process or what came before.
    pub fn fold(&mut self, at: Millis, event: Event) -> Result<(), Broken> {
        match (&mut self.state, event) {
            (Some(state), event) => state.apply(at, &event),
            (None, Event::RunStarted(started)) => {
                self.state = Some(State::begun(self.run_id, Arc::clone(&self.graph), started, at));
                Ok(())
            }
            (None, _) => Err(Broken::NoStart),
        }
    }

    /// The state after the last event.
    ///
    /// # Errors
    /// [`Broken::NoStart`], when there was none.
    pub fn end(self) -> Result<State, Broken> {
        self.state.ok_or(Broken::NoStart)
    }
}

impl State {
    /// Folds a stored history.
    ///
    /// # Errors
    /// [`Broken`], when the history does not fit the process.
    pub fn replay(
        run_id: RunId,
        graph: Arc<Graph>,
        events: impl IntoIterator<Item = (Millis, Event)>,
    ) -> Result<Self, Broken> {
        let mut replay = Replay::new(run_id, graph);
        events.into_iter().try_for_each(|(at, event)| replay.fold(at, event))?;
        replay.end()
    }
}
