//! How a run goes on: settled nodes start, loops begin their iterations, scopes end.
//!
//! A failure halts the scope that it fails: nothing starts there any more, what nobody works on yet
//! is withdrawn, what runs is waited for. Only then the loop, or the run, has failed.

use super::{
    decide::Turn,
    decision::{Awaited, Opened},
    evaluate::{self, Outputs},
    event::{
        Event, Failure, Iteration, IterationKept, LoopStarted, RunFailed, RunFinished, StepCanceled,
        StepEvaluated, StepFailed, StepKept, StepScheduled, StepSkipped,
    },
    flow::Readiness,
    graph::{Kind, NodeIndex},
    looping::{Loop, Next},
    scope::{Place, ScopeId},
    state::{Broken, Phase, State},
};
use contract::{
    ErrorCode, ExecutionId, Millis, NodePath,
    report::StepError,
    run::{NodeStatus, RunError},
};
use std::sync::Arc;

/// Events that one decision may hold before its loops are stopped: a loop whose body has no task
/// would otherwise fill the history in one transaction.
const MOST_EVENTS: usize = 200_000;

/// What a failure stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Halt {
    /// The whole run.
    Run,
    /// All iterations of this loop.
    Loop(Place),
}

impl State {
    /// What has been stopped around a scope, the outermost; `None`: it goes on.
    fn halt(&self, scope: ScopeId) -> Result<Option<Halt>, Broken> {
        let mut halt = None;
        let mut of = self.scope(scope)?.of;
        while let Some(looping) = of {
            let scope = self.scope(looping.scope)?;
            let own = scope.nodes[looping.node].looping.as_ref().ok_or(Broken::NoScope(looping.scope))?;
            if own.failure.is_some() {
                halt = Some(Halt::Loop(looping));
            }
            of = scope.of;
        }
        Ok(if self.failure.is_some() { Some(Halt::Run) } else { halt })
    }

    pub(super) fn is_halted(&self, scope: ScopeId) -> Result<bool, Broken> {
        Ok(self.halt(scope)?.is_some())
    }

    /// Is the scope the process or an iteration of a loop that runs?
    fn is_live(&self, scope: ScopeId) -> bool {
        let mut at = scope;
        while let Some(scope) = self.scopes.get(&at) {
            match scope.of {
                None => return !self.status.is_terminal(),
                Some(of) => {
                    let around = self.scopes.get(&of.scope);
                    if around.is_none_or(|around| around.nodes[of.node].looping.is_none()) {
                        return false;
                    }
                    at = of.scope;
                }
            }
        }
        false
    }
}

