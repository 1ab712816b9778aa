//! Puts tasks on lanes and tells what changed, after the commit and beside it: a slow or absent
//! queue must not hold up reporters. What is lost here the sweep publishes again.

use super::metrics::Metrics;
use contract::{ExecutionId, RunId};
use futures::{StreamExt, stream};
use indexmap::IndexSet;
use queue::{Lane, Queue, Topic};
use std::{sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::Instant};

/// Words that may wait. Beyond it they are dropped, which the sweep repairs.
const BACKLOG: usize = 16 * 1024;

/// Words that are sent together.
const BATCH: usize = 1024;

/// Notices that are under way at the same time: over a network each takes a round trip.
const NOTICES: usize = 64;

/// Between two notices about what the steps of the same run say of themselves: people read no faster.
const SAY_EVERY: Duration = Duration::from_millis(500);

/// Runs whose steps said something that was not yet told. Beyond it whoever watches them polls.
const SAYING: usize = 4096;

/// One word to the outside.
#[derive(Debug)]
pub(crate) enum Word {
    /// A task for a lane, as JSON.
    Task(Lane, String),
    /// The run changed.
    Changed(RunId),
    /// A running step of the run said something of itself, which is no event.
    Said(RunId),
    /// Whoever works on the attempt may stop.
    Withdrawn(RunId, ExecutionId),
}

/// Where words are left.
#[derive(Clone, Debug)]
pub(crate) struct Publisher {
    words: mpsc::Sender<Word>,
    metrics: Arc<Metrics>,
}

impl Publisher {
    /// A publisher and the task that does its work; it ends when all publishers are dropped.
    pub(crate) fn new(queue: Queue, metrics: Arc<Metrics>) -> (Self, impl Future<Output = ()> + Send) {
        let (words, receiver) = mpsc::channel(BACKLOG);
        let work = run(receiver, queue, Arc::clone(&metrics));
        (Self { words, metrics }, work)
    }

    /// Leaves a word; never waits.
    pub(crate) fn say(&self, word: Word) {
        if self.words.try_send(word).is_err() {
            self.metrics.words_dropped.inc();
        }
    }
}

async fn run(mut words: mpsc::Receiver<Word>, queue: Queue, metrics: Arc<Metrics>) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut saying = Saying::default();
    loop {
        tokio::select! {
            count = words.recv_many(&mut batch, BATCH) => if count == 0 { return },
            said = saying.due() => {
                let notices = said.into_iter().map(of_run);
                notify_all(&queue, notices, &metrics).await;
                continue;
            }
        }
        let mut tasks: [Vec<String>; Lane::ALL.len()] = Default::default();
        let mut changed = IndexSet::new();
        let mut withdrawn = Vec::new();
        for word in batch.drain(..) {
            match word {
                Word::Task(lane, text) => tasks[place(lane)].push(text),
                Word::Changed(run_id) => {
                    changed.insert(run_id);
                }
                Word::Said(run_id) if saying.add(run_id) => {}
                Word::Said(_) => {
                    metrics.words_dropped.inc();
                }
                Word::Withdrawn(run_id, execution_id) => withdrawn.push((run_id, execution_id)),
            }
        }
        for lane in Lane::ALL {
            push(&queue, lane, std::mem::take(&mut tasks[place(lane)]), &metrics).await;
        }
        let withdrawn = withdrawn.into_iter().map(|(run_id, execution_id)| {
            (
                Topic::Steps,
                format!(r#"{{"kind":"cancel","runId":"{run_id}","executionId":"{execution_id}"}}"#),
            )
        });
        saying.told(&changed);
        notify_all(&queue, withdrawn.chain(changed.into_iter().map(of_run)), &metrics).await;
    }
}

/// Runs whose steps said something that whoever watches them is to be told, each at most once in
/// [`SAY_EVERY`].
#[derive(Debug, Default)]
struct Saying {
    runs: IndexSet<RunId>,
    /// When runs were told last.
    told: Option<Instant>,
}

impl Saying {
    /// False: there are too many.
    fn add(&mut self, run_id: RunId) -> bool {
        let has_room = self.runs.len() < SAYING || self.runs.contains(&run_id);
        if has_room {
            self.runs.insert(run_id);
        }
        has_room
    }

