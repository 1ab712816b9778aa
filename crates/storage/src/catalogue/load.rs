//! Reading the catalogue.

use super::{
    Catalogue, EnablementKey, PinKey, PluginRow, PublicationKey, PublicationRow, Seal, Snapshot,
    StoredPublication, snapshot::Delta,
};
use crate::{
    db::{read, snapshot},
    error::{Error, Result},
    rows,
};
use contract::{
    Millis, PublicationId,
    catalogue::{Health, HealthChange},
    manifest::Endpoint,
};
use sqlx::{FromRow, QueryBuilder};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use uuid::Uuid;

/// A plugin's health; nothing of it where nobody has looked yet.
#[derive(FromRow)]
struct Probed {
    state: Option<String>,
    since: Option<i64>,
    checked_at: Option<i64>,
    last_error: Option<String>,
    failures: Option<i64>,
    successes: Option<i64>,
}

#[derive(FromRow)]
struct Plugin {
    plugin_id: String,
    created_at: i64,
    removed_at: Option<i64>,
    quarantined: bool,
    max_attempts: Option<i64>,
    #[sqlx(flatten)]
    health: Probed,
}

#[derive(FromRow)]
struct Publication {
    publication_id: Uuid,
    plugin_id: String,
    version: String,
    digest: Vec<u8>,
    label: String,
    description: String,
    published_at: i64,
    yanked_at: Option<i64>,
    signature: String,
    signed_by: Option<String>,
}

#[derive(FromRow)]
struct Documents {
    #[sqlx(flatten)]
    row: Publication,
    manifest: String,
    items: String,
    assets: String,
}

/// The tables of a snapshot as they are read.
#[derive(Default)]
struct Tables {
    revision: i64,
    plugins: Vec<Plugin>,
    publications: Vec<Publication>,
    node_types: Vec<(Uuid, String)>,
    endpoints: Vec<(String, String, String, i64)>,
    enablement: Vec<(String, String, String, bool)>,
    pins: Vec<(String, String, String)>,
}

/// A query for all plugins, and for those that have changed since revision `$1`.
macro_rules! of_plugins {
    ($name:ident: $select:literal where $column:literal $(order by $order:literal)?) => {
        const $name: (&str, &str) = (
            concat!($select, $(" ORDER BY ", $order)?),
            concat!(
                $select,
                " WHERE ",
                $column,
                " IN (SELECT plugin_id FROM catalogue_changes WHERE revision > $1)",
                $(" ORDER BY ", $order)?
            ),
        );
    };
}
of_plugins!(PLUGINS:
    "SELECT p.plugin_id, p.created_at, p.removed_at, p.quarantined, p.max_attempts, h.state, h.since, h.checked_at, \
            h.last_error, h.failures, h.successes \
     FROM plugins p LEFT JOIN plugin_health h ON h.plugin_id = p.plugin_id"
    where "p.plugin_id");
of_plugins!(PUBLICATIONS:
    "SELECT publication_id, plugin_id, version, digest, label, description, published_at, yanked_at, \
            signature, signed_by \
     FROM publications"
    where "plugin_id" order by "position DESC");
of_plugins!(NODE_TYPES:
    "SELECT n.publication_id, n.node_type FROM publication_node_types n \
     JOIN publications p ON p.publication_id = n.publication_id"
    where "p.plugin_id" order by "n.publication_id, n.ordinal");
of_plugins!(ENDPOINTS: "SELECT plugin_id, node_type, host, port FROM plugin_endpoints" where "plugin_id");
of_plugins!(ENABLEMENT:
    "SELECT workspace_id, user_id, plugin_id, enabled FROM plugin_enablement" where "plugin_id");
of_plugins!(PINS: "SELECT workspace_id, plugin_id, version FROM plugin_pins" where "plugin_id");

/// `tables!(c, 0)`: all tables; `tables!(c, 1, since)`: of the plugins that changed since the revision.
macro_rules! tables {
    ($c:ident, $which:tt $(, $since:expr)?) => {
        Tables {
            revision: sqlx::query_scalar(REVISION).fetch_one(&mut *$c).await?,
            plugins: sqlx::query_as(PLUGINS.$which)$(.bind($since))?.fetch_all(&mut *$c).await?,
            publications: sqlx::query_as(PUBLICATIONS.$which)$(.bind($since))?.fetch_all(&mut *$c).await?,
            node_types: sqlx::query_as(NODE_TYPES.$which)$(.bind($since))?.fetch_all(&mut *$c).await?,
            endpoints: sqlx::query_as(ENDPOINTS.$which)$(.bind($since))?.fetch_all(&mut *$c).await?,
            enablement: sqlx::query_as(ENABLEMENT.$which)$(.bind($since))?.fetch_all(&mut *$c).await?,
            pins: sqlx::query_as(PINS.$which)$(.bind($since))?.fetch_all(&mut *$c).await?,
        }
    };
}
/// With more revisions than that to catch up everything is read.
const MOST_CHANGES: i64 = 1_000;

