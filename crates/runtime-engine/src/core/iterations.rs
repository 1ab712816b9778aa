//! The fold of loop events: iterations begin as scopes, end in their loop's items, and are forgotten.

use super::{
    evaluate::Outputs,
    event::IterationKept,
    graph::Kind,
    looping::LoopState,
    scope::{Place, Scope, ScopeId},
    state::{Broken, Phase, State},
};
use contract::{Millis, NodePath, run::NodeStatus};
use std::sync::Arc;

impl State {
    /// How far a loop is that has begun and not ended.
    pub(super) fn looping(&mut self, place: Place) -> Result<&mut LoopState, Broken> {
        let scope = self.scope_mut(place.scope)?;
        scope.nodes[place.node].looping.as_deref_mut().ok_or(Broken::NoScope(place.scope))
    }

    pub(super) fn loop_started(&mut self, path: &NodePath, at: Millis) -> Result<(), Broken> {
        const KIND: &str = "loop_started";
        let place = self.place(KIND, path)?;
        let scope = self.scope_mut(place.scope)?;
        let unknown = || Broken::UnknownNode { kind: KIND, path: path.clone() };
        let Kind::Loop(spec) = &scope.graph.nodes[place.node].kind else { return Err(unknown()) };
        let iterator = scope.input(place.node, "iterator");
        let elements = spec.elements(iterator, scope.is_connected(place.node, "iterator"));
        let looping = LoopState::new(spec, elements.map_err(|_| unknown())?);
        scope.flow.decided(place.node);
        scope.open_loops += 1;
        let node = &mut scope.nodes[place.node];
        node.status = NodeStatus::Running;
        node.started_at = Some(at);
        node.looping = Some(Box::new(looping));
        Ok(())
    }

    pub(super) fn iteration_started(
        &mut self,
        path: &NodePath,
        index: u64,
        at: Millis,
    ) -> Result<(), Broken> {
        const KIND: &str = "iteration_started";
        let place = self.place(KIND, path)?;
        let scope = self.scope(place.scope)?;
        let Kind::Loop(spec) = &scope.graph.nodes[place.node].kind else {
            return Err(Broken::UnknownNode { kind: KIND, path: path.clone() });
        };
        let (body, given) = (Arc::clone(&spec.body), scope.inputs(place.node));
        let inputs = self.looping(place)?.start(index, given);
        let prefix = iteration_prefix(path, index);
        let scope = Scope::new(body, prefix.clone(), Some(place), Arc::new(inputs), at);
        let id = self.next_scope;
        self.next_scope += 1;
        self.by_prefix.insert(prefix, id);
        self.scopes.insert(id, scope);
        Ok(())
    }

    /// The scope of an iteration that runs.
    pub(super) fn iteration(&self, path: &NodePath, index: u64) -> Option<ScopeId> {
        self.by_prefix.get(&iteration_prefix(path, index)).copied()
    }

    /// Which iteration of the loop at `path` a scope is.
    pub(super) fn index_of(&self, scope: ScopeId, path: &NodePath) -> Option<u64> {
        let prefix = self.scopes.get(&scope)?.prefix.as_str();
        prefix.strip_prefix(path.0.as_str())?.strip_prefix('[')?.strip_suffix("]/")?.parse().ok()
    }

    pub(super) fn iteration_finished(&mut self, path: &NodePath, index: u64) -> Result<(), Broken> {
        const KIND: &str = "iteration_finished";
        let place = self.place(KIND, path)?;
        let unknown = || Broken::UnknownNode { kind: KIND, path: path.clone() };
        let id = self.iteration(path, index).ok_or_else(unknown)?;
        let outputs = self.scope(id)?.collected();
        let bytes = self.looping(place)?.finish(index, outputs);
        self.scope_mut(place.scope)?.payload_bytes += bytes;
        self.forget(id);
        Ok(())
    }

    /// An iteration counts as finished that never began: the run that this one repeats did it.
    pub(super) fn iteration_kept(&mut self, kept: &IterationKept) -> Result<(), Broken> {
        const KIND: &str = "iteration_kept";
        let place = self.place(KIND, &kept.node_path)?;
        let bytes = self.looping(place)?.keep(kept.index, Outputs::clone(&kept.outputs));
        self.scope_mut(place.scope)?.payload_bytes += bytes;
        Ok(())
    }

    /// Forgets a scope and those in it; what was said about its attempts is still known.
    fn forget(&mut self, id: ScopeId) {
        let Some(scope) = self.scopes.get(&id) else { return };
        let loops =
            (0..scope.nodes.len()).filter(|node| matches!(scope.graph.nodes[*node].kind, Kind::Loop(_)));
        let inner: Vec<ScopeId> = loops.flat_map(|node| self.under(Place { scope: id, node })).collect();
        inner.into_iter().for_each(|inner| self.remove(inner));
        self.remove(id);
    }

    fn remove(&mut self, id: ScopeId) {
        let Some(scope) = self.scopes.remove(&id) else { return };
        self.by_prefix.remove(&scope.prefix);
        for execution_id in &scope.attempts {
            let canceled = self.attempts.get_mut(execution_id).filter(|a| a.phase == Phase::Canceled);
            if let Some(attempt) = canceled {
                attempt.forgotten_path = Some(scope.path(attempt.place.node));
            }
        }
    }

    /// The scopes of a loop's iterations, and of the loops in them.
    pub(super) fn under(&self, looping: Place) -> Vec<ScopeId> {
        let mut found: Vec<ScopeId> = Vec::new();
        // A scope begins after the one that it lies in, so that one pass finds all.
        for (id, scope) in self.scopes.range(looping.scope + 1..) {
            if scope.of.is_some_and(|of| of == looping || found.contains(&of.scope)) {
                found.push(*id);
            }
        }
        found
    }
}

/// What the paths of an iteration's nodes begin with.
fn iteration_prefix(looping: &NodePath, index: u64) -> String {
    format!("{looping}[{index}]/")
}
