//! Files that only their owner reads: credentials and keys that a first start makes.

use std::{
    fs::{self, OpenOptions},
    hash::{BuildHasher, RandomState},
    io::{self, ErrorKind, Write},
    path::Path,
};

/// Makes the file with this text and a line end, readable by its owner only. A file that is there
/// already stays as it is: of several processes that start at once one makes it, and the others find it
/// whole.
///
/// # Errors
/// What the file system says.
pub fn make_private_file(path: &Path, text: &str) -> io::Result<()> {
    // Written whole under another name and then linked: who comes second finds a whole file.
    let random = RandomState::new().hash_one(path);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{random:016x}.new"));
    let draft = path.with_file_name(name);
    let linked = write_new(&draft, text).and_then(|()| fs::hard_link(&draft, path));
    let removed = fs::remove_file(&draft);
    match linked {
        Ok(()) => removed,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_made_once_whole_and_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::thread::scope(|scope| {
            for maker in 0..8 {
                let path = &path;
                scope.spawn(move || make_private_file(path, &maker.to_string().repeat(9)).unwrap());
            }
        });
        let made = fs::read_to_string(&path).unwrap();
        assert!(made.len() == 10 && made.ends_with('\n'), "{made:?}");
        make_private_file(&path, "another").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), made);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn folder_that_is_not_there_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(make_private_file(&folder.path().join("none/key"), "x").is_err());
    }
}
