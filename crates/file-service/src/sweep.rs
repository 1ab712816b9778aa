//! Clears the files of runs that are gone: retention deletes runs and knows nothing of files.

use crate::{SweepSettings, disk::Disk};
use std::time::Duration;
use storage::{OrphanedFile, Storage};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Owners that are read at once.
const BATCH: u32 = 200;

/// Looks for orphaned files now and then, until `stop`.
pub(crate) async fn run(storage: Storage, disk: Disk, settings: SweepSettings, stop: CancellationToken) {
    let mut ticks = interval(settings.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if let Err(error) = once(&storage, &disk, settings.grace, &stop).await {
            tracing::warn!(
                event = "files_unswept",
                "files of runs that are gone could not be removed: {error}"
            );
        }
    }
}

/// Why a sweep ended early.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Index(#[from] storage::Error),
    #[error("file {file_id} cannot be removed: {source}")]
    Disk { file_id: String, source: std::io::Error },
}

async fn once(
    storage: &Storage,
    disk: &Disk,
    grace: Duration,
    stop: &CancellationToken,
) -> Result<(), Failed> {
    let grace = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
    let before = contract::Millis(storage.now().await?.0.saturating_sub(grace));
    while !stop.is_cancelled() {
        let orphaned = storage.blobs().orphaned(before, BATCH).await?;
        let was_last = orphaned.len() < BATCH as usize;
        for file in &orphaned {
            clear(storage, disk, file).await?;
        }
        if !orphaned.is_empty() {
            tracing::info!(
                event = "run_files_removed",
                files = orphaned.len(),
                "files of runs that are gone were removed"
            );
        }
        if was_last {
            return Ok(());
        }
    }
    Ok(())
}

/// The owner goes last: a sweep that breaks off begins again where it was.
async fn clear(storage: &Storage, disk: &Disk, file: &OrphanedFile) -> Result<(), Failed> {
    let OrphanedFile { run_id, file_id, is_shared } = file;
    if !is_shared {
        storage.blobs().delete(file_id).await?;
        if let Ok(id) = Uuid::parse_str(file_id) {
            let removed = disk.remove(id).await;
            removed.map_err(|source| Failed::Disk { file_id: file_id.clone(), source })?;
        }
    }
    Ok(storage.blobs().disown(*run_id, file_id).await?)
}
