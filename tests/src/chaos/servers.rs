//! PostgreSQL with a standby behind one address, and Redis: what breaks below the services.

use super::Forwarder;
use std::{sync::Arc, time::Duration};
use testkit::{Clock, Error, Postgres, PostgresSettings, Redis};

/// A primary, a standby that every commit waits for, and the address that leads to the primary.
#[derive(Debug)]
pub struct Database {
    primary: Postgres,
    standby: Postgres,
    address: Forwarder,
    clock: Arc<Clock>,
}

impl Database {
    /// Starts both.
    ///
    /// # Errors
    /// If PostgreSQL does not start.
    pub async fn start() -> Result<Self, Error> {
        let clock = Arc::new(Clock::new()?);
        let settings = PostgresSettings { clock: Some(Arc::clone(&clock)), ..PostgresSettings::default() };
        let primary = Postgres::start_with(settings).await?;
        let standby = primary.start_standby().await?;
        let address = Forwarder::start(0, vec![primary.port()]).await;
        Ok(Self { primary, standby, address, clock })
    }

    /// The clock of all its servers.
    pub fn clock(&self) -> Arc<Clock> {
        Arc::clone(&self.clock)
    }

    /// `postgres://…`, the same over all failovers.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.address.port())
    }

    /// Runs one statement on the primary: the lines that come back.
    ///
    /// # Errors
    /// What `psql` says.
    pub async fn sql(&self, statement: &str) -> Result<String, Error> {
        self.primary.sql(statement).await
    }

    /// Stops the primary in order and starts it again.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.primary.restart().await
    }

    /// Kills the primary; it is back after this time.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn kill(&mut self, away: Duration) -> Result<(), Error> {
        self.primary.kill().await?;
        tokio::time::sleep(away).await;
        self.primary.restart().await
    }

    /// Kills the primary for good, leads all connections to the standby, which is still read-only
    /// for a while, promotes it, and makes a new standby of it.
    ///
    /// # Errors
    /// If the standby is not promoted, or the new one does not start.
    pub async fn fail_over(&mut self, read_only: Duration) -> Result<(), Error> {
        self.primary.kill().await?;
        self.address.switch(vec![self.standby.port()]);
        tokio::time::sleep(read_only).await;
        self.standby.promote().await?;
        let next = self.standby.start_standby().await?;
        self.primary = std::mem::replace(&mut self.standby, next);
        Ok(())
    }
}

/// Kills Redis; it is back, empty, after this time.
///
/// # Errors
/// If it does not start.
pub async fn kill_queue(redis: &mut Redis, away: Duration) -> Result<(), Error> {
    redis.kill().await?;
    tokio::time::sleep(away).await;
    redis.restart().await
}
