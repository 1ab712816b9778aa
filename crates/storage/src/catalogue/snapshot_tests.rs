use super::*;
use contract::{
    ErrorCode,
    catalogue::{Health, HealthState},
    manifest::Endpoint,
    policy::decide,
};
use std::{collections::BTreeMap, sync::Arc};
use uuid::Uuid;

fn publication(n: u128, version: &str, node_types: &[&str]) -> PublicationRow {
    PublicationRow {
        publication_id: PublicationId(Uuid::from_u128(n)),
        version: version.into(),
        digest: Digest([1; 32]),
        label: format!("Label {version}"),
        description: "For people".into(),
        published_at: Millis(7),
        node_types: node_types.iter().map(|name| (*name).to_owned()).collect(),
        yanked_at: None,
        seal: Seal::default(),
    }
}

/// A plugin with publications, the newest first.
fn plugin(plugin_id: &str, publications: Vec<PublicationRow>) -> PluginRow {
    PluginRow {
        plugin_id: plugin_id.into(),
        endpoint: Endpoint { host: plugin_id.into(), port: 1 },
        publications,
        ..PluginRow::default()
    }
}

fn snapshot(plugins: impl IntoIterator<Item = PluginRow>) -> Snapshot {
    let plugins = plugins.into_iter().map(|plugin| (plugin.plugin_id.clone(), plugin)).collect();
    Snapshot::new(1, plugins, BTreeMap::new(), BTreeMap::new())
}

fn pinned(mut snapshot: Snapshot, plugin_id: &str, version: &str) -> Snapshot {
    let key = PinKey { workspace_id: "pinned".into(), plugin_id: plugin_id.into() };
    Arc::make_mut(&mut snapshot.pins).insert(key, version.into());
    snapshot
}

/// `jira` with `get` and `put` in its newest version and `old` in the one before.
fn jira() -> PluginRow {
    plugin("jira", vec![publication(2, "0.0.2", &["get", "put"]), publication(1, "0.0.1", &["get", "old"])])
}

fn owner(snapshot: &Snapshot, node_type: &str) -> Option<String> {
    snapshot.owner_of(node_type).map(|plugin| plugin.plugin_id.clone())
}

/// The code of the refusal for a workspace, with plugins enabled by default.
fn refusal(snapshot: &Snapshot, node_type: &str, pin: Option<u128>, workspace: &str) -> Option<ErrorCode> {
    let pin = pin.map(|n| PublicationId(Uuid::from_u128(n)));
    let facts = snapshot.facts(node_type, pin, workspace, "u", true);
    decide(node_type, workspace, "u", &facts).refusal.map(|refusal| refusal.code)
}

#[test]
fn a_node_type_belongs_to_the_live_plugin_whose_newest_publication_has_it() {
    let removed =
        PluginRow { removed_at: Some(Millis(1)), ..plugin("a", vec![publication(3, "1", &["get"])]) };
    let former = plugin("b", vec![publication(5, "2", &["x"]), publication(4, "1", &["get"])]);
    let all = snapshot([removed.clone(), former.clone(), jira()]);
    assert_eq!(owner(&all, "get").as_deref(), Some("jira"));
    assert_eq!(
        owner(&snapshot([removed.clone(), former]), "get").as_deref(),
        Some("b"),
        "live before removed"
    );
    assert_eq!(owner(&snapshot([removed]), "get").as_deref(), Some("a"), "removed before nobody");
    assert_eq!(owner(&all, "unknown"), None);
}

#[test]
fn a_pinned_workspace_resolves_to_its_version_and_others_to_the_newest() {
    let all = pinned(snapshot([jira()]), "jira", "0.0.1");
    let id = |n| Some(PublicationId(Uuid::from_u128(n)));
    assert_eq!(all.resolve("get", "pinned"), id(1));
    assert_eq!(all.resolve("get", "other"), id(2));
    assert_eq!(all.resolve("unknown", "other"), None);
    let lost = pinned(snapshot([jira()]), "jira", "9.9.9");
    assert_eq!(lost.resolve("get", "pinned"), None, "a pin never moves");
}

