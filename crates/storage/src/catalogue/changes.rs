//! Single changes of the catalogue, each under its lock.

use super::{Catalogue, Change, LOCK, grown};
use crate::{db::in_tx, error::Result};
use contract::{Millis, manifest::Endpoint};

const YANK: &str = "\
    UPDATE publications SET yanked_at = $3 WHERE plugin_id = $1 AND version = $2 AND yanked_at IS NULL";
const UNYANK: &str = "\
    UPDATE publications SET yanked_at = NULL \
    WHERE plugin_id = $1 AND version = $2 AND yanked_at IS NOT NULL";

const LIMIT: &str = "\
    UPDATE plugins SET max_attempts = $2 WHERE plugin_id = $1 AND COALESCE(max_attempts, 0) <> COALESCE($2, 0)";

impl Catalogue {
    /// Enables or disables a plugin in a workspace, or for one user there. The plugin need not be
    /// published yet.
    pub async fn set_enabled(
        &self,
        workspace_id: &str,
        user_id: Option<&str>,
        plugin_id: &str,
        enabled: bool,
        at: Millis,
    ) -> Result<Change> {
        in_tx!(&self.db, |c| {
            let revision: i64 = sqlx::query_scalar(LOCK).fetch_one(&mut *c).await?;
            let done = sqlx::query(
                "INSERT INTO plugin_enablement (workspace_id, user_id, plugin_id, enabled, changed_at) \
                 VALUES ($1, $2, $3, $4, $5) ON CONFLICT (workspace_id, user_id, plugin_id) DO UPDATE \
                 SET enabled = excluded.enabled, changed_at = excluded.changed_at \
                 WHERE plugin_enablement.enabled <> excluded.enabled",
            )
            .bind(workspace_id)
            .bind(user_id.unwrap_or(""))
            .bind(plugin_id)
            .bind(enabled)
            .bind(at.0)
            .execute(&mut *c)
            .await?;
            grown!(c, revision, plugin_id, done.rows_affected() > 0)
        })
    }

    /// Pins a workspace to a version of a plugin. The caller has checked that the version exists;
    /// for a plugin that the catalogue does not know the answer is [`crate::Error::Conflict`].
    pub async fn pin(&self, workspace_id: &str, plugin_id: &str, version: &str) -> Result<Change> {
        in_tx!(&self.db, |c| {
            let revision: i64 = sqlx::query_scalar(LOCK).fetch_one(&mut *c).await?;
            let done = sqlx::query(
                "INSERT INTO plugin_pins (workspace_id, plugin_id, version) VALUES ($1, $2, $3) \
                 ON CONFLICT (workspace_id, plugin_id) DO UPDATE SET version = excluded.version \
                 WHERE plugin_pins.version <> excluded.version",
            )
            .bind(workspace_id)
            .bind(plugin_id)
            .bind(version)
            .execute(&mut *c)
            .await?;
            grown!(c, revision, plugin_id, done.rows_affected() > 0)
        })
    }

    /// Lets a workspace follow the newest version again.
    pub async fn unpin(&self, workspace_id: &str, plugin_id: &str) -> Result<Change> {
        in_tx!(&self.db, |c| {
            let revision: i64 = sqlx::query_scalar(LOCK).fetch_one(&mut *c).await?;
            let done = sqlx::query("DELETE FROM plugin_pins WHERE workspace_id = $1 AND plugin_id = $2")
                .bind(workspace_id)
                .bind(plugin_id)
                .execute(&mut *c)
                .await?;
            grown!(c, revision, plugin_id, done.rows_affected() > 0)
        })
    }

    /// Yanks a version (`at` says since when), or takes that back (`None`). For a version that the
    /// catalogue does not know nothing changes.
    pub async fn set_yanked(&self, plugin_id: &str, version: &str, at: Option<Millis>) -> Result<Change> {
        in_tx!(&self.db, |c| {
            let revision: i64 = sqlx::query_scalar(LOCK).fetch_one(&mut *c).await?;
            let text = match at {
                Some(_) => YANK,
                None => UNYANK,
            };
            let mut query = sqlx::query(text).bind(plugin_id).bind(version);
            if let Some(at) = at {
                query = query.bind(at.0);
            }
            let done = query.execute(&mut *c).await?;
            grown!(c, revision, plugin_id, done.rows_affected() > 0)
        })
    }

    /// Makes a plugin a tombstone; its publications, pins and settings stay.
    pub async fn remove(&self, plugin_id: &str, at: Millis) -> Result<Change> {
        in_tx!(&self.db, |c| {
            let revision: i64 = sqlx::query_scalar(LOCK).fetch_one(&mut *c).await?;
            let done =
                sqlx::query("UPDATE plugins SET removed_at = $2 WHERE plugin_id = $1 AND removed_at IS NULL")
                    .bind(plugin_id)
                    .bind(at.0)
                    .execute(&mut *c)
                    .await?;
            grown!(c, revision, plugin_id, done.rows_affected() > 0)
        })
    }

    /// Sets or lifts a plugin's quarantine.
    pub async fn set_quarantined(&self, plugin_id: &str, quarantined: bool) -> Result<Change> {
        in_tx!(&self.db, |c| {
            let revision: i64 = sqlx::query_scalar(LOCK).fetch_one(&mut *c).await?;
            let done =
                sqlx::query("UPDATE plugins SET quarantined = $2 WHERE plugin_id = $1 AND quarantined <> $2")
                    .bind(plugin_id)
                    .bind(quarantined)
                    .execute(&mut *c)
                    .await?;
            grown!(c, revision, plugin_id, done.rows_affected() > 0)
        })
    }

    /// Says how many attempts of a plugin may be dispatched and unfinished at once, from 1 up; `None`: as
    /// many as there are. Attempts that were dispatched without a limit do not count.
    pub async fn set_max_attempts(&self, plugin_id: &str, most: Option<u32>) -> Result<Change> {
        in_tx!(&self.db, |c| {
            let revision: i64 = sqlx::query_scalar(LOCK).fetch_one(&mut *c).await?;
            let done = sqlx::query(LIMIT).bind(plugin_id).bind(most.map(i64::from)).execute(&mut *c).await?;
            grown!(c, revision, plugin_id, done.rows_affected() > 0)
        })
    }

    /// Moves a plugin's own listener; listeners of single node types stay.
    pub async fn set_endpoint(&self, plugin_id: &str, endpoint: &Endpoint) -> Result<Change> {
        in_tx!(&self.db, |c| {
            let revision: i64 = sqlx::query_scalar(LOCK).fetch_one(&mut *c).await?;
            let done = sqlx::query(
                "UPDATE plugin_endpoints SET host = $2, port = $3 \
                 WHERE plugin_id = $1 AND node_type = '' AND (host <> $2 OR port <> $3)",
            )
            .bind(plugin_id)
            .bind(&endpoint.host)
            .bind(i64::from(endpoint.port))
            .execute(&mut *c)
            .await?;
            grown!(c, revision, plugin_id, done.rows_affected() > 0)
        })
    }
}
