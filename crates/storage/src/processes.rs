//! Process documents: a head row and immutable revisions (protocol section 8). A run keeps the
//! revision that it was started with.

use crate::{
    db::{Db, Fail, in_tx, read},
    error::{Error, Result},
    rows,
};
use contract::{Json, Millis, ProcessId};
use sqlx::{FromRow, QueryBuilder};
use uuid::Uuid;

/// Stored processes.
#[derive(Clone, Debug)]
pub struct Processes {
    pub(crate) db: Db,
}

/// A process to be stored, or what replaces it.
#[derive(Clone, Debug)]
pub struct ProcessDraft {
    /// What people call it.
    pub name: String,
    /// The whole document, raw.
    pub document: Json,
    /// The node types it uses, for [`Processes::using`].
    pub node_types: Vec<String>,
}

/// A process without its document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessRow {
    /// The process.
    pub process_id: ProcessId,
    /// The workspace that owns it.
    pub workspace_id: String,
    /// What people call it.
    pub name: String,
    /// The newest revision, from 1.
    pub revision: i64,
    /// When it was created.
    pub created_at: Millis,
    /// When it last changed.
    pub updated_at: Millis,
}

/// A process with the document of its newest revision.
#[derive(Clone, Debug)]
pub struct StoredProcess {
    /// The head.
    pub process: ProcessRow,
    /// The document, raw.
    pub document: Json,
}

#[derive(FromRow)]
struct Head {
    process_id: Uuid,
    workspace_id: String,
    name: String,
    revision: i64,
    created_at: i64,
    updated_at: i64,
}

impl From<Head> for ProcessRow {
    fn from(row: Head) -> Self {
        Self {
            process_id: ProcessId(row.process_id),
            workspace_id: row.workspace_id,
            name: row.name,
            revision: row.revision,
            created_at: Millis(row.created_at),
            updated_at: Millis(row.updated_at),
        }
    }
}

#[derive(FromRow)]
struct Full {
    #[sqlx(flatten)]
    head: Head,
    document: String,
}

impl Full {
    fn into_stored(self) -> Result<StoredProcess> {
        let what = format!("the document of process {}", self.head.process_id);
        Ok(StoredProcess { document: rows::json(self.document, what)?, process: self.head.into() })
    }
}

const INSERT_REVISION: &str =
    "INSERT INTO process_revisions (process_id, revision, document, created_at) VALUES ($1, $2, $3, $4)";

const INSERT_NODE_TYPE: &str = "INSERT INTO process_node_types (node_type, process_id) VALUES ($1, $2) \
     ON CONFLICT (node_type, process_id) DO NOTHING";

impl Processes {
    /// Stores a new process as revision 1. [`Error::Conflict`] when the id is taken.
    pub async fn create(
        &self,
        process_id: ProcessId,
        workspace_id: &str,
        draft: &ProcessDraft,
        at: Millis,
    ) -> Result<()> {
        in_tx!(&self.db, |c| {
            let done = sqlx::query(
                "INSERT INTO processes (process_id, workspace_id, name, revision, created_at, updated_at) \
                 VALUES ($1, $2, $3, 1, $4, $4) ON CONFLICT (process_id) DO NOTHING",
            )
            .bind(process_id.0)
            .bind(workspace_id)
            .bind(&draft.name)
            .bind(at.0)
            .execute(&mut *c)
            .await?;
            if done.rows_affected() == 0 {
                return Err(Fail::from(Error::conflict(format!("process {process_id}"))));
            }
            sqlx::query(INSERT_REVISION)
                .bind(process_id.0)
                .bind(1_i64)
                .bind(draft.document.text())
                .bind(at.0)
                .execute(&mut *c)
                .await?;
            for node_type in &draft.node_types {
                sqlx::query(INSERT_NODE_TYPE).bind(node_type).bind(process_id.0).execute(&mut *c).await?;
            }
            Ok(())
        })
    }

