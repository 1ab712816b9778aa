//! Files of runs: which run refers to which file of the index (protocol section 3, *Large outputs*).
//!
//! An owner is a row. Retention deletes runs and needs not know of files: whoever holds the bytes asks
//! for rows whose run is gone ([`Blobs::orphaned`]).

use crate::{
    Blobs,
    blobs::{BlobRow, Row},
    db::{in_tx, read, write},
    error::Result,
    rows,
};
use contract::{Millis, RunId};
use uuid::Uuid;

/// A file that belongs to a run that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanedFile {
    /// The run that was.
    pub run_id: RunId,
    /// The file.
    pub file_id: String,
    /// Does another run refer to it? Then only the owner goes, not the file.
    pub is_shared: bool,
}

const OF_RUN: &str = "\
    SELECT workspace_id, name, media_type, size, digest, created_at FROM blobs WHERE file_id = $1 \
    AND EXISTS (SELECT 1 FROM run_files f WHERE f.run_id = $2 AND f.file_id = $1)";
const OWN: &str = "\
    INSERT INTO run_files (run_id, file_id, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
const SHARE: &str = "\
    INSERT INTO run_files (run_id, file_id, created_at) \
    SELECT $1, file_id, $2 FROM run_files WHERE run_id = $3 ON CONFLICT DO NOTHING";
const ORPHANED: &str = "\
    SELECT f.run_id, f.file_id, \
           EXISTS (SELECT 1 FROM run_files o WHERE o.file_id = f.file_id AND o.run_id <> f.run_id) \
    FROM run_files f LEFT JOIN runs r ON r.run_id = f.run_id \
    WHERE r.run_id IS NULL AND f.created_at < $1 LIMIT $2";

impl Blobs {
    /// Stores a file's entry and makes the run an owner of it; what is there already stays.
    pub async fn put_of_run(&self, run_id: RunId, blob: &BlobRow) -> Result<()> {
        let size = rows::signed(blob.size, "the file's size")?;
        in_tx!(&self.db, |c| {
            sqlx::query(
                "INSERT INTO blobs (file_id, workspace_id, name, media_type, size, digest, created_at) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (file_id) DO NOTHING",
            )
            .bind(&blob.file_id)
            .bind(&blob.workspace_id)
            .bind(&blob.name)
            .bind(&blob.media_type)
            .bind(size)
            .bind(blob.digest.0.as_slice())
            .bind(blob.created_at.0)
            .execute(&mut *c)
            .await?;
            sqlx::query(OWN)
                .bind(run_id.0)
                .bind(&blob.file_id)
                .bind(blob.created_at.0)
                .execute(&mut *c)
                .await?;
            Ok(())
        })
    }

    /// The entry of a file, if the run owns it.
    pub async fn of_run(&self, run_id: RunId, file_id: &str) -> Result<Option<BlobRow>> {
        let row: Option<Row> = read!(&self.db, |c| {
            Ok(sqlx::query_as(OF_RUN).bind(file_id).bind(run_id.0).fetch_optional(c).await?)
        })?;
        row.map(|row| row.entry(file_id)).transpose()
    }

    /// Makes a run an owner of all files of another: of one whose outputs it keeps.
    pub async fn share(&self, from: RunId, to: RunId, at: Millis) -> Result<()> {
        write!(&self.db, |c| {
            sqlx::query(SHARE).bind(to.0).bind(at.0).bind(from.0).execute(c).await?;
            Ok(())
        })
    }

    /// At most `limit` owners whose run does not exist, of those from before a moment: a run that
    /// shares the files of another does so before it begins.
    pub async fn orphaned(&self, before: Millis, limit: u32) -> Result<Vec<OrphanedFile>> {
        let found: Vec<(Uuid, String, bool)> = read!(&self.db, |c| {
            Ok(sqlx::query_as(ORPHANED).bind(before.0).bind(i64::from(limit)).fetch_all(c).await?)
        })?;
        let orphan =
            |(run_id, file_id, is_shared)| OrphanedFile { run_id: RunId(run_id), file_id, is_shared };
        Ok(found.into_iter().map(orphan).collect())
    }

    /// The run owns the file no longer.
    pub async fn disown(&self, run_id: RunId, file_id: &str) -> Result<()> {
        write!(&self.db, |c| {
            sqlx::query("DELETE FROM run_files WHERE run_id = $1 AND file_id = $2")
                .bind(run_id.0)
                .bind(file_id)
                .execute(c)
                .await?;
            Ok(())
        })
    }
}