const CHANGED: &str = "SELECT plugin_id FROM catalogue_changes WHERE revision > $1 LIMIT $2";

/// What was read for a cache.
enum Found {
    Everything(Tables),
    Changes(BTreeSet<String>, Tables),
}

const HEALTH: &str =
    "SELECT plugin_id, state, since, checked_at, last_error, failures, successes FROM plugin_health";
const HISTORY: &str =
    "SELECT plugin_id, at, state, reason FROM plugin_health_history ORDER BY plugin_id, at DESC";
const REVISION: &str = "SELECT revision FROM catalogue_revision WHERE id = 1";

impl Catalogue {
    /// The whole catalogue without manifests and items, of one moment. Caches take
    /// [`Catalogue::renewed`].
    pub async fn snapshot(&self) -> Result<Snapshot> {
        snapshot!(&self.db, |c| Ok(tables!(c, 0)))?.into_snapshot()
    }

    /// The catalogue as it is now, from what is known of it; `None` when that is still the newest. Reads
    /// one row then, else only the plugins that have changed.
    pub async fn renewed(&self, known: &Snapshot) -> Result<Option<Snapshot>> {
        if self.revision().await? == known.revision {
            return Ok(None);
        }
        let since = known.revision;
        let found = snapshot!(&self.db, |c| {
            let now: i64 = sqlx::query_scalar(REVISION).fetch_one(&mut *c).await?;
            let changed: Vec<String> =
                sqlx::query_scalar(CHANGED).bind(since).bind(MOST_CHANGES + 1).fetch_all(&mut *c).await?;
            // A revision that is not told was forgotten, or made by a release that did not tell.
            let told = i64::try_from(changed.len()).unwrap_or(i64::MAX);
            Ok(match told <= MOST_CHANGES && told == now - since {
                true => Found::Changes(changed.into_iter().collect(), tables!(c, 1, since)),
                false => Found::Everything(tables!(c, 0)),
            })
        })?;
        match found {
            Found::Everything(tables) => tables.into_snapshot().map(Some),
            Found::Changes(changed, tables) => Ok(Some(known.after(tables.into_delta(changed)?))),
        }
    }

    /// The revision now.
    pub async fn revision(&self) -> Result<i64> {
        read!(&self.db, |c| Ok(sqlx::query_scalar(REVISION).fetch_one(c).await?))
    }

    /// The plugins' health with the newest counts and times, which change without a new revision.
    pub async fn health(&self) -> Result<HashMap<String, Health>> {
        #[derive(FromRow)]
        struct Row {
            plugin_id: String,
            #[sqlx(flatten)]
            health: Probed,
        }
        let rows: Vec<Row> = read!(&self.db, |c| Ok(sqlx::query_as(HEALTH).fetch_all(c).await?))?;
        let health = |Row { plugin_id, health }: Row| {
            let health = health.into_health(&plugin_id)?;
            Ok((plugin_id, health))
        };
        rows.into_iter().map(health).collect()
    }

    /// The last changes of the plugins' health, by plugin, the newest first.
    pub async fn health_history(&self) -> Result<HashMap<String, Vec<HealthChange>>> {
        let rows: Vec<(String, i64, String, Option<String>)> =
            read!(&self.db, |c| Ok(sqlx::query_as(HISTORY).fetch_all(c).await?))?;
        let mut history: HashMap<String, Vec<HealthChange>> = HashMap::new();
        for (plugin_id, at, state, reason) in rows {
            let state = rows::named(&state, format_args!("the health history of plugin {plugin_id}"))?;
            history.entry(plugin_id).or_default().push(HealthChange { at: Millis(at), state, reason });
        }
        Ok(history)
    }

    /// One publication with its documents, also of a removed plugin.
    pub async fn publication(&self, key: PublicationKey<'_>) -> Result<Option<StoredPublication>> {
        let row: Option<Documents> = read!(&self.db, |c| {
            let mut query = QueryBuilder::new(
                "SELECT publication_id, plugin_id, version, digest, label, description, published_at, \
                 yanked_at, signature, signed_by, manifest, items, assets FROM publications WHERE ",
            );
            match key {
                PublicationKey::Newest(plugin_id) => query.push("plugin_id = ").push_bind(plugin_id),
                PublicationKey::Version(plugin_id, version) => {
                    query.push("plugin_id = ").push_bind(plugin_id).push(" AND version = ").push_bind(version)
                }
                PublicationKey::Id(id) => query.push("publication_id = ").push_bind(id.0),
            };
            query.push(" ORDER BY position DESC LIMIT 1");
            Ok(query.build_query_as().fetch_optional(c).await?)
        })?;
        row.map(Documents::into_stored).transpose()
    }
}