    /// Stores a new revision and returns its number; `None`: no such process. Older revisions stay
    /// for the runs that were started with them.
    pub async fn update(
        &self,
        process_id: ProcessId,
        draft: &ProcessDraft,
        at: Millis,
    ) -> Result<Option<i64>> {
        in_tx!(&self.db, |c| {
            let revision: Option<i64> = sqlx::query_scalar(
                "UPDATE processes SET name = $2, revision = revision + 1, updated_at = $3 \
                 WHERE process_id = $1 AND deleted_at IS NULL RETURNING revision",
            )
            .bind(process_id.0)
            .bind(&draft.name)
            .bind(at.0)
            .fetch_optional(&mut *c)
            .await?;
            let Some(revision) = revision else { return Ok(None) };
            sqlx::query(INSERT_REVISION)
                .bind(process_id.0)
                .bind(revision)
                .bind(draft.document.text())
                .bind(at.0)
                .execute(&mut *c)
                .await?;
            sqlx::query("DELETE FROM process_node_types WHERE process_id = $1")
                .bind(process_id.0)
                .execute(&mut *c)
                .await?;
            for node_type in &draft.node_types {
                sqlx::query(INSERT_NODE_TYPE).bind(node_type).bind(process_id.0).execute(&mut *c).await?;
            }
            Ok(Some(revision))
        })
    }

    /// A process with its newest document; `None`: unknown or deleted.
    pub async fn get(&self, process_id: ProcessId) -> Result<Option<StoredProcess>> {
        let row: Option<Full> = read!(&self.db, |c| {
            Ok(sqlx::query_as(
                "SELECT p.process_id, p.workspace_id, p.name, p.revision, p.created_at, p.updated_at, r.document \
                 FROM processes p JOIN process_revisions r ON r.process_id = p.process_id AND r.revision = p.revision \
                 WHERE p.process_id = $1 AND p.deleted_at IS NULL",
            )
            .bind(process_id.0)
            .fetch_optional(c)
            .await?)
        })?;
        row.map(Full::into_stored).transpose()
    }

    /// A process without its document; `None`: unknown or deleted. The hot path of starting a run:
    /// documents are held by their revision.
    pub async fn head(&self, process_id: ProcessId) -> Result<Option<ProcessRow>> {
        let row: Option<Head> = read!(&self.db, |c| {
            Ok(sqlx::query_as(
                "SELECT process_id, workspace_id, name, revision, created_at, updated_at FROM processes \
                 WHERE process_id = $1 AND deleted_at IS NULL",
            )
            .bind(process_id.0)
            .fetch_optional(c)
            .await?)
        })?;
        Ok(row.map(ProcessRow::from))
    }

    /// The document of one revision, also of a deleted process: its runs still need it.
    pub async fn revision(&self, process_id: ProcessId, revision: i64) -> Result<Option<Json>> {
        let document: Option<String> = read!(&self.db, |c| {
            Ok(sqlx::query_scalar(
                "SELECT document FROM process_revisions WHERE process_id = $1 AND revision = $2",
            )
            .bind(process_id.0)
            .bind(revision)
            .fetch_optional(c)
            .await?)
        })?;
        rows::optional_json(document, format_args!("revision {revision} of process {process_id}"))
    }

    /// A workspace's processes in the order of their ids (their age), after a cursor.
    pub async fn list(
        &self,
        workspace_id: &str,
        after: Option<ProcessId>,
        limit: u32,
    ) -> Result<Vec<ProcessRow>> {
        let after = after.map_or(Uuid::nil(), |id| id.0);
        let rows: Vec<Head> = read!(&self.db, |c| {
            Ok(sqlx::query_as(
                "SELECT process_id, workspace_id, name, revision, created_at, updated_at FROM processes \
                 WHERE workspace_id = $1 AND process_id > $2 AND deleted_at IS NULL \
                 ORDER BY process_id LIMIT $3",
            )
            .bind(workspace_id)
            .bind(after)
            .bind(i64::from(limit))
            .fetch_all(c)
            .await?)
        })?;
        Ok(rows.into_iter().map(ProcessRow::from).collect())
    }