#[test]
fn facts_without_a_pinned_publication_are_those_of_the_workspace() {
    let all = pinned(snapshot([jira()]), "jira", "0.0.1");
    let facts = all.facts("put", None, "other", "u", true);
    assert_eq!((facts.subject.as_str(), facts.has_node_type), ("jira@0.0.2", true));
    let facts = all.facts("put", None, "pinned", "u", true);
    assert_eq!((facts.subject.as_str(), facts.has_node_type), ("jira@0.0.1", false));
    assert_eq!(refusal(&all, "put", None, "pinned"), Some(ErrorCode::NodeTypeUnknown));
    assert_eq!(refusal(&all, "old", None, "pinned"), None);
    assert_eq!(refusal(&all, "old", None, "other"), Some(ErrorCode::NodeTypeUnknown));
    assert_eq!(refusal(&all, "nobody.has.it", None, "other"), Some(ErrorCode::PluginUnknown));
}

#[test]
fn a_run_keeps_its_publication() {
    let all = snapshot([jira()]);
    assert_eq!(refusal(&all, "old", Some(1), "w"), None);
    assert_eq!(
        all.facts("old", Some(PublicationId(Uuid::from_u128(1))), "w", "u", true).subject,
        "jira@0.0.1"
    );
    assert_eq!(refusal(&all, "put", Some(1), "w"), Some(ErrorCode::NodeTypeUnknown));
    assert_eq!(refusal(&all, "get", Some(99), "w"), Some(ErrorCode::PublicationMissing));
}

#[test]
fn facts_carry_removal_quarantine_and_health() {
    let change = |change: fn(&mut PluginRow)| {
        let mut plugin = jira();
        change(&mut plugin);
        refusal(&snapshot([plugin]), "get", None, "w")
    };
    assert_eq!(change(|_| ()), None);
    assert_eq!(change(|plugin| plugin.removed_at = Some(Millis(1))), Some(ErrorCode::PluginRemoved));
    assert_eq!(change(|plugin| plugin.quarantined = true), Some(ErrorCode::PluginQuarantined));
    let offline = |plugin: &mut PluginRow| {
        plugin.health = Health { state: HealthState::Offline, ..Health::default() };
    };
    assert_eq!(change(offline), Some(ErrorCode::PluginOffline));
}

#[test]
fn enablement_is_the_default_until_the_workspace_and_the_user_say_otherwise() {
    let mut all = snapshot([jira()]);
    let mut set = |user: Option<&str>, enabled: bool| {
        let key = EnablementKey {
            workspace_id: "w".into(),
            user_id: user.map(str::to_owned),
            plugin_id: "jira".into(),
        };
        Arc::make_mut(&mut all.enablement).insert(key, enabled);
        let enabled = |user: &str, default: bool| {
            let facts = all.facts("get", None, "w", user, default);
            let allowed = decide("get", "w", user, &facts).allowed;
            let listed = all.summary("jira", "w", Some(user), default).map(|summary| summary.enabled);
            assert_eq!(listed, Some(allowed), "lists and policy agree");
            allowed
        };
        [enabled("u", true), enabled("u", false), enabled("v", true), enabled("v", false)]
    };
    assert_eq!(set(Some("u"), true), [true, false, true, false], "a user alone cannot enable");
    assert_eq!(set(None, true), [true, true, true, true]);
    assert_eq!(set(Some("u"), false), [false, false, true, true]);
    assert_eq!(set(None, false), [false, false, false, false]);
}

