//! Committing publications.

use crate::{catalogue::publication, id, json, suite};
use contract::{Digest, Millis, PublicationId, manifest::Endpoint};
use futures::future::join_all;
use storage::{
    Error, Storage,
    catalogue::{Committed, MOST_TOGETHER, NewPublication, PublicationKey},
};

suite!(
    a_publication_is_what_was_committed,
    the_same_digest_again_is_unchanged_and_refreshes_the_endpoints,
    another_digest_of_a_version_is_refused_and_the_stored_one_stays,
    republishing_replaces_the_content_under_its_id,
    a_node_type_of_another_live_plugin_conflicts,
    a_node_type_that_its_owner_gave_up_is_free,
    of_concurrent_publishers_of_one_version_one_wins,
    of_concurrent_publishers_of_one_node_type_one_wins,
    a_removed_plugin_lives_again_when_it_publishes,
    a_removed_plugin_does_not_take_back_a_node_type_that_has_a_new_owner,
    publications_together_are_answered_as_one_after_the_other,
    publications_together_are_seen_by_who_knows_the_catalogue_before,
    of_publications_that_cannot_be_stored_together_none_is_stored,
    concurrent_groups_see_one_another,
);

fn committed(outcome: &Committed) -> PublicationId {
    match outcome {
        Committed::Committed { publication_id, .. } => *publication_id,
        other => panic!("{other:?}"),
    }
}

async fn a_publication_is_what_was_committed(storage: Storage) {
    let catalogue = storage.catalogue();
    let mut new = publication("jira", "0.0.1", &["jira.get", "jira.put"]);
    new.assets.push(contract::catalogue::Asset {
        key: "ui".into(),
        file_id: "f-1".into(),
        media_type: "application/javascript".into(),
        size: 12,
        digest: Digest([9; 32]),
    });
    let first = catalogue.commit(&new).await.unwrap();
    assert_eq!(first, Committed::Committed { publication_id: new.publication_id, revision: 1 });
    let second = publication("jira", "0.0.2", &["jira.get"]);
    assert_eq!(committed(&catalogue.commit(&second).await.unwrap()), second.publication_id);

    let get = async |key| catalogue.publication(key).await.unwrap();
    let stored = get(PublicationKey::Version("jira", "0.0.1")).await.unwrap();
    assert_eq!((stored.publication_id, stored.digest), (new.publication_id, new.digest));
    assert_eq!((stored.plugin_id.as_str(), stored.version.as_str()), ("jira", "0.0.1"));
    assert_eq!((stored.manifest, stored.items, stored.assets), (new.manifest, new.items, new.assets));
    assert_eq!(stored.published_at, new.at);
    assert_eq!(get(PublicationKey::Newest("jira")).await.unwrap().publication_id, second.publication_id);
    assert_eq!(get(PublicationKey::Id(new.publication_id)).await.unwrap().version, "0.0.1");
    assert!(get(PublicationKey::Version("jira", "0.0.3")).await.is_none());
    assert!(get(PublicationKey::Newest("slack")).await.is_none());
}

async fn the_same_digest_again_is_unchanged_and_refreshes_the_endpoints(storage: Storage) {
    let catalogue = storage.catalogue();
    let new = publication("jira", "0.0.1", &["a", "b"]);
    catalogue.commit(&new).await.unwrap();
    let again = NewPublication { publication_id: PublicationId(id()), ..new.clone() };
    let unchanged = catalogue.commit(&again).await.unwrap();
    assert_eq!(unchanged, Committed::Unchanged { publication_id: new.publication_id, revision: 1 });

    let elsewhere = Endpoint { host: "elsewhere".into(), port: 9 };
    let moved = NewPublication { node_endpoints: vec![("b".into(), elsewhere.clone())], ..again };
    let unchanged = catalogue.commit(&moved).await.unwrap();
    assert_eq!(unchanged, Committed::Unchanged { publication_id: new.publication_id, revision: 2 });
    let snapshot = catalogue.snapshot().await.unwrap();
    assert_eq!(snapshot.endpoint_of("jira", "b"), Some(&elsewhere));
    assert_eq!(snapshot.endpoint_of("jira", "a"), Some(&new.pull));
}

