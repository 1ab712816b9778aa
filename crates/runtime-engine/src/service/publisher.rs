//! Puts tasks on lanes and tells what changed, after the commit and beside it: a slow or absent
//! queue must not hold up reporters. What is lost here the sweep publishes again.

use super::metrics::Metrics;
use contract::{ExecutionId, RunId};
use futures::{StreamExt, stream};
use indexmap::IndexSet;
use queue::{Lane, Queue, Topic};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Words that may wait. Beyond it they are dropped, which the sweep repairs.
const BACKLOG: usize = 16 * 1024;

/// Words that are sent together.
const BATCH: usize = 1024;

/// Notices that are under way at the same time: over a network each takes a round trip.
const NOTICES: usize = 64;

/// One word to the outside.
#[derive(Debug)]
pub(crate) enum Word {
    /// A task for a lane, as JSON.
    Task(Lane, String),
    /// The run changed.
    Changed(RunId),
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
    while words.recv_many(&mut batch, BATCH).await > 0 {
        let mut tasks: [Vec<String>; Lane::ALL.len()] = Default::default();
        let mut changed = IndexSet::new();
        let mut withdrawn = Vec::new();
        for word in batch.drain(..) {
            match word {
                Word::Task(lane, text) => tasks[place(lane)].push(text),
                Word::Changed(run_id) => {
                    changed.insert(run_id);
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
        let changed = changed.into_iter().map(|run_id| (Topic::Runs, run_id.to_string()));
        stream::iter(withdrawn.chain(changed))
            .for_each_concurrent(NOTICES, |(topic, text)| notify(&queue, topic, text, &metrics))
            .await;
    }
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
