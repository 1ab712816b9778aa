//! The database's clock, read now and then and carried on by this machine's monotonic one.

use contract::Millis;
use parking_lot::Mutex;
use std::time::Instant;
use storage::Storage;

/// All times of events and deadlines are by the database's clock, so that engines on machines whose
/// clocks differ agree. Asking it for each decision would cost a round trip.
#[derive(Debug)]
pub(crate) struct Clock {
    storage: Storage,
    anchor: Mutex<Anchor>,
}

#[derive(Clone, Copy, Debug)]
struct Anchor {
    at: Instant,
    database: Millis,
}

impl Clock {
    /// Reads the database's clock.
    pub(crate) async fn start(storage: Storage) -> Result<Self, storage::Error> {
        let anchor = Mutex::new(read(&storage).await?);
        Ok(Self { storage, anchor })
    }

    /// Now, by the database's clock.
    pub(crate) fn now(&self) -> Millis {
        let anchor = *self.anchor.lock();
        anchor.database.plus(anchor.at.elapsed())
    }

    /// Reads the database's clock again: two clocks drift.
    pub(crate) async fn refresh(&self) -> Result<(), storage::Error> {
        let anchor = read(&self.storage).await?;
        *self.anchor.lock() = anchor;
        Ok(())
    }
}

/// The reading lies somewhere between question and answer: the middle halves the error.
async fn read(storage: &Storage) -> Result<Anchor, storage::Error> {
    let asked = Instant::now();
    let database = storage.now().await?;
    Ok(Anchor { at: asked + asked.elapsed() / 2, database })
}
