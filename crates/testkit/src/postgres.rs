//! A PostgreSQL server from the system's packages.

mod replication;

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use crate::{Clock, Error, Process, Program, Signal, free_port};

/// How long starting and stopping may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// Of a primary (`… connections`) and of a standby (`… read-only connections`).
const READY: &str = "database system is ready to accept";

/// How to run the server.
#[derive(Clone, Debug, Default)]
pub struct PostgresSettings {
    /// Write through to the disk, as in production. Off (the default) is much faster and loses
    /// data only when the machine dies, not when the server is killed.
    pub durable: bool,
    /// More settings, `name=value` as in `postgresql.conf`.
    pub extra: Vec<String>,
    /// The server's wall clock, and that of its standbys; without it the machine's.
    pub clock: Option<Arc<Clock>>,
}

/// A running (or stopped) server with data of its own; gone when it is dropped.
#[derive(Debug)]
pub struct Postgres {
    // Before the folder: the server ends before its files go.
    process: Option<Process>,
    port: u16,
    settings: PostgresSettings,
    account: Option<Account>,
    binaries: PathBuf,
    folder: TempDir,
}

impl Postgres {
    /// Makes a new database cluster and starts a server on it, with fsync off.
    ///
    /// # Errors
    /// If PostgreSQL is not installed or does not start; the message has its output.
    pub async fn start() -> Result<Self, Error> {
        Self::start_with(PostgresSettings::default()).await
    }

    /// Like [`Postgres::start`], with settings.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub async fn start_with(settings: PostgresSettings) -> Result<Self, Error> {
        let binaries = binaries()?;
        let folder = tempfile::Builder::new().prefix("testkit-postgres-").tempdir();
        let folder = folder.map_err(Error::io("make a temporary folder"))?;
        let account = Account::if_root(folder.path())?;
        let mut server = Self { process: None, port: 0, settings, account, binaries, folder };
        server.initialise().await?;
        for attempt in 1.. {
            server.port = free_port()?;
            match server.launch().await {
                Err(error) if error.is_port_taken() && attempt < 5 => {}
                outcome => return outcome.map(|()| server),
            }
        }
        unreachable!("the loop ends with its fifth attempt")
    }

    /// `postgres://…` of the server's own database; see [`crate::fresh_database`].
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// The port; it stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops the server in order; connections are closed. Does nothing if it is not running.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it does not end.
    pub async fn stop(&mut self) -> Result<(), Error> {
        if let Some(process) = self.process.take() {
            process.signal(Signal::INT);
            process.wait(LIMIT).await?;
        }
        Ok(())
    }

    /// Kills the server and its backends at once, as a crash of the machine does (what was not
    /// synced to the disk survives in the system's cache). Does nothing if it is not running.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it does not end.
    pub async fn kill(&mut self) -> Result<(), Error> {
        if let Some(process) = self.process.take() {
            process.kill_tree().await?;
        }
        Ok(())
    }

    /// Starts the server again on the same port and data, after stopping it if it runs.
    ///
    /// # Errors
    /// If it does not stop or start.
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.stop().await?;
        self.launch().await
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn program(&self, name: &str) -> Program {
        let program =
            Program::new(self.binaries.join(name)).current_dir(self.folder.path()).env("LC_ALL", "C");
        match &self.account {
            Some(account) => program.user(account.user, account.group),
            None => program,
        }
    }

    async fn initialise(&self) -> Result<(), Error> {
        let initdb = self
            .program("initdb")
            .args([
                "--username=postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
                "--pgdata",
            ])
            .arg(self.data())
            .spawn()?;
        let status = initdb.wait(LIMIT).await?;
        if status.success() { Ok(()) } else { Err(initdb.failed("the database cluster was made")) }
    }

    async fn launch(&mut self) -> Result<(), Error> {
        let on_off = if self.settings.durable { "on" } else { "off" };
        let settings = [
            format!("port={}", self.port),
            "listen_addresses=127.0.0.1".into(),
            "unix_socket_directories=".into(),
            "max_connections=200".into(),
            // In the data folder, so that a killed server leaves nothing in /dev/shm.
            "dynamic_shared_memory_type=mmap".into(),
            format!("fsync={on_off}"),
            format!("full_page_writes={on_off}"),
        ];
        let mut program = self.program("postgres").arg("-D").arg(self.data()).end_with(Signal::QUIT);
        for setting in settings.iter().chain(&self.settings.extra) {
            program = program.arg("-c").arg(setting);
        }
        if let Some(clock) = &self.settings.clock {
            program = program.clock(clock);
        }
        let process = program.log_file(self.folder.path().join("log")).spawn()?;
        process.wait_for_line(READY, LIMIT).await?;
        self.process = Some(process);
        Ok(())
    }
}

/// The user under whom the server runs, because it refuses to run as root.
#[derive(Debug)]
struct Account {
    user: u32,
    group: u32,
}

impl Account {
    /// The account `postgres` if we are root; it becomes the owner of `folder`, which is ours.
    fn if_root(folder: &Path) -> Result<Option<Self>, Error> {
        let owner = fs::metadata(folder).map_err(Error::io("look at the temporary folder"))?.uid();
        if owner != 0 {
            return Ok(None);
        }
        let accounts = fs::read_to_string("/etc/passwd").map_err(Error::io("read /etc/passwd"))?;
        let account = accounts.lines().find_map(Self::parse).ok_or_else(|| {
            Error::Missing(
                "PostgreSQL refuses to run as root, and there is no user `postgres` to run it as".into(),
            )
        })?;
        chown(folder, Some(account.user), Some(account.group))
            .map_err(Error::io("give the temporary folder to the user postgres"))?;
        Ok(Some(account))
    }

    /// From a line of `/etc/passwd`, if it is that of `postgres`.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.strip_prefix("postgres:")?.split(':').skip(1);
        Some(Self { user: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
    }
}

/// The folder with the programs of the newest installed version.
pub(crate) fn binaries() -> Result<PathBuf, Error> {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |folder: &PathBuf| folder.file_name()?.to_str()?.parse::<u32>().ok();
    installed
        .map(|entry| entry.path())
        .filter(|folder| folder.join("bin/postgres").exists())
        .max_by_key(version)
        .map(|folder| folder.join("bin"))
        .ok_or_else(|| {
            Error::Missing("no PostgreSQL in /usr/lib/postgresql; install the package postgresql".into())
        })
}
