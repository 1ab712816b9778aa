use super::*;
use crate::catalogue::Seal;
use contract::{Json, Millis};
use uuid::Uuid;

fn publication(plugin_id: &str, node_types: &[&str]) -> NewPublication {
    NewPublication {
        publication_id: PublicationId(Uuid::from_u128(1)),
        plugin_id: plugin_id.into(),
        version: "0.0.1".into(),
        digest: Digest([1; 32]),
        manifest: Json::null(),
        items: Json::null(),
        assets: Vec::new(),
        node_types: node_types.iter().map(|name| (*name).to_owned()).collect(),
        pull: Endpoint { host: "h".into(), port: 1 },
        node_endpoints: Vec::new(),
        at: Millis(1),
        allow_republish: false,
        seal: Seal::default(),
    }
}

fn owned(owners: &[(&str, &str, bool)]) -> HashMap<String, Vec<Owner>> {
    let mut owned: HashMap<String, Vec<Owner>> = HashMap::new();
    for (node_type, plugin_id, removed) in owners {
        let owner = Owner { plugin_id: (*plugin_id).to_owned(), removed: *removed };
        owned.entry((*node_type).to_owned()).or_default().push(owner);
    }
    owned
}

fn stored(plugin_id: &str, digest: u8) -> HashMap<String, Stored> {
    let stored = Stored {
        publication_id: PublicationId(Uuid::from_u128(2)),
        digest: Digest([digest; 32]),
        signature: SignatureState::Unsigned,
    };
    HashMap::from([(plugin_id.to_owned(), stored)])
}

/// `+` is stored, `!` is refused for the node type of that owner, `=` for another digest.
fn play(publications: &[NewPublication], known: &Known) -> Vec<String> {
    let told = |plan| match plan {
        Plan::Store(_) => "+".to_owned(),
        Plan::Refuse(Committed::NodeTypeConflict { node_type, owner }) => format!("!{node_type} of {owner}"),
        Plan::Refuse(_) => "=".to_owned(),
    };
    plan(publications, known).into_iter().map(told).collect()
}

#[test]
fn a_changed_version_is_refused_before_a_conflict_of_node_types() {
    let new = publication("jira", &["a", "b"]);
    let owners = owned(&[("b", "slack", false)]);
    let known = Known { stored: stored("jira", 2), owners, ..Known::default() };
    assert_eq!(play(std::slice::from_ref(&new), &known), ["="]);
    let allowed = NewPublication { allow_republish: true, ..new };
    assert_eq!(play(std::slice::from_ref(&allowed), &known), ["!b of slack"]);
    let known = Known { owners: HashMap::new(), ..known };
    let plans = plan(std::slice::from_ref(&allowed), &known);
    let Some(Plan::Store(deed)) = plans.first() else { panic!("{plans:?}") };
    assert_eq!((deed.kind, deed.publication_id), (Kind::Replace, known.stored["jira"].publication_id));
}

#[test]
fn of_publications_together_the_first_gets_a_node_type() {
    let both = [publication("jira", &["a", "b"]), publication("slack", &["c", "b"])];
    assert_eq!(play(&both, &Known::default()), ["+", "!b of jira"]);
}

#[test]
fn a_refused_publication_claims_nothing() {
    let known = Known { owners: owned(&[("a", "old", false)]), ..Known::default() };
    let both = [publication("jira", &["a", "b"]), publication("slack", &["b"])];
    assert_eq!(play(&both, &known), ["!a of old", "+"]);
}

#[test]
fn a_node_type_given_up_is_free_for_those_who_come_after() {
    let known = Known {
        plugins: HashMap::from([("jira".to_owned(), false)]),
        owners: owned(&[("b", "jira", false)]),
        ..Known::default()
    };
    let (gives_up, takes) = (publication("jira", &["a"]), publication("slack", &["b"]));
    assert_eq!(play(&[gives_up.clone(), takes.clone()], &known), ["+", "+"]);
    assert_eq!(play(&[takes, gives_up], &known), ["!b of jira", "+"]);
}

#[test]
fn a_removed_plugin_that_lives_again_has_its_node_types_back() {
    let known = Known {
        plugins: HashMap::from([("jira".to_owned(), true)]),
        stored: stored("jira", 1),
        owners: owned(&[("b", "jira", true)]),
        ..Known::default()
    };
    // The version that comes again need not be the newest, which has the node type.
    let (again, takes) = (publication("jira", &["a"]), publication("slack", &["b"]));
    assert_eq!(play(&[again.clone(), takes.clone()], &known), ["+", "!b of jira"]);
    assert_eq!(play(&[takes, again], &known), ["+", "+"]);
}

#[test]
fn what_is_stored_already_changes_nothing() {
    let new = publication("jira", &["a"]);
    let known = Known {
        plugins: HashMap::from([("jira".to_owned(), false)]),
        stored: stored("jira", 1),
        endpoints: HashMap::from([("jira".to_owned(), endpoints(&new))]),
        ..Known::default()
    };
    let changes = |new: NewPublication, known: &Known| {
        let plans = plan(std::slice::from_ref(&new), known);
        let Some(Plan::Store(deed)) = plans.first() else { panic!("{plans:?}") };
        deed.changes()
    };
    assert!(!changes(new.clone(), &known));
    let pull = Endpoint { host: "elsewhere".into(), port: 1 };
    assert!(changes(NewPublication { pull, ..new.clone() }, &known));
    let seal = Seal { state: SignatureState::Signed, key_id: None };
    assert!(changes(NewPublication { seal, ..new.clone() }, &known));
    let removed = Known { plugins: HashMap::from([("jira".to_owned(), true)]), ..known };
    assert!(changes(new, &removed));
}

#[test]
fn only_endpoints_that_differ_from_the_plugins_own_are_kept() {
    let other = Endpoint { host: "o".into(), port: 2 };
    let new = publication("jira", &["a", "b"]);
    let node_endpoints = vec![("a".into(), other), ("b".into(), new.pull.clone())];
    let rows = endpoints(&NewPublication { node_endpoints, ..new });
    let names: Vec<_> = rows.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["", "a"]);
}
