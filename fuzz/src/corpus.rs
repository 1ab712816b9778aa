//! Files: seeds and findings.

use crate::Target;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The folder of this crate in the tree that it was built from.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All seeds of a target, in the order of their names.
///
/// # Errors
/// If the folder or a file in it cannot be read.
pub fn seeds(target: &Target) -> io::Result<Vec<Vec<u8>>> {
    let folder = root().join("corpus").join(target.name);
    let mut paths =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    paths.sort_unstable();
    paths.iter().map(fs::read).collect()
}

/// Keeps an input that broke a rule and tells where.
///
/// # Errors
/// If it cannot be written.
pub fn keep_finding(target: &Target, input: &[u8]) -> io::Result<PathBuf> {
    let folder = root().join("findings").join(target.name);
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{:016x}", crate::mutate::fingerprint(input)));
    fs::write(&path, input)?;
    Ok(path)
}
