//! A naive interpreter of the flow rules, written straight from protocol section 7: it looks at the
//! whole graph again and again until nothing changes. Slow, obviously right, and independent of the
//! engine's bookkeeping.

use contract::run::NodeStatus;
use std::collections::BTreeMap;

/// A node of a random process.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    /// For tasks: which of the outputs `o0`, `o1` its result holds; `None`: it fails under
    /// `onError: continue`, and produces `error`.
    pub(super) produces: Option<[bool; 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Task,
    Output,
}

/// The number of the output `error`.
pub(super) const ERROR: usize = 2;

/// An edge: source node, its output, target node, its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) source: usize,
    pub(super) output: usize,
    pub(super) target: usize,
    pub(super) port: usize,
}

/// How a random process ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) statuses: Vec<NodeStatus>,
    /// By node and port, the source node and output whose value the port took.
    pub(super) inputs: BTreeMap<(usize, usize), (usize, usize)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Port {
    Alive(Edge),
    Dead,
    Unsettled,
}

pub(super) fn interpret(nodes: &[Node], edges: &[Edge]) -> End {
    let mut statuses = vec![NodeStatus::Waiting; nodes.len()];
    let mut inputs = BTreeMap::new();
    loop {
        let before = statuses.clone();
        for node in 0..nodes.len() {
            if statuses[node] != NodeStatus::Waiting {
                continue;
            }
            let ports = ports_of(node, nodes, edges, &statuses);
            if ports.values().any(|port| *port == Port::Unsettled) {
                continue;
            }
            let dead = ports.values().filter(|port| **port == Port::Dead).count();
            let skipped = match nodes[node].kind {
                Kind::Task => dead > 0,
                Kind::Output => dead > 0 && dead == ports.len(),
            };
            statuses[node] = match (skipped, nodes[node].produces) {
                (true, _) => NodeStatus::Skipped,
                (false, None) if nodes[node].kind == Kind::Task => NodeStatus::Failed,
                (false, _) => NodeStatus::Finished,
            };
            if !skipped {
                for (port, state) in ports {
                    if let Port::Alive(edge) = state {
                        inputs.insert((node, port), (edge.source, edge.output));
                    }
                }
            }
        }
        if statuses == before {
            return End { statuses, inputs };
        }
    }
}

fn ports_of(node: usize, nodes: &[Node], edges: &[Edge], statuses: &[NodeStatus]) -> BTreeMap<usize, Port> {
    let mut ports = BTreeMap::new();
    for edge in edges.iter().filter(|edge| edge.target == node) {
        let port = ports.entry(edge.port).or_insert(Port::Dead);
        // Alive or unsettled by an earlier edge: this one does not matter (any more).
        if *port != Port::Dead {
            continue;
        }
        let source = &nodes[edge.source];
        *port = match statuses[edge.source] {
            NodeStatus::Waiting => Port::Unsettled,
            NodeStatus::Failed if edge.output == ERROR => Port::Alive(*edge),
            NodeStatus::Finished
                if source.produces.is_some_and(|produces| produces.get(edge.output) == Some(&true)) =>
            {
                Port::Alive(*edge)
            }
            _ => Port::Dead,
        };
    }
    ports
}
