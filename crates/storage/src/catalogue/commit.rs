//! Committing a publication: one transaction under the catalogue's lock, decided by a pure function.

use super::{Catalogue, LOCK, Seal, grow};
use crate::{
    db::{Fail, in_tx},
    error::{Error, Result},
    rows,
};
use contract::{
    Digest, Json, Millis, PublicationId, catalogue::Asset, manifest::Endpoint, signature::SignatureState,
};
use serde::Deserialize;
use sqlx::QueryBuilder;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use uuid::Uuid;

/// A publication that passed validation, ready to be committed (protocol section 3).
#[derive(Clone, Debug)]
pub struct NewPublication {
    /// Its id, in case it is stored.
    pub publication_id: PublicationId,
    /// The plugin.
    pub plugin_id: String,
    /// Its version.
    pub version: String,
    /// SHA-256 over manifest, items and asset hashes, without addresses.
    pub digest: Digest,
    /// The manifest, raw; its `label` and `description` are lifted into columns.
    pub manifest: Json,
    /// The executor items, a raw JSON array.
    pub items: Json,
    /// Static assets already in file-service.
    pub assets: Vec<Asset>,
    /// Its node types, in the manifest's order.
    pub node_types: Vec<String>,
    /// The plugin's own listener.
    pub pull: Endpoint,
    /// Node types whose listener differs from `pull`.
    pub node_endpoints: Vec<(String, Endpoint)>,
    /// Now.
    pub at: Millis,
    /// Replace a stored version that has another digest.
    pub allow_republish: bool,
    /// What was found about its signature.
    pub seal: Seal,
}

/// What became of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// Stored as a new version, which is the newest now.
    Committed {
        /// Its id.
        publication_id: PublicationId,
        /// The catalogue's revision afterwards.
        revision: i64,
    },
    /// The version was stored before with this digest. Its endpoints were refreshed, a removed plugin
    /// lives again, and a valid signature was added to a version that had none; the revision grew
    /// only if one of these changed something.
    Unchanged {
        /// The stored publication.
        publication_id: PublicationId,
        /// The catalogue's revision afterwards.
        revision: i64,
    },
    /// The version was stored with another digest and `allow_republish` was set: its content was
    /// replaced under its old id, so that runs pinned to it go on, and it is the newest now; a yank
    /// was about the old content and is over.
    Replaced {
        /// The stored publication.
        publication_id: PublicationId,
        /// The catalogue's revision afterwards.
        revision: i64,
    },
    /// The version is stored with this other digest; nothing changed.
    VersionImmutable {
        /// The digest in the store.
        stored: Digest,
    },
    /// Another live plugin's newest publication that is not yanked, or a newer yanked one, has one of
    /// the node types; nothing changed.
    NodeTypeConflict {
        /// The node type.
        node_type: String,
        /// Its owner.
        owner: String,
    },
}

/// What the store knows of the same version of the same plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stored {
    publication_id: PublicationId,
    digest: Digest,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Plan {
    Insert,
    Refresh(PublicationId),
    Replace(PublicationId),
    Refuse(Committed),
}

/// Decides on a publication. `owned` are the node types of other live plugins' newest publications
/// with their owners.
fn plan(new: &NewPublication, stored: Option<Stored>, owned: Vec<(String, String)>) -> Plan {
    if let Some(stored) = stored
        && stored.digest != new.digest
        && !new.allow_republish
    {
        return Plan::Refuse(Committed::VersionImmutable { stored: stored.digest });
    }
    let wanted: HashSet<&str> = new.node_types.iter().map(String::as_str).collect();
    let taken = owned.into_iter().find(|(node_type, _)| wanted.contains(node_type.as_str()));
    match (taken, stored) {
        (Some((node_type, owner)), _) => Plan::Refuse(Committed::NodeTypeConflict { node_type, owner }),
        (None, None) => Plan::Insert,
        (None, Some(stored)) if stored.digest == new.digest => Plan::Refresh(stored.publication_id),
        (None, Some(stored)) => Plan::Replace(stored.publication_id),
    }
}

/// The parts of a manifest that lists show.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Shown {
    label: String,
    description: String,
}

/// Which of the wanted node types other live plugins own; the list of node types goes in between.
const OWNED_BY_OTHERS: [&str; 3] = [
    "SELECT n.node_type, p.plugin_id FROM publication_node_types n \
     JOIN publications p ON p.publication_id = n.publication_id \
     JOIN plugins g ON g.plugin_id = p.plugin_id \
     WHERE n.node_type IN (",
    ") AND g.removed_at IS NULL AND g.plugin_id <> ",
    " AND p.position >= (SELECT COALESCE(MAX(x.position), 0) FROM publications x \
                         WHERE x.plugin_id = g.plugin_id AND x.yanked_at IS NULL) \
     ORDER BY n.node_type, p.plugin_id",
];

