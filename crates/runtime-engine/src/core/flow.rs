//! The rules of data flow in one scope (protocol section 7, rules 1 and 2): which edges have
//! produced, which ports are alive or dead, which nodes are settled.
//!
//! Each port keeps the first of its edges that can still decide it, each node counts its unsettled
//! ports: settling an edge costs what it changes, however large the graph is.

use super::graph::{EdgeIndex, Graph, NodeIndex, PortIndex};
use std::collections::VecDeque;

/// What is known of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EdgeState {
    /// Its source has not ended.
    Pending,
    /// Its source ended with a value for it.
    Produced,
    /// Its source ended without.
    Dead,
}

/// What is known of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortState {
    /// The edge at this place of the port's list decides next; all before it are dead.
    Unsettled(usize),
    /// This edge's value is the port's value.
    Alive(EdgeIndex),
    /// No edge can produce any more.
    Dead,
}

/// Ports of a node that are not settled, and those that are dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodePorts {
    unsettled: usize,
    dead: usize,
}

/// What a settled node may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// All connected ports are alive.
    AllAlive,
    /// Some, not all, are dead.
    SomeDead,
    /// It has connected ports and all are dead.
    AllDead,
}

/// The flow of one graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    edges: Vec<EdgeState>,
    ports: Vec<PortState>,
    nodes: Vec<NodePorts>,
    /// Settled nodes about which nothing is decided yet, in the order in which they settled.
    settled: VecDeque<NodeIndex>,
}

impl Flow {
    /// The flow before anything has happened: nodes without connected ports are settled.
    pub(super) fn new(graph: &Graph) -> Self {
        let nodes: Vec<NodePorts> =
            graph.nodes.iter().map(|node| NodePorts { unsettled: node.ports.len(), dead: 0 }).collect();
        let settled = (0..nodes.len()).filter(|node| nodes[*node].unsettled == 0).collect();
        Self {
            edges: vec![EdgeState::Pending; graph.edges.len()],
            ports: vec![PortState::Unsettled(0); graph.ports.len()],
            nodes,
            settled,
        }
    }

    /// The next settled node about which nothing is decided.
    pub(super) fn next_settled(&self) -> Option<NodeIndex> {
        self.settled.front().copied()
    }

    /// Something was decided about a settled node. Decisions are made in the order of settling, so
    /// the search ends at once.
    pub(super) fn decided(&mut self, node: NodeIndex) {
        if let Some(place) = self.settled.iter().position(|settled| *settled == node) {
            self.settled.remove(place);
        }
    }

    /// How a settled node's ports stand.
    pub(super) fn readiness(&self, graph: &Graph, node: NodeIndex) -> Readiness {
        match self.nodes[node].dead {
            0 => Readiness::AllAlive,
            dead if dead == graph.nodes[node].ports.len() => Readiness::AllDead,
            _ => Readiness::SomeDead,
        }
    }

    /// How a port stands.
    pub(super) fn port(&self, port: PortIndex) -> PortState {
        self.ports[port]
    }

    /// The edge that decides next about an unsettled port.
    pub(super) fn deciding(&self, graph: &Graph, port: PortIndex) -> Option<EdgeIndex> {
        match self.ports[port] {
            PortState::Unsettled(next) => graph.ports[port].edges.get(next).copied(),
            PortState::Alive(_) | PortState::Dead => None,
        }
    }

    /// A node has ended: each leaving edge has produced when `produces` holds its output, else it
    /// is dead.
    pub(super) fn node_ended(&mut self, graph: &Graph, node: NodeIndex, produces: impl Fn(&str) -> bool) {
        for edge in &graph.nodes[node].leaving {
            let produced = produces(&graph.edges[*edge].output);
            self.edges[*edge] = if produced { EdgeState::Produced } else { EdgeState::Dead };
            self.settle_port(graph, graph.edges[*edge].port);
        }
    }

    fn settle_port(&mut self, graph: &Graph, port: PortIndex) {
        let PortState::Unsettled(mut next) = self.ports[port] else { return };
        let entering = &graph.ports[port].edges;
        while let Some(edge) = entering.get(next) {
            match self.edges[*edge] {
                EdgeState::Pending => {
                    self.ports[port] = PortState::Unsettled(next);
                    return;
                }
                EdgeState::Produced => {
                    self.ports[port] = PortState::Alive(*edge);
                    return self.port_settled(graph, port);
                }
                EdgeState::Dead => next += 1,
            }
        }
        self.ports[port] = PortState::Dead;
        self.port_settled(graph, port);
    }

    fn port_settled(&mut self, graph: &Graph, port: PortIndex) {
        let node = graph.ports[port].node;
        let ports = &mut self.nodes[node];
        ports.unsettled -= 1;
        if self.ports[port] == PortState::Dead {
            ports.dead += 1;
        }
        if ports.unsettled == 0 {
            self.settled.push_back(node);
        }
    }
}
