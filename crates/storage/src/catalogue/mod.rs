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
mod load;
mod snapshot;

pub use commit::{Committed, NewPublication};
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
const GROW: &str = "UPDATE catalogue_revision SET revision = revision + 1 WHERE id = 1 RETURNING revision";

/// Tells what the new revision is about.
const TELL: &str = "INSERT INTO catalogue_changes (revision, plugin_id) VALUES ($1, $2)";

/// Forgets what was told long ago.
const FORGET_TOLD: &str = "DELETE FROM catalogue_changes WHERE revision <= $1";

/// So many revisions at least are told; caches that know only an older one read everything.
const TOLD: i64 = 10_000;

/// Old ones are forgotten once in so many revisions.
const FORGET_EVERY: i64 = 100;

/// `grow!(c, plugin_id)`: the new revision, which is about that plugin.
macro_rules! grow {
    ($c:expr, $plugin_id:expr) => {{
        let revision: i64 = ::sqlx::query_scalar($crate::catalogue::GROW).fetch_one(&mut *$c).await?;
        ::sqlx::query($crate::catalogue::TELL).bind(revision).bind($plugin_id).execute(&mut *$c).await?;
        if revision % $crate::catalogue::FORGET_EVERY == 0 {
            let forgotten = revision - $crate::catalogue::TOLD;
            ::sqlx::query($crate::catalogue::FORGET_TOLD).bind(forgotten).execute(&mut *$c).await?;
        }
        revision
    }};
}
use grow;

/// `grown!(c, revision, plugin_id, changed)`: the [`Change`], growing the revision when something about
/// the plugin changed.
macro_rules! grown {
    ($c:expr, $revision:expr, $plugin_id:expr, $changed:expr) => {{
        let changed: bool = $changed;
        let revision: i64 = match changed {
            true => $crate::catalogue::grow!($c, $plugin_id),
            false => $revision,
        };
        Ok($crate::catalogue::Change { changed, revision })
    }};
}
use grown;
