//! Committing a publication: one transaction under the catalogue's lock, decided by a pure function.

use super::{Catalogue, GROW, LOCK};
use crate::{
    db::{Fail, in_tx},
    error::{Error, Result},
    rows,
};
use contract::{Digest, Json, Millis, PublicationId, catalogue::Asset, manifest::Endpoint};
use serde::Deserialize;
use std::collections::HashSet;
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
    /// The version was stored before with this digest. Its endpoints were refreshed and a removed
    /// plugin lives again; the revision grew only if one of these changed something.
    Unchanged {
        /// The stored publication.
        publication_id: PublicationId,
        /// The catalogue's revision afterwards.
        revision: i64,
    },
    /// The version was stored with another digest and `allow_republish` was set: its content was
    /// replaced under its old id, so that runs pinned to it go on, and it is the newest now.
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
    /// Another live plugin's newest publication has one of the node types; nothing changed.
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

const OWNED_BY_OTHERS: &str = "\
    SELECT n.node_type, p.plugin_id FROM plugins g \
    JOIN publications p ON p.plugin_id = g.plugin_id \
    JOIN publication_node_types n ON n.publication_id = p.publication_id \
    WHERE g.removed_at IS NULL AND g.plugin_id <> $1 \
      AND p.position = (SELECT MAX(x.position) FROM publications x WHERE x.plugin_id = g.plugin_id) \
    ORDER BY n.node_type, p.plugin_id";

const INSERT_PUBLICATION: &str = "\
    INSERT INTO publications (publication_id, plugin_id, version, digest, label, description, manifest, \
                              items, assets, published_at, position) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, \
            (SELECT COALESCE(MAX(position), 0) + 1 FROM publications)) \
    ON CONFLICT (plugin_id, version) DO UPDATE \
    SET digest = excluded.digest, label = excluded.label, description = excluded.description, \
        manifest = excluded.manifest, items = excluded.items, assets = excluded.assets, \
        published_at = excluded.published_at, position = excluded.position";

impl Catalogue {
    /// Commits a publication in one transaction. Of concurrent publishers of one version one wins;
    /// the others see its result. An answer that refuses is no error.
    pub async fn commit(&self, new: &NewPublication) -> Result<Committed> {
        let shown: Shown = new.manifest.read().unwrap_or_default();
        let assets = serde_json::to_string(&new.assets)
            .map_err(|error| Error::InvalidValue { reason: format!("assets: {error}") })?;
        in_tx!(&self.db, |c| {
            let revision: i64 = sqlx::query_scalar(LOCK).fetch_one(&mut *c).await?;
            let stored: Option<(Uuid, Vec<u8>)> = sqlx::query_as(
                "SELECT publication_id, digest FROM publications WHERE plugin_id = $1 AND version = $2",
            )
            .bind(&new.plugin_id)
            .bind(&new.version)
            .fetch_optional(&mut *c)
            .await?;
            let stored = stored
                .map(|(id, digest)| {
                    let digest = rows::digest(&digest, format_args!("publication {id}"))?;
                    Ok::<_, Error>(Stored { publication_id: PublicationId(id), digest })
                })
                .transpose()?;
            let owned = sqlx::query_as(OWNED_BY_OTHERS).bind(&new.plugin_id).fetch_all(&mut *c).await?;
            let plan = plan(new, stored, owned);
            let publication_id = match plan {
                Plan::Refuse(answer) => return Ok(answer),
                Plan::Insert => new.publication_id,
                Plan::Refresh(id) | Plan::Replace(id) => id,
            };

            // The plugin: known now, and alive.
            let revived = sqlx::query(
                "INSERT INTO plugins (plugin_id, created_at, quarantined) VALUES ($1, $2, FALSE) \
                 ON CONFLICT (plugin_id) DO UPDATE SET removed_at = NULL WHERE plugins.removed_at IS NOT NULL",
            )
            .bind(&new.plugin_id)
            .bind(new.at.0)
            .execute(&mut *c)
            .await?
            .rows_affected()
                > 0;

            if !matches!(plan, Plan::Refresh(_)) {
                sqlx::query(INSERT_PUBLICATION)
                    .bind(publication_id.0)
                    .bind(&new.plugin_id)
                    .bind(&new.version)
                    .bind(new.digest.0.as_slice())
                    .bind(&shown.label)
                    .bind(&shown.description)
                    .bind(new.manifest.text())
                    .bind(new.items.text())
                    .bind(&assets)
                    .bind(new.at.0)
                    .execute(&mut *c)
                    .await?;
                sqlx::query("DELETE FROM publication_node_types WHERE publication_id = $1")
                    .bind(publication_id.0)
                    .execute(&mut *c)
                    .await?;
                for (ordinal, node_type) in (0_i64..).zip(&new.node_types) {
                    sqlx::query(
                        "INSERT INTO publication_node_types (publication_id, ordinal, node_type) \
                         VALUES ($1, $2, $3) ON CONFLICT (publication_id, node_type) DO NOTHING",
                    )
                    .bind(publication_id.0)
                    .bind(ordinal)
                    .bind(node_type)
                    .execute(&mut *c)
                    .await?;
                }
            }

            // The endpoints: exactly the given ones.
            let known: Vec<(String, String, i64)> = sqlx::query_as(
                "SELECT node_type, host, port FROM plugin_endpoints WHERE plugin_id = $1 ORDER BY node_type",
            )
            .bind(&new.plugin_id)
            .fetch_all(&mut *c)
            .await?;
            let wanted = endpoints(new);
            let moved = known != wanted;
            if moved {
                sqlx::query("DELETE FROM plugin_endpoints WHERE plugin_id = $1")
                    .bind(&new.plugin_id)
                    .execute(&mut *c)
                    .await?;
                for (node_type, host, port) in &wanted {
                    sqlx::query(
                        "INSERT INTO plugin_endpoints (plugin_id, node_type, host, port) VALUES ($1, $2, $3, $4)",
                    )
                    .bind(&new.plugin_id)
                    .bind(node_type)
                    .bind(host)
                    .bind(port)
                    .execute(&mut *c)
                    .await?;
                }
            }

            let changed = revived || moved || !matches!(plan, Plan::Refresh(_));
            let revision: i64 = match changed {
                true => sqlx::query_scalar(GROW).fetch_one(&mut *c).await?,
                false => revision,
            };
            Ok::<_, Fail>(match plan {
                Plan::Replace(_) => Committed::Replaced { publication_id, revision },
                Plan::Refresh(_) => Committed::Unchanged { publication_id, revision },
                _ => Committed::Committed { publication_id, revision },
            })
        })
    }
}

/// The rows of a publication's endpoints, sorted as the table is read.
fn endpoints(new: &NewPublication) -> Vec<(String, String, i64)> {
    let own = std::iter::once((String::new(), &new.pull));
    let nodes = new.node_endpoints.iter().filter(|(_, endpoint)| *endpoint != new.pull);
    let by_node: std::collections::BTreeMap<String, &Endpoint> =
        own.chain(nodes.map(|(node_type, endpoint)| (node_type.clone(), endpoint))).collect();
    by_node
        .into_iter()
        .map(|(node_type, endpoint)| (node_type, endpoint.host.clone(), i64::from(endpoint.port)))
        .collect()
}