    /// They are told anyway.
    fn told(&mut self, changed: &IndexSet<RunId>) {
        self.runs.retain(|run_id| !changed.contains(run_id));
    }

    /// When they are to be told; `None`: there is nothing to tell.
    fn due_at(&self) -> Option<Instant> {
        let at = || self.told.map_or_else(Instant::now, |told| told + SAY_EVERY);
        (!self.runs.is_empty()).then(at)
    }

    /// They are told now.
    fn take(&mut self, now: Instant) -> IndexSet<RunId> {
        self.told = Some(now);
        std::mem::take(&mut self.runs)
    }

    /// Waits until runs are to be told, and takes them. Cancel-safe.
    async fn due(&mut self) -> IndexSet<RunId> {
        match self.due_at() {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
        self.take(Instant::now())
    }
}

fn of_run(run_id: RunId) -> (Topic, String) {
    (Topic::Runs, run_id.to_string())
}

async fn notify_all(queue: &Queue, notices: impl Iterator<Item = (Topic, String)> + Send, metrics: &Metrics) {
    stream::iter(notices)
        .for_each_concurrent(NOTICES, |(topic, text)| notify(queue, topic, text, metrics))
        .await;
}

fn place(lane: Lane) -> usize {
    match lane {
        Lane::Plugin => 0,
        Lane::Executor => 1,
    }
}

async fn push(queue: &Queue, lane: Lane, tasks: Vec<String>, metrics: &Metrics) {
    if tasks.is_empty() {
        return;
    }
    let count = tasks.len();
    if let Err(error) = queue.push(lane, tasks).await {
        metrics.words_dropped.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
        tracing::warn!(
            event = "tasks_unpublished",
            lane = lane.as_str(),
            tasks = count,
            "the sweep publishes them again: {error}"
        );
    }
}

async fn notify(queue: &Queue, topic: Topic, text: String, metrics: &Metrics) {
    if let Err(error) = queue.notify(topic, &text).await {
        metrics.words_dropped.inc();
        tracing::debug!(event = "notice_lost", topic = topic.as_str(), "those who wait for it poll: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use queue::Notice;
    use uuid::Uuid;

    const RUNS: [RunId; 2] = [RunId(Uuid::from_u128(1)), RunId(Uuid::from_u128(2))];

    #[test]
    fn what_steps_say_is_told_at_once_and_then_at_most_twice_a_second_for_each_run() {
        let (mut saying, now) = (Saying::default(), Instant::now());
        assert_eq!(saying.due_at(), None);
        assert!(RUNS.iter().chain(&RUNS).all(|run_id| saying.add(*run_id)));
        assert!(saying.due_at().is_some_and(|at| at <= Instant::now()), "the first waits for nothing");
        assert_eq!(saying.take(now), IndexSet::from(RUNS), "each once, however often it spoke");
        assert_eq!(saying.due_at(), None);
        assert!(saying.add(RUNS[0]));
        assert_eq!(saying.due_at(), Some(now + SAY_EVERY));
    }

    #[tokio::test]
    async fn a_run_that_changed_is_told_once_whatever_its_steps_said() {
        let queue = Queue::in_process();
        let mut notices = queue.subscribe(Topic::Runs).await.unwrap();
        let (publisher, work) = Publisher::new(queue, Arc::default());
        for word in [Word::Said(RUNS[1]), Word::Said(RUNS[0]), Word::Changed(RUNS[0])] {
            publisher.say(word);
        }
        let work = tokio::spawn(work);
        for run_id in RUNS {
            assert_eq!(notices.recv().await, Notice::Message(run_id.to_string()));
        }
        drop(publisher);
        work.await.unwrap();
        assert_eq!(notices.recv().now_or_never(), None);
    }

    #[test]
    fn runs_that_wait_to_be_told_are_bounded() {
        let mut saying = Saying::default();
        let run = |number: usize| RunId(Uuid::from_u128(number as u128));
        assert!((0..SAYING).all(|number| saying.add(run(number))));
        assert!(!saying.add(run(SAYING)) && saying.add(run(0)));
    }
}
