//! What can never run, as far as the drawing alone tells (protocol section 7, rules of data flow).

use super::{Edge, Widget};
use crate::builtin;
use std::collections::{BTreeSet, HashMap};

/// By node that opens exactly one of its outputs, the outputs of which one must have opened.
type Needs<'g> = HashMap<&'g str, BTreeSet<&'g str>>;

/// A graph without cycles whose handles exist.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawing<'g> {
    /// Its nodes.
    pub(super) widgets: &'g [&'g Widget],
    /// Its edges.
    pub(super) edges: &'g [&'g Edge],
}

/// What a node's ports come to.
#[derive(Clone, Debug)]
enum Fate<'g> {
    /// It may run; then these outputs were open.
    May(Needs<'g>),
    /// This port is never alive.
    Never(Cause<'g>),
}

/// Why a node never runs.
#[derive(Clone, Copy, Debug)]
enum Cause<'g> {
    /// Nothing that feeds this port ever runs.
    Port(&'g str),
    /// It waits for outputs of this node of which only one ever opens.
    Exclusive(&'g str),
}

impl<'g> Drawing<'g> {
    /// Remarks: the node's place, a stable code, words.
    pub(super) fn remarks(&self) -> Vec<(usize, &'static str, String)> {
        let title = |id: &str| self.widgets.iter().find(|widget| widget.id == id).map_or("", |w| w.title());
        let fates = self.fates();
        let joined = self.joined();
        let mut remarks = Vec::new();
        for (place, widget) in self.widgets.iter().enumerate() {
            if let Some(Fate::Never(cause)) = fates.get(widget.id.as_str()) {
                let reason = match cause {
                    Cause::Port(port) => format!("nothing that feeds its input {port:?} ever runs"),
                    Cause::Exclusive(node) => format!(
                        "it waits for several outputs of {:?}, of which only one ever opens; lead them into one input",
                        title(node)
                    ),
                };
                remarks.push((place, "dead_node", format!("{:?} never runs: {reason}", widget.title())));
            }
            if !joined.is_empty() && !joined.contains(widget.id.as_str()) {
                let message = format!(
                    "{:?} is not connected to the trigger: it runs at every start, whatever started it; \
                     connect it or remove it",
                    widget.title()
                );
                remarks.push((place, "unreachable_node", message));
            }
        }
        remarks
    }

    /// What becomes of each node. It errs on the side of life: what depends on values may run.
    fn fates(&self) -> HashMap<&'g str, Fate<'g>> {
        let mut entering: HashMap<&str, Vec<&'g Edge>> = HashMap::new();
        let mut leaving: HashMap<&str, Vec<&'g str>> = HashMap::new();
        for edge in self.edges {
            entering.entry(&edge.target).or_default().push(edge);
            leaving.entry(&edge.source).or_default().push(&edge.target);
        }
        let by_id: HashMap<&str, &'g Widget> = self.widgets.iter().map(|w| (w.id.as_str(), *w)).collect();
        let mut open: HashMap<&str, usize> = entering.iter().map(|(id, edges)| (*id, edges.len())).collect();
        let mut ready: Vec<&'g Widget> =
            self.widgets.iter().copied().filter(|w| !open.contains_key(w.id.as_str())).collect();
        let mut fates = HashMap::new();
        while let Some(widget) = ready.pop() {
            let edges = entering.get(widget.id.as_str()).map_or(&[][..], Vec::as_slice);
            let ports = edges.iter().map(|edge| (edge.target_handle.as_str(), needs(edge, &by_id, &fates)));
            let fate = fate(widget, ports);
            fates.insert(widget.id.as_str(), fate);
            for target in leaving.get(widget.id.as_str()).into_iter().flatten() {
                let Some(left) = open.get_mut(target) else { continue };
                *left -= 1;
                if *left == 0 {
                    ready.extend(by_id.get(target));
                }
            }
        }
        fates
    }

    /// The nodes that edges join to a trigger, in either direction; none when there is no trigger.
    fn joined(&self) -> BTreeSet<&'g str> {
        let mut beside: HashMap<&str, Vec<&'g str>> = HashMap::new();
        for edge in self.edges {
            beside.entry(&edge.source).or_default().push(&edge.target);
            beside.entry(&edge.target).or_default().push(&edge.source);
        }
        let is_trigger = |widget: &&&Widget| widget.source.node_type == builtin::TRIGGER;
        let mut found: Vec<&'g str> =
            self.widgets.iter().filter(is_trigger).map(|widget| widget.id.as_str()).collect();
        let mut joined = BTreeSet::new();
        while let Some(id) = found.pop() {
            if joined.insert(id) {
                found.extend(beside.get(id).into_iter().flatten());
            }
        }
        joined
    }
}

/// What must be open for the edge to produce; `None` when it never does.
fn needs<'g>(
    edge: &'g Edge,
    by_id: &HashMap<&str, &'g Widget>,
    fates: &HashMap<&str, Fate<'g>>,
) -> Option<Needs<'g>> {
    let Some(Fate::May(needs)) = fates.get(edge.source.as_str()) else { return None };
    let mut needs = needs.clone();
    let source = by_id.get(edge.source.as_str())?;
    if matches!(source.source.node_type.as_str(), builtin::SWITCH | builtin::VALIDATION) {
        needs.insert(&edge.source, BTreeSet::from([edge.source_handle.as_str()]));
    }
    Some(needs)
}

fn fate<'g>(widget: &Widget, edges: impl Iterator<Item = (&'g str, Option<Needs<'g>>)>) -> Fate<'g> {
    let mut ports: Vec<(&str, Option<Needs<'g>>)> = Vec::new();
    for (port, needs) in edges {
        match ports.iter_mut().find(|(name, _)| *name == port) {
            Some((_, known)) => *known = either(known.take(), needs),
            None => ports.push((port, needs)),
        }
    }
    if widget.source.node_type == builtin::OUTPUT
        && let Some((first, _)) = ports.first()
    {
        // It collects what is alive: one port is enough.
        let never = Fate::Never(Cause::Port(first));
        let any = ports.into_iter().fold(None, |known, (_, needs)| either(known, needs));
        return any.map_or(never, Fate::May);
    }
    let mut all = Needs::new();
    for (port, needs) in ports {
        let Some(needs) = needs else { return Fate::Never(Cause::Port(port)) };
        if let Err(node) = both(&mut all, needs) {
            return Fate::Never(Cause::Exclusive(node));
        }
    }
    Fate::May(all)
}

/// One of two is enough: only what both need is needed.
fn either<'g>(one: Option<Needs<'g>>, other: Option<Needs<'g>>) -> Option<Needs<'g>> {
    let (mut one, other) = match (one, other) {
        (Some(one), Some(other)) => (one, other),
        (only, None) | (None, only) => return only,
    };
    one.retain(|node, _| other.contains_key(node));
    for (node, outputs) in &mut one {
        outputs.extend(other.get(node).into_iter().flatten());
    }
    Some(one)
}

/// Both are needed; the error is the node that cannot give both.
fn both<'g>(all: &mut Needs<'g>, more: Needs<'g>) -> Result<(), &'g str> {
    for (node, outputs) in more {
        let common = match all.get(node) {
            Some(known) => known.intersection(&outputs).copied().collect(),
            None => outputs,
        };
        if common.is_empty() {
            return Err(node);
        }
        all.insert(node, common);
    }
    Ok(())
}
