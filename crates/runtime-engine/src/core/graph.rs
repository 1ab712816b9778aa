//! A process compiled for running: nodes, ports and edges as indices, in document order.
//!
//! A graph holds no run state and is shared by all runs of one revision. A loop body is a graph of
//! its own, run in a scope of its own (see the modules `scope` and `looping`).

use super::{
    evaluate::{ERROR_OUTPUT, Extract},
    looping::Loop,
};
use contract::{
    ErrorCode, Fault, Json, RpcError,
    builtin::{self, Runner},
    process::{OnError, Process, Retry, Widget},
};
use indexmap::IndexMap;
use std::collections::{HashMap, HashSet};

/// Place of a node in [`Graph::nodes`].
pub type NodeIndex = usize;
/// Place of an edge in [`Graph::edges`].
pub type EdgeIndex = usize;
/// Place of a port in [`Graph::ports`].
pub type PortIndex = usize;

/// A process, ready to be run.
#[derive(Debug, PartialEq)]
pub struct Graph {
    /// The widgets, in document order.
    pub nodes: Vec<Node>,
    /// The edges, in document order.
    pub edges: Vec<Edge>,
    /// The connected inputs of all nodes.
    pub ports: Vec<Port>,
    /// From the start of a run to its end, when the process limits it.
    pub run_timeout_ms: Option<u64>,
    /// How many runs of the process may be running at the same time, when the process limits it.
    pub max_concurrent_runs: Option<u32>,
    by_id: HashMap<String, NodeIndex>,
}

/// How deep loops may be nested.
pub(super) const MAX_DEPTH: usize = 16;

/// One widget.
#[derive(Debug, PartialEq)]
pub struct Node {
    /// The widget's id.
    pub id: String,
    /// What people see.
    pub label: String,
    /// Its node type.
    pub node_type: String,
    /// Who evaluates it, and how.
    pub kind: Kind,
    /// Its inputs: the fields in document order, then connected handles that no field declares.
    pub inputs: Vec<Input>,
    /// Its connected inputs.
    pub ports: Vec<PortIndex>,
    /// The edges that leave it, in document order.
    pub leaving: Vec<EdgeIndex>,
    /// The names of its outputs; `None`: the widget lists none, which means all.
    pub outputs: Option<Vec<String>>,
    /// Time from ack to result; `None`: the engine's default.
    pub timeout_ms: Option<u64>,
    /// How a failed step is repeated; `None`: it is not.
    pub retry: Option<Retry>,
    /// What a failure does to the run.
    pub on_error: OnError,
}

/// Who evaluates a node.
#[derive(Debug, PartialEq)]
pub enum Kind {
    /// `system.trigger.input`
    Trigger,
    /// `system.output`
    Output,
    /// `system.control.switch`
    Switch,
    /// `system.object.extract`
    Extract(Extract),
    /// `system.loop`
    Loop(Box<Loop>),
    /// `user.validation`
    Validation,
    /// `system.delay`
    Delay,
    /// A task on a lane.
    Task(TaskLane),
}

/// Where tasks go. The service maps these to the queue's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskLane {
    /// To plugins, by control planes.
    Plugin,
    /// Built-in nodes, by executors.
    Executor,
}

impl TaskLane {
    /// The stable name, as in attempt rows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plugin => "plugin",
            Self::Executor => "executor",
        }
    }
}

/// One input of a node.
#[derive(Debug, PartialEq)]
pub struct Input {
    /// Its name.
    pub name: String,
    /// The port, when edges lead into it.
    pub port: Option<PortIndex>,
    /// `value ?? defaultValue`: what it is without an edge.
    pub value: Option<Json>,
    /// Does it refer to a secret?
    pub is_secret: bool,
    /// Must the trigger's payload hold it?
    pub is_required: bool,
}

/// A connected input.
#[derive(Debug, PartialEq)]
pub struct Port {
    /// Whose input.
    pub node: NodeIndex,
    /// The edges into it, in document order; never empty.
    pub edges: Vec<EdgeIndex>,
}

