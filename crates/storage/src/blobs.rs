//! The index of the files that file-service holds; the bytes are elsewhere.

use crate::{
    db::{Db, read, write},
    error::Result,
    rows,
};
use contract::{Digest, Millis};
use sqlx::FromRow;

/// The index of files.
#[derive(Clone, Debug)]
pub struct Blobs {
    pub(crate) db: Db,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobRow {
    /// Its id.
    pub file_id: String,
    /// The workspace that owns it.
    pub workspace_id: String,
    /// What people call it.
    pub name: String,
    /// Its media type.
    pub media_type: String,
    /// Bytes.
    pub size: u64,
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// When it was stored.
    pub created_at: Millis,
}

const GET: &str =
    "SELECT workspace_id, name, media_type, size, digest, created_at FROM blobs WHERE file_id = $1";

/// What is read of an entry beside its id.
#[derive(FromRow)]
pub(crate) struct Row {
    workspace_id: String,
    name: String,
    media_type: String,
    size: i64,
    digest: Vec<u8>,
    created_at: i64,
}

impl Row {
    pub(crate) fn entry(self, file_id: &str) -> Result<BlobRow> {
        let what = || format!("file {file_id}");
        Ok(BlobRow {
            file_id: file_id.to_owned(),
            size: rows::unsigned(self.size, what())?,
            digest: rows::digest(&self.digest, what())?,
            workspace_id: self.workspace_id,
            name: self.name,
            media_type: self.media_type,
            created_at: Millis(self.created_at),
        })
    }
}

impl Blobs {
    /// Stores a file's entry, in place of an older one with its id.
    pub async fn put(&self, blob: &BlobRow) -> Result<()> {
        let size = rows::signed(blob.size, "the file's size")?;
        write!(&self.db, |c| {
            sqlx::query(
                "INSERT INTO blobs (file_id, workspace_id, name, media_type, size, digest, created_at) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (file_id) DO UPDATE \
                 SET workspace_id = excluded.workspace_id, name = excluded.name, \
                     media_type = excluded.media_type, size = excluded.size, digest = excluded.digest, \
                     created_at = excluded.created_at",
            )
            .bind(&blob.file_id)
            .bind(&blob.workspace_id)
            .bind(&blob.name)
            .bind(&blob.media_type)
            .bind(size)
            .bind(blob.digest.0.as_slice())
            .bind(blob.created_at.0)
            .execute(c)
            .await?;
            Ok(())
        })
    }

    /// The entry of a file.
    pub async fn get(&self, file_id: &str) -> Result<Option<BlobRow>> {
        let row: Option<Row> =
            read!(&self.db, |c| Ok(sqlx::query_as(GET).bind(file_id).fetch_optional(c).await?))?;
        row.map(|row| row.entry(file_id)).transpose()
    }

    /// Deletes a file's entry; false: there was none.
    pub async fn delete(&self, file_id: &str) -> Result<bool> {
        write!(&self.db, |c| {
            let done = sqlx::query("DELETE FROM blobs WHERE file_id = $1").bind(file_id).execute(c).await?;
            Ok(done.rows_affected() > 0)
        })
    }
}
