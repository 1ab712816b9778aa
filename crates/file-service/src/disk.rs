//! Bytes on the local disk: `<folder>/<two digits>/<file id>`, drafts in `<folder>/drafts`.

use contract::Digest;
use sha2::{Digest as _, Sha256};
use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};
use tokio::{
    fs::{self, File, OpenOptions},
    io::AsyncWriteExt,
};
use uuid::Uuid;

const DRAFTS: &str = "drafts";
/// A draft that is older was left behind by a crash: uploads are much shorter.
const STALE_DRAFT: Duration = Duration::from_secs(24 * 60 * 60);

/// The folder of the bytes.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    folder: PathBuf,
}

/// A file that is being written. It vanishes unless it is kept.
#[derive(Debug)]
pub(crate) struct Draft {
    file: File,
    path: Option<PathBuf>,
    hasher: Sha256,
    size: u64,
}

/// What a whole file is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) size: u64,
    pub(crate) digest: Digest,
}

impl Disk {
    /// Makes the folder where it is missing and removes drafts that a crash left behind.
    pub(crate) async fn open(folder: &Path) -> io::Result<Self> {
        let drafts = folder.join(DRAFTS);
        fs::create_dir_all(&drafts).await?;
        let mut entries = fs::read_dir(&drafts).await?;
        while let Some(entry) = entries.next_entry().await? {
            let changed = entry.metadata().await.and_then(|metadata| metadata.modified());
            let age = changed.ok().and_then(|changed| SystemTime::now().duration_since(changed).ok());
            if age.is_some_and(|age| age > STALE_DRAFT) {
                // Another replica on the same folder may have been faster.
                let _ = fs::remove_file(entry.path()).await;
            }
        }
        Ok(Self { folder: folder.to_owned() })
    }

    pub(crate) async fn draft(&self) -> io::Result<Draft> {
        let path = self.folder.join(DRAFTS).join(Uuid::now_v7().to_string());
        let file = OpenOptions::new().write(true).create_new(true).open(&path).await?;
        Ok(Draft { file, path: Some(path), hasher: Sha256::new(), size: 0 })
    }

    /// Makes the draft the file of this id; after this it survives a crash.
    pub(crate) async fn keep(&self, mut draft: Draft, id: Uuid) -> io::Result<Written> {
        draft.file.flush().await?;
        draft.file.sync_all().await?;
        let target = self.path(id);
        let shelf = target.parent().unwrap_or(&self.folder);
        fs::create_dir_all(shelf).await?;
        if let Some(path) = &draft.path {
            fs::rename(path, &target).await?;
        }
        draft.path = None;
        sync_folder(shelf).await?;
        sync_folder(&self.folder).await?;
        Ok(Written { size: draft.size, digest: Digest(draft.hasher.finalize_reset().into()) })
    }

    pub(crate) async fn read(&self, id: Uuid) -> io::Result<File> {
        File::open(self.path(id)).await
    }

    /// Removes the bytes; fine when there are none.
    pub(crate) async fn remove(&self, id: Uuid) -> io::Result<()> {
        match fs::remove_file(self.path(id)).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The last digits are random, the first ones are the time.
    fn path(&self, id: Uuid) -> PathBuf {
        let last = id.as_bytes()[15];
        self.folder.join(format!("{last:02x}")).join(id.to_string())
    }
}

impl Draft {
    pub(crate) async fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.hasher.update(chunk);
        self.size += chunk.len() as u64;
        self.file.write_all(chunk).await
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Of the bytes so far.
    pub(crate) fn digest(&self) -> Digest {
        Digest(self.hasher.clone().finalize().into())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            // What cannot be removed now is removed as stale at a later start.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Makes a rename durable. Only Unix knows how to sync a folder.
async fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(folder).await?.sync_all().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_kept_draft_is_a_file_and_a_dropped_one_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path()).await.unwrap();
        let id = Uuid::now_v7();
        let mut draft = disk.draft().await.unwrap();
        draft.write(b"ab").await.unwrap();
        draft.write(b"c").await.unwrap();
        let written = disk.keep(draft, id).await.unwrap();
        assert_eq!(written.size, 3);
        assert_eq!(
            written.digest.to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        drop(disk.draft().await.unwrap());
        assert_eq!(std::fs::read_dir(folder.path().join(DRAFTS)).unwrap().count(), 0);
        assert!(disk.read(id).await.is_ok());
        disk.remove(id).await.unwrap();
        disk.remove(id).await.unwrap();
        assert!(disk.read(id).await.is_err());
    }

    #[tokio::test]
    async fn fresh_drafts_of_others_stay_at_a_start() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path()).await.unwrap();
        let draft = disk.draft().await.unwrap();
        Disk::open(folder.path()).await.unwrap();
        disk.keep(draft, Uuid::now_v7()).await.unwrap();
    }
}
