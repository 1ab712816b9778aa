//! Committing publications: one transaction under the catalogue's lock for all that come together,
//! decided by a pure function. It costs a dozen statements, however many publications they are about.

mod plan;

use super::{Catalogue, LOCK, Seal, grow};
use crate::{
    db::{Fail, in_tx},
    error::{Error, Result},
    rows,
};
use contract::{Digest, Json, Millis, PublicationId, catalogue::Asset, manifest::Endpoint};
use plan::{Deed, Kind, Known, Owner, Plan, Stored, plan};
use serde::Deserialize;
use sqlx::QueryBuilder;
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// So many publications can be committed together.
pub const MOST_TOGETHER: usize = 64;

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

/// The parts of a manifest that lists show.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Shown {
    label: String,
    description: String,
}

/// A publication that is stored in place of what its version had.
struct Written<'a> {
    new: &'a NewPublication,
    deed: &'a Deed,
    shown: Shown,
    assets: String,
}

impl<'a> Written<'a> {
    fn new(new: &'a NewPublication, deed: &'a Deed) -> Result<Self> {
        let assets = serde_json::to_string(&new.assets)
            .map_err(|error| Error::InvalidValue { reason: format!("assets: {error}") })?;
        Ok(Self { new, deed, shown: new.manifest.read().unwrap_or_default(), assets })
    }
}

/// Publications with the wanted node types. A query of its own: joined with the next one, PostgreSQL may
/// go over all plugins, as long as it has no statistics about a catalogue that fills.
const WITH_NODE_TYPES: &str =
    "SELECT publication_id, node_type FROM publication_node_types WHERE node_type IN (";

/// Those of them that own their node types; the list of publications goes in between.
const OWNERS: [&str; 2] = [
    "SELECT p.publication_id, p.plugin_id, g.removed_at FROM publications p \
     JOIN plugins g ON g.plugin_id = p.plugin_id WHERE p.publication_id IN (",
    ") AND p.position >= (SELECT COALESCE(MAX(x.position), 0) FROM publications x \
                          WHERE x.plugin_id = p.plugin_id AND x.yanked_at IS NULL)",
];

/// At most four parameters each; SQLite takes 32,766, PostgreSQL 65,535.
const AT_ONCE: usize = 5_000;

const LAST_POSITION: &str = "SELECT COALESCE(MAX(position), 0) FROM publications";

const PUT_PUBLICATIONS: [&str; 2] = [
    "INSERT INTO publications (publication_id, plugin_id, version, digest, label, description, manifest, \
                               items, assets, published_at, signature, signed_by, position) ",
    " ON CONFLICT (plugin_id, version) DO UPDATE \
      SET digest = excluded.digest, label = excluded.label, description = excluded.description, \
          manifest = excluded.manifest, items = excluded.items, assets = excluded.assets, \
          published_at = excluded.published_at, position = excluded.position, yanked_at = NULL, \
          signature = excluded.signature, signed_by = excluded.signed_by",
];

// The parts of the transaction. They are macros because their connection is of either kind.

/// `listed!(c, "SELECT … IN (", values, ")")`: the rows of a query with a list of values in it.
macro_rules! listed {
    ($c:ident, $select:expr, $values:expr, $rest:expr) => {{
        let mut query = QueryBuilder::new($select);
        let mut list = query.separated(", ");
        for value in $values {
            list.push_bind(value);
        }
        query.push($rest);
        query.build_query_as().persistent(false).fetch_all(&mut *$c).await?
    }};
}

