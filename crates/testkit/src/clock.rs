//! A wall clock that a test can step while programs run by it.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::Error;

/// Where Debian's package `faketime` puts its libraries: `/usr/lib/<architecture>/faketime`.
const LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
/// What this clock is read from, beside the draft of its next reading.
const FILE: &str = "offset";

/// The wall clock of the programs that are started with it ([`crate::Program::clock`]): the machine's
/// own, some seconds off. It steps at once in all of them; monotonic time and waits are not touched,
/// as when an operator or NTP sets the clock of a machine.
#[derive(Debug)]
pub struct Clock {
    library: PathBuf,
    folder: TempDir,
}

impl Clock {
    /// A clock that goes right.
    ///
    /// # Errors
    /// [`Error::Missing`] without the system's package `faketime`, [`Error::Io`].
    pub fn new() -> Result<Self, Error> {
        let library = library()?;
        let folder = tempfile::Builder::new().prefix("testkit-clock-").tempdir();
        let clock = Self { library, folder: folder.map_err(Error::io("make a temporary folder"))? };
        // Servers that run under another account read it too.
        set_readable(&clock.folder)?;
        clock.step(0)?;
        Ok(clock)
    }

    /// Sets it so many seconds off the machine's clock.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn step(&self, offset_seconds: i64) -> Result<(), Error> {
        // By renaming: a reader finds the reading before or this one, never half of it.
        let draft = self.folder.path().join("draft");
        fs::write(&draft, format!("{offset_seconds:+}\n"))
            .and_then(|()| fs::rename(&draft, self.file()))
            .map_err(Error::io("set a clock"))
    }

    /// Removes what the library leaves behind of a process that was killed.
    pub(crate) fn clear(pid: u32) {
        for name in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
            // A process that ended by itself has removed it.
            let _ = fs::remove_file(PathBuf::from("/dev/shm").join(name));
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join(FILE)
    }

    /// What a program must find in its environment.
    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 4] {
        [
            ("LD_PRELOAD", self.library.clone()),
            ("FAKETIME_TIMESTAMP_FILE", self.file()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }
}

fn set_readable(folder: &TempDir) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;
    let all = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), all).map_err(Error::io("open the folder of a clock to all"))
}

fn library() -> Result<PathBuf, Error> {
    let folders = fs::read_dir(LIBRARIES).into_iter().flatten().flatten();
    folders
        .map(|folder| folder.path().join(LIBRARY))
        .find(|library| library.exists())
        .ok_or_else(|| Error::Missing(format!("no {LIBRARY} in {LIBRARIES}; install the package faketime")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Program, Stream};
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    const LIMIT: Duration = Duration::from_secs(60);

    /// Seconds by the clock of this test.
    fn now() -> i64 {
        i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
    }

    #[tokio::test]
    async fn a_step_is_seen_by_a_program_that_runs() {
        let clock = Clock::new().unwrap();
        // It tells the time whenever a line comes in.
        let script = "date +%s; read _ < \"$STEPPED\"; date +%s";
        let fifo = tempfile::tempdir().unwrap();
        let stepped = fifo.path().join("stepped");
        assert!(Program::new("mkfifo").arg(&stepped).spawn().unwrap().wait(LIMIT).await.unwrap().success());
        let shell = Program::new("sh").args(["-c", script]).env("STEPPED", &stepped).clock(&clock);
        let shell = shell.spawn().unwrap();
        shell.wait_for_line("", LIMIT).await.unwrap();
        clock.step(-3600).unwrap();
        tokio::task::spawn_blocking(move || fs::write(stepped, "now\n")).await.unwrap().unwrap();
        assert!(shell.wait(LIMIT).await.unwrap().success());
        let text = shell.text(Stream::Stdout);
        let told: Vec<i64> = text.lines().map(|line| line.parse().unwrap()).collect();
        let off = told.iter().map(|told| told - now()).collect::<Vec<_>>();
        assert!((-60..=0).contains(&off[0]) && (-3660..=-3600).contains(&off[1]), "{off:?}");
    }
}