/// An edge.
#[derive(Debug, PartialEq)]
pub struct Edge {
    /// Where it comes from.
    pub source: NodeIndex,
    /// The output of the source.
    pub output: String,
    /// Where it leads.
    pub port: PortIndex,
}

impl Graph {
    /// Compiles a diagram.
    ///
    /// # Errors
    /// `invalid_process` with every fault and its path: duplicate ids, unknown widgets or handles,
    /// cycles, malformed extract maps, node types that this version does not run.
    pub fn compile(process: &Process) -> Result<Self, RpcError> {
        let mut faults = Vec::new();
        let graph = Self::build(process, &mut faults, 0);
        if faults.is_empty() { Ok(graph) } else { Err(invalid(&faults)) }
    }

    /// Compiles a diagram that lies in `depth` loops; what is wrong is added to `faults`.
    pub(super) fn build(process: &Process, faults: &mut Vec<Fault>, depth: usize) -> Self {
        Builder { process, faults, depth, by_id: HashMap::new() }.build()
    }

    /// The node with this id.
    pub fn node_with(&self, id: &str) -> Option<NodeIndex> {
        self.by_id.get(id).copied()
    }

    /// Calls `visit` for every node, those of loop bodies too, in document order.
    pub fn walk<'g>(&'g self, visit: &mut dyn FnMut(&'g Node)) {
        for node in &self.nodes {
            visit(node);
            if let Kind::Loop(spec) = &node.kind {
                spec.body.walk(visit);
            }
        }
    }

    /// The trigger fields that are required and neither in the payload (`null` counts as absent)
    /// nor defaulted, each by its path `$.field`; once each, when several triggers declare it.
    pub fn missing_inputs(&self, payload: &IndexMap<String, Json>) -> Vec<Fault> {
        let mut seen = HashSet::new();
        self.nodes
            .iter()
            .filter(|node| node.kind == Kind::Trigger)
            .flat_map(|node| &node.inputs)
            .filter(|input| input.is_required && input.value.is_none())
            .filter(|input| payload.get(&input.name).is_none_or(Json::is_null))
            .filter(|input| seen.insert(input.name.as_str()))
            .map(|input| Fault {
                path: format!("$.{}", input.name),
                code: "missing_required".to_owned(),
                message: "is required to start the process".to_owned(),
            })
            .collect()
    }

    /// The outputs that edges leave from, each once, in edge order.
    pub fn connected_outputs(&self, node: NodeIndex) -> impl Iterator<Item = &str> {
        let mut seen = HashSet::new();
        let leaving = self.nodes[node].leaving.iter().map(|edge| self.edges[*edge].output.as_str());
        leaving.filter(move |output| seen.insert(*output))
    }

    /// Does an edge leave from this output?
    pub(super) fn is_output_connected(&self, node: NodeIndex, output: &str) -> bool {
        self.connected_outputs(node).any(|name| name == output)
    }

    /// The arms of a switch: its listed outputs, else those that edges leave from.
    pub(super) fn arms(&self, node: NodeIndex) -> Box<dyn Iterator<Item = &str> + '_> {
        match &self.nodes[node].outputs {
            Some(outputs) => Box::new(outputs.iter().map(String::as_str)),
            None => Box::new(self.connected_outputs(node)),
        }
    }

    /// The node types that plugins run, also in loop bodies, each once, in document order.
    pub fn plugin_node_types(&self) -> Vec<&str> {
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        self.walk(&mut |node| {
            if node.kind == Kind::Task(TaskLane::Plugin) && seen.insert(node.node_type.as_str()) {
                found.push(node.node_type.as_str());
            }
        });
        found
    }
}

fn invalid(faults: &[Fault]) -> RpcError {
    RpcError::of_faults(ErrorCode::InvalidProcess, "the process", faults)
}

struct Builder<'p> {
    process: &'p Process,
    faults: &'p mut Vec<Fault>,
    /// How many loops the process lies in.
    depth: usize,
    by_id: HashMap<String, NodeIndex>,
}