/// What the store knows about the publications.
macro_rules! known {
    ($c:ident, $publications:ident) => {{
        let plugins = || $publications.iter().map(|new| &new.plugin_id);
        let mut known = Known::default();
        let rows: Vec<(String, Option<i64>)> =
            listed!($c, "SELECT plugin_id, removed_at FROM plugins WHERE plugin_id IN (", plugins(), ")");
        known.plugins.extend(rows.into_iter().map(|(id, removed_at)| (id, removed_at.is_some())));
        // A plugin that was never published has neither versions nor endpoints.
        if !known.plugins.is_empty() {
            let mut query = QueryBuilder::new(
                "SELECT plugin_id, publication_id, digest, signature FROM publications \
                 WHERE (plugin_id, version) IN (",
            );
            query.push_values($publications, |mut row, new| {
                row.push_bind(&new.plugin_id).push_bind(&new.version);
            });
            query.push(")");
            let rows: Vec<(String, Uuid, Vec<u8>, String)> =
                query.build_query_as().persistent(false).fetch_all(&mut *$c).await?;
            for (plugin_id, id, digest, signature) in rows {
                known.stored.insert(plugin_id, Stored::read(id, &digest, &signature)?);
            }
            let rows: Vec<(String, String, String, i64)> = listed!(
                $c,
                "SELECT plugin_id, node_type, host, port FROM plugin_endpoints WHERE plugin_id IN (",
                plugins(),
                ")"
            );
            for (plugin_id, node_type, host, port) in rows {
                known.endpoints.entry(plugin_id).or_default().insert((node_type, host, port));
            }
        }
        let node_types: Vec<&String> = $publications.iter().flat_map(|new| &new.node_types).collect();
        let mut having: Vec<(Uuid, String)> = Vec::new();
        for part in node_types.chunks(AT_ONCE) {
            let rows: Vec<(Uuid, String)> = listed!($c, WITH_NODE_TYPES, part.iter().copied(), ")");
            having.extend(rows);
        }
        let ids: Vec<Uuid> = having.iter().map(|(id, _)| *id).collect::<HashSet<_>>().into_iter().collect();
        let mut owners: HashMap<Uuid, Owner> = HashMap::new();
        for part in ids.chunks(AT_ONCE) {
            let rows: Vec<(Uuid, String, Option<i64>)> =
                listed!($c, OWNERS[0], part.iter().copied(), OWNERS[1]);
            owners.extend(
                rows.into_iter().map(|(id, plugin_id, removed_at)| {
                    (id, Owner { plugin_id, removed: removed_at.is_some() })
                }),
            );
        }
        for (id, node_type) in having {
            if let Some(owner) = owners.get(&id) {
                known.owners.entry(node_type).or_default().push(owner.clone());
            }
        }
        known
    }};
}

/// Makes the plugins known and alive.
macro_rules! revive {
    ($c:ident, $plugins:expr) => {{
        let plugins: Vec<&NewPublication> = $plugins.collect();
        if !plugins.is_empty() {
            let mut query = QueryBuilder::new("INSERT INTO plugins (plugin_id, created_at, quarantined) ");
            query.push_values(plugins, |mut row, new| {
                row.push_bind(&new.plugin_id).push_bind(new.at.0).push("FALSE");
            });
            query.push(" ON CONFLICT (plugin_id) DO UPDATE SET removed_at = NULL");
            query.build().persistent(false).execute(&mut *$c).await?;
        }
    }};
}

/// Stores the documents and node types, in place of what their versions had.
macro_rules! put_documents {
    ($c:ident, $written:ident) => {{
        let last: i64 = sqlx::query_scalar(LAST_POSITION).fetch_one(&mut *$c).await?;
        let [insert, on_conflict] = PUT_PUBLICATIONS;
        let mut query = QueryBuilder::new(insert);
        query.push_values(
            (last + 1..).zip(&$written),
            |mut row, (position, Written { new, deed, shown, assets })| {
                row.push_bind(deed.publication_id.0).push_bind(&new.plugin_id).push_bind(&new.version);
                row.push_bind(new.digest.0.as_slice()).push_bind(&shown.label).push_bind(&shown.description);
                row.push_bind(new.manifest.text()).push_bind(new.items.text()).push_bind(assets);
                row.push_bind(new.at.0)
                    .push_bind(new.seal.state.as_str())
                    .push_bind(new.seal.key_id.as_deref());
                row.push_bind(position);
            },
        );
        query.push(on_conflict).build().persistent(false).execute(&mut *$c).await?;
        for replaced in $written.iter().filter(|written| written.deed.kind == Kind::Replace) {
            sqlx::query("DELETE FROM publication_node_types WHERE publication_id = $1")
                .bind(replaced.deed.publication_id.0)
                .execute(&mut *$c)
                .await?;
        }
        let node_types: Vec<(Uuid, i64, &String)> = $written
            .iter()
            .flat_map(|Written { new, deed, .. }| {
                let id = deed.publication_id.0;
                (0..).zip(&new.node_types).map(move |(ordinal, node_type)| (id, ordinal, node_type))
            })
            .collect();
        for part in node_types.chunks(AT_ONCE) {
            let mut query =
                QueryBuilder::new("INSERT INTO publication_node_types (publication_id, ordinal, node_type) ");
            query.push_values(part, |mut row, (id, ordinal, node_type)| {
                row.push_bind(*id).push_bind(*ordinal).push_bind(*node_type);
            });
            query.push(" ON CONFLICT (publication_id, node_type) DO NOTHING");
            query.build().persistent(false).execute(&mut *$c).await?;
        }
    }};
}

/// Adds a valid signature to a stored publication.
macro_rules! seal {
    ($c:ident, $deeds:ident) => {
        for (new, deed) in $deeds.iter().filter(|(_, deed)| deed.sealed) {
            sqlx::query(
                "UPDATE publications SET signature = 'signed', signed_by = $2 WHERE publication_id = $1",
            )
            .bind(deed.publication_id.0)
            .bind(new.seal.key_id.as_deref())
            .execute(&mut *$c)
            .await?;
        }
    };
}