/// Three parameters each; SQLite takes 32,766, PostgreSQL 65,535.
const NODE_TYPES_AT_ONCE: usize = 5_000;

const PUT_PUBLICATION: &str = "\
    INSERT INTO publications (publication_id, plugin_id, version, digest, label, description, manifest, \
                              items, assets, published_at, signature, signed_by, position) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, \
            (SELECT COALESCE(MAX(position), 0) + 1 FROM publications)) \
    ON CONFLICT (plugin_id, version) DO UPDATE \
    SET digest = excluded.digest, label = excluded.label, description = excluded.description, \
        manifest = excluded.manifest, items = excluded.items, assets = excluded.assets, \
        published_at = excluded.published_at, position = excluded.position, yanked_at = NULL, \
        signature = excluded.signature, signed_by = excluded.signed_by";

// The parts of the transaction. They are macros because their connection is of either kind.

/// The stored publication of the same version.
macro_rules! stored_version {
    ($c:ident, $new:ident) => {{
        let row: Option<(Uuid, Vec<u8>)> = sqlx::query_as(
            "SELECT publication_id, digest FROM publications WHERE plugin_id = $1 AND version = $2",
        )
        .bind(&$new.plugin_id)
        .bind(&$new.version)
        .fetch_optional(&mut *$c)
        .await?;
        match row {
            None => None,
            Some((id, digest)) => Some(Stored {
                publication_id: PublicationId(id),
                digest: rows::digest(&digest, format_args!("publication {id}"))?,
            }),
        }
    }};
}

/// The wanted node types that other live plugins own, with their owners.
macro_rules! owned_by_others {
    ($c:ident, $new:ident) => {{
        let [select, other, newest] = OWNED_BY_OTHERS;
        match $new.node_types.is_empty() {
            true => Vec::new(),
            false => {
                let mut query = QueryBuilder::new(select);
                let mut list = query.separated(", ");
                for node_type in &$new.node_types {
                    list.push_bind(node_type);
                }
                query.push(other).push_bind(&$new.plugin_id).push(newest);
                query.build_query_as().persistent(false).fetch_all(&mut *$c).await?
            }
        }
    }};
}

/// Makes the plugin known and alive; was it not?
macro_rules! revive {
    ($c:ident, $new:ident) => {
        sqlx::query(
            "INSERT INTO plugins (plugin_id, created_at, quarantined) VALUES ($1, $2, FALSE) \
             ON CONFLICT (plugin_id) DO UPDATE SET removed_at = NULL WHERE plugins.removed_at IS NOT NULL",
        )
        .bind(&$new.plugin_id)
        .bind($new.at.0)
        .execute(&mut *$c)
        .await?
        .rows_affected()
            > 0
    };
}

/// Stores the documents and node types under an id, in place of what it had.
macro_rules! put_documents {
    ($c:ident, $new:ident, $publication_id:ident, $assets:ident) => {{
        let shown: Shown = $new.manifest.read().unwrap_or_default();
        sqlx::query(PUT_PUBLICATION)
            .bind($publication_id.0)
            .bind(&$new.plugin_id)
            .bind(&$new.version)
            .bind($new.digest.0.as_slice())
            .bind(&shown.label)
            .bind(&shown.description)
            .bind($new.manifest.text())
            .bind($new.items.text())
            .bind(&$assets)
            .bind($new.at.0)
            .bind($new.seal.state.as_str())
            .bind($new.seal.key_id.as_deref())
            .execute(&mut *$c)
            .await?;
        sqlx::query("DELETE FROM publication_node_types WHERE publication_id = $1")
            .bind($publication_id.0)
            .execute(&mut *$c)
            .await?;
        let named: Vec<(i64, &String)> = (0..).zip(&$new.node_types).collect();
        for part in named.chunks(NODE_TYPES_AT_ONCE) {
            let mut query =
                QueryBuilder::new("INSERT INTO publication_node_types (publication_id, ordinal, node_type) ");
            query.push_values(part, |mut row, (ordinal, node_type)| {
                row.push_bind($publication_id.0).push_bind(ordinal).push_bind(node_type);
            });
            query.push(" ON CONFLICT (publication_id, node_type) DO NOTHING");
            query.build().persistent(false).execute(&mut *$c).await?;
        }
    }};
}

/// Adds a valid signature to a stored publication; is it new? A signature over the same digest never
/// stops being one, so none is ever taken away.
macro_rules! seal {
    ($c:ident, $new:ident, $publication_id:ident) => {
        $new.seal.state == SignatureState::Signed
            && sqlx::query(
                "UPDATE publications SET signature = 'signed', signed_by = $2 \
                 WHERE publication_id = $1 AND signature <> 'signed'",
            )
            .bind($publication_id.0)
            .bind($new.seal.key_id.as_deref())
            .execute(&mut *$c)
            .await?
            .rows_affected()
                > 0
    };
}

