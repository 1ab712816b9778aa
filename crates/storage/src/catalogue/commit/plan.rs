//! What becomes of publications that are committed together: decided as if one came after the other,
//! each seeing what those before it did. Pure.

use super::{Committed, NewPublication};
use contract::{Digest, PublicationId, manifest::Endpoint, signature::SignatureState};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Node type ('' is the plugin's own listener), host and port.
pub(super) type EndpointRow = (String, String, i64);

/// What the store knows of the same version of the same plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) publication_id: PublicationId,
    pub(super) digest: Digest,
    pub(super) signature: SignatureState,
}

/// A plugin whose newest publication that is not yanked, or a newer yanked one, has a node type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) plugin_id: String,
    pub(super) removed: bool,
}

/// What the store knows about publications that are to be committed.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Their plugins, as far as they were ever published; true: removed.
    pub(super) plugins: HashMap<String, bool>,
    /// By plugin: the version that is to be published.
    pub(super) stored: HashMap<String, Stored>,
    /// Who has their node types.
    pub(super) owners: HashMap<String, Vec<Owner>>,
    /// By plugin.
    pub(super) endpoints: HashMap<String, BTreeSet<EndpointRow>>,
}

/// What is to be done about a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Nothing: it is refused.
    Refuse(Committed),
    /// It is stored, as far as it is not.
    Store(Deed),
}

/// What is to be written. Nothing of it: everything is stored already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Deed {
    pub(super) publication_id: PublicationId,
    pub(super) kind: Kind,
    /// The plugin is new, or was removed and lives again.
    pub(super) revived: bool,
    /// The stored version had no valid signature and has one now.
    pub(super) sealed: bool,
    /// Its endpoints, if they are other ones than so far.
    pub(super) endpoints: Option<BTreeSet<EndpointRow>>,
}

/// How a publication meets what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The version is new.
    Insert,
    /// The version has this digest.
    Refresh,
    /// The version has another digest, which may be replaced.
    Replace,
}

impl Deed {
    /// Is there something to write?
    pub(super) fn changes(&self) -> bool {
        self.kind != Kind::Refresh || self.revived || self.sealed || self.endpoints.is_some()
    }

    /// The answer, given the catalogue's revision after this deed.
    pub(super) fn answer(&self, revision: i64) -> Committed {
        let publication_id = self.publication_id;
        match self.kind {
            Kind::Insert => Committed::Committed { publication_id, revision },
            Kind::Refresh => Committed::Unchanged { publication_id, revision },
            Kind::Replace => Committed::Replaced { publication_id, revision },
        }
    }
}

/// Decides on publications of different plugins, in their order.
pub(super) fn plan(publications: &[NewPublication], known: &Known) -> Vec<Plan> {
    let mut claims = Claims { known, newest: HashMap::new(), decided: HashMap::new() };
    publications.iter().map(|new| plan_one(new, known, &mut claims)).collect()
}

fn plan_one<'a>(new: &'a NewPublication, known: &'a Known, claims: &mut Claims<'a>) -> Plan {
    let stored = known.stored.get(&new.plugin_id);
    let kind = match stored {
        None => Kind::Insert,
        Some(stored) if stored.digest == new.digest => Kind::Refresh,
        Some(_) if new.allow_republish => Kind::Replace,
        Some(stored) => return Plan::Refuse(Committed::VersionImmutable { stored: stored.digest }),
    };
    if let Some((node_type, owner)) = claims.conflict(new) {
        return Plan::Refuse(Committed::NodeTypeConflict { node_type, owner });
    }
    claims.take(new, kind);
    let endpoints = endpoints(new);
    Plan::Store(Deed {
        publication_id: stored.map_or(new.publication_id, |stored| stored.publication_id),
        kind,
        revived: known.plugins.get(&new.plugin_id).is_none_or(|removed| *removed),
        // A signature over the same digest never stops being one, so none is ever taken away.
        sealed: kind == Kind::Refresh
            && new.seal.state == SignatureState::Signed
            && stored.is_some_and(|stored| stored.signature != SignatureState::Signed),
        endpoints: (known.endpoints.get(&new.plugin_id) != Some(&endpoints)).then_some(endpoints),
    })
}

/// Who has which node type, while publications are decided on.
struct Claims<'a> {
    known: &'a Known,
    /// By node type: the plugin that has it in its newest publication, which was decided on here.
    newest: HashMap<&'a str, &'a str>,
    /// By plugin: what was decided on here.
    decided: HashMap<&'a str, Kind>,
}

impl<'a> Claims<'a> {
    /// The first of the publication's node types that another live plugin has, and its owner.
    fn conflict(&self, new: &NewPublication) -> Option<(String, String)> {
        let wanted: BTreeSet<&str> = new.node_types.iter().map(String::as_str).collect();
        wanted.into_iter().find_map(|node_type| {
            let stored = self.known.owners.get(node_type).into_iter().flatten();
            let stored = stored.filter(|owner| self.still_owns(owner)).map(|owner| owner.plugin_id.as_str());
            let owners = stored.chain(self.newest.get(node_type).copied());
            let owner = owners.filter(|owner| *owner != new.plugin_id).min()?;
            Some((node_type.to_owned(), owner.to_owned()))
        })
    }

    fn still_owns(&self, owner: &Owner) -> bool {
        match self.decided.get(owner.plugin_id.as_str()) {
            None => !owner.removed,
            // Its newest publication is the one that it was; if it was removed, it lives again.
            Some(Kind::Refresh) => true,
            // Its newest publication is another one now.
            Some(Kind::Insert | Kind::Replace) => false,
        }
    }

    fn take(&mut self, new: &'a NewPublication, kind: Kind) {
        self.decided.insert(&new.plugin_id, kind);
        if kind != Kind::Refresh {
            let claims = new.node_types.iter().map(|node_type| (node_type.as_str(), new.plugin_id.as_str()));
            self.newest.extend(claims);
        }
    }
}

/// The endpoints of a publication as rows; '' is the plugin's own.
fn endpoints(new: &NewPublication) -> BTreeSet<EndpointRow> {
    let row = |node_type: &str, endpoint: &Endpoint| {
        (node_type.to_owned(), endpoint.host.clone(), i64::from(endpoint.port))
    };
    // By node type: were one named twice, the last would count.
    let nodes: BTreeMap<&str, &Endpoint> =
        new.node_endpoints.iter().map(|(node_type, endpoint)| (node_type.as_str(), endpoint)).collect();
    let differing = nodes.into_iter().filter(|(_, endpoint)| **endpoint != new.pull);
    std::iter::once(row("", &new.pull)).chain(differing.map(|(name, endpoint)| row(name, endpoint))).collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