/// Makes the endpoints of plugins exactly the given ones, where they are others.
macro_rules! put_endpoints {
    ($c:ident, $deeds:ident, $known:ident) => {{
        let mut rows = Vec::new();
        for (new, deed) in &$deeds {
            let Some(wanted) = &deed.endpoints else { continue };
            if $known.endpoints.contains_key(&new.plugin_id) {
                sqlx::query("DELETE FROM plugin_endpoints WHERE plugin_id = $1")
                    .bind(&new.plugin_id)
                    .execute(&mut *$c)
                    .await?;
            }
            rows.extend(wanted.iter().map(|row| (&new.plugin_id, row)));
        }
        for part in rows.chunks(AT_ONCE) {
            let mut query =
                QueryBuilder::new("INSERT INTO plugin_endpoints (plugin_id, node_type, host, port) ");
            query.push_values(part, |mut row, (plugin_id, (node_type, host, port))| {
                row.push_bind(*plugin_id).push_bind(node_type).push_bind(host).push_bind(*port);
            });
            query.build().persistent(false).execute(&mut *$c).await?;
        }
    }};
}

impl Stored {
    fn read(id: Uuid, digest: &[u8], signature: &str) -> Result<Self> {
        let what = format!("publication {id}");
        Ok(Self {
            publication_id: PublicationId(id),
            digest: rows::digest(digest, &what)?,
            signature: rows::named(signature, &what)?,
        })
    }
}

impl Catalogue {
    /// Commits a publication in one transaction. Of concurrent publishers of one version one wins;
    /// the others see its result. An answer that refuses is no error.
    pub async fn commit(&self, new: &NewPublication) -> Result<Committed> {
        let answer = self.commit_all(std::slice::from_ref(new)).await?.pop();
        answer.ok_or_else(|| Error::InvalidValue { reason: "no publication".to_owned() })
    }

    /// Commits publications of different plugins, at most [`MOST_TOGETHER`], in one transaction: all or
    /// none are stored. The answers are in their order and those of publications that are committed one
    /// by one in that order.
    pub async fn commit_all(&self, publications: &[NewPublication]) -> Result<Vec<Committed>> {
        check(publications)?;
        if publications.is_empty() {
            return Ok(Vec::new());
        }
        in_tx!(&self.db, |c| {
            let revision: i64 = sqlx::query_scalar(LOCK).fetch_one(&mut *c).await?;
            let known = known!(c, publications);
            let plans = plan(publications, &known);
            let deeds: Vec<(&NewPublication, &Deed)> = publications
                .iter()
                .zip(&plans)
                .filter_map(|(new, plan)| match plan {
                    Plan::Store(deed) if deed.changes() => Some((new, deed)),
                    _ => None,
                })
                .collect();
            revive!(c, deeds.iter().filter(|(_, deed)| deed.revived).map(|(new, _)| *new));
            let written = deeds.iter().filter(|(_, deed)| deed.kind != Kind::Refresh);
            let written: Vec<Written<'_>> =
                written.map(|(new, deed)| Written::new(new, deed)).collect::<Result<_>>()?;
            if !written.is_empty() {
                put_documents!(c, written);
            }
            seal!(c, deeds);
            put_endpoints!(c, deeds, known);
            let about: Vec<&str> = deeds.iter().map(|(new, _)| new.plugin_id.as_str()).collect();
            grow!(c, revision, about);
            Ok::<_, Fail>(answers(plans, revision))
        })
    }
}

fn check(publications: &[NewPublication]) -> Result<()> {
    if publications.len() > MOST_TOGETHER {
        let reason = format!("{} publications together, at most {MOST_TOGETHER} can be", publications.len());
        return Err(Error::InvalidValue { reason });
    }
    let mut plugins = HashSet::new();
    match publications.iter().find(|new| !plugins.insert(&new.plugin_id)) {
        Some(twice) => {
            let reason = format!("two publications of plugin {:?} together", twice.plugin_id);
            Err(Error::InvalidValue { reason })
        }
        None => Ok(()),
    }
}

/// The answers, in the order of the plans. `revision` is the catalogue's before them; each that changes
/// something makes one.
fn answers(plans: Vec<Plan>, mut revision: i64) -> Vec<Committed> {
    let answer = |plan| match plan {
        Plan::Refuse(refusal) => refusal,
        Plan::Store(deed) => {
            revision += i64::from(deed.changes());
            deed.answer(revision)
        }
    };
    plans.into_iter().map(answer).collect()
}
