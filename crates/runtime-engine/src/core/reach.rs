//! Where the value of an output may go: does the engine ever look into it? A value that it only hands
//! on may lie in a file instead of in the history (protocol section 3, *Large outputs*).
//!
//! The answer is about the diagram, not about a run: whatever way the run takes, it holds.

use super::graph::{Graph, Kind, NodeIndex};
use contract::NodePath;
use std::collections::HashSet;

/// Outputs of a loop that hold those of its iterations.
const GATHERED: [&str; 2] = ["items", "last"];

/// A place in nested loops: the loops that lead there from the outermost graph.
type Around = Vec<NodeIndex>;

/// Follows values through the graph and the bodies of its loops.
struct Walk<'g> {
    root: &'g Graph,
    seen: HashSet<(Around, NodeIndex, String, bool)>,
}

impl Graph {
    /// May the value of this output lie in a file? Not when a switch, an extract, a loop or a delay
    /// may look into it, also by way of loops around or behind the node.
    pub fn may_lie_in_file(&self, path: &NodePath, output: &str) -> bool {
        let Some((around, node)) = self.locate(path) else { return false };
        let mut walk = Walk { root: self, seen: HashSet::new() };
        !walk.is_looked_into(&around, node, output, false)
    }

    /// The node at a path, and the loops around it.
    fn locate(&self, path: &NodePath) -> Option<(Around, NodeIndex)> {
        let mut graph = self;
        let mut around = Around::new();
        let (loops, id) = path.0.rsplit_once('/').map_or(("", path.0.as_str()), |(loops, id)| (loops, id));
        for iteration in loops.split('/').filter(|part| !part.is_empty()) {
            let index = graph.node_with(iteration.split('[').next()?)?;
            around.push(index);
            graph = graph.body_of(index)?;
        }
        Some((around, graph.node_with(id)?))
    }

    fn body_of(&self, index: NodeIndex) -> Option<&Self> {
        match &self.nodes.get(index)?.kind {
            Kind::Loop(spec) => Some(&spec.body),
            _ => None,
        }
    }
}

impl<'g> Walk<'g> {
    fn graph(&self, around: &Around) -> Option<&'g Graph> {
        around.iter().try_fold(self.root, |graph, index| graph.body_of(*index))
    }

    /// `is_part`: the value stands within another one here, of which only the outside may be looked at.
    fn is_looked_into(&mut self, around: &Around, node: NodeIndex, output: &str, is_part: bool) -> bool {
        if !self.seen.insert((around.clone(), node, output.to_owned(), is_part)) {
            return false;
        }
        let Some(graph) = self.graph(around) else { return true };
        graph.nodes[node].leaving.iter().map(|edge| &graph.edges[*edge]).any(|edge| {
            let target = graph.ports[edge.port].node;
            let mut inputs = graph.nodes[target].inputs.iter();
            let input = inputs.find(|input| input.port == Some(edge.port));
            edge.output == output
                && input.is_some_and(|input| self.enters(around, target, &input.name, is_part))
        })
    }

    fn enters(&mut self, around: &Around, target: NodeIndex, input: &str, is_part: bool) -> bool {
        let Some(graph) = self.graph(around) else { return true };
        match &graph.nodes[target].kind {
            Kind::Task(_) | Kind::Validation | Kind::Trigger => false,
            Kind::Switch => input == "value",
            Kind::Extract(_) => input == "source",
            Kind::Delay => input != "value" || self.is_looked_into(around, target, "value", is_part),
            Kind::Loop(_) => match input {
                // The list is taken apart; what is in its elements is not.
                "iterator" => !is_part || self.begins(around, target, "item", true),
                "body" | "mode" | "concurrency" | "maxIterations" => true,
                free => self.begins(around, target, free, is_part),
            },
            Kind::Output => {
                self.is_looked_into(around, target, input, is_part) || self.ends(around, input, is_part)
            }
        }
    }

    /// The value is an input of the loop's iterations.
    fn begins(&mut self, around: &Around, target: NodeIndex, input: &str, is_part: bool) -> bool {
        let inside: Around = around.iter().copied().chain([target]).collect();
        self.triggers(&inside, input, is_part)
    }

    /// The value is an output of an iteration, unless this is the outermost graph.
    fn ends(&mut self, around: &Around, output: &str, is_part: bool) -> bool {
        let Some((looping, outside)) = around.split_last() else { return false };
        let outside = outside.to_vec();
        output == "continueLoop"
            || GATHERED.iter().any(|name| self.is_looked_into(&outside, *looping, name, true))
            // The next iteration may begin with it.
            || self.triggers(around, output, is_part)
    }

    fn triggers(&mut self, inside: &Around, input: &str, is_part: bool) -> bool {
        let Some(graph) = self.graph(inside) else { return true };
        let triggers = graph.nodes.iter().enumerate().filter(|(_, node)| node.kind == Kind::Trigger);
        let triggers: Vec<NodeIndex> = triggers.map(|(index, _)| index).collect();
        triggers.into_iter().any(|trigger| {
            // `trigger` holds all that the iteration began with.
            self.is_looked_into(inside, trigger, input, is_part)
                || self.is_looked_into(inside, trigger, "trigger", true)
        })
    }
}
