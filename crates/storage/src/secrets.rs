//! Sealed secrets: this crate sees only what secret-manager has encrypted.

use crate::{
    db::{Db, read, write},
    error::Result,
};
use contract::{Millis, secret::SecretInfo};
use sqlx::QueryBuilder;
use std::collections::HashMap;

/// Secrets by workspace and name.
#[derive(Clone, Debug)]
pub struct Secrets {
    pub(crate) db: Db,
}

impl Secrets {
    /// Stores a sealed value under its name, in place of an older one.
    pub async fn put(
        &self,
        workspace_id: &str,
        name: &str,
        kind: Option<&str>,
        sealed: &[u8],
        at: Millis,
    ) -> Result<()> {
        write!(&self.db, |c| {
            sqlx::query(
                "INSERT INTO secrets (workspace_id, name, kind, sealed, updated_at) VALUES ($1, $2, $3, $4, $5) \
                 ON CONFLICT (workspace_id, name) DO UPDATE \
                 SET kind = excluded.kind, sealed = excluded.sealed, updated_at = excluded.updated_at",
            )
            .bind(workspace_id)
            .bind(name)
            .bind(kind)
            .bind(sealed)
            .bind(at.0)
            .execute(c)
            .await?;
            Ok(())
        })
    }

    /// The sealed values of these names, in their order; `None`: no such secret.
    pub async fn get_many(&self, workspace_id: &str, names: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let found: Vec<(String, Vec<u8>)> = read!(&self.db, |c| {
            let mut query = QueryBuilder::new("SELECT name, sealed FROM secrets WHERE workspace_id = ");
            query.push_bind(workspace_id).push(" AND name IN (");
            let mut list = query.separated(", ");
            for name in names {
                list.push_bind(name);
            }
            query.push(")");
            Ok(query.build_query_as().persistent(false).fetch_all(c).await?)
        })?;
        let found: HashMap<String, Vec<u8>> = found.into_iter().collect();
        Ok(names.iter().map(|name| found.get(name).cloned()).collect())
    }

    /// Deletes a secret; false: there was none.
    pub async fn delete(&self, workspace_id: &str, name: &str) -> Result<bool> {
        write!(&self.db, |c| {
            let done = sqlx::query("DELETE FROM secrets WHERE workspace_id = $1 AND name = $2")
                .bind(workspace_id)
                .bind(name)
                .execute(c)
                .await?;
            Ok(done.rows_affected() > 0)
        })
    }

    /// What may be known of a workspace's secrets, sorted by name.
    pub async fn list(&self, workspace_id: &str) -> Result<Vec<SecretInfo>> {
        let rows: Vec<(String, Option<String>, i64)> = read!(&self.db, |c| {
            Ok(sqlx::query_as(
                "SELECT name, kind, updated_at FROM secrets WHERE workspace_id = $1 ORDER BY name",
            )
            .bind(workspace_id)
            .fetch_all(c)
            .await?)
        })?;
        let info = |(name, kind, updated_at)| SecretInfo { name, kind, updated_at: Millis(updated_at) };
        Ok(rows.into_iter().map(info).collect())
    }
}
