//! The only place with SQL: SQLite and PostgreSQL behind one interface (`docs/protocol.md`,
//! sections 2, 3, 5, 6 and 8 say what is kept).
//!
//! Each owner has its handle: [`Catalogue`] (plugin-manager writes; control plane and engine read),
//! [`Processes`] and [`Users`] (api), [`Runs`] (engine), [`Secrets`] (secret-manager), [`Blobs`]
//! (file-service). Handles are cheap clones. They are no traits: one SQL text serves both databases,
//! so a trait would have a single implementor; the dialect is a `match` inside.
//!
//! What this crate promises:
//! - an answer means stored: SQLite runs with `synchronous=FULL`, PostgreSQL with its own default;
//! - times are [`contract::Millis`]; where "now" decides (deadlines) it is the database's clock;
//! - payloads are raw JSON text and come back byte by byte;
//! - deadlocks and serialisation failures are repeated inside; a broken or read-only connection is
//!   dropped and the call fails with [`Error::Unavailable`].
//!
//! What it never does: hold a lock or a transaction between two calls, interpret a payload, or show
//! the URL's password.

mod blobs;
pub mod catalogue;
mod clock;
mod db;
mod error;
mod migrate;
mod open;
pub mod processes;
mod rows;
mod run_files;
pub mod runs;
mod secrets;
pub mod users;

pub use blobs::{BlobRow, Blobs};
pub use catalogue::Catalogue;
pub use clock::{Clock, ClockStep};
pub use error::{Error, Result};
pub use processes::Processes;
pub use run_files::OrphanedFile;
pub use runs::Runs;
pub use secrets::Secrets;
pub use users::Users;

use contract::Millis;
use db::Db;
use secrecy::{ExposeSecret, SecretString};

/// Where the database is.
#[derive(Clone, Debug)]
pub struct StorageSettings {
    /// `postgres://user:password@host/name` or `sqlite://path/of/file`.
    pub url: SecretString,
    /// The most connections of this process (PostgreSQL) or readers (SQLite, at most 8; there is
    /// always exactly one writer).
    pub max_connections: u32,
}

impl StorageSettings {
    /// Judges a URL, before anybody is connected to.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] with what is wrong; never the password.
    pub fn check(url: &SecretString) -> Result<(), Error> {
        open::check(url.expose_secret())
    }
}

/// An open database. Cloning shares its connections.
#[derive(Clone, Debug)]
pub struct Storage {
    db: Db,
}

impl Storage {
    /// Opens the database and brings its tables to this version. An SQLite file is created; a
    /// PostgreSQL database must exist. Safe when any number of processes start at the same time.
    pub async fn open(settings: &StorageSettings) -> Result<Self> {
        let db = open::open(settings.url.expose_secret(), settings.max_connections).await?;
        Ok(Self { db })
    }

    /// Plugins, publications, endpoints, health, enablement, pins.
    pub fn catalogue(&self) -> Catalogue {
        Catalogue { db: self.db.clone() }
    }

    /// Process documents and their revisions.
    pub fn processes(&self) -> Processes {
        Processes { db: self.db.clone() }
    }

    /// Runs, their events and their attempts.
    pub fn runs(&self) -> Runs {
        Runs { db: self.db.clone() }
    }

    /// Sealed secrets.
    pub fn secrets(&self) -> Secrets {
        Secrets { db: self.db.clone() }
    }

    /// The index of files.
    pub fn blobs(&self) -> Blobs {
        Blobs { db: self.db.clone() }
    }

    /// Users and API tokens.
    pub fn users(&self) -> Users {
        Users { db: self.db.clone() }
    }

    /// The time by the database's clock.
    pub async fn now(&self) -> Result<Millis> {
        self.db.now().await
    }

    /// Does the database answer?
    pub async fn ping(&self) -> Result<()> {
        self.db.ping().await
    }

    /// Is the database a server that several processes share (PostgreSQL)?
    pub fn is_shared(&self) -> bool {
        self.db.is_shared()
    }

    /// Closes all connections after the calls that run; later calls fail with
    /// [`Error::Unavailable`].
    pub async fn close(&self) {
        self.db.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{Digest, ProcessId, RunId, catalogue::Health, manifest::Endpoint};
    use std::time::Duration;

    fn send<T: Send>(_: T) {}

    /// Compiles or not: the futures of all calls can be given to any thread.
    #[tokio::test]
    async fn every_call_can_be_spawned() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/a.db", folder.path().display());
        let settings = StorageSettings { url: url.into(), max_connections: 1 };
        send(Storage::open(&settings));
        let storage = Storage::open(&settings).await.unwrap();
        let (id, at, digest) = (uuid::Uuid::nil(), Millis(0), Digest([0; 32]));
        send((storage.now(), storage.ping(), storage.close()));
        let clock = Clock::new(storage.clone());
        send((clock.refresh(), clock.watch()));

        let catalogue = storage.catalogue();
        send((catalogue.snapshot(), catalogue.revision(), catalogue.remove("p", at)));
        send(catalogue.publication(catalogue::PublicationKey::Newest("p")));
        send((catalogue.set_enabled("w", None, "p", true, at), catalogue.set_quarantined("p", true)));
        send((catalogue.pin("w", "p", "1"), catalogue.unpin("w", "p")));
        send((
            catalogue.set_endpoint("p", &Endpoint::default()),
            catalogue.record_health("p", &Health::default()),
        ));
        send(|new: &'static catalogue::NewPublication| send(storage.catalogue().commit(new)));

        let processes = storage.processes();
        send((processes.get(ProcessId(id)), processes.revision(ProcessId(id), 1), processes.using(&[])));
        send((processes.list("w", None, 1), processes.delete(ProcessId(id), at)));

        let runs = storage.runs();
        send((runs.append(&[]), runs.load(RunId(id)), runs.get(RunId(id)), runs.events(RunId(id), 0, 1, 1)));
        send((
            runs.run_of(&[]),
            runs.claim_dispatch(&[], Duration::ZERO),
            runs.take_due(1, Duration::ZERO, false, at),
        ));
        send((runs.outstanding(RunId(id)), runs.outstanding_count(), runs.list_outstanding(1)));
        send(runs.list(&runs::RunFilter::default(), None, 1));

        let (secrets, blobs, users) = (storage.secrets(), storage.blobs(), storage.users());
        send((secrets.put("w", "n", None, b"", at), secrets.get_many("w", &[]), secrets.delete("w", "n")));
        send((secrets.list("w"), blobs.get("f"), blobs.delete("f")));
        send((users.ensure_user("u", at), users.find_token(&digest), users.revoke(&digest, at)));
    }
}
