//! Publications that come together are committed together: one transaction, one record that their
//! plugins live and one notice for all of them. Whoever comes while a group is being committed is in
//! the next one.

use crate::{health::Ledger, view::View};
use contract::{ErrorCode, RpcError};
use parking_lot::Mutex;
use std::{collections::VecDeque, sync::Arc};
use storage::{
    Storage,
    catalogue::{Committed, MOST_TOGETHER, NewPublication},
};
use tokio::sync::oneshot;

/// Bytes of documents in one transaction; a larger publication is committed alone.
const MOST_BYTES: usize = 16 * 1024 * 1024;

type Answer = Result<Committed, RpcError>;

/// Commits publications in groups.
#[derive(Debug)]
pub(super) struct Commits {
    storage: Storage,
    view: Arc<View>,
    ledger: Arc<Ledger>,
    waiting: Mutex<VecDeque<Waiting>>,
    /// Held while a group is committed.
    turn: tokio::sync::Mutex<()>,
}

/// A publication that waits for its turn. There are never more than publications in work.
#[derive(Debug)]
struct Waiting {
    new: NewPublication,
    answer: oneshot::Sender<Answer>,
}

impl Waiting {
    fn bytes(&self) -> usize {
        self.new.manifest.text().len() + self.new.items.text().len()
    }
}

