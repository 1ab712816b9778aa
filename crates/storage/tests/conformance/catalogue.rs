//! Changes of the catalogue and its snapshot.

use crate::{id, json, suite};
use contract::{
    Digest, Millis, PublicationId,
    catalogue::{HEALTH_HISTORY, Health, HealthState},
    manifest::Endpoint,
    signature::SignatureState,
};
use storage::{
    Error, Storage,
    catalogue::{Change, Committed, EnablementKey, NewPublication, Seal},
};

suite!(
    every_change_grows_the_revision_once,
    health_grows_the_revision_only_when_the_state_changes,
    findings_about_several_plugins_are_each_what_it_would_be_alone,
    the_snapshot_holds_what_was_stored,
    a_pin_never_moves_by_itself,
    enablement_may_precede_the_publication,
    changes_of_unknown_plugins_change_nothing,
    a_yank_is_remembered_and_can_be_taken_back,
    a_yanked_version_keeps_its_node_types_from_other_plugins,
    a_replaced_version_is_not_yanked,
    a_valid_signature_is_added_and_never_taken_away,
    the_last_changes_of_health_are_kept,
    a_known_snapshot_is_renewed_by_what_has_changed,
    a_snapshot_too_old_to_be_renewed_is_read_anew,
);

pub(crate) fn publication(plugin_id: &str, version: &str, node_types: &[&str]) -> NewPublication {
    NewPublication {
        publication_id: PublicationId(id()),
        plugin_id: plugin_id.into(),
        version: version.into(),
        digest: Digest([1; 32]),
        manifest: json(r#"{"label":"Jira","description":"Issues", "big":12345678901234567890}"#),
        items: json("[]"),
        assets: Vec::new(),
        node_types: node_types.iter().map(|name| (*name).to_owned()).collect(),
        pull: Endpoint { host: "127.0.0.1".into(), port: 4100 },
        node_endpoints: Vec::new(),
        at: Millis(1_000),
        allow_republish: false,
        seal: Seal::default(),
    }
}

async fn every_change_grows_the_revision_once(storage: Storage) {
    let catalogue = storage.catalogue();
    assert_eq!(catalogue.revision().await.unwrap(), 0);
    catalogue.commit(&publication("jira", "0.0.1", &["a"])).await.unwrap();
    let moved = Endpoint { host: "h".into(), port: 1 };
    let at = Millis(5);
    let mut revision = 1;
    let mut expect = |change: Change, changed: bool| {
        revision += i64::from(changed);
        assert_eq!(change, Change { changed, revision });
    };
    // Each change, then the same again, which is none.
    for changed in [true, false] {
        expect(catalogue.set_enabled("w", None, "jira", true, at).await.unwrap(), changed);
        expect(catalogue.set_enabled("w", Some("u"), "jira", false, at).await.unwrap(), changed);
        expect(catalogue.pin("w", "jira", "0.0.1").await.unwrap(), changed);
        expect(catalogue.set_quarantined("jira", true).await.unwrap(), changed);
        expect(catalogue.set_endpoint("jira", &moved).await.unwrap(), changed);
        expect(catalogue.remove("jira", at).await.unwrap(), changed);
    }
    for changed in [true, false] {
        expect(catalogue.unpin("w", "jira").await.unwrap(), changed);
        expect(catalogue.set_enabled("w", None, "jira", false, at).await.unwrap(), changed);
        expect(catalogue.set_quarantined("jira", false).await.unwrap(), changed);
    }
    assert_eq!(catalogue.revision().await.unwrap(), revision);
}

async fn health_grows_the_revision_only_when_the_state_changes(storage: Storage) {
    let catalogue = storage.catalogue();
    catalogue.commit(&publication("jira", "0.0.1", &["a"])).await.unwrap();
    let online = |checked_at| Health {
        state: HealthState::Online,
        since: Some(Millis(1)),
        checked_at: Some(Millis(checked_at)),
        successes: 2,
        ..Health::default()
    };
    let change = catalogue.record_health("jira", &online(10)).await.unwrap();
    assert_eq!(change, Change { changed: true, revision: 2 });
    let change = catalogue.record_health("jira", &online(20)).await.unwrap();
    assert_eq!(change, Change { changed: false, revision: 2 });
    assert_eq!(catalogue.snapshot().await.unwrap().plugins["jira"].health, online(20));
    assert_eq!(catalogue.health().await.unwrap()["jira"], online(20), "counts without a new revision too");
    let offline = Health {
        state: HealthState::Offline,
        last_error: Some("connection refused".into()),
        failures: 3,
        ..online(30)
    };
    let change = catalogue.record_health("jira", &offline).await.unwrap();
    assert_eq!(change, Change { changed: true, revision: 3 });
    assert_eq!(catalogue.snapshot().await.unwrap().plugins["jira"].health, offline);
}

async fn findings_about_several_plugins_are_each_what_it_would_be_alone(storage: Storage) {
    let catalogue = storage.catalogue();
    for plugin_id in ["a", "b", "c"] {
        catalogue.commit(&publication(plugin_id, "1", &[])).await.unwrap();
    }
    let health = |state, at| Health {
        state,
        since: Some(Millis(at)),
        checked_at: Some(Millis(at)),
        ..Health::default()
    };
    catalogue.record_health("a", &health(HealthState::Online, 1)).await.unwrap();
    let revision = catalogue.revision().await.unwrap();
    let (steady, new, down) =
        (health(HealthState::Online, 2), health(HealthState::Online, 3), health(HealthState::Offline, 4));
    let findings = [("c", &down), ("a", &steady), ("nobody", &new), ("b", &new)];
    let changes = catalogue.record_health_of_all(&findings).await.unwrap();
    let told: Vec<_> = changes.iter().map(|change| (change.changed, change.revision)).collect();
    assert_eq!(
        told,
        [(true, revision + 1), (false, revision + 2), (false, revision + 2), (true, revision + 2)]
    );
    let stored = catalogue.health().await.unwrap();
    assert_eq!((&stored["a"], &stored["b"], &stored["c"]), (&steady, &new, &down));
    let history = catalogue.health_history().await.unwrap();
    assert_eq!(["a", "b", "c"].map(|id| history[id].len()), [1, 1, 1]);

    let changes = catalogue.record_health_of_all(&findings).await.unwrap();
    assert!(changes.iter().all(|change| *change == Change { changed: false, revision: revision + 2 }));
    assert_eq!(catalogue.record_health_of_all(&[]).await.unwrap(), []);
}

async fn the_snapshot_holds_what_was_stored(storage: Storage) {
    let catalogue = storage.catalogue();
    assert_eq!(catalogue.snapshot().await.unwrap().plugins.len(), 0);
    let first = publication("jira", "0.0.1", &["z", "a"]);
    let second = NewPublication { at: Millis(2_000), ..publication("jira", "0.0.2", &["a", "z", "m"]) };
    for new in [&first, &second, &publication("slack", "1.0.0", &["s"])] {
        catalogue.commit(new).await.unwrap();
    }
    catalogue.set_enabled("w", Some("u"), "jira", false, Millis(1)).await.unwrap();
    let snapshot = catalogue.snapshot().await.unwrap();
    assert_eq!(snapshot.revision, 4);
    assert_eq!(snapshot.plugins.keys().collect::<Vec<_>>(), ["jira", "slack"]);
    let jira = &snapshot.plugins["jira"];
    assert_eq!((jira.created_at, jira.removed_at, jira.quarantined), (Millis(1_000), None, false));
    assert_eq!(jira.endpoint, first.pull);
    let versions: Vec<_> = jira.publications.iter().map(|row| row.version.as_str()).collect();
    assert_eq!(versions, ["0.0.2", "0.0.1"], "newest first");
    let newest = jira.newest().unwrap();
    assert_eq!(newest.node_types, ["a", "z", "m"], "in the manifest's order");
    assert_eq!((newest.label.as_str(), newest.description.as_str()), ("Jira", "Issues"));
    assert_eq!((newest.published_at, newest.digest), (Millis(2_000), second.digest));
    let key = EnablementKey { workspace_id: "w".into(), user_id: Some("u".into()), plugin_id: "jira".into() };
    assert!(!snapshot.enablement[&key]);
}

async fn a_pin_never_moves_by_itself(storage: Storage) {
    let catalogue = storage.catalogue();
    let first = publication("jira", "0.0.1", &["a"]);
    catalogue.commit(&first).await.unwrap();
    catalogue.pin("w", "jira", "0.0.1").await.unwrap();
    let second = publication("jira", "0.0.2", &["a"]);
    catalogue.commit(&second).await.unwrap();
    let snapshot = catalogue.snapshot().await.unwrap();
    assert_eq!(snapshot.resolve("a", "w"), Some(first.publication_id));
    assert_eq!(snapshot.resolve("a", "v"), Some(second.publication_id));
}

async fn enablement_may_precede_the_publication(storage: Storage) {
    let catalogue = storage.catalogue();
    assert!(catalogue.set_enabled("w", None, "jira", true, Millis(1)).await.unwrap().changed);
    catalogue.commit(&publication("jira", "0.0.1", &["a"])).await.unwrap();
    let facts = catalogue.snapshot().await.unwrap().facts("a", None, "w", "u", false);
    assert!(facts.plugin.unwrap().enabled_in_workspace);
}

async fn changes_of_unknown_plugins_change_nothing(storage: Storage) {
    let catalogue = storage.catalogue();
    let nothing = Change { changed: false, revision: 0 };
    assert_eq!(catalogue.remove("x", Millis(1)).await.unwrap(), nothing);
    assert_eq!(catalogue.set_quarantined("x", true).await.unwrap(), nothing);
    assert_eq!(catalogue.set_endpoint("x", &Endpoint::default()).await.unwrap(), nothing);
    assert_eq!(catalogue.record_health("x", &Health::default()).await.unwrap(), nothing);
    assert_eq!(catalogue.unpin("w", "x").await.unwrap(), nothing);
    assert!(matches!(catalogue.pin("w", "x", "1").await, Err(Error::Conflict { .. })));
}

async fn a_yank_is_remembered_and_can_be_taken_back(storage: Storage) {
    let catalogue = storage.catalogue();
    for version in ["1", "2"] {
        catalogue.commit(&publication("jira", version, &["a"])).await.unwrap();
    }
    let usable = async || {
        let snapshot = catalogue.snapshot().await.unwrap();
        snapshot.plugins["jira"].usable().map(|row| row.version.clone())
    };
    assert_eq!(
        catalogue.set_yanked("jira", "2", Some(Millis(5))).await.unwrap(),
        Change { changed: true, revision: 3 }
    );
    assert!(!catalogue.set_yanked("jira", "2", Some(Millis(6))).await.unwrap().changed);
    assert!(!catalogue.set_yanked("jira", "9", Some(Millis(6))).await.unwrap().changed);
    assert_eq!(usable().await.as_deref(), Some("1"));
    let snapshot = catalogue.snapshot().await.unwrap();
    assert_eq!(snapshot.plugins["jira"].version("2").unwrap().yanked_at, Some(Millis(5)));
    assert!(catalogue.set_yanked("jira", "2", None).await.unwrap().changed);
    assert_eq!(usable().await.as_deref(), Some("2"));
}

async fn a_yanked_version_keeps_its_node_types_from_other_plugins(storage: Storage) {
    let catalogue = storage.catalogue();
    catalogue.commit(&publication("jira", "1", &["a"])).await.unwrap();
    catalogue.set_yanked("jira", "1", Some(Millis(5))).await.unwrap();
    let taken = catalogue.commit(&publication("other", "1", &["a"])).await.unwrap();
    assert!(matches!(taken, Committed::NodeTypeConflict { owner, .. } if owner == "jira"));
    catalogue.commit(&publication("jira", "2", &["b"])).await.unwrap();
    let free = catalogue.commit(&publication("other", "1", &["a"])).await.unwrap();
    assert!(matches!(free, Committed::Committed { .. }));
}

async fn a_replaced_version_is_not_yanked(storage: Storage) {
    let catalogue = storage.catalogue();
    catalogue.commit(&publication("jira", "1", &["a"])).await.unwrap();
    catalogue.set_yanked("jira", "1", Some(Millis(5))).await.unwrap();
    catalogue.commit(&publication("jira", "1", &["a"])).await.unwrap();
    let yanked = async || {
        let snapshot = catalogue.snapshot().await.unwrap();
        snapshot.plugins["jira"].version("1").unwrap().yanked_at
    };
    assert_eq!(yanked().await, Some(Millis(5)), "the same content stays yanked");
    let other =
        NewPublication { digest: Digest([2; 32]), allow_republish: true, ..publication("jira", "1", &["a"]) };
    catalogue.commit(&other).await.unwrap();
    assert_eq!(yanked().await, None);
}

async fn a_valid_signature_is_added_and_never_taken_away(storage: Storage) {
    let catalogue = storage.catalogue();
    let plain = publication("jira", "1", &["a"]);
    let seal = Seal { state: SignatureState::Signed, key_id: Some("release".into()) };
    catalogue.commit(&plain).await.unwrap();
    let signed = NewPublication { seal: seal.clone(), ..plain.clone() };
    assert!(matches!(catalogue.commit(&signed).await.unwrap(), Committed::Unchanged { revision: 2, .. }));
    let invalid = Seal { state: SignatureState::Invalid, key_id: Some("x".into()) };
    for again in [plain.clone(), NewPublication { seal: invalid, ..plain }] {
        assert!(matches!(catalogue.commit(&again).await.unwrap(), Committed::Unchanged { revision: 2, .. }));
    }
    assert_eq!(catalogue.snapshot().await.unwrap().plugins["jira"].newest().unwrap().seal, seal);
}

async fn the_last_changes_of_health_are_kept(storage: Storage) {
    let catalogue = storage.catalogue();
    catalogue.commit(&publication("jira", "1", &["a"])).await.unwrap();
    let last = i64::try_from(HEALTH_HISTORY).unwrap() + 5;
    for at in 1..=last {
        let state = if at % 2 == 0 { HealthState::Offline } else { HealthState::Online };
        let reason = (at % 2 == 0).then(|| format!("refused {at}"));
        let health = Health { state, since: Some(Millis(at)), last_error: reason, ..Health::default() };
        catalogue.record_health("jira", &health).await.unwrap();
        catalogue.record_health("jira", &health).await.unwrap();
    }
    let history = catalogue.health_history().await.unwrap().remove("jira").unwrap();
    let times: Vec<i64> = history.iter().map(|change| change.at.0).collect();
    assert_eq!(times, (6..=last).rev().collect::<Vec<_>>());
    assert_eq!((history[0].state, history[0].reason.clone()), (HealthState::Online, None));
    assert_eq!(history[1].reason.as_deref(), Some(format!("refused {}", last - 1).as_str()));
}

async fn a_known_snapshot_is_renewed_by_what_has_changed(storage: Storage) {
    let catalogue = storage.catalogue();
    let mut known = catalogue.snapshot().await.unwrap();
    let first = known.clone();
    let mut renew = async |what: &str| {
        let whole = catalogue.snapshot().await.unwrap();
        known = catalogue.renewed(&known).await.unwrap().unwrap_or_else(|| panic!("{what} is not seen"));
        assert_eq!(known, whole, "{what}");
        assert_eq!(catalogue.renewed(&known).await.unwrap(), None, "{what}");
    };
    catalogue.set_enabled("w", None, "jira", true, Millis(1)).await.unwrap();
    renew("enablement ahead of the publication").await;
    for new in [
        publication("jira", "1", &["a", "b"]),
        publication("slack", "1", &["s"]),
        publication("jira", "2", &["a", "c"]),
        publication("other", "1", &["b"]),
    ] {
        catalogue.commit(&new).await.unwrap();
        renew(&format!("{}@{}", new.plugin_id, new.version)).await;
    }
    let replaced =
        NewPublication { digest: Digest([2; 32]), allow_republish: true, ..publication("jira", "1", &["d"]) };
    catalogue.commit(&replaced).await.unwrap();
    renew("content that was replaced").await;
    catalogue.pin("w", "jira", "2").await.unwrap();
    renew("a pin").await;
    catalogue.unpin("w", "jira").await.unwrap();
    renew("a pin taken away").await;
    catalogue.set_yanked("jira", "2", Some(Millis(5))).await.unwrap();
    renew("a yank").await;
    catalogue.set_quarantined("slack", true).await.unwrap();
    catalogue.set_enabled("w", Some("u"), "slack", false, Millis(2)).await.unwrap();
    renew("two plugins at once").await;
    catalogue.set_endpoint("slack", &Endpoint { host: "h".into(), port: 1 }).await.unwrap();
    renew("another place").await;
    let online = Health { state: HealthState::Online, since: Some(Millis(9)), ..Health::default() };
    catalogue.record_health("other", &online).await.unwrap();
    renew("another state").await;
    catalogue.remove("jira", Millis(9)).await.unwrap();
    renew("a removal").await;
    let whole = catalogue.snapshot().await.unwrap();
    assert_eq!(catalogue.renewed(&first).await.unwrap(), Some(whole), "everything since the beginning");
}

async fn a_snapshot_too_old_to_be_renewed_is_read_anew(storage: Storage) {
    let catalogue = storage.catalogue();
    let known = catalogue.snapshot().await.unwrap();
    catalogue.commit(&publication("jira", "1", &["a"])).await.unwrap();
    for change in 0..1_100 {
        catalogue.set_quarantined("jira", change % 2 == 0).await.unwrap();
    }
    let whole = catalogue.snapshot().await.unwrap();
    assert_eq!(catalogue.renewed(&known).await.unwrap(), Some(whole));
}