impl Builder<'_> {
    fn build(mut self) -> Graph {
        let mut nodes = Vec::with_capacity(self.process.widgets.len());
        for (index, widget) in self.process.widgets.iter().enumerate() {
            if self.by_id.insert(widget.id.clone(), index).is_some() {
                let message = format!("the id {:?} is used by another widget", widget.id);
                self.fault(format!("$.widgets[{index}].id"), "duplicate", message);
            }
            self.check_names(index, widget);
            nodes.push(self.node(index, widget));
        }
        let settings = &self.process.settings;
        let mut graph = Graph {
            nodes,
            edges: Vec::new(),
            ports: Vec::new(),
            run_timeout_ms: settings.timeout_ms,
            max_concurrent_runs: settings.max_concurrent_runs,
            by_id: HashMap::new(),
        };
        self.connect(&mut graph);
        if self.faults.is_empty() {
            self.refuse_cycles(&graph);
        }
        graph.by_id = self.by_id;
        graph
    }

    /// Ids become paths and rows: what would break either is refused here, not in the middle of a run.
    fn check_names(&mut self, index: usize, widget: &Widget) {
        if widget.id.is_empty()
            || widget.id.contains(|c: char| c.is_control() || matches!(c, '/' | '[' | ']'))
        {
            let message = format!("{:?} must not be empty nor hold / [ ] or control characters", widget.id);
            self.fault(format!("$.widgets[{index}].id"), "invalid_id", message);
        }
        if widget.source.node_type.contains(char::is_control) {
            let message = format!("{:?} must not hold control characters", widget.source.node_type);
            self.fault(format!("$.widgets[{index}].source.nodeType"), "invalid_id", message);
        }
    }

    fn node(&mut self, index: usize, widget: &Widget) -> Node {
        let execution = widget.execution.clone().unwrap_or_default();
        Node {
            id: widget.id.clone(),
            label: widget.title().to_owned(),
            node_type: widget.source.node_type.clone(),
            kind: self.kind(index, widget),
            inputs: widget
                .config
                .iter()
                .map(|field| Input {
                    name: field.name.clone(),
                    port: None,
                    value: field.effective().cloned(),
                    is_secret: field.is_secret(),
                    is_required: field.is_required == Some(true),
                })
                .collect(),
            ports: Vec::new(),
            leaving: Vec::new(),
            outputs: widget.outputs.clone(),
            timeout_ms: execution.timeout_ms,
            retry: execution.retry,
            on_error: execution.on_error.unwrap_or(OnError::Fail),
        }
    }

    fn kind(&mut self, index: usize, widget: &Widget) -> Kind {
        let node_type = widget.source.node_type.as_str();
        match (node_type, builtin::runner(node_type)) {
            (builtin::TRIGGER, _) => Kind::Trigger,
            (builtin::OUTPUT, _) => Kind::Output,
            (builtin::SWITCH, _) => Kind::Switch,
            (builtin::EXTRACT, _) => match Extract::compile(widget) {
                Ok(extract) => Kind::Extract(extract),
                Err(message) => {
                    let message = format!("{:?}: {message}", widget.title());
                    self.fault(format!("$.widgets[{index}].config"), "malformed", message);
                    Kind::Output
                }
            },
            (builtin::VALIDATION, _) => Kind::Validation,
            (builtin::DELAY, _) => Kind::Delay,
            (builtin::LOOP, _) => {
                match Loop::compile(widget, &format!("$.widgets[{index}]"), self.faults, self.depth) {
                    Some(spec) => Kind::Loop(Box::new(spec)),
                    None => Kind::Output,
                }
            }
            (_, Some(Runner::Executor)) => Kind::Task(TaskLane::Executor),
            (_, None | Some(Runner::Engine)) => Kind::Task(TaskLane::Plugin),
        }
    }

    fn connect(&mut self, graph: &mut Graph) {
        let mut ports: HashMap<(NodeIndex, &str), PortIndex> = HashMap::new();
        for (index, edge) in self.process.edges.iter().enumerate() {
            let source = self.end(index, "source", &edge.source);
            let target = self.end(index, "target", &edge.target);
            let (Some(source), Some(target)) = (source, target) else { continue };
            if !graph.nodes[source].may_produce(&edge.source_handle) {
                let message =
                    format!("{:?} has no output {:?}", graph.nodes[source].label, edge.source_handle);
                self.fault(format!("$.edges[{index}].sourceHandle"), "unknown_handle", message);
                continue;
            }
            let port = *ports.entry((target, edge.target_handle.as_str())).or_insert_with(|| {
                graph.ports.push(Port { node: target, edges: Vec::new() });
                graph.nodes[target].connect(&edge.target_handle, graph.ports.len() - 1);
                graph.ports.len() - 1
            });
            let place = graph.edges.len();
            graph.edges.push(Edge { source, output: edge.source_handle.clone(), port });
            graph.ports[port].edges.push(place);
            graph.nodes[source].leaving.push(place);
        }
    }

    fn end(&mut self, edge: usize, end: &str, id: &str) -> Option<NodeIndex> {
        let index = self.by_id.get(id).copied();
        if index.is_none() {
            let message = format!("no widget has the id {id:?}");
            self.fault(format!("$.edges[{edge}].{end}"), "unknown_widget", message);
        }
        index
    }

    /// Kahn's algorithm: a node that is never freed lies on a cycle or behind one.
    fn refuse_cycles(&mut self, graph: &Graph) {
        let mut entering: Vec<usize> = graph
            .nodes
            .iter()
            .map(|node| node.ports.iter().map(|port| graph.ports[*port].edges.len()).sum())
            .collect();
        let mut free: Vec<NodeIndex> = (0..graph.nodes.len()).filter(|node| entering[*node] == 0).collect();
        while let Some(node) = free.pop() {
            for edge in &graph.nodes[node].leaving {
                let target = graph.ports[graph.edges[*edge].port].node;
                entering[target] -= 1;
                if entering[target] == 0 {
                    free.push(target);
                }
            }
        }
        let bound: Vec<&str> = graph
            .nodes
            .iter()
            .zip(&entering)
            .filter(|(_, entering)| **entering > 0)
            .map(|(node, _)| node.id.as_str())
            .collect();
        if !bound.is_empty() {
            let message = format!("the widgets {} lie on a cycle or behind one", bound.join(", "));
            self.fault("$.edges".to_owned(), "cycle", message);
        }
    }

    fn fault(&mut self, path: String, code: &str, message: String) {
        self.faults.push(Fault { path, code: code.to_owned(), message });
    }
}