/// Makes the plugin's endpoints exactly the given ones; did one move?
macro_rules! put_endpoints {
    ($c:ident, $new:ident) => {{
        let known: Vec<(String, String, i64)> =
            sqlx::query_as("SELECT node_type, host, port FROM plugin_endpoints WHERE plugin_id = $1")
                .bind(&$new.plugin_id)
                .fetch_all(&mut *$c)
                .await?;
        let wanted = endpoints($new);
        let moved = BTreeSet::from_iter(known) != wanted;
        if moved {
            sqlx::query("DELETE FROM plugin_endpoints WHERE plugin_id = $1")
                .bind(&$new.plugin_id)
                .execute(&mut *$c)
                .await?;
            for (node_type, host, port) in &wanted {
                sqlx::query(
                    "INSERT INTO plugin_endpoints (plugin_id, node_type, host, port) VALUES ($1, $2, $3, $4)",
                )
                .bind(&$new.plugin_id)
                .bind(node_type)
                .bind(host)
                .bind(port)
                .execute(&mut *$c)
                .await?;
            }
        }
        moved
    }};
}

impl Catalogue {
    /// Commits a publication in one transaction. Of concurrent publishers of one version one wins;
    /// the others see its result. An answer that refuses is no error.
    pub async fn commit(&self, new: &NewPublication) -> Result<Committed> {
        let assets = serde_json::to_string(&new.assets)
            .map_err(|error| Error::InvalidValue { reason: format!("assets: {error}") })?;
        in_tx!(&self.db, |c| {
            let mut revision: i64 = sqlx::query_scalar(LOCK).fetch_one(&mut *c).await?;
            let stored = stored_version!(c, new);
            let owned = owned_by_others!(c, new);
            let plan = plan(new, stored, owned);
            let publication_id = match plan {
                Plan::Refuse(answer) => return Ok(answer),
                Plan::Insert => new.publication_id,
                Plan::Refresh(id) | Plan::Replace(id) => id,
            };
            let refresh = matches!(plan, Plan::Refresh(_));
            let revived = revive!(c, new);
            let sealed = match refresh {
                true => seal!(c, new, publication_id),
                false => {
                    put_documents!(c, new, publication_id, assets);
                    true
                }
            };
            let moved = put_endpoints!(c, new);
            if revived || moved || sealed {
                revision = grow!(c, &new.plugin_id);
            }
            Ok::<_, Fail>(match plan {
                Plan::Refresh(_) => Committed::Unchanged { publication_id, revision },
                Plan::Replace(_) => Committed::Replaced { publication_id, revision },
                _ => Committed::Committed { publication_id, revision },
            })
        })
    }
}

/// The endpoints of a publication as rows; '' is the plugin's own.
fn endpoints(new: &NewPublication) -> BTreeSet<(String, String, i64)> {
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
mod tests {
    use super::*;

    fn publication() -> NewPublication {
        NewPublication {
            publication_id: PublicationId(Uuid::from_u128(1)),
            plugin_id: "jira".into(),
            version: "0.0.1".into(),
            digest: Digest([1; 32]),
            manifest: Json::null(),
            items: Json::null(),
            assets: Vec::new(),
            node_types: vec!["a".into(), "b".into()],
            pull: Endpoint { host: "h".into(), port: 1 },
            node_endpoints: Vec::new(),
            at: Millis(1),
            allow_republish: false,
            seal: Seal::default(),
        }
    }

    #[test]
    fn a_changed_version_is_refused_before_a_conflict_of_node_types() {
        let stored = Stored { publication_id: PublicationId(Uuid::from_u128(2)), digest: Digest([2; 32]) };
        let owned = || vec![("b".to_owned(), "slack".to_owned())];
        let refused = Plan::Refuse(Committed::VersionImmutable { stored: stored.digest });
        assert_eq!(plan(&publication(), Some(stored), owned()), refused);
        let allowed = NewPublication { allow_republish: true, ..publication() };
        let conflict = Committed::NodeTypeConflict { node_type: "b".into(), owner: "slack".into() };
        assert_eq!(plan(&allowed, Some(stored), owned()), Plan::Refuse(conflict));
        assert_eq!(plan(&allowed, Some(stored), Vec::new()), Plan::Replace(stored.publication_id));
    }

    #[test]
    fn only_endpoints_that_differ_from_the_plugins_own_are_kept() {
        let other = Endpoint { host: "o".into(), port: 2 };
        let new = publication();
        let node_endpoints = vec![("a".into(), other), ("b".into(), new.pull.clone())];
        let rows = endpoints(&NewPublication { node_endpoints, ..new });
        let names: Vec<_> = rows.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["", "a"]);
    }
}
