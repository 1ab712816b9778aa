//! A standby that follows a server, and its promotion: what a failover is made of.

use tempfile::TempDir;

use super::{Account, LIMIT, Postgres};
use crate::{Error, free_port};

/// The name under which a standby is waited for by `synchronous_standby_names`.
const STANDBY: &str = "standby";

impl Postgres {
    /// Copies this server into a standby that follows it, and lets every commit here wait for the
    /// standby from then on: after a failover nothing that was answered is missing.
    ///
    /// # Errors
    /// If the copy cannot be made or the standby does not start; the message has the output.
    pub async fn start_standby(&self) -> Result<Self, Error> {
        let folder: TempDir = tempfile::Builder::new()
            .prefix("testkit-postgres-")
            .tempdir()
            .map_err(Error::io("make a temporary folder"))?;
        let account = Account::if_root(folder.path())?;
        let mut settings = self.settings.clone();
        // A primary that was away for a moment is found again at once.
        settings.extra.push("wal_retrieve_retry_interval=100ms".into());
        let mut standby =
            Self { process: None, port: 0, settings, account, binaries: self.binaries.clone(), folder };
        let from = format!("host=127.0.0.1 port={} user=postgres application_name={STANDBY}", self.port);
        let copy = standby
            .program("pg_basebackup")
            .args(["--checkpoint=fast", "--no-sync", "--wal-method=stream", "--write-recovery-conf"])
            .args(["--dbname", &from])
            .arg("--pgdata")
            .arg(standby.data())
            .spawn()?;
        if !copy.wait(LIMIT).await?.success() {
            return Err(copy.failed("the standby was copied"));
        }
        standby.port = free_port()?;
        standby.launch().await?;
        // The copy has this from a server that was a standby's primary itself.
        self.sql(&format!("alter system set synchronous_standby_names = '{STANDBY}'")).await?;
        self.sql("select pg_reload_conf()").await?;
        Ok(standby)
    }

    /// Makes a primary of a standby, with no standby of its own.
    ///
    /// # Errors
    /// If the server cannot be reached or is no standby.
    pub async fn promote(&self) -> Result<(), Error> {
        self.sql("select pg_promote()").await?;
        self.sql("alter system reset synchronous_standby_names").await?;
        self.sql("select pg_reload_conf()").await?;
        Ok(())
    }

    /// Runs one statement in the server's own database: what `psql` prints, unaligned.
    ///
    /// # Errors
    /// What `psql` says.
    pub async fn sql(&self, statement: &str) -> Result<String, Error> {
        let psql = self
            .program("psql")
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"])
            .args(["--dbname", &self.url(), "--command", statement])
            .spawn()?;
        if !psql.wait(LIMIT).await?.success() {
            return Err(psql.failed("the statement was run"));
        }
        psql.output_end().await;
        Ok(psql.text(crate::Stream::Stdout))
    }
}