impl Documents {
    fn into_stored(self) -> Result<StoredPublication> {
        let id = self.row.publication_id;
        let what = |part: &str| format!("the {part} of publication {id}");
        Ok(StoredPublication {
            seal: seal(&self.row.signature, self.row.signed_by, id)?,
            publication_id: PublicationId(id),
            digest: rows::digest(&self.row.digest, what("digest"))?,
            plugin_id: self.row.plugin_id,
            version: self.row.version,
            published_at: Millis(self.row.published_at),
            manifest: rows::json(self.manifest, what("manifest"))?,
            items: rows::json(self.items, what("items"))?,
            assets: serde_json::from_str(&self.assets)
                .map_err(|error| Error::corrupt(what("assets"), &error))?,
        })
    }
}

impl Tables {
    fn into_snapshot(self) -> Result<Snapshot> {
        let Delta { revision, plugins, enablement, pins, .. } = self.into_delta(BTreeSet::new())?;
        Ok(Snapshot::new(revision, plugins, enablement, pins))
    }

    fn into_delta(self, changed: BTreeSet<String>) -> Result<Delta> {
        let mut plugins = BTreeMap::new();
        for row in self.plugins {
            plugins.insert(row.plugin_id.clone(), row.into_plugin()?);
        }
        let mut node_types: HashMap<Uuid, Vec<String>> = HashMap::new();
        for (id, node_type) in self.node_types {
            node_types.entry(id).or_default().push(node_type);
        }
        for row in self.publications {
            let node_types = node_types.remove(&row.publication_id).unwrap_or_default();
            if let Some(plugin) = plugins.get_mut(&row.plugin_id) {
                plugin.publications.push(row.into_publication(node_types)?);
            }
        }
        for (plugin_id, node_type, host, port) in self.endpoints {
            let port = u16::try_from(port)
                .map_err(|_| Error::corrupt(format!("an endpoint of plugin {plugin_id}"), &"no such port"))?;
            let endpoint = Endpoint { host, port };
            let Some(plugin) = plugins.get_mut(&plugin_id) else { continue };
            match node_type.is_empty() {
                true => plugin.endpoint = endpoint,
                false => drop(plugin.node_endpoints.insert(node_type, endpoint)),
            }
        }
        let enablement = self.enablement.into_iter().map(|(workspace_id, user_id, plugin_id, enabled)| {
            let user_id = (!user_id.is_empty()).then_some(user_id);
            (EnablementKey { workspace_id, user_id, plugin_id }, enabled)
        });
        let pins = self
            .pins
            .into_iter()
            .map(|(workspace_id, plugin_id, version)| (PinKey { workspace_id, plugin_id }, version));
        Ok(Delta {
            revision: self.revision,
            changed,
            plugins,
            enablement: enablement.collect(),
            pins: pins.collect(),
        })
    }
}

impl Probed {
    fn into_health(self, plugin_id: &str) -> Result<Health> {
        let what = format!("the health of plugin {plugin_id}");
        let count = |value: Option<i64>| {
            u32::try_from(value.unwrap_or(0)).map_err(|error| Error::corrupt(&*what, &error))
        };
        Ok(Health {
            state: self.state.map(|state| rows::named(&state, &what)).transpose()?.unwrap_or_default(),
            since: rows::optional_time(self.since),
            checked_at: rows::optional_time(self.checked_at),
            last_error: self.last_error,
            failures: count(self.failures)?,
            successes: count(self.successes)?,
        })
    }
}

impl Plugin {
    fn into_plugin(self) -> Result<PluginRow> {
        let limit = format!("the limit of plugin {}", self.plugin_id);
        Ok(PluginRow {
            created_at: Millis(self.created_at),
            removed_at: rows::optional_time(self.removed_at),
            quarantined: self.quarantined,
            max_attempts: self
                .max_attempts
                .map(|most| u32::try_from(most).map_err(|error| Error::corrupt(&*limit, &error)))
                .transpose()?,
            health: self.health.into_health(&self.plugin_id)?,
            plugin_id: self.plugin_id,
            ..PluginRow::default()
        })
    }
}

impl Publication {
    fn into_publication(self, node_types: Vec<String>) -> Result<PublicationRow> {
        Ok(PublicationRow {
            seal: seal(&self.signature, self.signed_by, self.publication_id)?,
            yanked_at: rows::optional_time(self.yanked_at),
            publication_id: PublicationId(self.publication_id),
            digest: rows::digest(&self.digest, format_args!("publication {}", self.publication_id))?,
            version: self.version,
            label: self.label,
            description: self.description,
            published_at: Millis(self.published_at),
            node_types,
        })
    }
}

fn seal(state: &str, key_id: Option<String>, id: Uuid) -> Result<Seal> {
    Ok(Seal { state: rows::named(state, format_args!("the signature of publication {id}"))?, key_id })
}