#[test]
fn tasks_go_to_the_endpoint_of_the_node_type_or_of_the_plugin() {
    let mut plugin = jira();
    let own = Endpoint { host: "put".into(), port: 2 };
    plugin.node_endpoints.insert("put".into(), own.clone());
    let all = snapshot([plugin]);
    assert_eq!(all.endpoint_of("jira", "put"), Some(&own));
    assert_eq!(all.endpoint_of("jira", "get").map(|endpoint| endpoint.host.as_str()), Some("jira"));
    assert_eq!(all.endpoint_of("slack", "get"), None);
}

#[test]
fn a_summary_shows_the_newest_publication_and_the_pin() {
    let all = pinned(snapshot([jira()]), "jira", "0.0.1");
    let summary = all.summary("jira", "pinned", None, false).unwrap();
    assert_eq!((summary.publication_version.as_str(), summary.label.as_str()), ("0.0.2", "Label 0.0.2"));
    assert_eq!(summary.node_types, ["get", "put"]);
    assert_eq!(summary.pinned_version.as_deref(), Some("0.0.1"));
    assert!(!summary.enabled && !summary.removed && !summary.quarantined);
    assert!(all.summary("slack", "w", None, true).is_none());
}

fn yanked(mut plugin: PluginRow, version: &str) -> PluginRow {
    for publication in plugin.publications.iter_mut().filter(|known| known.version == version) {
        publication.yanked_at = Some(Millis(9));
    }
    plugin
}

#[test]
fn a_yanked_version_has_no_new_use_and_keeps_its_pins_and_runs() {
    let id = |n| Some(PublicationId(Uuid::from_u128(n)));
    let all = pinned(snapshot([yanked(jira(), "0.0.2")]), "jira", "0.0.2");
    assert_eq!(all.resolve("get", "other"), id(1), "new use takes the one before");
    assert_eq!(all.resolve("get", "pinned"), id(2), "a pin never moves");
    assert_eq!(refusal(&all, "put", Some(2), "other"), None, "a run keeps its publication");
    assert_eq!(refusal(&all, "put", None, "other"), Some(ErrorCode::NodeTypeUnknown));
    assert_eq!(all.summary("jira", "other", None, true).unwrap().publication_version, "0.0.1");
}

#[test]
fn a_plugin_with_nothing_but_yanked_versions_is_shown_and_not_used() {
    let all = snapshot([yanked(yanked(jira(), "0.0.2"), "0.0.1")]);
    assert_eq!(all.resolve("get", "w"), None);
    assert_eq!(refusal(&all, "get", None, "w"), Some(ErrorCode::PublicationMissing));
    assert_eq!(all.summary("jira", "w", None, true).unwrap().publication_version, "0.0.2");
}

#[test]
fn a_yank_gives_no_node_type_away() {
    let other = plugin("other", vec![publication(8, "2", &[]), publication(7, "1", &["put"])]);
    let all = snapshot([yanked(jira(), "0.0.2"), other]);
    assert_eq!(owner(&all, "put").as_deref(), Some("jira"));
}

#[test]
fn a_copy_that_changed_in_one_plugin_shares_the_rest() {
    let other = || plugin("other", vec![publication(7, "1", &["get", "more"])]);
    let all = snapshot([jira(), other()]);
    let mut healthy = jira();
    healthy.health = Health { state: HealthState::Online, ..Health::default() };
    let delta = |plugin: PluginRow| Delta {
        revision: 2,
        changed: [plugin.plugin_id.clone()].into(),
        plugins: [(plugin.plugin_id.clone(), plugin)].into(),
        ..Delta::default()
    };
    let next = all.after(delta(healthy));
    assert_eq!(next.plugin("jira").unwrap().health.state, HealthState::Online);
    assert!(Arc::ptr_eq(&all.plugins["other"], &next.plugins["other"]));
    assert!(Arc::ptr_eq(&all.index.claimants, &next.index.claimants), "no node type has moved");
    let removed = PluginRow { removed_at: Some(Millis(1)), ..jira() };
    assert_eq!(owner(&all.after(delta(removed)), "get").as_deref(), Some("other"));
}
