//! The steps that this executor holds, so that word from the engine reaches them at once. The word
//! is a hint: one that is lost costs the time until the next heartbeat is refused.

use contract::ExecutionId;
use parking_lot::Mutex;
use queue::{Notice, Notices};
use serde::Deserialize;
use std::{collections::HashMap, sync::Arc};
use tokio_util::sync::CancellationToken;

/// Steps that are held now, by take: one attempt may be taken twice.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<Steps>);

#[derive(Debug, Default)]
struct Steps {
    takes: u64,
    by_take: HashMap<u64, (ExecutionId, CancellationToken)>,
}

/// One step, held until this is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    held: Arc<Held>,
    take: u64,
    /// Cancelled when nobody waits for the step any more.
    pub(crate) given_up: CancellationToken,
}

impl Held {
    /// Holds a step.
    pub(crate) fn hold(self: &Arc<Self>, execution_id: ExecutionId) -> Hold {
        let given_up = CancellationToken::new();
        let mut steps = self.0.lock();
        steps.takes += 1;
        let take = steps.takes;
        steps.by_take.insert(take, (execution_id, given_up.clone()));
        Hold { held: Arc::clone(self), take, given_up }
    }

    /// Cancels the attempt, if it is held here.
    fn cancel(&self, execution_id: ExecutionId) {
        for (id, given_up) in self.0.lock().by_take.values() {
            if *id == execution_id {
                tracing::info!(event = "step_withdrawn", %execution_id, "nobody waits for the step any more; it is cancelled");
                given_up.cancel();
            }
        }
    }

    /// Listens to the engine for as long as it is polled.
    pub(crate) async fn heed(&self, mut notices: Notices) {
        loop {
            match notices.recv().await {
                Notice::Message(text) => self.hear(&text),
                // The next heartbeats tell.
                Notice::Missed => {}
            }
        }
    }

    fn hear(&self, text: &str) {
        match serde_json::from_str::<Word>(text) {
            Ok(Word { kind, execution_id: Some(execution_id) }) if kind == "cancel" => {
                self.cancel(execution_id);
            }
            // A word of a newer engine.
            _ => tracing::debug!(event = "notice_unknown", "a notice about steps is not understood"),
        }
    }
}

/// What the engine says about steps.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Word {
    kind: String,
    #[serde(default)]
    execution_id: Option<ExecutionId>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.held.0.lock().by_take.remove(&self.take);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_word_cancels_every_take_of_its_attempt_and_no_other() {
        let held = Arc::new(Held::default());
        let [id, other] = [1, 2].map(|n| ExecutionId(Uuid::from_u128(n)));
        let (first, second, third) = (held.hold(id), held.hold(id), held.hold(other));
        for strange in ["", "{}", r#"{"kind":"pause","executionId":null}"#] {
            held.hear(strange);
        }
        assert!(!first.given_up.is_cancelled());
        held.hear(&format!(r#"{{"kind":"cancel","runId":"r","executionId":"{id}"}}"#));
        assert!(first.given_up.is_cancelled() && second.given_up.is_cancelled());
        assert!(!third.given_up.is_cancelled());
        drop((first, second, third));
        assert!(held.0.lock().by_take.is_empty());
    }
}