async fn another_digest_of_a_version_is_refused_and_the_stored_one_stays(storage: Storage) {
    let catalogue = storage.catalogue();
    let new = publication("jira", "0.0.1", &["a"]);
    catalogue.commit(&new).await.unwrap();
    let other = NewPublication { digest: Digest([2; 32]), manifest: json("{}"), ..new.clone() };
    let refused = catalogue.commit(&other).await.unwrap();
    assert_eq!(refused, Committed::VersionImmutable { stored: new.digest });
    let stored = catalogue.publication(PublicationKey::Newest("jira")).await.unwrap().unwrap();
    assert_eq!((stored.digest, stored.manifest), (new.digest, new.manifest));
    assert_eq!(catalogue.revision().await.unwrap(), 1);
}

async fn republishing_replaces_the_content_under_its_id(storage: Storage) {
    let catalogue = storage.catalogue();
    let new = publication("jira", "0.0.1", &["a"]);
    catalogue.commit(&new).await.unwrap();
    let other = NewPublication {
        publication_id: PublicationId(id()),
        digest: Digest([2; 32]),
        manifest: json(r#"{"label":"New"}"#),
        node_types: vec!["b".into()],
        allow_republish: true,
        ..new.clone()
    };
    let replaced = catalogue.commit(&other).await.unwrap();
    assert_eq!(replaced, Committed::Replaced { publication_id: new.publication_id, revision: 2 });
    let snapshot = catalogue.snapshot().await.unwrap();
    let newest = snapshot.plugins["jira"].newest().unwrap();
    assert_eq!((newest.digest, newest.label.as_str()), (other.digest, "New"));
    assert_eq!(newest.node_types, ["b"]);
}

async fn a_node_type_of_another_live_plugin_conflicts(storage: Storage) {
    let catalogue = storage.catalogue();
    catalogue.commit(&publication("jira", "0.0.1", &["a", "b"])).await.unwrap();
    let refused = catalogue.commit(&publication("slack", "1.0.0", &["c", "b"])).await.unwrap();
    assert_eq!(refused, Committed::NodeTypeConflict { node_type: "b".into(), owner: "jira".into() });
    assert!(!catalogue.snapshot().await.unwrap().plugins.contains_key("slack"));
}

async fn a_node_type_that_its_owner_gave_up_is_free(storage: Storage) {
    let catalogue = storage.catalogue();
    catalogue.commit(&publication("jira", "0.0.1", &["a", "b"])).await.unwrap();
    catalogue.commit(&publication("jira", "0.0.2", &["a"])).await.unwrap();
    committed(&catalogue.commit(&publication("slack", "1.0.0", &["b"])).await.unwrap());
    catalogue.remove("jira", Millis(5)).await.unwrap();
    committed(&catalogue.commit(&publication("other", "1.0.0", &["a"])).await.unwrap());
}

async fn race(storage: &Storage, publications: Vec<NewPublication>) -> Vec<Committed> {
    let tries = publications.into_iter().map(|new| {
        let catalogue = storage.catalogue();
        tokio::spawn(async move { catalogue.commit(&new).await.unwrap() })
    });
    join_all(tries).await.into_iter().map(Result::unwrap).collect()
}

async fn of_concurrent_publishers_of_one_version_one_wins(storage: Storage) {
    let with_digest =
        |n: u8| NewPublication { digest: Digest([n; 32]), ..publication("jira", "0.0.1", &["a"]) };
    let results = race(&storage, (0..8).map(with_digest).collect()).await;
    let winners: Vec<_> = results.iter().filter(|one| matches!(one, Committed::Committed { .. })).collect();
    assert_eq!(winners.len(), 1, "{results:?}");
    let digest =
        storage.catalogue().publication(PublicationKey::Newest("jira")).await.unwrap().unwrap().digest;
    for result in &results {
        let fits = match result {
            Committed::Committed { .. } => true,
            Committed::VersionImmutable { stored } => *stored == digest,
            _ => false,
        };
        assert!(fits, "{results:?}");
    }
}

async fn of_concurrent_publishers_of_one_node_type_one_wins(storage: Storage) {
    let names = ["a", "b", "c", "d"];
    let results =
        race(&storage, names.iter().map(|name| publication(name, "1.0.0", &["shared"])).collect()).await;
    let winner = results.iter().position(|one| matches!(one, Committed::Committed { .. })).unwrap();
    for (place, result) in results.iter().enumerate() {
        let lost = Committed::NodeTypeConflict { node_type: "shared".into(), owner: names[winner].into() };
        assert!(place == winner || *result == lost, "{results:?}");
    }
}

async fn a_removed_plugin_lives_again_when_it_publishes(storage: Storage) {
    let catalogue = storage.catalogue();
    let new = publication("jira", "0.0.1", &["a"]);
    catalogue.commit(&new).await.unwrap();
    catalogue.pin("w", "jira", "0.0.1").await.unwrap();
    let removed = catalogue.remove("jira", Millis(5)).await.unwrap();
    assert!(removed.changed);
    assert_eq!(catalogue.snapshot().await.unwrap().plugins["jira"].removed_at, Some(Millis(5)));
    let again = catalogue.commit(&new).await.unwrap();
    let revision = removed.revision + 1;
    assert_eq!(again, Committed::Unchanged { publication_id: new.publication_id, revision });
    let snapshot = catalogue.snapshot().await.unwrap();
    assert_eq!(snapshot.plugins["jira"].removed_at, None);
    assert_eq!(snapshot.pinned_version("jira", "w"), Some("0.0.1"));
}

async fn a_removed_plugin_does_not_take_back_a_node_type_that_has_a_new_owner(storage: Storage) {
    let catalogue = storage.catalogue();
    let new = publication("jira", "0.0.1", &["a"]);
    catalogue.commit(&new).await.unwrap();
    catalogue.remove("jira", Millis(5)).await.unwrap();
    catalogue.commit(&publication("slack", "1.0.0", &["a"])).await.unwrap();
    let refused = catalogue.commit(&new).await.unwrap();
    assert_eq!(refused, Committed::NodeTypeConflict { node_type: "a".into(), owner: "slack".into() });
    assert!(catalogue.snapshot().await.unwrap().plugins["jira"].removed_at.is_some());
}

/// A catalogue with a little of everything, and a group that meets all of it.
async fn group(storage: &Storage) -> Vec<NewPublication> {
    let catalogue = storage.catalogue();
    let known = publication("known", "1", &["known"]);
    catalogue.commit(&known).await.unwrap();
    catalogue.commit(&publication("replaced", "1", &["given-up"])).await.unwrap();
    catalogue.commit(&publication("removed", "1", &["tomb"])).await.unwrap();
    catalogue.remove("removed", Millis(5)).await.unwrap();
    let other = |new| NewPublication { digest: Digest([2; 32]), ..new };
    let elsewhere = Endpoint { host: "elsewhere".into(), port: 9 };
    vec![
        NewPublication { node_endpoints: vec![("known".into(), elsewhere)], ..known },
        NewPublication { allow_republish: true, ..other(publication("replaced", "1", &["r"])) },
        publication("first", "1", &["given-up", "shared"]),
        publication("second", "1", &["shared"]),
        publication("third", "1", &["known"]),
        publication("removed", "1", &["tomb"]),
        publication("empty", "1", &[]),
    ]
}

async fn publications_together_are_answered_as_one_after_the_other(storage: Storage) {
    let catalogue = storage.catalogue();
    let group = group(&storage).await;
    let revision = catalogue.revision().await.unwrap();
    let stored = async |name| catalogue.publication(PublicationKey::Newest(name)).await.unwrap().unwrap();
    let known = [stored("known").await, stored("replaced").await, stored("removed").await];
    let [known, replaced, removed] = known.map(|stored| stored.publication_id);
    let conflict = |node_type: &str, owner: &str| Committed::NodeTypeConflict {
        node_type: node_type.to_owned(),
        owner: owner.to_owned(),
    };
    let answers = catalogue.commit_all(&group).await.unwrap();
    let expected = [
        Committed::Unchanged { publication_id: known, revision: revision + 1 },
        Committed::Replaced { publication_id: replaced, revision: revision + 2 },
        Committed::Committed { publication_id: group[2].publication_id, revision: revision + 3 },
        conflict("shared", "first"),
        conflict("known", "known"),
        Committed::Unchanged { publication_id: removed, revision: revision + 4 },
        Committed::Committed { publication_id: group[6].publication_id, revision: revision + 5 },
    ];
    assert_eq!(answers, expected);
    assert_eq!(catalogue.revision().await.unwrap(), revision + 5);
    let snapshot = catalogue.snapshot().await.unwrap();
    let owner = |node_type| snapshot.owner_of(node_type).map(|plugin| plugin.plugin_id.as_str());
    assert_eq!(
        ["r", "given-up", "shared", "known"].map(owner).map(Option::unwrap),
        ["replaced", "first", "first", "known"]
    );
    assert_eq!(snapshot.plugins["removed"].removed_at, None);
    assert_eq!(snapshot.endpoint_of("known", "known").unwrap().host, "elsewhere");
    assert!(!snapshot.plugins.contains_key("second"));

    // The same again changes nothing.
    let again = catalogue.commit_all(&group).await.unwrap();
    assert!(again.iter().all(|answer| !matches!(answer, Committed::Committed { .. })), "{again:?}");
    assert_eq!(catalogue.revision().await.unwrap(), revision + 5);
}

async fn publications_together_are_seen_by_who_knows_the_catalogue_before(storage: Storage) {
    let group = group(&storage).await;
    let catalogue = storage.catalogue();
    let before = catalogue.snapshot().await.unwrap();
    catalogue.commit_all(&group).await.unwrap();
    let after = catalogue.snapshot().await.unwrap();
    assert_eq!(catalogue.renewed(&before).await.unwrap(), Some(after));
}

async fn of_publications_that_cannot_be_stored_together_none_is_stored(storage: Storage) {
    let catalogue = storage.catalogue();
    let twice =
        [publication("jira", "1", &["a"]), publication("slack", "1", &[]), publication("jira", "2", &["a"])];
    assert!(matches!(catalogue.commit_all(&twice).await, Err(Error::InvalidValue { .. })));
    let many: Vec<_> = (0..=MOST_TOGETHER).map(|n| publication(&format!("p{n}"), "1", &[])).collect();
    assert!(matches!(catalogue.commit_all(&many).await, Err(Error::InvalidValue { .. })));
    assert_eq!(catalogue.commit_all(&[]).await.unwrap(), []);
    assert!(catalogue.snapshot().await.unwrap().plugins.is_empty());
    assert_eq!(catalogue.commit_all(&many[1..]).await.unwrap().len(), MOST_TOGETHER);
}

async fn concurrent_groups_see_one_another(storage: Storage) {
    let groups = (0..6).map(|round| {
        let catalogue = storage.catalogue();
        let group: Vec<_> =
            (0..4).map(|n| publication(&format!("{round}-{n}"), "1", &[&*format!("shared-{n}")])).collect();
        tokio::spawn(async move { catalogue.commit_all(&group).await.unwrap() })
    });
    let answers: Vec<Vec<Committed>> = join_all(groups).await.into_iter().map(Result::unwrap).collect();
    for place in 0..4 {
        let won = answers.iter().filter(|group| matches!(group[place], Committed::Committed { .. })).count();
        assert_eq!(won, 1, "shared-{place}: {answers:?}");
    }
    assert_eq!(storage.catalogue().snapshot().await.unwrap().plugins.len(), 4);
}
