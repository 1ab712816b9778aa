//! A run's events, page by page: a history may be larger than what an engine has room for.

use super::{
    Runs,
    read::{GET, Row, RunRow},
};
use crate::{
    db::read,
    error::{Error, Result},
    rows,
};
use contract::{Json, Millis, RunId};

/// Events of a page of a history that is read to its end, at most.
const PAGE_EVENTS: u32 = 1_000;

/// Bytes of their bodies, at most; one event may be larger.
const PAGE_BYTES: u32 = 4 * 1024 * 1024;

/// One event of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its place in the run, from 1 without gaps.
    pub sequence: u64,
    /// When it was appended.
    pub at: Millis,
    /// Its kind.
    pub kind: String,
    /// Its body, raw.
    pub body: Json,
}

/// A run with all its events up to [`RunRow::sequence`].
#[derive(Clone, Debug)]
pub struct StoredRun {
    /// The run.
    pub run: RunRow,
    /// Its events in order.
    pub events: Vec<StoredEvent>,
}

/// A run whose events are read one page after the other, up to [`RunRow::sequence`]: what is held at
/// a time is bounded, however long the run is.
#[derive(Debug)]
pub struct History {
    runs: Runs,
    run: RunRow,
    /// The last event that was given out.
    read: u64,
    /// The first page, which came with the row.
    first: Vec<Event>,
}

/// What comes next of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// At least one event.
    Events(Vec<StoredEvent>),
    /// All were read.
    End,
    /// The run was deleted meanwhile.
    Gone,
}

type Event = (i64, i64, String, String);

/// The sizes are known without reading the bodies, so that what is beyond a page costs little.
const EVENTS: &str = "\
    SELECT sequence, at, kind, body FROM ( \
      SELECT sequence, at, kind, body, \
             SUM(octet_length(body)) OVER (ORDER BY sequence ROWS UNBOUNDED PRECEDING) AS total \
      FROM (SELECT sequence, at, kind, body FROM run_events \
            WHERE run_id = $1 AND sequence > $2 ORDER BY sequence LIMIT $3) AS page) AS sized \
    WHERE total <= $4 OR sequence = $2 + 1 ORDER BY sequence";

/// Reads at most `limit` events after a sequence number, of at most so many bytes, but one in any case.
macro_rules! page {
    ($c:expr, $run_id:expr, $after:expr, $limit:expr, $bytes:expr) => {
        sqlx::query_as(EVENTS).bind($run_id.0).bind($after).bind($limit).bind(i64::from($bytes)).fetch_all($c)
    };
}

/// How many events the next page holds at most: sequence numbers have no gaps, so the row's cuts off
/// what came after it.
fn next_events(read: i64, last: i64) -> i64 {
    last.saturating_sub(read).min(i64::from(PAGE_EVENTS))
}

fn event(run_id: RunId, (sequence, at, kind, body): Event) -> Result<StoredEvent> {
    let what = || format!("event {sequence} of run {run_id}");
    Ok(StoredEvent {
        sequence: rows::unsigned(sequence, what())?,
        at: Millis(at),
        kind,
        body: Json::parse(body).map_err(|error| Error::corrupt(what(), &error))?,
    })
}

impl Runs {
    /// A run and the way to its events.
    ///
    /// # Errors
    /// [`Error::Unavailable`], when the database does not answer.
    pub async fn history(&self, run_id: RunId) -> Result<Option<History>> {
        let found: Option<(Row, Vec<Event>)> = read!(&self.db, |c| {
            let row: Option<Row> = sqlx::query_as(GET).bind(run_id.0).fetch_optional(&mut *c).await?;
            let Some(row) = row else { return Ok(None) };
            let first = page!(&mut *c, run_id, 0_i64, next_events(0, row.sequence()), PAGE_BYTES).await?;
            Ok(Some((row, first)))
        })?;
        let Some((row, first)) = found else { return Ok(None) };
        Ok(Some(History { runs: self.clone(), run: RunRow::try_from(row)?, read: 0, first }))
    }

    /// A run with all its events, for those who know that there are few.
    ///
    /// # Errors
    /// As [`History::next`].
    pub async fn load(&self, run_id: RunId) -> Result<Option<StoredRun>> {
        let Some(mut history) = self.history(run_id).await? else { return Ok(None) };
        let mut events = Vec::new();
        loop {
            match history.next().await? {
                Page::Events(page) => events.extend(page),
                Page::End => return Ok(Some(StoredRun { run: history.run, events })),
                Page::Gone => return Ok(None),
            }
        }
    }

    /// At most `limit` events of a run after a sequence number, in order, of at most `max_bytes` in
    /// their bodies, but one in any case. Empty also for an unknown run.
    ///
    /// # Errors
    /// [`Error::Unavailable`], when the database does not answer.
    pub async fn events(
        &self,
        run_id: RunId,
        after: u64,
        limit: u32,
        max_bytes: u32,
    ) -> Result<Vec<StoredEvent>> {
        let after = rows::signed(after, "sequence")?;
        let found: Vec<Event> =
            read!(&self.db, |c| Ok(page!(c, run_id, after, i64::from(limit), max_bytes).await?))?;
        found.into_iter().map(|row| event(run_id, row)).collect()
    }
}

impl History {
    /// The run, as it was when the reading began.
    pub fn run(&self) -> &RunRow {
        &self.run
    }

    /// The next events.
    ///
    /// # Errors
    /// [`Error::Corrupt`], when the events do not lead to the run's sequence number without gaps;
    /// [`Error::Unavailable`], when the database does not answer.
    pub async fn next(&mut self) -> Result<Page> {
        if self.read == self.run.sequence {
            return Ok(Page::End);
        }
        let run_id = self.run.run_id;
        let mut found = std::mem::take(&mut self.first);
        if found.is_empty() {
            let (read, last) =
                (rows::signed(self.read, "sequence")?, rows::signed(self.run.sequence, "sequence")?);
            let limit = next_events(read, last);
            found = read!(&self.runs.db, |c| Ok(page!(c, run_id, read, limit, PAGE_BYTES).await?))?;
        }
        let events: Vec<_> = found.into_iter().map(|row| event(run_id, row)).collect::<Result<_>>()?;
        let gap = events.iter().zip(self.read + 1..).find(|(event, place)| event.sequence != *place);
        let fault = match (gap, events.last()) {
            (None, Some(last)) => {
                self.read = last.sequence;
                return Ok(Page::Events(events));
            }
            (Some((_, missing)), _) => format!("event {missing} is missing"),
            (None, None) => "its last events are missing".into(),
        };
        // Events of a run that was pruned meanwhile go after its row.
        match self.runs.get(run_id).await? {
            None => Ok(Page::Gone),
            Some(_) => Err(Error::corrupt(format!("run {run_id}"), &fault)),
        }
    }
}
