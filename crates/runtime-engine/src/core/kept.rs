//! What a repetition keeps of the run that it repeats (`runtime.run_retry`, protocol section 5).
//!
//! It is used up by the decision that starts the new run: what that reaches had the same inputs
//! before. What waits for a step that runs anew may get others, and runs anew too.

use super::{evaluate::Outputs, graph::Kind, outputs::StepOutputs, scope::Scope, state::State};
use contract::{NodePath, run::NodeStatus};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Outputs of what had finished.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// By path, also in the iterations of loops that were not through.
    steps: HashMap<NodePath, Arc<StepOutputs>>,
    /// By path, loops that were not through.
    loops: HashMap<NodePath, KeptLoop>,
}

/// A loop that was not through.
#[derive(Clone, Debug, PartialEq)]
struct KeptLoop {
    /// How many iterations there would have been; `None`: its body decides.
    iterations: Option<u64>,
    /// Outputs of the finished ones.
    finished: BTreeMap<u64, Arc<Outputs>>,
}

impl Kept {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The outputs of the step at this path, once.
    pub(super) fn take_step(&mut self, path: &NodePath) -> Option<Arc<StepOutputs>> {
        self.steps.remove(path)
    }

    /// The outputs of the finished iterations of the loop at this path, once, by number; none when
    /// the loop runs over another number of elements now.
    pub(super) fn take_iterations(
        &mut self,
        path: &NodePath,
        iterations: Option<u64>,
    ) -> BTreeMap<u64, Arc<Outputs>> {
        let kept = self.loops.remove(path).filter(|kept| kept.iterations == iterations);
        kept.map(|kept| kept.finished).unwrap_or_default()
    }
}

impl State {
    /// What a repetition of the run keeps: the outputs of its finished steps, but for those that are
    /// evaluated anew without any effect, and those of the finished iterations of loops that were not
    /// through.
    pub fn kept(&self) -> Kept {
        let mut kept = Kept::new();
        for scope in self.scopes.values() {
            kept.add(scope);
        }
        kept
    }
}

impl Kept {
    fn add(&mut self, scope: &Scope) {
        for (index, (node, state)) in scope.graph.nodes.iter().zip(&scope.nodes).enumerate() {
            if let Some(own) = state.looping.as_ref().or(state.unfinished.as_ref()) {
                let (iterations, finished) = own.finished();
                self.loops.insert(scope.path(index), KeptLoop { iterations, finished });
            }
            let has_effects =
                matches!(node.kind, Kind::Task(_) | Kind::Loop(_) | Kind::Validation | Kind::Delay);
            if let Some(outputs) = &state.outputs
                && has_effects
                && state.status == NodeStatus::Finished
            {
                self.steps.insert(scope.path(index), Arc::clone(outputs));
            }
        }
    }
}
