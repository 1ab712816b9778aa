//! The catalogue of plugins (protocol sections 3 and 6): what was published, where plugins are
//! reached, whether they are enabled, pinned, quarantined, removed and healthy. Plugin-manager
//! writes it; control plane, engine and api read it through [`Snapshot`].
//!
//! Every change grows one revision, under whose row lock all changes happen: two publishers at once
//! see one another's result (failure matrix row 28). Every revision tells which plugin it is about, so
//! that a cache reads what changed and not everything ([`Catalogue::renewed`]). Nothing is ever deleted: removal is a tombstone,
//! publications stay for the runs pinned to them (rows 30 and 31).

mod changes;
mod commit;
mod health;
mod load;
mod snapshot;

pub use commit::{Committed, MOST_TOGETHER, NewPublication};
pub use health::Finding;
pub use snapshot::{EnablementKey, PinKey, PluginRow, PublicationRow, Snapshot};

use crate::db::Db;
use contract::{Digest, Json, Millis, PublicationId, catalogue::Asset, signature::SignatureState};

/// The catalogue.
#[derive(Clone, Debug)]
pub struct Catalogue {
    pub(crate) db: Db,
}

/// Names one publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicationKey<'a> {
    /// The newest of a plugin.
    Newest(&'a str),
    /// Exactly this version of a plugin; never another.
    Version(&'a str, &'a str),
    /// This publication.
    Id(PublicationId),
}

/// A publication with its documents.
#[derive(Clone, Debug)]
pub struct StoredPublication {
    /// The publication.
    pub publication_id: PublicationId,
    /// The plugin.
    pub plugin_id: String,
    /// Its version.
    pub version: String,
    /// SHA-256 over manifest, items and asset hashes.
    pub digest: Digest,
    /// When it was committed.
    pub published_at: Millis,
    /// The manifest, raw.
    pub manifest: Json,
    /// The executor items, a raw JSON array.
    pub items: Json,
    /// Its static assets in file-service.
    pub assets: Vec<Asset>,
    /// What was found about its signature.
    pub seal: Seal,
}

/// What plugin-manager found about a publication's signature.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seal {
    /// Is it signed?
    pub state: SignatureState,
    /// The key that it is signed with, or says to be.
    pub key_id: Option<String>,
}

/// What a change did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// False when it was so before (or, for a plugin that the catalogue does not know, nothing was
    /// done).
    pub changed: bool,
    /// The catalogue's revision afterwards.
    pub revision: i64,
}

/// Takes the lock under which the catalogue changes, and tells the revision. Same text for both
/// databases: an update of the row to what it is.
const LOCK: &str = "UPDATE catalogue_revision SET revision = revision WHERE id = 1 RETURNING revision";

/// Grows the revision.
const GROW: &str = "UPDATE catalogue_revision SET revision = revision + $1 WHERE id = 1";

/// Forgets what was told long ago.
const FORGET_TOLD: &str = "DELETE FROM catalogue_changes WHERE revision <= $1";

/// So many revisions at least are told; caches that know only an older one read everything.
const TOLD: i64 = 10_000;

/// Old ones are forgotten once in so many revisions.
const FORGET_EVERY: i64 = 100;

/// `grow!(c, revision, plugin_ids)`: one more revision for each of the plugins, which tells that it is
/// about that plugin.
macro_rules! grow {
    ($c:expr, $revision:expr, $plugin_ids:expr) => {
        if !$plugin_ids.is_empty() {
            let revision: i64 = $revision;
            let grown = i64::try_from($plugin_ids.len()).unwrap_or(i64::MAX);
            ::sqlx::query($crate::catalogue::GROW).bind(grown).execute(&mut *$c).await?;
            let mut query = ::sqlx::QueryBuilder::new("INSERT INTO catalogue_changes (revision, plugin_id) ");
            query.push_values((revision + 1..).zip(&$plugin_ids), |mut row, (revision, plugin_id)| {
                row.push_bind(revision).push_bind(*plugin_id);
            });
            // One text for the many single changes is kept prepared; those of groups are too many.
            query.build().persistent(grown == 1).execute(&mut *$c).await?;
            if let Some(until) = $crate::catalogue::forgotten(revision, revision + grown) {
                ::sqlx::query($crate::catalogue::FORGET_TOLD).bind(until).execute(&mut *$c).await?;
            }
        }
    };
}
use grow;

/// `grown!(c, revision, plugin_id, changed)`: the [`Change`], growing the revision when something about
/// the plugin changed.
macro_rules! grown {
    ($c:expr, $revision:expr, $plugin_id:expr, $changed:expr) => {{
        let (changed, revision): (bool, i64) = ($changed, $revision);
        if changed {
            $crate::catalogue::grow!($c, revision, [$plugin_id]);
        }
        Ok($crate::catalogue::Change { changed, revision: revision + i64::from(changed) })
    }};
}
use grown;

/// Up to which revision what was told is forgotten, when the catalogue has grown from one to another.
fn forgotten(from: i64, to: i64) -> Option<i64> {
    (from / FORGET_EVERY < to / FORGET_EVERY).then_some(to - TOLD)
}