impl Turn<'_> {
    /// Decides about every settled node of the scope and of whatever that leads to, and about the
    /// ends of scopes.
    pub(super) fn go_on(&mut self, scope: ScopeId) -> Result<(), Broken> {
        let mut open = vec![scope];
        while let Some(scope) = open.pop() {
            if self.state.is_live(scope) {
                self.advance(scope, &mut open)?;
            }
        }
        Ok(())
    }

    fn advance(&mut self, scope: ScopeId, open: &mut Vec<ScopeId>) -> Result<(), Broken> {
        let mut halt = self.state.halt(scope)?;
        while halt.is_none()
            && let Some(node) = self.state.scope(scope)?.flow.next_settled()
        {
            self.settled(Place { scope, node }, open)?;
            halt = self.state.halt(scope)?;
        }
        if let Some(halt) = halt {
            return self.halted(halt, open);
        }
        let at = self.state.scope(scope)?;
        if at.open_attempts > 0 || at.open_loops > 0 {
            return Ok(());
        }
        match at.of {
            None => {
                self.close_deadline();
                self.emit(Event::RunFinished(RunFinished {}))
            }
            Some(looping) => self.iteration_over(scope, looping, open),
        }
    }

    /// What was stopped ends when nothing of it runs any more.
    fn halted(&mut self, halt: Halt, open: &mut Vec<ScopeId>) -> Result<(), Broken> {
        let running = match halt {
            Halt::Run => {
                // Each of those that are waited for comes here when it ends: once is enough to look
                // for what nobody works on.
                if self.state.queued > 0 {
                    let all: Vec<ScopeId> = self.state.scopes.keys().copied().collect();
                    all.into_iter().try_for_each(|scope| self.withdraw_in(scope, false))?;
                }
                self.state.outstanding
            }
            Halt::Loop(looping) => {
                let mut running = 0;
                for scope in self.state.under(looping) {
                    self.withdraw_in(scope, false)?;
                    running += self.state.scope(scope)?.open_attempts;
                }
                running
            }
        };
        if running > 0 {
            return Ok(());
        }
        match halt {
            Halt::Run => {
                self.close_deadline();
                match self.state.failure.clone() {
                    Some(error) => self.emit(Event::RunFailed(RunFailed { error })),
                    None => Ok(()),
                }
            }
            Halt::Loop(looping) => {
                let own = self.state.looping(looping)?;
                let error = own.failure.as_ref().map(within_loop).unwrap_or_default();
                self.evaluation_failed(looping, error)?;
                open.push(looping.scope);
                Ok(())
            }
        }
    }

    fn settled(&mut self, place: Place, open: &mut Vec<ScopeId>) -> Result<(), Broken> {
        let scope = self.state.scope(place.scope)?;
        let graph = Arc::clone(&scope.graph);
        let node_path = scope.path(place.node);
        let node = &graph.nodes[place.node];
        match (scope.flow.readiness(&graph, place.node), &node.kind) {
            (Readiness::AllAlive, _) | (Readiness::SomeDead, Kind::Output) => {}
            _ => return self.emit(Event::StepSkipped(StepSkipped { node_path })),
        }
        if let Some(outputs) = self.kept.take_step(&node_path) {
            return self.emit(Event::StepKept(StepKept { node_path, outputs }));
        }
        match &node.kind {
            Kind::Task(_) => self.schedule(place, None),
            Kind::Validation => self.ask_person(place),
            Kind::Delay => self.wait_for_time(place),
            Kind::Loop(spec) => self.start_loop(place, spec, open),
            Kind::Trigger | Kind::Output => {
                self.emit(Event::StepEvaluated(StepEvaluated { node_path, outputs: None }))
            }
            Kind::Switch => {
                let outputs = evaluate::switch(graph.arms(place.node), scope.input(place.node, "value"));
                self.evaluated(node_path, outputs)
            }
            Kind::Extract(extract) => match extract.evaluate(scope.input(place.node, "source")) {
                Ok(outputs) => self.evaluated(node_path, outputs),
                Err(message) => {
                    self.evaluation_failed(place, StepError::of(ErrorCode::InvalidNodeInput, message))
                }
            },
        }
    }

    pub(super) fn evaluated(&mut self, node_path: NodePath, outputs: Outputs) -> Result<(), Broken> {
        self.emit(Event::StepEvaluated(StepEvaluated { node_path, outputs: Some(Arc::new(outputs.into())) }))
    }

    /// A node failed that the engine evaluates.
    pub(super) fn evaluation_failed(&mut self, place: Place, error: StepError) -> Result<(), Broken> {
        self.emit(Event::StepFailed(StepFailed {
            node_path: self.state.path(place)?,
            execution_id: None,
            failure: Failure::Evaluation,
            error,
            will_retry: false,
            error_output: self.goes_on_after(place)?,
            digest: None,
            traceparent: None,
            tracestate: None,
        }))
    }

    pub(super) fn schedule(&mut self, place: Place, not_before: Option<Millis>) -> Result<(), Broken> {
        let Kind::Task(lane) = self.state.scope(place.scope)?.graph.nodes[place.node].kind else {
            return Ok(());
        };
        let awaited = Awaited::Task {
            lane,
            publish_at: not_before.unwrap_or_else(|| self.now.plus(self.policy.republish_after)),
            is_due: not_before.is_none(),
        };
        self.open(place, awaited, not_before)
    }

    /// A new attempt becomes outstanding.
    pub(super) fn open(
        &mut self,
        place: Place,
        awaited: Awaited,
        not_before: Option<Millis>,
    ) -> Result<(), Broken> {
        let execution_id = self.draw.execution_id();
        let scope = self.state.scope(place.scope)?;
        let (node_path, attempt) = (scope.path(place.node), scope.nodes[place.node].attempts + 1);
        self.decision.opened.push(Opened {
            execution_id,
            node_path: node_path.clone(),
            node_type: scope.graph.nodes[place.node].node_type.clone(),
            attempt,
            awaited,
        });
        self.emit(Event::StepScheduled(StepScheduled { node_path, execution_id, attempt, not_before }))
    }

    fn start_loop(&mut self, place: Place, spec: &Loop, open: &mut Vec<ScopeId>) -> Result<(), Broken> {
        let scope = self.state.scope(place.scope)?;
        let is_connected = scope.is_connected(place.node, "iterator");
        match spec.elements(scope.input(place.node, "iterator"), is_connected) {
            Ok(elements) => {
                let iterations = elements.map(|elements| elements.len() as u64);
                let node_path = scope.path(place.node);
                let kept = self.kept.take_iterations(&node_path, iterations);
                self.emit(Event::LoopStarted(LoopStarted { node_path: node_path.clone(), iterations }))?;
                for (index, outputs) in kept {
                    let node_path = node_path.clone();
                    self.emit(Event::IterationKept(IterationKept { node_path, index, outputs }))?;
                }
                self.loop_goes_on(place, open)
            }
            Err(message) => {
                self.evaluation_failed(place, StepError::of(ErrorCode::InvalidNodeInput, message))
            }
        }
    }

    /// Starts the iterations that may start, or ends the loop.
    fn loop_goes_on(&mut self, place: Place, open: &mut Vec<ScopeId>) -> Result<(), Broken> {
        let node_path = self.state.path(place)?;
        loop {
            match self.state.looping(place)?.next() {
                Next::Wait => return Ok(()),
                Next::Start(_) if self.decision.events.len() >= MOST_EVENTS => {
                    let message = format!(
                        "the loop made {MOST_EVENTS} events without waiting for any task; loop less, or in several steps"
                    );
                    return self.stop_loop(place, StepError::of(ErrorCode::LoopLimit, message), open);
                }
                Next::Start(index) => {
                    let iteration = Iteration { node_path: node_path.clone(), index };
                    self.emit(Event::IterationStarted(iteration))?;
                    open.extend(self.state.iteration(&node_path, index));
                }
                Next::Done => {
                    self.emit(Event::StepEvaluated(StepEvaluated { node_path, outputs: None }))?;
                    open.push(place.scope);
                    return Ok(());
                }
                Next::Limit(limit) => {
                    let message = format!("the loop needs more than {limit} iterations; raise maxIterations");
                    return self.stop_loop(place, StepError::of(ErrorCode::LoopLimit, message), open);
                }
            }
        }
    }

    /// The loop fails at once; whatever runs in it is withdrawn.
    fn stop_loop(&mut self, place: Place, error: StepError, open: &mut Vec<ScopeId>) -> Result<(), Broken> {
        for scope in self.state.under(place) {
            self.withdraw_in(scope, true)?;
        }
        self.evaluation_failed(place, error)?;
        open.push(place.scope);
        Ok(())
    }

    fn iteration_over(
        &mut self,
        scope: ScopeId,
        looping: Place,
        open: &mut Vec<ScopeId>,
    ) -> Result<(), Broken> {
        let node_path = self.state.path(looping)?;
        let Some(index) = self.state.index_of(scope, &node_path) else { return Ok(()) };
        self.emit(Event::IterationFinished(Iteration { node_path, index }))?;
        self.loop_goes_on(looping, open)
    }

    /// Withdraws the attempts of a scope that nobody works on yet, or all of them.
    fn withdraw_in(&mut self, scope: ScopeId, also_running: bool) -> Result<(), Broken> {
        let at = self.state.scope(scope)?;
        let newest: Vec<(NodeIndex, ExecutionId)> = at
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| matches!(node.status, NodeStatus::Queued | NodeStatus::Running))
            .filter_map(|(index, node)| Some((index, node.newest?)))
            .collect();
        for (node, execution_id) in newest {
            let phase = self.state.phase(execution_id);
            if phase == Some(Phase::Queued) || (also_running && phase == Some(Phase::Running)) {
                let node_path = self.state.path(Place { scope, node })?;
                self.withdraw(execution_id);
                self.emit(Event::StepCanceled(StepCanceled { node_path, execution_id }))?;
            }
        }
        Ok(())
    }

    /// Closes an attempt; one that this very decision opened never comes into being outside.
    pub(super) fn withdraw(&mut self, execution_id: ExecutionId) {
        let before = self.decision.opened.len();
        self.decision.opened.retain(|opened| opened.execution_id != execution_id);
        if self.decision.opened.len() == before {
            self.decision.closed.push(execution_id);
            self.decision.withdrawn.push(execution_id);
        }
    }
}

/// The error of a loop in which a step failed: it names the step.
fn within_loop(cause: &RunError) -> StepError {
    let place = cause.node_path.as_ref().map(|path| path.0.as_str()).unwrap_or_default();
    let label = cause.label.as_deref().unwrap_or_default();
    StepError {
        message: format!("{label:?} ({place}) failed: {}", cause.error.message),
        ..cause.error.clone()
    }
}