impl Commits {
    pub(super) fn new(storage: Storage, view: Arc<View>, ledger: Arc<Ledger>) -> Self {
        Self { storage, view, ledger, waiting: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Commits a publication with those that wait beside it. When the answer is there, the catalogue in
    /// memory knows the publication, its plugin counts as alive, and everyone was told.
    ///
    /// # Errors
    /// What the store says; `unavailable` when it is away.
    pub(super) async fn commit(self: &Arc<Self>, new: NewPublication) -> Answer {
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().push_back(Waiting { new, answer });
        let commits = Arc::clone(self);
        // In a task of its own: a caller that is dropped must not leave the others without an answer.
        // There is a turn for each that waits, so nobody is left over.
        tokio::spawn(async move { commits.take_turn().await });
        answered.await.unwrap_or_else(|_| {
            Err(RpcError::new(ErrorCode::Internal, "the commit broke off; see plugin-manager's log"))
        })
    }

    async fn take_turn(&self) {
        let _turn = self.turn.lock().await;
        let group = next_group(&mut self.waiting.lock());
        let (publications, answers): (Vec<_>, Vec<_>) =
            group.into_iter().map(|Waiting { new, answer }| (new, answer)).unzip();
        let results = self.commit_together(&publications).await;
        self.settle(&publications, &results).await;
        for (answer, result) in answers.into_iter().zip(results) {
            // Nobody may be there any more; what is stored is announced all the same.
            let _ = answer.send(result);
        }
    }

    /// One result per publication. A publication that the database does not take must not cost the
    /// others: then each is committed alone.
    async fn commit_together(&self, publications: &[NewPublication]) -> Vec<Answer> {
        let catalogue = self.storage.catalogue();
        match catalogue.commit_all(publications).await {
            Ok(committed) => committed.into_iter().map(Ok).collect(),
            Err(error) if error.is_unavailable() || publications.len() == 1 => {
                vec![Err(error.to_rpc()); publications.len()]
            }
            Err(error) => {
                tracing::warn!(
                    event = "plugin_publications_parted",
                    error = %error,
                    publications = publications.len(),
                    "publications could not be committed together and are committed one by one"
                );
                let mut results = Vec::with_capacity(publications.len());
                for new in publications {
                    results.push(catalogue.commit(new).await.map_err(|error| error.to_rpc()));
                }
                results
            }
        }
    }

    /// Records that the plugins of stored publications live, and tells everyone about the catalogue.
    async fn settle(&self, publications: &[NewPublication], results: &[Answer]) {
        let stored = publications
            .iter()
            .zip(results)
            .filter_map(|(new, result)| Some((new.plugin_id.as_str(), revision(result.as_ref().ok()?)?)));
        let (plugins, revisions): (Vec<&str>, Vec<i64>) = stored.unzip();
        let Some(revision) = revisions.into_iter().max() else { return };
        self.ledger.alive(&plugins).await;
        if revision > self.view.current().revision {
            self.view.announce(revision).await;
        }
    }
}

/// The catalogue's revision after a publication that was stored or had been.
fn revision(committed: &Committed) -> Option<i64> {
    match committed {
        Committed::Committed { revision, .. }
        | Committed::Unchanged { revision, .. }
        | Committed::Replaced { revision, .. } => Some(*revision),
        Committed::VersionImmutable { .. } | Committed::NodeTypeConflict { .. } => None,
    }
}

/// Those that have waited for longest, as many as one transaction may hold, and one at least. A second
/// publication of a plugin waits for the next group.
fn next_group(waiting: &mut VecDeque<Waiting>) -> Vec<Waiting> {
    let mut group: Vec<Waiting> = Vec::new();
    let mut bytes = 0;
    while let Some(next) = waiting.front() {
        bytes += next.bytes();
        let fits = bytes <= MOST_BYTES && group.len() < MOST_TOGETHER;
        let again = group.iter().any(|member| member.new.plugin_id == next.new.plugin_id);
        if !group.is_empty() && (!fits || again) {
            break;
        }
        group.extend(waiting.pop_front());
    }
    group
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{metrics::Metrics, settings::Thresholds};
    use contract::{Digest, Json, Millis, PublicationId, catalogue::HealthState, manifest::Endpoint};
    use queue::Queue;
    use storage::{StorageSettings, catalogue::Seal};
    use uuid::Uuid;

    fn publication(plugin_id: &str, version: &str) -> NewPublication {
        NewPublication {
            publication_id: PublicationId(Uuid::now_v7()),
            plugin_id: plugin_id.into(),
            version: version.into(),
            digest: Digest([1; 32]),
            manifest: Json::null(),
            items: Json::null(),
            assets: Vec::new(),
            node_types: vec![format!("plugin.{plugin_id}")],
            pull: Endpoint { host: "h".into(), port: 1 },
            node_endpoints: Vec::new(),
            at: Millis(1),
            allow_republish: false,
            seal: Seal::default(),
        }
    }

    fn groups(waiting: impl IntoIterator<Item = NewPublication>) -> Vec<usize> {
        let waiting = waiting.into_iter().map(|new| Waiting { new, answer: oneshot::channel().0 });
        let mut waiting: VecDeque<Waiting> = waiting.collect();
        let mut groups = Vec::new();
        while !waiting.is_empty() {
            groups.push(next_group(&mut waiting).len());
        }
        groups
    }

    #[test]
    fn a_group_has_a_plugin_once_and_is_bounded() {
        assert_eq!(groups(["a", "b", "a", "c"].map(|id| publication(id, "1"))), [2, 2]);
        let many = (0..MOST_TOGETHER + 3).map(|number| publication(&number.to_string(), "1"));
        assert_eq!(groups(many), [MOST_TOGETHER, 3]);
        let large = |id: &str| NewPublication {
            items: Json::of(&"x".repeat(MOST_BYTES * 2 / 3)).unwrap(),
            ..publication(id, "1")
        };
        assert_eq!(groups([large("a"), large("b"), publication("c", "1")]), [1, 2]);
    }

    #[tokio::test]
    async fn publications_that_do_not_go_together_are_committed_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("test.db").display());
        let storage = Storage::open(&StorageSettings { url: url.into(), max_connections: 2 }).await.unwrap();
        let view = Arc::new(View::open(storage.catalogue(), Queue::in_process()).await.unwrap());
        let thresholds = Thresholds { failures: 3, successes: 2 };
        let ledger =
            Ledger::new(storage.clone(), Arc::clone(&view), Arc::new(Metrics::default()), thresholds);
        let commits = Commits::new(storage, Arc::clone(&view), Arc::new(ledger));
        // The store takes a plugin once at a time; the third one is refused, whoever is beside it.
        let other = NewPublication { digest: Digest([2; 32]), ..publication("a", "1") };
        let group = [publication("a", "1"), publication("b", "1"), other, publication("a", "2")];
        let results = commits.commit_together(&group).await;
        let stored: Vec<bool> =
            results.iter().map(|result| revision(result.as_ref().unwrap()).is_some()).collect();
        assert_eq!(stored, [true, true, false, true]);
        commits.settle(&group, &results).await;
        let snapshot = view.current();
        assert_eq!(snapshot.plugins["b"].health.state, HealthState::Online);
        assert_eq!(snapshot.plugins["a"].newest().unwrap().version, "2");
    }
}