    /// The processes of all workspaces in the order of their ids, after a cursor.
    pub async fn heads(&self, after: Option<ProcessId>, limit: u32) -> Result<Vec<ProcessRow>> {
        let after = after.map_or(Uuid::nil(), |id| id.0);
        let rows: Vec<Head> = read!(&self.db, |c| {
            Ok(sqlx::query_as(
                "SELECT process_id, workspace_id, name, revision, created_at, updated_at FROM processes \
                 WHERE process_id > $1 AND deleted_at IS NULL ORDER BY process_id LIMIT $2",
            )
            .bind(after)
            .bind(i64::from(limit))
            .fetch_all(c)
            .await?)
        })?;
        Ok(rows.into_iter().map(ProcessRow::from).collect())
    }

    /// Deletes a process: a tombstone, so that its runs stay readable. False: unknown or deleted
    /// before.
    pub async fn delete(&self, process_id: ProcessId, at: Millis) -> Result<bool> {
        in_tx!(&self.db, |c| {
            let done = sqlx::query(
                "UPDATE processes SET deleted_at = $2, updated_at = $2 WHERE process_id = $1 AND deleted_at IS NULL",
            )
            .bind(process_id.0)
            .bind(at.0)
            .execute(&mut *c)
            .await?;
            if done.rows_affected() == 0 {
                return Ok(false);
            }
            sqlx::query("DELETE FROM process_node_types WHERE process_id = $1")
                .bind(process_id.0)
                .execute(&mut *c)
                .await?;
            Ok(true)
        })
    }

    /// The processes whose newest revision uses one of these node types, in every workspace.
    pub async fn using(&self, node_types: &[String]) -> Result<Vec<(ProcessId, String)>> {
        if node_types.is_empty() {
            return Ok(Vec::new());
        }
        let rows: Vec<(Uuid, String)> = read!(&self.db, |c| {
            let mut query = QueryBuilder::new(
                "SELECT process_id, name FROM processes WHERE deleted_at IS NULL AND process_id IN \
                 (SELECT process_id FROM process_node_types WHERE node_type IN (",
            );
            let mut list = query.separated(", ");
            for node_type in node_types {
                list.push_bind(node_type);
            }
            query.push(")) ORDER BY process_id");
            Ok(query.build_query_as().persistent(false).fetch_all(c).await?)
        })?;
        Ok(rows.into_iter().map(|(id, name)| (ProcessId(id), name)).collect())
    }

    /// Like [`Processes::using`], with the documents: at most `limit` in the order of their ids, after a
    /// cursor.
    pub async fn documents_using(
        &self,
        node_types: &[String],
        after: Option<ProcessId>,
        limit: u32,
    ) -> Result<Vec<StoredProcess>> {
        if node_types.is_empty() {
            return Ok(Vec::new());
        }
        let rows: Vec<Full> = read!(&self.db, |c| {
            let mut query = QueryBuilder::new(
                "SELECT p.process_id, p.workspace_id, p.name, p.revision, p.created_at, p.updated_at, r.document \
                 FROM processes p JOIN process_revisions r ON r.process_id = p.process_id AND r.revision = p.revision \
                 WHERE p.deleted_at IS NULL AND p.process_id > ",
            );
            query.push_bind(after.map_or(Uuid::nil(), |id| id.0));
            query
                .push(" AND p.process_id IN (SELECT process_id FROM process_node_types WHERE node_type IN (");
            let mut list = query.separated(", ");
            for node_type in node_types {
                list.push_bind(node_type);
            }
            query.push(")) ORDER BY p.process_id LIMIT ").push_bind(i64::from(limit));
            Ok(query.build_query_as().persistent(false).fetch_all(c).await?)
        })?;
        rows.into_iter().map(Full::into_stored).collect()
    }
}
