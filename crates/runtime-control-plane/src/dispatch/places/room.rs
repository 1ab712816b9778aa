//! Where tasks wait for a place of their plugin: a line per plugin, the oldest task first. Pure.

use contract::{ExecutionId, RunId, task::Task};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

/// Bounds of the room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Tasks of one line.
    pub(super) tasks: usize,
    /// Bytes of all lines.
    pub(super) bytes: usize,
}

/// The lines.
#[derive(Debug)]
pub(super) struct Room {
    bounds: Bounds,
    lines: HashMap<Arc<str>, Line>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Line {
    /// By their ids, which are in the order of their making; each with its size.
    tasks: BTreeMap<ExecutionId, (Task, usize)>,
    /// The runs that had the places when somebody last asked.
    holders: HashSet<RunId>,
}

impl Room {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, lines: HashMap::new(), bytes: 0 }
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.lines.values().map(|line| line.tasks.len()).sum()
    }

    /// Does somebody wait for this plugin?
    pub(super) fn has_line(&self, plugin_id: &str) -> bool {
        self.lines.contains_key(plugin_id)
    }

    /// Lets a task wait; false: there is no room. One that waits already stays as it is.
    pub(super) fn put(&mut self, plugin_id: &Arc<str>, task: Task, bytes: usize) -> bool {
        let line = self.lines.get(plugin_id);
        if line.is_some_and(|line| line.tasks.contains_key(&task.execution_id)) {
            return true;
        }
        let total = self.bytes.saturating_add(bytes);
        if line.is_some_and(|line| line.tasks.len() >= self.bounds.tasks) || total > self.bounds.bytes {
            return false;
        }
        self.bytes = total;
        let line = self.lines.entry(Arc::clone(plugin_id)).or_default();
        line.tasks.insert(task.execution_id, (task, bytes));
        true
    }

    /// Keeps in mind who has the places that a line waits for.
    pub(super) fn learn(&mut self, plugin_id: &str, holders: &[RunId]) {
        if let Some(line) = self.lines.get_mut(plugin_id) {
            line.holders = holders.iter().copied().collect();
        }
    }

    /// Takes so many tasks off the head of a line.
    pub(super) fn take(&mut self, plugin_id: &str, most: usize) -> Vec<(Task, usize)> {
        let Some(line) = self.lines.get_mut(plugin_id) else { return Vec::new() };
        let taken: Vec<_> = std::iter::from_fn(|| line.tasks.pop_first()).take(most).collect();
        if line.tasks.is_empty() {
            self.lines.remove(plugin_id);
        }
        let taken: Vec<_> = taken.into_iter().map(|(_, task)| task).collect();
        self.bytes -= taken.iter().map(|(_, bytes)| bytes).sum::<usize>();
        taken
    }

    /// The plugins that somebody waits for.
    pub(super) fn lines(&self) -> Vec<Arc<str>> {
        self.lines.keys().cloned().collect()
    }

    /// The plugins of which the run has a place.
    pub(super) fn held_by(&self, run_id: RunId) -> Vec<Arc<str>> {
        let held = self.lines.iter().filter(|(_, line)| line.holders.contains(&run_id));
        held.map(|(plugin_id, _)| Arc::clone(plugin_id)).collect()
    }

    /// Takes everything out.
    pub(super) fn drain(&mut self) -> Vec<Task> {
        self.bytes = 0;
        self.lines.drain().flat_map(|(_, line)| line.tasks.into_values()).map(|(task, _)| task).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{NodePath, ProcessId};
    use uuid::Uuid;

    const BOUNDS: Bounds = Bounds { tasks: 3, bytes: 100 };

    fn task(number: u128) -> Task {
        let id = Uuid::from_u128(number);
        Task {
            run_id: RunId(id),
            execution_id: ExecutionId(id),
            node_id: "n".into(),
            node_path: NodePath("n".into()),
            node_type: "t".into(),
            attempt: 1,
            inputs: Default::default(),
            secrets: Vec::new(),
            outputs: Vec::new(),
            timeout_ms: 1,
            workspace_id: "w".into(),
            user_id: "u".into(),
            diagram_id: ProcessId(id),
            publication_id: None,
            traceparent: None,
            tracestate: None,
        }
    }

    fn ids(taken: &[(Task, usize)]) -> Vec<u128> {
        taken.iter().map(|(task, _)| task.execution_id.0.as_u128()).collect()
    }

    #[test]
    fn the_oldest_task_is_the_first_whenever_it_came() {
        let (mut room, plugin) = (Room::new(BOUNDS), Arc::from("p"));
        for number in [3, 1, 2] {
            assert!(room.put(&plugin, task(number), 1));
        }
        assert_eq!((ids(&room.take("p", 2)), room.waiting()), (vec![1, 2], 1));
        assert!(room.put(&plugin, task(1), 1));
        assert_eq!((ids(&room.take("p", 9)), room.waiting()), (vec![1, 3], 0));
        assert!(!room.has_line("p"));
    }

    #[test]
    fn a_task_waits_once_and_the_room_is_bounded() {
        let (mut room, one, two) = (Room::new(BOUNDS), Arc::from("one"), Arc::from("two"));
        for number in [1, 2, 3, 1] {
            assert!(room.put(&one, task(number), 30));
        }
        assert!(!room.put(&one, task(4), 1), "the line is full");
        assert!(!room.put(&two, task(5), 20), "the bytes are used up");
        assert!(room.put(&two, task(5), 10));
        room.take("one", 1);
        assert!(room.put(&two, task(6), 30));
        assert_eq!((room.waiting(), room.drain().len(), room.waiting()), (4, 4, 0));
        assert!(room.put(&one, task(4), 100));
    }

    #[test]
    fn a_line_is_woken_by_the_runs_that_have_its_places() {
        let (mut room, one, two) = (Room::new(BOUNDS), Arc::from("one"), Arc::from("two"));
        room.put(&one, task(1), 1);
        room.put(&two, task(2), 1);
        let run = |number| RunId(Uuid::from_u128(number));
        room.learn("one", &[run(7), run(8)]);
        room.learn("two", &[run(8)]);
        room.learn("nobody", &[run(7)]);
        assert_eq!(room.held_by(run(7)), [Arc::clone(&one)]);
        assert_eq!(room.held_by(run(8)).len(), 2);
        room.learn("one", &[]);
        assert!(room.held_by(run(7)).is_empty());
    }
}