impl Node {
    /// May an edge leave from this output?
    fn may_produce(&self, output: &str) -> bool {
        let Some(declared) = &self.outputs else { return true };
        let is_error = output == ERROR_OUTPUT && self.on_error == OnError::Continue;
        if is_error || declared.iter().any(|name| name == output) {
            return true;
        }
        match &self.kind {
            Kind::Trigger => output == "trigger" || self.inputs.iter().any(|input| input.name == output),
            Kind::Extract(extract) => extract.outputs().any(|name| name == output),
            Kind::Output => self.inputs.iter().any(|input| input.name == output),
            Kind::Loop(_) => matches!(output, "items" | "last"),
            Kind::Validation => matches!(output, "confirm" | "reject"),
            Kind::Delay => output == "value",
            Kind::Switch | Kind::Task(_) => false,
        }
    }

    fn connect(&mut self, handle: &str, port: PortIndex) {
        self.ports.push(port);
        match self.inputs.iter_mut().find(|input| input.name == handle) {
            Some(input) => input.port = Some(port),
            None => self.inputs.push(Input {
                name: handle.to_owned(),
                port: Some(port),
                value: None,
                is_secret: false,
                is_required: false,
            }),
        }
    }
}

#[cfg(test)]
#[path = "graph_tests.rs"]
mod tests;
